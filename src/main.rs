//! The `edgecut` binary: everything is in the library's `cli`.

fn main() -> std::process::ExitCode {
    edgecut::cli::main()
}
