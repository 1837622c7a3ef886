//! The binary: the command line of `edgecut-cli`, with the allocator that measurements of memory count by.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: edgecut_engine::CountingAllocator = edgecut_engine::CountingAllocator;

fn main() -> ExitCode {
    ExitCode::from(edgecut_cli::main(std::env::args_os()))
}
