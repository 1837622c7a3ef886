//! How a server uses each value of its setup; the same for every inference.

use std::collections::BTreeSet;

use crate::protocol::setup::{Partition, Setup, State, ValueId};

/// How one value is used on this server. A *holder* is a partition, or the index after the last one, which stands for
/// values that are in no device's memory.
#[derive(Debug, Clone, Default)]
pub(super) struct ValueUsage {
    /// Whether it comes from another server.
    pub received: bool,
    /// The holder that produces it, holds it for the source, or sends it.
    pub home: usize,
    /// Indices into `Setup::sends`.
    pub sends: Vec<usize>,
    pub is_output: bool,
    /// Reference counts by holder: stages that read it, sends from there, and one if it is an
    /// output there; one where it becomes a state.
    pub references: Vec<u32>,
}

impl ValueUsage {
    /// The usage of every value of a setup that passed `Setup::check`.
    pub fn of_all(setup: &Setup) -> Vec<ValueUsage> {
        let none = setup.partitions.len();
        let unused = ValueUsage { home: none, references: vec![0; none + 1], ..ValueUsage::default() };
        let mut usage = vec![unused; setup.values.len()];
        for value in setup.received() {
            usage[value.0 as usize].received = true;
        }
        for (index, partition) in setup.partitions.iter().enumerate() {
            for stage in &partition.stages {
                distinct(&stage.operands).into_iter().for_each(|v| usage[v.0 as usize].references[index] += 1);
                stage.results.iter().for_each(|v| usage[v.0 as usize].home = index);
            }
        }
        if let Some(source) = &setup.source {
            let home = source.partition.map_or(none, |p| p as usize);
            source.values.iter().for_each(|v| usage[v.0 as usize].home = home);
        }
        for State { operand, result } in &setup.states {
            let reads = |partition: &Partition| partition.stages.iter().any(|stage| stage.operands.contains(operand));
            let home = setup.partitions.iter().position(reads).unwrap_or(none);
            usage[operand.0 as usize].home = home;
            usage[result.0 as usize].references[home] += 1;
        }
        for (index, outgoing) in setup.sends.iter().enumerate() {
            let value = &mut usage[outgoing.value.0 as usize];
            value.sends.push(index);
            value.references[value.home] += 1;
        }
        if let Some(sink) = &setup.sink {
            let holder = sink.partition.map_or(none, |p| p as usize);
            for value in distinct(&sink.values) {
                let value = &mut usage[value.0 as usize];
                value.references[holder] += 1;
                value.is_output = true;
            }
        }
        usage
    }
}

/// Each value once: a stage that reads a value twice holds it once.
pub(super) fn distinct(values: &[ValueId]) -> BTreeSet<ValueId> {
    values.iter().copied().collect()
}
