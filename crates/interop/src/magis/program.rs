//! Operators as a program, and the steps of a schedule as operators.

use std::collections::HashMap;

use super::{CostModel, Op};
use edgecut_graph::{
    LinkCost,
    units::{Bytes, Micros},
};
use edgecut_memory::{
    program::{Operator, Program, Value},
    remat::ScheduleStep,
};

/// A list of operators as a program: operator `i` makes value `i`.
///
/// `rounds` is how often all of it runs one after the other; times are those of all rounds together. Arguments that
/// are not in the list are there from the beginning and cost nothing.
pub fn program(ops: &[Op], cost: &CostModel, rounds: u64) -> Program {
    let rounds = rounds as f64;
    let mut index: HashMap<u64, u32> = HashMap::new();
    let mut program = Program {
        host: Some(LinkCost::per_byte(Micros(cost.mem_launch_ms * 1e3 * rounds), 1e6 / cost.pcie * rounds)),
        ..Program::default()
    };
    for (number, op) in (0..).zip(ops) {
        let mut operator = Operator {
            time: Micros(op.latency_ms * 1e3 * rounds),
            workspace: Bytes(op.extra_bytes),
            repeatable: !op.is_placeholder(),
            first: op.is_placeholder(),
            ..Operator::default()
        };
        operator.writes.push(number);
        for read in op.args.iter().filter_map(|arg| index.get(arg)) {
            if !operator.reads.contains(read) {
                operator.reads.push(*read);
            }
        }
        program.operators.push(operator);
        let value =
            Value { bytes: Bytes(op.out_bytes), producer: Some(number), result: true, replaces: None, storage: number };
        program.values.push(value);
        index.insert(op.id, number);
    }
    // A value that is read is not a result.
    for operator in &program.operators {
        for &read in &operator.reads {
            program.values[read as usize].result = false;
        }
    }
    program
}

/// The operators of a schedule, in its order: what runs again and what is copied gets a new id.
pub fn operators(ops: &[Op], cost: &CostModel, steps: &[ScheduleStep], fresh: &mut u64) -> Vec<Op> {
    let index: HashMap<u64, usize> = ops.iter().enumerate().map(|(i, op)| (op.id, i)).collect();
    // For each operator the one that holds its value now, and the one that stored it.
    let mut holder: Vec<Option<u64>> = vec![None; ops.len()];
    let mut stored: Vec<Option<u64>> = vec![None; ops.len()];
    let mut new_id = || {
        *fresh += 1;
        *fresh
    };
    let mut made = Vec::with_capacity(steps.len());
    for step in steps {
        match *step {
            ScheduleStep::Run(operator) => {
                let at = operator as usize;
                let mut op = ops[at].clone();
                for arg in &mut op.args {
                    if let Some(now) = index.get(arg).and_then(|&i| holder[i]) {
                        *arg = now;
                    }
                }
                if holder[at].is_some() {
                    op.of = Some(op.of.unwrap_or(op.id));
                    op.id = new_id();
                    op.is_remat = true;
                }
                holder[at] = Some(op.id);
                made.push(op);
            }
            ScheduleStep::Store(value) | ScheduleStep::Load(value) => {
                let at = value as usize;
                let latency = cost.mem_launch_ms + ops[at].out_bytes as f64 / cost.pcie * 1e3;
                let id = new_id();
                let (tag, from) = match step {
                    ScheduleStep::Store(_) => ("store", &mut holder[at]),
                    _ => ("load", &mut stored[at]),
                };
                made.push(ops[at].like(id, tag, from.iter().copied().collect(), latency));
                match step {
                    ScheduleStep::Store(_) => stored[at] = Some(id),
                    _ => holder[at] = Some(id),
                }
            }
        }
    }
    made
}
