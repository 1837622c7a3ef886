//! Independent checker of MAGIS schedules.
//!
//! Every operator of a schedule represents an operator of the graph: its id, or `of` for recomputations, copies and
//! slices. A schedule is valid if every argument represents the argument of the graph's operator, every operator of the
//! graph is represented, every value is written before it is read, the parts of a split operator make up the whole, and
//! the stated latency and peak equal a simulation's.

use std::collections::HashMap;

use crate::magis::{Export, Op, simulate::simulate};

/// What is wrong with a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MagisViolation {
    #[error("operator {0} does not correspond to an operator of the graph")]
    Foreign(u64),
    #[error("operator {op} reads {arg}, which is not produced before it")]
    Early { op: u64, arg: u64 },
    #[error("operator {0} does not read what the graph's operator reads")]
    Operands(u64),
    #[error("operator {0} of the graph is missing")]
    Missing(u64),
    #[error("the parts of operator {0} do not cover the whole operator")]
    Parts(u64),
    #[error("latency and peak are not those of a simulation")]
    Figures,
}

/// Checks `schedule` against `graph`.
///
/// # Errors
/// With the first flaw that is found.
pub fn operators(graph: &Export, schedule: &Export) -> Result<(), MagisViolation> {
    let originals: HashMap<u64, &Op> = graph.ops.iter().map(|op| (op.id, op)).collect();
    let mut stands: HashMap<u64, Vec<u64>> = HashMap::new();
    for op in &schedule.ops {
        place(op, 1, &originals, &mut stands)?;
        let Some(fission) = &op.fission else { continue };
        if fission.factor * fission.iters != fission.length || fission.iters < 2 {
            return Err(MagisViolation::Parts(op.id));
        }
        let mut inner: HashMap<u64, Vec<u64>> = HashMap::new();
        for part in &fission.graph.ops {
            place(part, fission.iters, &originals, &mut inner)?;
            if part.is_placeholder() && !op.args.iter().any(|arg| stands[arg].contains(&part.id)) {
                return Err(MagisViolation::Operands(part.id));
            }
        }
        let made: Vec<u64> = inner.values().flatten().copied().collect();
        if let Some(missing) = fission.out_ids.iter().find(|id| !made.contains(id)) {
            return Err(MagisViolation::Missing(*missing));
        }
        stands.insert(op.id, made);
    }
    let there: HashMap<u64, ()> = stands.values().flatten().map(|id| (*id, ())).collect();
    if let Some(missing) = graph.ops.iter().find(|op| !there.contains_key(&op.id)) {
        return Err(MagisViolation::Missing(missing.id));
    }
    let found = simulate(&schedule.ops);
    let close = (found.latency_ms - schedule.latency_ms).abs() <= 1e-9 * found.latency_ms;
    if !close || found.peak_bytes != schedule.peak_bytes {
        return Err(MagisViolation::Figures);
    }
    Ok(())
}

/// Notes what one operator stands for, and checks its operands.
fn place(
    op: &Op,
    parts: u64,
    originals: &HashMap<u64, &Op>,
    stands: &mut HashMap<u64, Vec<u64>>,
) -> Result<(), MagisViolation> {
    for arg in &op.args {
        if !stands.contains_key(arg) {
            return Err(MagisViolation::Early { op: op.id, arg: *arg });
        }
    }
    if op.fission.is_some() {
        return Ok(());
    }
    let of = op.of.unwrap_or(op.id);
    let original = originals.get(&of).ok_or(MagisViolation::Foreign(op.id))?;
    let passed_on = matches!(op.tag.as_str(), "store" | "load" | "index_out") && op.of.is_some() && !op.is_remat;
    let reads_right = match (passed_on, op.is_placeholder()) {
        (true, _) => op.args.len() == 1 && stands[&op.args[0]].contains(&of),
        // A placeholder inside a split operator stands for something that is made outside.
        (false, true) => op.args.is_empty(),
        (false, false) => {
            op.tag == original.tag
                && op.args.len() == original.args.len()
                && op.args.iter().zip(&original.args).all(|(arg, wanted)| stands[arg].contains(wanted))
        }
    };
    if !reads_right {
        return Err(MagisViolation::Operands(op.id));
    }
    let whole = op.shape == original.shape;
    let part = match (op.shape.split_first(), original.shape.split_first()) {
        (Some((first, rest)), Some((whole, all))) => rest == all && first * parts == *whole,
        _ => false,
    };
    let size = if whole { Some(op.out_bytes) } else { part.then_some(op.out_bytes * parts) };
    // What is added up over the parts, and what is there whole, is counted outside.
    if size.is_none_or(|size| size != original.out_bytes && !(whole && size == 0)) {
        return Err(MagisViolation::Parts(op.id));
    }
    stands.insert(op.id, vec![of]);
    Ok(())
}
