//! Bytes, time, transfer rates, energy and power as newtypes: parsed with units from the command line, displayed with units, serialized
//! as plain numbers.

use std::{fmt, iter::Sum, ops, str::FromStr};

use serde::{Deserialize, Serialize};

/// A number of bytes. Parses `512MiB`, `1.5GB`, `4096`; displays the largest binary unit that fits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A duration in microseconds, the unit of every file. Parses `40ms`, `1.2s`, `350us`; not negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub f64);

/// A transfer rate in bytes per microsecond, that is MB/s. Parses `117MB/s`, `1Gbit/s`, `1Gb/s`; positive.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub f64);

/// Energy in joules.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Joules(pub f64);

/// Power in watts.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Watts(pub f64);

/// A quantity that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}: expected a number with one of the units {units}")]
pub struct UnitError {
    text: String,
    what: &'static str,
    units: &'static str,
}

impl UnitError {
    fn size(text: &str) -> UnitError {
        UnitError { text: text.to_string(), what: "size", units: "B, KiB, MiB, GiB, kB, MB, GB" }
    }
}

const BYTE_UNITS: &[(&str, f64)] = &[
    ("", 1.0),
    ("b", 1.0),
    ("kib", 1024.0),
    ("mib", 1048576.0),
    ("gib", 1073741824.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
];

const TIME_UNITS: &[(&str, f64)] = &[("ns", 1e-3), ("us", 1.0), ("µs", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 60e6)];

/// Units per microsecond for each prefix of bits and bytes per second.
const RATE_PREFIXES: &[(&str, f64)] =
    &[("k", 1e-3), ("m", 1.0), ("g", 1e3), ("ki", 1024e-6), ("mi", 1.048576), ("gi", 1073.741824)];

/// Splits `12.5MiB` into its number and its unit.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    Some((trimmed[..digits].parse().ok()?, trimmed[digits..].trim()))
}

/// The factor that is named `unit`, in letters of either case.
fn factor(unit: &str, factors: &[(&str, f64)]) -> Option<f64> {
    factors.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, factor)| *factor)
}

/// The number of a text with a unit, times the unit.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, unit) = number_and_unit(text)?;
    Some(number * factor(unit, units)?)
}

/// Bytes per microsecond. `B` is a byte, `b` and `bit` are bits; prefixes may have either case.
fn rate(text: &str) -> Option<f64> {
    let (number, unit) = number_and_unit(text)?;
    let unit = unit.strip_suffix("/s").or_else(|| unit.strip_suffix("/S"))?;
    let (prefix, bytes) = match (unit.strip_suffix('B'), unit.strip_suffix('b')) {
        (Some(prefix), _) => (prefix, 1.0),
        (_, Some(prefix)) => (prefix, 1.0 / 8.0),
        _ => {
            let length = unit.len().checked_sub("bit".len())?;
            let is_bits = unit.get(length..)?.eq_ignore_ascii_case("bit");
            (unit.get(..length).filter(|_| is_bits)?, 1.0 / 8.0)
        }
    };
    Some(number * bytes * factor(prefix, RATE_PREFIXES)?)
}

impl Bytes {
    pub const ZERO: Bytes = Bytes(0);

    pub fn is_zero(&self) -> bool {
        *self == Bytes::ZERO
    }

    /// Parses a size with a mandatory unit, so that `8` is not taken for 8 bytes where 8 MiB is meant.
    ///
    /// # Errors
    /// As [`Bytes::from_str`], and if the unit is missing.
    pub fn with_unit(text: &str) -> Result<Bytes, UnitError> {
        let bytes: Bytes = text.parse()?;
        match text.trim().ends_with(|c: char| c.is_ascii_alphabetic()) {
            true => Ok(bytes),
            false => Err(UnitError::size(text)),
        }
    }

    /// By how much `need` exceeds `self`; zero if it does not.
    pub fn shortfall(self, need: Bytes) -> Bytes {
        Bytes(need.0.saturating_sub(self.0))
    }
}

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        quantity(text, BYTE_UNITS)
            .filter(|v| *v < u64::MAX as f64)
            .map(|v| Bytes(v.round() as u64))
            .ok_or_else(|| UnitError::size(text))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0 as f64;
        let text = match self.0 {
            0..1024 => format!("{} B", self.0),
            1024..1_048_576 => format!("{:.1} KiB", value / 1024.0),
            1_048_576..1_073_741_824 => format!("{:.1} MiB", value / 1_048_576.0),
            _ => format!("{:.2} GiB", value / 1_073_741_824.0),
        };
        f.pad(&text)
    }
}

impl ops::Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl ops::AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl ops::Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, |a, b| a + b)
    }
}

impl Micros {
    pub const ZERO: Micros = Micros(0.0);

    /// The larger of two times.
    pub fn max(self, other: Micros) -> Micros {
        Micros(self.0.max(other.0))
    }

    /// The smaller of two times.
    pub fn min(self, other: Micros) -> Micros {
        Micros(self.0.min(other.0))
    }

    /// As a duration; `None` if it is negative, not a number, or too long for one.
    pub fn to_duration(self) -> Option<std::time::Duration> {
        std::time::Duration::try_from_secs_f64(self.0 / 1e6).ok()
    }
}

impl FromStr for Micros {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        quantity(text, TIME_UNITS).map(Micros).ok_or_else(|| UnitError {
            text: text.to_string(),
            what: "time",
            units: "ns, us, ms, s, m",
        })
    }
}

impl From<std::time::Duration> for Micros {
    fn from(duration: std::time::Duration) -> Micros {
        Micros(duration.as_secs_f64() * 1e6)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0.abs() {
            v if v < 1e3 => format!("{:.1} us", self.0),
            v if v < 1e6 => format!("{:.2} ms", self.0 / 1e3),
            _ => format!("{:.2} s", self.0 / 1e6),
        };
        f.pad(&text)
    }
}

impl Rate {
    /// Transfer time of `bytes` at this rate.
    pub fn time(self, bytes: Bytes) -> Micros {
        Micros(bytes.0 as f64 / self.0)
    }
}

impl FromStr for Rate {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        rate(text).filter(|v| *v > 0.0 && v.is_finite()).map(Rate).ok_or_else(|| UnitError {
            text: text.to_string(),
            what: "rate above zero",
            units: "kB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s, kbit/s, Mbit/s, Gbit/s, kb/s, Mb/s, Gb/s",
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            v if v < 1.0 => format!("{:.1} kB/s", v * 1e3),
            v if v < 1e3 => format!("{v:.1} MB/s"),
            v => format!("{:.2} GB/s", v / 1e3),
        };
        f.pad(&text)
    }
}

impl Joules {
    pub const ZERO: Joules = Joules(0.0);

    /// The mean power at which this energy is consumed in `time`; zero if `time` is zero.
    pub fn over(self, time: Micros) -> Watts {
        if time.0 > 0.0 { Watts(self.0 / (time.0 / 1e6)) } else { Watts::ZERO }
    }
}

impl fmt::Display for Joules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0.abs() {
            v if v < 1e-3 => format!("{:.1} uJ", self.0 * 1e6),
            v if v < 1.0 => format!("{:.2} mJ", self.0 * 1e3),
            _ => format!("{:.2} J", self.0),
        };
        f.pad(&text)
    }
}

impl ops::Add for Joules {
    type Output = Joules;
    fn add(self, other: Joules) -> Joules {
        Joules(self.0 + other.0)
    }
}

impl ops::Sub for Joules {
    type Output = Joules;
    fn sub(self, other: Joules) -> Joules {
        Joules(self.0 - other.0)
    }
}

impl Sum for Joules {
    fn sum<I: Iterator<Item = Joules>>(iter: I) -> Joules {
        iter.fold(Joules::ZERO, |a, b| a + b)
    }
}

impl Watts {
    pub const ZERO: Watts = Watts(0.0);

    /// The energy of this power for `time`.
    pub fn during(self, time: Micros) -> Joules {
        Joules(self.0 * time.0 / 1e6)
    }
}

impl fmt::Display for Watts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.2} W", self.0))
    }
}

impl ops::Add for Watts {
    type Output = Watts;
    fn add(self, other: Watts) -> Watts {
        Watts(self.0 + other.0)
    }
}

impl ops::Sub for Watts {
    type Output = Watts;
    fn sub(self, other: Watts) -> Watts {
        Watts(self.0 - other.0)
    }
}

impl Sum for Watts {
    fn sum<I: Iterator<Item = Watts>>(iter: I) -> Watts {
        iter.fold(Watts::ZERO, |a, b| a + b)
    }
}

impl ops::Add for Micros {
    type Output = Micros;
    fn add(self, other: Micros) -> Micros {
        Micros(self.0 + other.0)
    }
}

impl ops::AddAssign for Micros {
    fn add_assign(&mut self, other: Micros) {
        self.0 += other.0;
    }
}

impl ops::Sub for Micros {
    type Output = Micros;
    fn sub(self, other: Micros) -> Micros {
        Micros(self.0 - other.0)
    }
}

impl Sum for Micros {
    fn sum<I: Iterator<Item = Micros>>(iter: I) -> Micros {
        // `f64::sum` of an empty iterator is -0.
        iter.fold(Micros::ZERO, |a, b| Micros(a.0 + b.0))
    }
}

/// A count with its noun: `1 thread`, `2 threads`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_with_their_units() {
        for (text, want) in [("512MiB", 512 << 20), ("1.5 KiB", 1536), ("2GB", 2_000_000_000), ("77", 77)] {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(want)), "{text}");
        }
        for (text, want) in [("40ms", 40e3), ("1.2s", 1.2e6), ("350us", 350.0), ("500ns", 0.5)] {
            assert_eq!(text.parse::<Micros>(), Ok(Micros(want)), "{text}");
        }
        assert_eq!(Bytes::with_unit("8 MiB"), Ok(Bytes(8 << 20)));
        assert!(
            Bytes::with_unit("8").unwrap_err().to_string().contains("`8` is not a size: expected a number with one")
        );
        for bad in ["", "MiB", "12 parsecs", "-3MiB", "1e400GiB"] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad}");
        }
        assert!("40".parse::<Micros>().is_err(), "a time has a unit");
        for (text, want) in [
            ("1Gbit/s", 125.0),
            ("100Mb/s", 12.5),
            ("100mb/s", 12.5),
            ("100 MB/s", 100.0),
            ("8 Kibit/s", 1024e-6),
            ("1MiB/s", 1.048576),
            ("3kB/s", 3e-3),
        ] {
            assert_eq!(text.parse(), Ok(Rate(want)), "{text}");
        }
        for bad in ["1Mbyte/s", "1M/s", "1bit/s", "1Mb", "MB/s", "1µb/s", "infGB/s"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
        assert_eq!("100 MB/s".parse::<Rate>().map(|r| r.time(Bytes(500))), Ok(Micros(5.0)));
        assert!("0MB/s".parse::<Rate>().is_err(), "a rate is positive");
    }

    #[test]
    fn display_uses_the_largest_unit_that_fits() {
        assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
        assert_eq!(Micros(40_250.0).to_string(), "40.25 ms");
        assert_eq!(Watts(2.5).during(Micros(4000.0)).to_string(), "10.00 mJ");
        assert_eq!(Joules(0.01).over(Micros(4000.0)), Watts(2.5));
    }
}
