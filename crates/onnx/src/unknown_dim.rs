//! Dimensions whose sizes a file leaves open: their names in messages, and guesses of their sizes.

use std::{collections::HashSet, fmt};

use edgecut_ops::passes::retype::BindDim;
use smol_str::SmolStr;

use crate::error::shown;

/// Unknown dimensions that a message lists.
const MAX_LISTED: usize = 8;

/// Height and width of an image.
const IMAGE_SIZE: u64 = 224;
/// Length of a sequence.
const SEQUENCE_LENGTH: u64 = 128;

/// Guessed sizes by parts of a symbol, in lower case; the first match counts.
const GUESSES: &[(&str, u64)] = &[
    ("batch", 1),
    ("height", IMAGE_SIZE),
    ("width", IMAGE_SIZE),
    // A cache and the sequence after it.
    ("total", 2 * SEQUENCE_LENGTH),
    ("seq", SEQUENCE_LENGTH),
    ("len", SEQUENCE_LENGTH),
    ("token", SEQUENCE_LENGTH),
    ("frame", SEQUENCE_LENGTH),
    ("time", SEQUENCE_LENGTH),
];

/// A dimension of an input whose size a file leaves open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownDim {
    pub input: SmolStr,
    pub axis: usize,
    /// Dimensions of the input.
    pub rank: usize,
    /// What the file calls it.
    pub symbol: Option<SmolStr>,
}

impl UnknownDim {
    /// The first of `dims`, as messages list them.
    pub fn list(dims: &[UnknownDim]) -> String {
        let more = if dims.len() > MAX_LISTED { ", …" } else { "" };
        dims.iter().take(MAX_LISTED).map(ToString::to_string).collect::<Vec<_>>().join(", ") + more
    }

    /// A guessed size for each of `dims`; dimensions of one symbol have the same size.
    pub(crate) fn guesses(dims: &[UnknownDim]) -> Vec<BindDim> {
        let mut seen = HashSet::new();
        let guessed = dims.iter().filter(|dim| dim.symbol.as_ref().is_none_or(|symbol| seen.insert(symbol)));
        guessed
            .map(|dim| match &dim.symbol {
                Some(name) => BindDim::Symbol { name: name.clone(), size: dim.guess() },
                None => BindDim::One { tensor: dim.input.clone(), axis: dim.axis, size: dim.guess() },
            })
            .collect()
    }

    /// The options that bind `dims` to guessed sizes.
    pub fn options(dims: &[UnknownDim]) -> String {
        UnknownDim::options_of(&UnknownDim::guesses(dims))
    }

    /// The options that bind the sizes `binds`.
    pub fn options_of(binds: &[BindDim]) -> String {
        let option = |bind: &BindDim| format!("option `bind_dim={}`", shown(&bind.to_string()));
        binds.iter().map(option).collect::<Vec<_>>().join(", ")
    }

    /// What it is bound by: its symbol, else its place.
    pub fn key(&self) -> String {
        self.symbol.as_deref().map_or_else(|| self.place(), shown)
    }

    /// Its input and axis, as sizes to bind name them.
    pub fn place(&self) -> String {
        format!("{}:{}", shown(&self.input), self.axis)
    }

    /// A guess of its size: by its symbol, else by its position. A sum of symbols has the sum of their sizes.
    fn guess(&self) -> u64 {
        let symbol = self.symbol.as_deref().unwrap_or_default().to_lowercase();
        let by_name = |name: &str| {
            let known = GUESSES.iter().find(|(part, _)| name.contains(part)).map(|(_, size)| *size);
            known.or_else(|| name.trim().parse().ok())
        };
        let sum = symbol.split('+').map(by_name).try_fold(0u64, |sum, size| sum.checked_add(size?));
        match sum {
            Some(size) => size,
            // Height and width come last.
            None if self.rank == 4 && self.axis >= 2 => IMAGE_SIZE,
            None => 1,
        }
    }
}

impl fmt::Display for UnknownDim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.symbol {
            Some(symbol) => write!(f, "`{}` (`{}`)", shown(symbol), self.place()),
            None => write!(f, "`{}`", self.place()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(input: &str, axis: usize, rank: usize, symbol: &str) -> UnknownDim {
        let symbol = (!symbol.is_empty()).then(|| SmolStr::new(symbol));
        UnknownDim { input: input.into(), axis, rank, symbol }
    }

    #[test]
    fn sizes_are_guessed_by_name_then_by_place() {
        for (dim, expected) in [
            (dim("x", 0, 4, "batch_size"), 1),
            (dim("x", 2, 4, "Height"), 224),
            (dim("ids", 1, 2, "sequence"), 128),
            (dim("ids", 1, 2, "past_sequence_length + 1"), 129),
            (dim("mask", 1, 2, "total_sequence_length"), 256),
            (dim("x", 0, 4, ""), 1),
            (dim("x", 3, 4, "p2o.DynamicDimension.2"), 224),
            (dim("x", 2, 3, "unk__7"), 1),
            (dim("x", 1, 2, "18446744073709551615 + batch"), 1),
        ] {
            assert_eq!(dim.guess(), expected, "{dim}");
        }
    }

    #[test]
    fn one_option_binds_all_dimensions_of_a_symbol() {
        let dims = [dim("x", 0, 2, "batch"), dim("y", 0, 2, "batch"), dim("y", 1, 2, "it's + 1"), dim("z", 0, 1, "")];
        let expected = "option `bind_dim=batch=1`, option `bind_dim=it's + 1=1`, option `bind_dim=z:0=1`";
        assert_eq!(UnknownDim::options(&dims), expected);
    }
}
