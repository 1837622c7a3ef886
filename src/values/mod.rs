//! Where the contents of tensors come from and go to: generated from their names, read from and written to `.npz` files.

mod npz;
mod seeded;

pub use npz::{NpzError, read_npz, read_npz_from, write_npz};
pub use seeded::{SeedError, seeded};
