//! Expands a schedule decision into the steps that run, and evaluates their time and memory: the inner loop of the
//! search.
//!
//! The operators run in the order of the decision. A missing operand is recomputed first, together with the operands
//! that this needs; recomputed values stay live until their next use in the order, unless the decision says otherwise.
//! The lifetime of a value ends with its last use before it is written again. One pass over the reads, without
//! allocation.

use smallvec::SmallVec;

use super::{
    schedule_decision::{NO_READ, ReadIndex, Reads, ScheduleDecision},
    schedule_step::{Access, ScheduleCost, ScheduleStep},
};
use crate::program::{Program, ValueIndex};
use edgecut_graph::units::{Bytes, Micros};

/// The expansion of decisions for one program, with reusable buffers.
pub struct ScheduleExpander<'p> {
    pub(super) program: &'p Program,
    pub(super) reads: Reads,
    /// For each value the values that share its storage, itself included; empty if there are no others.
    pub(super) versions: Vec<SmallVec<[ValueIndex; 4]>>,
    /// Steps expanded so far.
    pub(super) work: u64,
    /// The steps of the last decision.
    pub(super) steps: Vec<ScheduleStep>,
    /// The start time of each step in microseconds.
    pub(super) starts: Vec<f64>,
    /// The bytes live during each step.
    pub(super) load: Vec<u64>,
    /// The step of each position of the order.
    pub(super) step_of: Vec<u32>,
    /// Filled only by [`ScheduleExpander::trace`].
    pub(super) accesses: Vec<Access>,
    pub(super) next: Vec<ReadIndex>,
    pub(super) values: Vec<ValueState>,
    /// Change of the live bytes at each step.
    pub(super) delta: Vec<i64>,
    pub(super) stack: Vec<ValueIndex>,
    pub(super) transfers: Vec<SmallVec<[u32; 2]>>,
    /// The times until which the compute and the copy stream are busy, in microseconds.
    pub(super) computing: f64,
    pub(super) copying: f64,
    /// Values with readers whose operator writes nothing else: writing them without a later read is wasted.
    pub(super) is_single_output: Vec<bool>,
    pub(super) has_dead_store: bool,
    /// The value that is being copied to the host, and until when.
    pub(super) storing: Option<(ValueIndex, f64)>,
}

/// The state of one value during the expansion.
#[derive(Clone, Copy)]
pub(super) struct ValueState {
    /// The step that wrote it; [`NO_READ`] if it occupies no bytes.
    pub since: u32,
    pub last: u32,
    /// The next read in the order.
    pub next: ReadIndex,
    /// The position in the order, plus 1, for which it was recomputed.
    pub recomputed_for: u32,
    pub is_live: bool,
    pub on_host: bool,
    pub ready: f64,
}

const ABSENT: ValueState = ValueState {
    since: NO_READ,
    last: 0,
    next: NO_READ,
    recomputed_for: 0,
    is_live: false,
    on_host: false,
    ready: 0.0,
};

impl<'p> ScheduleExpander<'p> {
    pub fn new(program: &'p Program) -> ScheduleExpander<'p> {
        let storages = program.values.iter().map(|v| v.storage as usize + 1).max().unwrap_or(0);
        let mut sharing: Vec<SmallVec<[ValueIndex; 4]>> = vec![SmallVec::new(); storages];
        for (index, value) in (0..).zip(&program.values) {
            sharing[value.storage as usize].push(index);
        }
        let versions = program.values.iter().map(|value| {
            let values = &sharing[value.storage as usize];
            if values.len() > 1 { values.clone() } else { SmallVec::new() }
        });
        ScheduleExpander {
            versions: versions.collect(),
            reads: Reads::of(program),
            program,
            work: 0,
            steps: Vec::new(),
            starts: Vec::new(),
            load: Vec::new(),
            step_of: Vec::new(),
            accesses: Vec::new(),
            next: Vec::new(),
            values: Vec::new(),
            delta: Vec::new(),
            stack: Vec::new(),
            transfers: vec![SmallVec::new(); program.operators.len()],
            computing: 0.0,
            copying: 0.0,
            is_single_output: single_outputs(program),
            has_dead_store: false,
            storing: None,
        }
    }

    /// The cost of a decision; `None` if it needs a value that cannot be recomputed.
    pub fn cost(&mut self, decision: &ScheduleDecision, limit: Bytes) -> Option<ScheduleCost> {
        self.evaluate::<false>(decision, limit)
    }

    /// As [`ScheduleExpander::cost`], and records the accesses to all values.
    pub(super) fn trace(&mut self, decision: &ScheduleDecision, limit: Bytes) -> Option<ScheduleCost> {
        self.evaluate::<true>(decision, limit)
    }

    /// The steps of a decision; `None` if it needs a value that cannot be recomputed.
    pub(super) fn into_steps(mut self, decision: &ScheduleDecision) -> Option<Vec<ScheduleStep>> {
        self.cost(decision, Bytes(u64::MAX))?;
        Some(self.steps)
    }

    fn evaluate<const TRACE: bool>(&mut self, decision: &ScheduleDecision, limit: Bytes) -> Option<ScheduleCost> {
        self.reset(decision);
        let is_complete = self.run_order::<TRACE>(decision);
        for transfer in &decision.transfers {
            self.transfers[transfer.store as usize].clear();
            self.transfers[transfer.load as usize].clear();
        }
        self.work += self.steps.len() as u64;
        if !is_complete {
            return None;
        }
        let end = self.steps.len() as u32;
        for index in 0..self.values.len() {
            if self.program.values[index].result && !self.values[index].is_live {
                return None;
            }
            if self.values[index].since != NO_READ {
                let last = if self.program.values[index].result { end } else { self.values[index].last };
                self.end_lifetime(index as u32, last);
            }
        }
        if self.has_dead_store {
            return None;
        }
        let (mut live, mut peak, mut overload) = (self.program.resident.0 as i64, 0, 0.0);
        self.load.clear();
        for (step, delta) in self.steps.iter().zip(&self.delta) {
            live += delta;
            let workspace = match step {
                ScheduleStep::Run(operator) => self.program.operator(*operator).workspace.0,
                _ => 0,
            };
            let load = live as u64 + workspace;
            self.load.push(load);
            peak = peak.max(load);
            overload += load.saturating_sub(limit.0) as f64;
        }
        Some(ScheduleCost { peak: Bytes(peak), time: Micros(self.computing.max(self.copying)), overload })
    }

    fn reset(&mut self, decision: &ScheduleDecision) {
        let program = self.program;
        self.steps.clear();
        self.starts.clear();
        self.step_of.clear();
        self.accesses.clear();
        self.values.clear();
        self.values.resize(program.values.len(), ABSENT);
        self.delta.clear();
        self.delta.resize(self.max_steps() + 2, 0);
        self.next.resize(self.reads.value.len(), NO_READ);
        (self.computing, self.copying, self.storing, self.has_dead_store) = (0.0, 0.0, None, false);
        for &operator in decision.order.iter().rev() {
            for read in self.reads.of_operator(operator) {
                let state = &mut self.values[self.reads.value[read] as usize];
                self.next[read] = std::mem::replace(&mut state.next, read as u32);
            }
        }
        for (state, value) in self.values.iter_mut().zip(&program.values) {
            state.is_live = value.producer.is_none();
        }
        for (index, transfer) in (0..).zip(&decision.transfers) {
            self.transfers[transfer.store as usize].push(index);
            if transfer.load != transfer.store {
                self.transfers[transfer.load as usize].push(index);
            }
        }
    }

    /// Limit on the length of a schedule.
    pub(super) fn max_steps(&self) -> usize {
        self.program.operators.len() * 6 + 64
    }
}

fn single_outputs(program: &Program) -> Vec<bool> {
    let mut is_single_output = vec![false; program.values.len()];
    for &read in program.operators.iter().flat_map(|o| &o.reads) {
        let producer = program.value(read).producer;
        is_single_output[read as usize] = producer.is_some_and(|p| program.operator(p).writes.len() == 1);
    }
    is_single_output
}
