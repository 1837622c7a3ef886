//! Compiles `../../proto/edgecut.proto` into the gRPC client and server. protox parses it, so that no system protoc
//! is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../../proto/edgecut.proto");
    let files = protox::compile(["edgecut.proto"], ["../../proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(files)?;
    Ok(())
}
