//! `profile --sort` and `--top`: which rows are printed, and in which order.

use std::collections::{BTreeMap, BTreeSet};

use edgecut_profile::ProfileRow;

/// What rows are sorted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum RowOrder {
    /// The model's order
    #[default]
    Model,
    /// What takes longest first, all operators that are measured as one together
    Time,
    /// The largest workspace first
    Workspace,
    /// What the engine holds most of first
    Held,
}

/// The rows that are printed.
#[derive(Debug, Clone, Copy)]
pub struct Printed {
    pub order: RowOrder,
    pub most: usize,
}

impl Printed {
    /// Of all rows, each by itself.
    pub fn of(self, rows: &[ProfileRow]) -> Vec<&ProfileRow> {
        let mut shown = self.sorted(rows.iter(), |_| 1);
        shown.truncate(self.most);
        shown
    }

    /// One row of each signature, and how many are left out. `counts` says how often each occurs.
    pub fn distinct<'a>(self, rows: &'a [ProfileRow], counts: &BTreeMap<&str, usize>) -> (Vec<&'a ProfileRow>, usize) {
        let mut seen = BTreeSet::new();
        let first = rows.iter().filter(|row| seen.insert(row.signature.as_str()));
        let mut shown = self.sorted(first, |row| counts.get(row.signature.as_str()).copied().unwrap_or(1));
        let hidden = shown.len().saturating_sub(self.most);
        shown.truncate(self.most);
        (shown, hidden)
    }

    fn sorted<'a>(
        self,
        rows: impl Iterator<Item = &'a ProfileRow>,
        count: impl Fn(&ProfileRow) -> usize,
    ) -> Vec<&'a ProfileRow> {
        let key = |row: &ProfileRow| match self.order {
            RowOrder::Model => 0.0,
            RowOrder::Time => row.time_us_median.map_or(0.0, |time| time.0 * count(row) as f64),
            RowOrder::Workspace => row.workspace_bytes.map_or(0.0, |bytes| bytes.0 as f64),
            RowOrder::Held => row.held_bytes.map_or(0.0, |bytes| bytes.0 as f64),
        };
        let mut rows: Vec<&ProfileRow> = rows.collect();
        rows.sort_by(|a, b| key(b).total_cmp(&key(a)));
        rows
    }
}
