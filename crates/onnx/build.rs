//! Compiles `../../proto/onnx.proto`. protox parses it, so that no system protoc is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../../proto/onnx.proto");
    let files = protox::compile(["onnx.proto"], ["../../proto"])?;
    prost_build::Config::new().bytes(["."]).compile_fds(files)?;
    Ok(())
}
