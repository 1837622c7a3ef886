//! Contents of tensors.
//!
//! | item | contents |
//! |---|---|
//! | [`seeded`](fn@seeded) | contents generated from a tensor's name |
//! | [`read_npz`], [`write_npz`] | numpy archives |
//! | [`files`] | files that are written atomically |
//! | [`destination`] | what a path that is written to leads to: a file, a stream, stdout |

pub mod destination;
pub mod files;
mod npz;
mod seeded;

pub use npz::{NpzError, read_npz, read_npz_from, write_npz};
pub use seeded::{SeedError, seeded, seeded_within};
