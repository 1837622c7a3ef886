//! Groups that compute the same, and means of their times.

use std::collections::BTreeMap;

use edgecut_graph::units::Micros;

/// Groups that compute the same, such as those of equal layers. Single times of them differ by disturbances, from which a
/// search would choose another split in every layer; and what one of them showed need not be tried in all.
pub(super) struct Alike {
    /// By group: the first that is alike.
    first: Vec<usize>,
    /// By first group: all that are alike.
    all: BTreeMap<usize, Vec<usize>>,
}

impl Alike {
    pub fn of(first: &[usize]) -> Alike {
        let mut all: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (group, first) in first.iter().enumerate() {
            all.entry(*first).or_default().push(group);
        }
        Alike { first: first.to_vec(), all }
    }

    pub fn first(&self, group: usize) -> usize {
        self.first.get(group).copied().unwrap_or(group)
    }

    pub fn all(&self, first: usize) -> &[usize] {
        self.all.get(&first).map(Vec::as_slice).unwrap_or_default()
    }
}

/// A mean of the times that the last run among several showed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mean {
    run: u32,
    sum: Micros,
    count: u32,
}

impl Mean {
    pub fn add(&mut self, time: Micros, run: u32) {
        if run > self.run {
            *self = Mean { run, ..Mean::default() };
        }
        if run == self.run {
            self.sum += time;
            self.count += 1;
        }
    }

    pub fn get(self) -> Micros {
        Micros(self.sum.0 / f64::from(self.count.max(1)))
    }
}
