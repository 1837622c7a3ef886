//! Independent checker of DLMO schedules, by value numbering.
//!
//! Results of equal operators on equal operands have equal numbers. A schedule is valid if each of its records is one of
//! the pattern's, every id that is read holds a value at that point, and every output holds the same number at the end as
//! with the pattern's own records.

use std::collections::HashMap;

use edgecut_graph::units::{Bytes, Micros};

use super::{pattern::Pattern, record::Record};

/// What is wrong with a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DlmoViolation {
    #[error("record {0} does not occur in the pattern")]
    Foreign(usize),
    #[error("record {record} reads tensor {id}, which holds no value")]
    Freed { record: usize, id: u64 },
    #[error("output {0} is not the value that the pattern computes")]
    Wrong(u64),
}

/// Peak and time of a valid schedule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DlmoCost {
    pub peak: Bytes,
    pub time: Micros,
}

type Numbers = HashMap<(String, Vec<u64>, usize), u64>;
type Key = (String, Vec<u64>, Vec<u64>, String);

/// Checks the code of `schedule` against `pattern`.
///
/// # Errors
/// With the first violation.
pub(crate) fn records(pattern: &Pattern, schedule: &Pattern) -> Result<DlmoCost, DlmoViolation> {
    let known: HashMap<Key, &Record> = pattern.code.iter().map(|record| (key(record), record)).collect();
    let mut numbers = Numbers::new();
    let sizes: HashMap<u64, u64> = pattern.data.iter().map(|d| (d.id, d.size)).collect();
    let wanted = follow(&pattern.code, &sizes, &known, &mut numbers)?;
    let found = follow(&schedule.code, &sizes, &known, &mut numbers)?;
    for id in &pattern.outputs {
        if !wanted.1.contains_key(id) || wanted.1.get(id) != found.1.get(id) {
            return Err(DlmoViolation::Wrong(*id));
        }
    }
    Ok(found.0)
}

fn key(record: &Record) -> Key {
    (record.name.clone(), record.ins.clone(), record.outs.clone(), record.attr.to_string())
}

/// Executes records on value numbers; returns the cost and the number of every id at the end.
fn follow(
    code: &[Record],
    sizes: &HashMap<u64, u64>,
    known: &HashMap<Key, &Record>,
    numbers: &mut Numbers,
) -> Result<(DlmoCost, HashMap<u64, u64>), DlmoViolation> {
    let size = |id: u64| sizes.get(&id).copied().unwrap_or(0);
    let mut owner: HashMap<u64, u64> = HashMap::new();
    // By owner: its number and the ids that share it.
    let mut bytes: HashMap<u64, (u64, Vec<u64>)> = HashMap::new();
    let mut written: HashMap<u64, ()> = HashMap::new();
    for record in code.iter().filter(|record| record.name != ".dealloc") {
        for &id in record.ins.iter().filter(|id| !written.contains_key(*id)) {
            let fresh = numbers.len() as u64;
            let number = *numbers.entry((format!("input {id}"), Vec::new(), 0)).or_insert(fresh);
            bytes.entry(id).or_insert((number, vec![id]));
        }
        written.extend(record.ins.iter().chain(&record.outs).map(|id| (*id, ())));
    }
    let (mut peak, mut time) = (0, 0.0);
    for (index, record) in code.iter().enumerate() {
        let root = |owner: &HashMap<u64, u64>, id: u64| owner.get(&id).copied().unwrap_or(id);
        if record.name == ".dealloc" {
            for &id in &record.outs {
                let at = root(&owner, id);
                if let Some((_, names)) = bytes.get_mut(&at) {
                    names.retain(|name| *name != id);
                    if names.is_empty() {
                        bytes.remove(&at);
                    }
                }
            }
            continue;
        }
        let mut operands = Vec::with_capacity(record.ins.len());
        for &id in &record.ins {
            let held = bytes.get(&root(&owner, id)).ok_or(DlmoViolation::Freed { record: index, id })?;
            operands.push(held.0);
        }
        if record.name == ".share" {
            if let ([source], [view]) = (&record.ins[..], &record.outs[..]) {
                let at = root(&owner, *source);
                owner.insert(*view, at);
                if let Some((_, names)) = bytes.get_mut(&at)
                    && !names.contains(view)
                {
                    names.push(*view);
                }
            }
            continue;
        }
        let original = known.get(&key(record)).ok_or(DlmoViolation::Foreign(index))?;
        for (place, &id) in record.outs.iter().enumerate() {
            let fresh = numbers.len() as u64;
            let what = (format!("{} {}", record.name, record.attr), operands.clone(), place);
            let number = *numbers.entry(what).or_insert(fresh);
            let held = bytes.entry(root(&owner, id)).or_insert((number, Vec::new()));
            held.0 = number;
            if !held.1.contains(&id) {
                held.1.push(id);
            }
        }
        let now: u64 = bytes.keys().map(|id| size(*id)).sum();
        peak = peak.max(now + original.workspace);
        time += original.time;
    }
    let names = owner.keys().chain(bytes.keys()).copied();
    let held = names.filter_map(|id| Some((id, bytes.get(&owner.get(&id).copied().unwrap_or(id))?.0))).collect();
    Ok((DlmoCost { peak: Bytes(peak), time: Micros(time) }, held))
}
