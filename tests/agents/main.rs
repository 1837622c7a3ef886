//! Agents in this process behind real sockets, and what is measured on them.

#[path = "../common/mod.rs"]
mod common;

use edgecut::engine::CountingAllocator;

mod profile;
mod run;
mod session;
mod split_plan;

// Workspaces are measured by counting allocations.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
