//! Unfolds a choice into the steps that really run, and takes their time and memory: the inner loop of the search.
//!
//! The operators run in the order of the choice. An operand that is not there is made again first, with whatever
//! operands that drags along; what was made on the way stays until its next regular use, unless the choice says
//! otherwise. A value's life ends with the last use before it is made anew, so nothing is ever freed too late.
//! One pass over the reads, without allocating.

use smallvec::SmallVec;

use super::{
    super::program::{OperatorIndex, Program, ValueIndex},
    choice::{Choice, Mode, NONE, ReadIndex, Reads},
};

/// One step of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Run(OperatorIndex),
    /// Copies a value to the host.
    Store(ValueIndex),
    /// Copies it back.
    Load(ValueIndex),
}

/// What a schedule costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Bytes.
    pub peak: u64,
    /// Microseconds.
    pub time: f64,
    /// Bytes above the limit, summed over the steps.
    pub overload: f64,
}

/// One use of a value by a step.
#[derive(Debug, Clone, Copy)]
pub struct Touch {
    pub step: u32,
    pub value: ValueIndex,
    /// The read, if an operator of the order reads; [`NONE`] if the value is made, copied or dragged along.
    pub read: ReadIndex,
    /// Whether the value comes to be here.
    pub made: bool,
}

/// The unfolding of one program, with room for its steps.
pub struct Unfold<'p> {
    program: &'p Program,
    pub reads: Reads,
    /// The values that share one value's bytes, itself among them; empty where it is alone.
    versions: Vec<SmallVec<[ValueIndex; 4]>>,
    /// Steps looked at so far.
    pub work: u64,
    /// Of the last choice.
    pub steps: Vec<Step>,
    /// When each step starts.
    pub starts: Vec<f64>,
    /// Memory during each step.
    pub load: Vec<u64>,
    /// For each place of the order its step.
    pub place: Vec<u32>,
    /// Filled by [`Unfold::trace`] only.
    pub touches: Vec<Touch>,
    next: Vec<ReadIndex>,
    values: Vec<State>,
    delta: Vec<i64>,
    stack: Vec<ValueIndex>,
    copies: Vec<SmallVec<[u32; 2]>>,
    computing: f64,
    copying: f64,
    /// For each value whether making it for nobody is a waste: it has readers, and its operator makes nothing else.
    lonely: Vec<bool>,
    wasted: bool,
    /// A value that is being stored, and until when.
    storing: Option<(ValueIndex, f64)>,
}

/// What is known of one value while steps are unfolded.
#[derive(Clone, Copy)]
struct State {
    /// The step that made it; [`NONE`] if it has no bytes now.
    since: u32,
    last: u32,
    /// The next read by the order.
    next: ReadIndex,
    /// The place in the order, plus 1, for which it was made on the way.
    passing: u32,
    there: bool,
    on_host: bool,
    ready: f64,
}

const GONE: State = State { since: NONE, last: 0, next: NONE, passing: 0, there: false, on_host: false, ready: 0.0 };

impl<'p> Unfold<'p> {
    pub fn new(program: &'p Program) -> Unfold<'p> {
        let storages = program.values.iter().map(|v| v.storage as usize + 1).max().unwrap_or(0);
        let mut families: Vec<SmallVec<[ValueIndex; 4]>> = vec![SmallVec::new(); storages];
        for (index, value) in (0..).zip(&program.values) {
            families[value.storage as usize].push(index);
        }
        let versions = program.values.iter().map(|value| {
            let family = &families[value.storage as usize];
            if family.len() > 1 { family.clone() } else { SmallVec::new() }
        });
        Unfold {
            versions: versions.collect(),
            reads: Reads::of(program),
            program,
            work: 0,
            steps: Vec::new(),
            starts: Vec::new(),
            load: Vec::new(),
            place: Vec::new(),
            touches: Vec::new(),
            next: Vec::new(),
            values: Vec::new(),
            delta: Vec::new(),
            stack: Vec::new(),
            copies: vec![SmallVec::new(); program.operators.len()],
            computing: 0.0,
            copying: 0.0,
            lonely: lonely(program),
            wasted: false,
            storing: None,
        }
    }

    pub fn program(&self) -> &'p Program {
        self.program
    }

    /// The figures of a choice; `None` if it needs a value that cannot be made.
    pub fn figures(&mut self, choice: &Choice, limit: u64) -> Option<Figures> {
        self.unfold::<false>(choice, limit)
    }

    /// The same, and leaves the touches of all values.
    pub fn trace(&mut self, choice: &Choice, limit: u64) -> Option<Figures> {
        self.unfold::<true>(choice, limit)
    }

    fn unfold<const TRACE: bool>(&mut self, choice: &Choice, limit: u64) -> Option<Figures> {
        self.clear(choice);
        let done = self.run_order::<TRACE>(choice);
        for transfer in &choice.copies {
            self.copies[transfer.store as usize].clear();
            self.copies[transfer.load as usize].clear();
        }
        self.work += self.steps.len() as u64;
        if !done {
            return None;
        }
        let end = self.steps.len() as u32;
        for index in 0..self.values.len() {
            if self.program.values[index].result && !self.values[index].there {
                return None;
            }
            if self.values[index].since != NONE {
                let last = if self.program.values[index].result { end } else { self.values[index].last };
                self.close(index as u32, last);
            }
        }
        if self.wasted {
            return None;
        }
        let (mut now, mut peak, mut overload) = (self.program.resident as i64, 0, 0.0);
        self.load.clear();
        for (step, delta) in self.steps.iter().zip(&self.delta) {
            now += delta;
            let workspace = match step {
                Step::Run(operator) => self.program.operator(*operator).workspace,
                _ => 0,
            };
            let load = now as u64 + workspace;
            self.load.push(load);
            peak = peak.max(load);
            overload += load.saturating_sub(limit) as f64;
        }
        Some(Figures { peak, time: self.computing.max(self.copying), overload })
    }

    fn clear(&mut self, choice: &Choice) {
        let program = self.program;
        self.steps.clear();
        self.starts.clear();
        self.place.clear();
        self.touches.clear();
        self.values.clear();
        self.values.resize(program.values.len(), GONE);
        self.delta.clear();
        self.delta.resize(self.most_steps() + 2, 0);
        self.next.resize(self.reads.value.len(), NONE);
        (self.computing, self.copying, self.storing, self.wasted) = (0.0, 0.0, None, false);
        for &operator in choice.order.iter().rev() {
            for read in self.reads.of_operator(operator) {
                let state = &mut self.values[self.reads.value[read] as usize];
                self.next[read] = std::mem::replace(&mut state.next, read as u32);
            }
        }
        for (state, value) in self.values.iter_mut().zip(&program.values) {
            state.there = value.producer.is_none();
        }
        for (index, transfer) in (0..).zip(&choice.copies) {
            self.copies[transfer.store as usize].push(index);
            if transfer.load != transfer.store {
                self.copies[transfer.load as usize].push(index);
            }
        }
    }

    fn most_steps(&self) -> usize {
        self.program.operators.len() * 6 + 64
    }

    fn run_order<const TRACE: bool>(&mut self, choice: &Choice) -> bool {
        let program = self.program;
        for (place, &operator) in (1..).zip(&choice.order) {
            if !self.copies[operator as usize].is_empty() && !self.transfers::<TRACE>(choice, operator) {
                return false;
            }
            let reads = self.reads.of_operator(operator);
            if self.waits(choice, operator) {
                self.place.push(self.steps.len() as u32);
                for read in reads {
                    self.pass(choice, read);
                }
                continue;
            }
            for read in reads.clone() {
                let value = self.reads.value[read];
                if !self.available(value, place) && !self.make::<TRACE>(choice, value, place) {
                    return false;
                }
            }
            // Making one operand may have overwritten another.
            if reads.clone().any(|read| !self.available(self.reads.value[read], place)) {
                return false;
            }
            self.place.push(self.steps.len() as u32);
            if !self.run::<TRACE>(operator, true) {
                return false;
            }
            for read in reads {
                self.pass(choice, read);
            }
            for &write in &program.operator(operator).writes {
                let there = self.stays(choice, write, self.values[write as usize].next);
                self.values[write as usize].there = there;
            }
        }
        true
    }

    /// Whether an operator need not run when its turn comes: all it makes is made again before it is first read.
    fn waits(&self, choice: &Choice, operator: OperatorIndex) -> bool {
        let operator = self.program.operator(operator);
        let mut wanted = false;
        operator.repeatable
            && operator.writes.iter().all(|&write| {
                let next = self.values[write as usize].next;
                wanted |= next != NONE;
                !self.program.value(write).result && (next == NONE || !self.stays(choice, write, next))
            })
            && wanted
    }

    /// A read of the order is over: the value stays for the next one, or goes.
    fn pass(&mut self, choice: &Choice, read: usize) {
        let value = self.reads.value[read];
        let next = self.next[read];
        let there = self.stays(choice, value, next);
        let state = &mut self.values[value as usize];
        state.next = next;
        // What is not there does not come by staying; a value that was just replaced has no bytes left.
        let present = state.since != NONE || self.program.value(value).producer.is_none();
        state.there = there && present && (state.there || state.passing != 0);
    }

    fn stays(&self, choice: &Choice, value: ValueIndex, next: ReadIndex) -> bool {
        match next {
            NONE => self.program.value(value).result || choice.held[value as usize],
            next => matches!(choice.modes[next as usize], Mode::Keep | Mode::Copy),
        }
    }

    fn available(&self, value: ValueIndex, place: u32) -> bool {
        let state = &self.values[value as usize];
        state.there || state.passing == place
    }

    /// Stores and loads that are due before an operator.
    fn transfers<const TRACE: bool>(&mut self, choice: &Choice, operator: OperatorIndex) -> bool {
        let due = self.copies[operator as usize].clone();
        for transfer in due.iter().map(|&index| choice.copies[index as usize]) {
            let value = self.reads.value[transfer.read as usize];
            let state = self.values[value as usize];
            if transfer.store == operator && state.there && state.next == transfer.read && state.since != NONE {
                if !state.on_host && !self.copy::<TRACE>(Step::Store(value)) {
                    return false;
                }
                let state = &mut self.values[value as usize];
                (state.there, state.on_host) = (false, true);
            }
        }
        for transfer in due.iter().map(|&index| choice.copies[index as usize]) {
            let value = self.reads.value[transfer.read as usize];
            let state = self.values[value as usize];
            let back = transfer.load == operator && state.on_host && !state.there && state.next == transfer.read;
            if back && !self.copy::<TRACE>(Step::Load(value)) {
                return false;
            }
        }
        true
    }

    /// Makes a value that is not there: from the host if it is there, else by running what makes it.
    fn make<const TRACE: bool>(&mut self, choice: &Choice, value: ValueIndex, place: u32) -> bool {
        let program = self.program;
        self.stack.clear();
        self.stack.push(value);
        while let Some(&value) = self.stack.last() {
            if self.available(value, place) {
                self.stack.pop();
                continue;
            }
            if self.values[value as usize].on_host {
                if !self.copy::<TRACE>(Step::Load(value)) {
                    return false;
                }
                continue;
            }
            let Some(operator) = program.value(value).producer.filter(|&p| program.operator(p).repeatable) else {
                return false;
            };
            let missing = program.operator(operator).reads.iter().find(|&&read| !self.available(read, place));
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
                let there = match next {
                    NONE => program.value(write).result || choice.held[write as usize],
                    next => choice.modes[next as usize] != Mode::Late,
                };
                let state = &mut self.values[write as usize];
                (state.there, state.passing) = (there, place);
            }
        }
        true
    }

    fn run<const TRACE: bool>(&mut self, operator: OperatorIndex, regular: bool) -> bool {
        let program = self.program;
        let step = self.steps.len() as u32;
        if step as usize >= self.most_steps() {
            return false;
        }
        let mut start = self.computing;
        let first = self.reads.first[operator as usize];
        for (index, &read) in (first..).zip(&program.operator(operator).reads) {
            let state = &mut self.values[read as usize];
            start = start.max(state.ready);
            state.last = step;
            if TRACE {
                let read_index = if regular { index } else { NONE };
                self.touches.push(Touch { step, value: read, read: read_index, made: false });
            }
        }
        self.begin(Step::Run(operator), start);
        for &write in &program.operator(operator).writes {
            if !self.create::<TRACE>(write, step, program.value(write).replaces) {
                return false;
            }
        }
        self.computing = start + program.operator(operator).time;
        true
    }

    fn copy<const TRACE: bool>(&mut self, step: Step) -> bool {
        let index = self.steps.len() as u32;
        let (Step::Store(value) | Step::Load(value)) = step else { return false };
        let Some(time) = self.program.copy_time(value) else { return false };
        if index as usize >= self.most_steps() {
            return false;
        }
        let start = self.computing.max(self.copying);
        self.begin(step, start);
        (self.computing, self.copying) = (start, start + time);
        match step {
            Step::Load(_) => {
                if !self.create::<TRACE>(value, index, None) {
                    return false;
                }
                let state = &mut self.values[value as usize];
                (state.there, state.ready) = (true, self.copying);
            }
            _ => {
                self.values[value as usize].last = index;
                self.storing = Some((value, self.copying));
                if TRACE {
                    self.touches.push(Touch { step: index, value, read: NONE, made: false });
                }
            }
        }
        true
    }

    /// A step begins; what is being stored at that time is still there.
    fn begin(&mut self, step: Step, start: f64) {
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

    fn create<const TRACE: bool>(&mut self, value: ValueIndex, step: u32, replaces: Option<ValueIndex>) -> bool {
        if self.storing.is_some_and(|(stored, _)| stored == value || replaces == Some(stored)) {
            return false;
        }
        for at in 0..self.versions[value as usize].len() {
            let other = self.versions[value as usize][at];
            if other == value {
                continue;
            }
            let state = self.values[other as usize];
            if state.since != NONE {
                // The bytes of what is replaced go over without a gap.
                let last = if replaces == Some(other) { step.wrapping_sub(1) } else { state.last };
                self.close(other, last);
            }
            let state = &mut self.values[other as usize];
            (state.there, state.passing) = (false, 0);
        }
        if self.values[value as usize].since != NONE {
            self.close(value, self.values[value as usize].last);
        }
        let state = &mut self.values[value as usize];
        (state.since, state.last, state.ready) = (step, step, 0.0);
        if TRACE {
            self.touches.push(Touch { step, value, read: NONE, made: true });
        }
        true
    }

    fn close(&mut self, value: ValueIndex, last: u32) {
        let bytes = self.program.value(value).bytes as i64;
        let state = &mut self.values[value as usize];
        self.wasted |= self.program.host.is_some() && state.last == state.since && self.lonely[value as usize];
        self.delta[state.since as usize] += bytes;
        self.delta[last as usize + 1] -= bytes;
        state.since = NONE;
    }
}

fn lonely(program: &Program) -> Vec<bool> {
    let mut lonely = vec![false; program.values.len()];
    for &read in program.operators.iter().flat_map(|o| &o.reads) {
        let producer = program.value(read).producer;
        lonely[read as usize] = producer.is_some_and(|p| program.operator(p).writes.len() == 1);
    }
    lonely
}
