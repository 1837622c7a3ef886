//! Meta-operators: groups of a graph's operators that run as one, and what memory they need.
//!
//! | module | what it does |
//! |---|---|
//! | [`library`] | patterns with names, from TOML; those that are built in |
//! | [`fuse`] | finds them in a graph, the patterns one after the other |
//! | [`scratch`] | what a meta-operator needs while it runs, and whose bytes it may overwrite |
//!
//! What a meta-operator makes for itself lives only while it runs, but then it does live: fusing frees no memory by
//! itself. It ties operators together, and a kernel that really needs no inner tensors is another thing, which the
//! callers show beside it.

pub mod fuse;
pub mod library;
pub mod scratch;
