//! Dimensions whose sizes a file leaves open, and what messages call them.

use std::fmt;

use smol_str::SmolStr;

use crate::error::shown;

/// Unknown dimensions that a message lists.
const MAX_LISTED: usize = 8;

/// A dimension of an input whose size a file leaves open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownDim {
    pub input: SmolStr,
    pub axis: usize,
    /// What the file calls it.
    pub symbol: Option<SmolStr>,
}

impl UnknownDim {
    /// The first of `dims`, as messages list them.
    pub fn list(dims: &[UnknownDim]) -> String {
        let more = if dims.len() > MAX_LISTED { ", …" } else { "" };
        dims.iter().take(MAX_LISTED).map(ToString::to_string).collect::<Vec<_>>().join(", ") + more
    }

    /// What binds it to a size: its symbol, else its input and axis.
    pub fn key(&self) -> String {
        match &self.symbol {
            Some(symbol) => shown(symbol),
            None => format!("{}:{}", shown(&self.input), self.axis),
        }
    }
}

impl fmt::Display for UnknownDim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.symbol {
            Some(_) => write!(f, "`{}` (`{}:{}`)", self.key(), shown(&self.input), self.axis),
            None => write!(f, "`{}`", self.key()),
        }
    }
}
