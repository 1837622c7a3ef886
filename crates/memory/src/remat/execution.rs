//! The execution model of [`ScheduleExpander`]: runs, recomputations and copies, with the lifetimes that follow.

use super::{
    schedule_decision::{NO_READ, ReadIndex, ReadMode, ScheduleDecision},
    schedule_expander::ScheduleExpander,
    schedule_step::{Access, ScheduleStep},
};
use crate::program::{OperatorIndex, ValueIndex};

impl ScheduleExpander<'_> {
    /// Runs the operators of the decision's order; false if an operand cannot be recomputed or the schedule is too long.
    pub(super) fn run_order<const TRACE: bool>(&mut self, decision: &ScheduleDecision) -> bool {
        let program = self.program;
        for (position, &operator) in (1..).zip(&decision.order) {
            if !self.transfers[operator as usize].is_empty() && !self.run_transfers::<TRACE>(decision, operator) {
                return false;
            }
            let reads = self.reads.of_operator(operator);
            if self.is_deferred(decision, operator) {
                self.step_of.push(self.steps.len() as u32);
                for read in reads {
                    self.finish_read(decision, read);
                }
                continue;
            }
            for read in reads.clone() {
                let value = self.reads.value[read];
                if !self.is_available(value, position) && !self.recompute::<TRACE>(decision, value, position) {
                    return false;
                }
            }
            // Recomputing one operand may have overwritten another.
            if reads.clone().any(|read| !self.is_available(self.reads.value[read], position)) {
                return false;
            }
            self.step_of.push(self.steps.len() as u32);
            if !self.run::<TRACE>(operator, true) {
                return false;
            }
            for read in reads {
                self.finish_read(decision, read);
            }
            for &write in &program.operator(operator).writes {
                let is_live = self.stays_live(decision, write, self.values[write as usize].next);
                self.values[write as usize].is_live = is_live;
            }
        }
        true
    }

    /// Whether an operator need not run at its position, because all its results are recomputed before their first read.
    fn is_deferred(&self, decision: &ScheduleDecision, operator: OperatorIndex) -> bool {
        let operator = self.program.operator(operator);
        let mut has_reader = false;
        operator.repeatable
            && operator.writes.iter().all(|&write| {
                let next = self.values[write as usize].next;
                has_reader |= next != NO_READ;
                !self.program.value(write).result && (next == NO_READ || !self.stays_live(decision, write, next))
            })
            && has_reader
    }

    /// After a read of the order: the value stays live until the next one, or is freed.
    fn finish_read(&mut self, decision: &ScheduleDecision, read: usize) {
        let value = self.reads.value[read];
        let next = self.next[read];
        let stays = self.stays_live(decision, value, next);
        let state = &mut self.values[value as usize];
        state.next = next;
        // A value that was just overwritten has no bytes left.
        let exists = state.since != NO_READ || self.program.value(value).producer.is_none();
        state.is_live = stays && exists && (state.is_live || state.recomputed_for != 0);
    }

    fn stays_live(&self, decision: &ScheduleDecision, value: ValueIndex, next: ReadIndex) -> bool {
        match next {
            NO_READ => self.program.value(value).result || decision.retained[value as usize],
            next => matches!(decision.modes[next as usize], ReadMode::Keep | ReadMode::Offload),
        }
    }

    fn is_available(&self, value: ValueIndex, position: u32) -> bool {
        let state = &self.values[value as usize];
        state.is_live || state.recomputed_for == position
    }

    /// The stores and loads that are due before an operator.
    fn run_transfers<const TRACE: bool>(&mut self, decision: &ScheduleDecision, operator: OperatorIndex) -> bool {
        let due = self.transfers[operator as usize].clone();
        for transfer in due.iter().map(|&index| decision.transfers[index as usize]) {
            let value = self.reads.value[transfer.read as usize];
            let state = self.values[value as usize];
            if transfer.store == operator && state.is_live && state.next == transfer.read && state.since != NO_READ {
                if !state.on_host && !self.copy::<TRACE>(ScheduleStep::Store(value)) {
                    return false;
                }
                let state = &mut self.values[value as usize];
                (state.is_live, state.on_host) = (false, true);
            }
        }
        for transfer in due.iter().map(|&index| decision.transfers[index as usize]) {
            let value = self.reads.value[transfer.read as usize];
            let state = self.values[value as usize];
            let back = transfer.load == operator && state.on_host && !state.is_live && state.next == transfer.read;
            if back && !self.copy::<TRACE>(ScheduleStep::Load(value)) {
                return false;
            }
        }
        true
    }

    /// Makes a value available: loads it if the host has it, else recomputes it with whatever operands are missing.
    fn recompute<const TRACE: bool>(&mut self, decision: &ScheduleDecision, value: ValueIndex, position: u32) -> bool {
        let program = self.program;
        self.stack.clear();
        self.stack.push(value);
        while let Some(&value) = self.stack.last() {
            if self.is_available(value, position) {
                self.stack.pop();
                continue;
            }
            if self.values[value as usize].on_host {
                if !self.copy::<TRACE>(ScheduleStep::Load(value)) {
                    return false;
                }
                continue;
            }
            let Some(operator) = program.value(value).producer.filter(|&p| program.operator(p).repeatable) else {
                return false;
            };
            let missing = program.operator(operator).reads.iter().find(|&&read| !self.is_available(read, position));
            if let Some(&missing) = missing {
                self.stack.push(missing);
                if self.stack.len() > program.operators.len() {
                    return false;
                }
                continue;
            }
            if !self.run::<TRACE>(operator, false) {
                return false;
            }
            for &write in &program.operator(operator).writes {
                let next = self.values[write as usize].next;
                let is_live = match next {
                    NO_READ => program.value(write).result || decision.retained[write as usize],
                    next => decision.modes[next as usize] != ReadMode::RematLate,
                };
                let state = &mut self.values[write as usize];
                (state.is_live, state.recomputed_for) = (is_live, position);
            }
        }
        true
    }

    /// Runs an operator; `in_order` unless it is a recomputation.
    fn run<const TRACE: bool>(&mut self, operator: OperatorIndex, in_order: bool) -> bool {
        let program = self.program;
        let step = self.steps.len() as u32;
        if step as usize >= self.max_steps() {
            return false;
        }
        let mut start = self.computing;
        let first = self.reads.first[operator as usize];
        for (index, &read) in (first..).zip(&program.operator(operator).reads) {
            let state = &mut self.values[read as usize];
            start = start.max(state.ready);
            state.last = step;
            if TRACE {
                let read_index = if in_order { index } else { NO_READ };
                self.accesses.push(Access { step, value: read, read: read_index, written: false });
            }
        }
        self.begin(ScheduleStep::Run(operator), start);
        for &write in &program.operator(operator).writes {
            if !self.begin_lifetime::<TRACE>(write, step, program.value(write).replaces) {
                return false;
            }
        }
        self.computing = start + program.operator(operator).time.0;
        true
    }

    fn copy<const TRACE: bool>(&mut self, step: ScheduleStep) -> bool {
        let index = self.steps.len() as u32;
        let (ScheduleStep::Store(value) | ScheduleStep::Load(value)) = step else { return false };
        let Some(time) = self.program.copy_time(value) else { return false };
        if index as usize >= self.max_steps() {
            return false;
        }
        let start = self.computing.max(self.copying);
        self.begin(step, start);
        (self.computing, self.copying) = (start, start + time.0);
        match step {
            ScheduleStep::Load(_) => {
                if !self.begin_lifetime::<TRACE>(value, index, None) {
                    return false;
                }
                let state = &mut self.values[value as usize];
                (state.is_live, state.ready) = (true, self.copying);
            }
            _ => {
                self.values[value as usize].last = index;
                self.storing = Some((value, self.copying));
                if TRACE {
                    self.accesses.push(Access { step: index, value, read: NO_READ, written: false });
                }
            }
        }
        true
    }

    /// Begins a step; a value that is being copied to the host at its start stays live.
    fn begin(&mut self, step: ScheduleStep, start: f64) {
        if let Some((value, until)) = self.storing {
            if start < until {
                self.values[value as usize].last = self.steps.len() as u32;
            } else {
                self.storing = None;
            }
        }
        self.steps.push(step);
        self.starts.push(start);
    }

    /// Writes a value; false if its storage is being copied to the host.
    fn begin_lifetime<const TRACE: bool>(
        &mut self,
        value: ValueIndex,
        step: u32,
        replaces: Option<ValueIndex>,
    ) -> bool {
        if self.storing.is_some_and(|(stored, _)| stored == value || replaces == Some(stored)) {
            return false;
        }
        for at in 0..self.versions[value as usize].len() {
            let other = self.versions[value as usize][at];
            if other == value {
                continue;
            }
            let state = self.values[other as usize];
            if state.since != NO_READ {
                // The bytes of a replaced value pass over without a gap.
                let last = if replaces == Some(other) { step.wrapping_sub(1) } else { state.last };
                self.end_lifetime(other, last);
            }
            let state = &mut self.values[other as usize];
            (state.is_live, state.recomputed_for) = (false, 0);
        }
        if self.values[value as usize].since != NO_READ {
            self.end_lifetime(value, self.values[value as usize].last);
        }
        let state = &mut self.values[value as usize];
        (state.since, state.last, state.ready) = (step, step, 0.0);
        if TRACE {
            self.accesses.push(Access { step, value, read: NO_READ, written: true });
        }
        true
    }

    /// Ends the lifetime of a value after step `last`.
    pub(super) fn end_lifetime(&mut self, value: ValueIndex, last: u32) {
        let bytes = self.program.value(value).bytes.0 as i64;
        let state = &mut self.values[value as usize];
        let is_dead = state.last == state.since && self.is_single_output[value as usize];
        self.has_dead_store |= self.program.host.is_some() && is_dead;
        self.delta[state.since as usize] += bytes;
        self.delta[last as usize + 1] -= bytes;
        state.since = NO_READ;
    }
}
