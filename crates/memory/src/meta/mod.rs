//! Meta-operators: groups of operators that run as one, and their memory footprint.
//!
//! | module | what it does |
//! |---|---|
//! | [`library`] | named patterns: built in, or from TOML |
//! | [`fuse`] | pattern matching and contraction of the matches |
//! | [`scratch`] | scratch memory and storage reuse of a meta-operator |
//! | [`effect`] | the peak and the arena before and after fusing |
//!
//! The inner tensors of a meta-operator are live only while it runs, but they do occupy memory then: fusion by itself
//! frees nothing. A kernel that streams its elements without inner tensors would; callers report that separately.

pub mod effect;
pub mod fuse;
pub mod library;
pub mod scratch;
