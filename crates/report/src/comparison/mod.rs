//! Two profiles, two plans or two runs, row by row: what differs, and whether by more than scatter explains.
//!
//! | module | compares |
//! |---|---|
//! | [`profiles`] | times and energy of the same operators on two devices, engines, versions or days |
//! | [`plans`] | what two plans predict of the same model |
//! | [`runs`] | what two runs measured |
//! | [`subjects`] | two of one kind, whatever it is |
//! | [`estimate`] | a median with its standard error |

pub mod estimate;
pub mod plans;
pub mod profiles;
pub mod runs;
pub mod subjects;

use std::collections::{BTreeMap, BTreeSet};

use edgecut_graph::units::Joules;
use serde::Serialize;

use estimate::Estimate;

/// What is different, and in what.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// What A and B are: of a profile the device, its hardware, engine and date.
    pub a: String,
    pub b: String,
    /// The largest difference first within each kind and unit.
    pub rows: Vec<ComparisonRow>,
    /// What could not be compared, and why.
    pub notes: Vec<String>,
}

/// One thing that A and B both have. Cells that a kind of row does not have are empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ComparisonRow {
    pub kind: ComparedKind,
    /// The number of the group or of the transferred tensor in the model.
    pub id: Option<u32>,
    pub part: String,
    pub name: String,
    /// Where A and B have it; of a transfer, from where to where.
    pub device_a: String,
    pub device_b: String,
    pub unit: Unit,
    pub a: f64,
    pub b: f64,
    /// B over A; empty if A is zero.
    pub ratio: Option<f64>,
    /// The difference in standard errors, where both sides were measured several times.
    pub z: Option<f64>,
    /// Whether the difference is beyond [`SIGNIFICANT`] standard errors.
    pub is_significant: Option<bool>,
}

/// What a row is of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComparedKind {
    /// Latency, time between results, peak memory, energy; the sum of a profile.
    #[default]
    Whole,
    /// All groups of the same operators.
    Operators,
    Device,
    Group,
    Transfer,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    #[default]
    Us,
    Bytes,
    J,
}

/// The number of standard errors beyond which a difference is significant: by chance, 3 in 1000 are with many samples, 2 in 100
/// with eight.
pub const SIGNIFICANT: f64 = 3.0;

/// Why two subjects cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ComparisonError {
    #[error(
        "{a} has the devices {devices_a}, {b} has {devices_b}: expected one device in each, or some of the same name"
    )]
    Devices { a: String, devices_a: String, b: String, devices_b: String },
    #[error("{a} and {b} have nothing in common: they are of different models")]
    Nothing { a: String, b: String },
    #[error("{0} has no rows with a time")]
    Empty(String),
}

impl Comparison {
    /// Keeps the first `most` rows of each kind and unit; says how many are left out.
    pub fn keep(&mut self, most: usize) -> usize {
        let mut seen: BTreeMap<(ComparedKind, Unit), usize> = BTreeMap::new();
        let before = self.rows.len();
        self.rows.retain(|row| {
            let count = seen.entry((row.kind, row.unit)).or_default();
            *count += 1;
            *count <= most
        });
        before - self.rows.len()
    }
}

impl ComparisonRow {
    /// Times of one thing on both sides.
    fn times(kind: ComparedKind, name: &str, a: Estimate, b: Estimate) -> ComparisonRow {
        let z = Estimate::z(a, b);
        ComparisonRow {
            kind,
            name: name.to_string(),
            a: a.value,
            b: b.value,
            ratio: (a.value > 0.0).then_some(b.value / a.value),
            z,
            is_significant: z.map(|z| z.abs() > SIGNIFICANT),
            ..ComparisonRow::default()
        }
    }

    /// Bytes of one thing on both sides.
    fn bytes(kind: ComparedKind, name: &str, a: u64, b: u64) -> ComparisonRow {
        let row = ComparisonRow::times(kind, name, Estimate::exact(a as f64), Estimate::exact(b as f64));
        ComparisonRow { unit: Unit::Bytes, ..row }
    }

    /// Energy of one thing on both sides.
    fn energy(kind: ComparedKind, name: &str, a: Joules, b: Joules) -> ComparisonRow {
        let row = ComparisonRow::times(kind, name, Estimate::exact(a.0), Estimate::exact(b.0));
        ComparisonRow { unit: Unit::J, ..row }
    }

    fn on(self, device_a: &str, device_b: &str) -> ComparisonRow {
        ComparisonRow { device_a: device_a.to_string(), device_b: device_b.to_string(), ..self }
    }

    fn of(self, id: Option<u32>, part: &str) -> ComparisonRow {
        ComparisonRow { id, part: part.to_string(), ..self }
    }
}

/// Kinds in their order, and units within each, the largest difference first; what is on the whole stays in its order.
fn sort(rows: &mut [ComparisonRow]) {
    let difference = |row: &ComparisonRow| match row.kind {
        ComparedKind::Whole => 0.0,
        _ => (row.b - row.a).abs(),
    };
    // Of rows on the whole the units stay where they are.
    let unit = |row: &ComparisonRow| (row.kind != ComparedKind::Whole).then_some(row.unit);
    let key = |row: &ComparisonRow| (row.kind, unit(row));
    rows.sort_by(|x, y| key(x).cmp(&key(y)).then(difference(y).total_cmp(&difference(x))));
}

/// Pairs what has the same key on both sides, the n-th of A with the n-th of B; and how many of each side are left over.
fn paired<K: Ord, T>(
    a: impl Iterator<Item = (K, T)>,
    b: impl Iterator<Item = (K, T)>,
) -> (Vec<(K, T, T)>, usize, usize) {
    let mut of_b: BTreeMap<K, std::collections::VecDeque<T>> = BTreeMap::new();
    let mut left = 0;
    for (key, value) in b {
        of_b.entry(key).or_default().push_back(value);
        left += 1;
    }
    let (mut pairs, mut alone) = (Vec::new(), 0);
    for (key, value) in a {
        match of_b.get_mut(&key).and_then(std::collections::VecDeque::pop_front) {
            Some(other) => pairs.push((key, value, other)),
            None => alone += 1,
        }
    }
    let rest = left - pairs.len();
    (pairs, alone, rest)
}

/// By what groups are paired: the number in the model, the part, and the name, which another model would not have.
type GroupKey<'a> = (Option<u32>, &'a str, &'a str);

/// By what transfers are paired: the tensor's number in the model, its part, its name, and from where to where it goes.
type TransferKey<'a> = (Option<u32>, &'a str, &'a str, String, String);

/// A note that the energy of `of` is of different sources, if it is.
fn other_sources(of: &str, a: &BTreeSet<String>, b: &BTreeSet<String>) -> Option<String> {
    let named = |sources: &BTreeSet<String>| sources.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let differ = !a.is_empty() && !b.is_empty() && a != b;
    differ.then(|| format!("energy of {of}: by {} in A, by {} in B, which measure different parts", named(a), named(b)))
}

/// What is on one side alone.
fn unpaired(what: &str, a: usize, b: usize) -> Option<String> {
    (a + b > 0).then(|| format!("{a} {what} only in A, {b} only in B: not compared"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_are_paired_in_order() {
        let (pairs, a, b) =
            paired([("x", 1), ("y", 2), ("x", 3), ("x", 4)].into_iter(), [("x", 10), ("x", 30), ("z", 5)].into_iter());
        assert_eq!(pairs, [("x", 1, 10), ("x", 3, 30)]);
        assert_eq!((a, b), (2, 1));
        assert!(unpaired("groups", a, b).unwrap().starts_with("2 groups only in A, 1 only in B"));
        assert_eq!(unpaired("groups", 0, 0), None);
    }

    #[test]
    fn a_row_tells_ratio_and_significance() {
        let a = Estimate { value: 10.0, standard_error: Some(0.3) };
        let b = Estimate { value: 12.0, standard_error: Some(0.4) };
        let row = ComparisonRow::times(ComparedKind::Group, "x", a, b);
        assert_eq!((row.ratio, row.z, row.is_significant), (Some(1.2), Some(4.0), Some(true)));
        let row = ComparisonRow::bytes(ComparedKind::Whole, "x", 0, 7);
        assert_eq!((row.ratio, row.z, row.is_significant), (None, None, None));
        let row = ComparisonRow::energy(ComparedKind::Whole, "x", Joules(2.0), Joules(3.0));
        assert_eq!((row.unit, row.ratio, row.is_significant), (Unit::J, Some(1.5), None));
    }

    #[test]
    fn each_unit_has_its_largest_differences() {
        let mut rows = Vec::new();
        for (name, joules, bytes) in [("x", 3.0, 100), ("y", 9.0, 900), ("z", 6.0, 500)] {
            rows.push(ComparisonRow::energy(ComparedKind::Device, name, Joules(0.0), Joules(joules)));
            rows.push(ComparisonRow::bytes(ComparedKind::Device, name, 0, bytes));
        }
        sort(&mut rows);
        let mut comparison = Comparison { rows, ..Comparison::default() };
        assert_eq!(comparison.keep(2), 2);
        let kept: Vec<(Unit, &str)> = comparison.rows.iter().map(|row| (row.unit, row.name.as_str())).collect();
        assert_eq!(kept, [(Unit::Bytes, "y"), (Unit::Bytes, "z"), (Unit::J, "y"), (Unit::J, "z")]);
    }

    #[test]
    fn energy_of_different_sources_is_noted() {
        let of = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        let note = other_sources("s/cpu", &of(&["powercap"]), &of(&["external"])).unwrap();
        assert!(note.starts_with("energy of s/cpu: by powercap in A, by external in B"), "{note}");
        assert_eq!(other_sources("s", &of(&["powercap"]), &of(&["powercap"])), None);
        assert_eq!(other_sources("s", &of(&["powercap"]), &of(&[])), None);
    }
}
