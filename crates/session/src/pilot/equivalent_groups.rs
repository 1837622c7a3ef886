//! Groups that compute the same, and means of their times.

use std::collections::BTreeMap;

use edgecut_graph::units::Micros;

/// Groups that compute the same, such as those of identical layers. With their single times, a search would split each layer in
/// another way for noise alone.
pub(super) struct EquivalentGroups {
    /// By group: the first that is equivalent, possibly itself.
    representatives: Vec<usize>,
    /// By representative: all groups that are equivalent.
    members: BTreeMap<usize, Vec<usize>>,
}

impl EquivalentGroups {
    /// With the representative of each group.
    pub fn of(representatives: &[usize]) -> EquivalentGroups {
        let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (group, representative) in representatives.iter().enumerate() {
            members.entry(*representative).or_default().push(group);
        }
        EquivalentGroups { representatives: representatives.to_vec(), members }
    }

    pub fn representative(&self, group: usize) -> usize {
        self.representatives.get(group).copied().unwrap_or(group)
    }

    pub fn members(&self, representative: usize) -> &[usize] {
        self.members.get(&representative).map(Vec::as_slice).unwrap_or_default()
    }
}

/// The mean over the latest run; times of earlier runs are dropped.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LatestMean {
    run: u32,
    sum: Micros,
    count: u32,
}

impl LatestMean {
    pub fn add(&mut self, time: Micros, run: u32) {
        if run > self.run {
            *self = LatestMean { run, ..LatestMean::default() };
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
