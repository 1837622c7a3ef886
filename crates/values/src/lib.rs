//! Contents of tensors.
//!
//! | item | contents |
//! |---|---|
//! | [`seeded`](fn@seeded) | contents generated from a tensor's name |
//! | [`NpzArchive`], [`read_npz`], [`write_npz`] | numpy archives |
//! | [`resized`] | tensors cropped or padded at the end of their axes |
//! | [`stored`] | contents in mapped temporary files, which memory pressure evicts |
//! | [`files`] | files that are written atomically |
//! | [`destination`] | what a path that is written to leads to: a file, a stream, stdout |
//! | [`input_file`] | files that others provide, checked before they are read |

pub mod destination;
pub mod files;
pub mod input_file;
mod npy_header;
mod npz;
mod resize;
mod seeded;
pub mod stored;

pub use npz::{NpzArchive, NpzError, read_npz, write_npz};
pub use resize::resized;
pub use seeded::{SeedError, seeded, seeded_within};
