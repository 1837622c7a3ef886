//! Contents of tensors.
//!
//! | item | contents |
//! |---|---|
//! | [`seeded`](fn@seeded) | contents generated from a tensor's name |
//! | [`read_npz`], [`write_npz`] | numpy archives |
//! | [`files`] | files that are written atomically |

pub mod files;
mod npz;
mod seeded;

pub use npz::{NpzError, read_npz, read_npz_from, write_npz};
pub use seeded::{SeedError, seeded, seeded_within};
