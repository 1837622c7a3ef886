//! What a schedule must keep: a limit on its peak, or on its time.

use std::str::FromStr;

use edgecut_graph::units::{Bytes, UnitError};

/// What a schedule must keep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// A peak within this limit; as fast as possible.
    Limit(Limit),
    /// A time within this multiple of the original time; as small as possible.
    Slowdown(f64),
}

/// A memory limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    Bytes(Bytes),
    /// Of the original peak, 1 being all of it.
    Share(f64),
}

impl Limit {
    /// In bytes, of an original peak.
    pub fn of(self, original: Bytes) -> Bytes {
        match self {
            Limit::Bytes(bytes) => bytes,
            Limit::Share(share) => Bytes((original.0 as f64 * share) as u64),
        }
    }
}

impl FromStr for Limit {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Limit, UnitError> {
        let share = text.trim().strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok());
        match share {
            Some(percent) if percent > 0.0 && percent.is_finite() => Ok(Limit::Share(percent / 100.0)),
            _ => Bytes::with_unit(text).map(Limit::Bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shares_or_sizes() {
        assert_eq!("40%".parse(), Ok(Limit::Share(0.4)));
        assert_eq!("1KiB".parse(), Ok(Limit::Bytes(Bytes(1024))));
        assert!("-3%".parse::<Limit>().is_err());
        assert!("much".parse::<Limit>().is_err());
        assert!("1024".parse::<Limit>().is_err(), "a size has a unit");
    }
}
