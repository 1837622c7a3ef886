//! The `edgecut` binary: everything is in the library's `cli`.

#[global_allocator]
static ALLOCATOR: edgecut::engine::CountingAllocator = edgecut::engine::CountingAllocator;

fn main() -> std::process::ExitCode {
    edgecut::cli::main()
}
