//! Contents of tensors.
//!
//! | item | contents |
//! |---|---|
//! | [`seeded`](fn@seeded) | contents generated from a tensor's name |
//! | [`NpzArchive`], [`read_npz`], [`write_npz`] | numpy archives |
//! | [`files`] | files that are written atomically |
//! | [`input_file`] | files that others provide, checked before they are read |

pub mod files;
pub mod input_file;
mod npy_header;
mod npz;
mod seeded;

pub use npz::{NpzArchive, NpzError, read_npz, write_npz};
pub use seeded::{SeedError, seeded, seeded_within};
