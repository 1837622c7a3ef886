//! The buffers of a schedule: the input of arena packing.

use crate::{
    Buffer,
    program::{Operator, Program, ValueIndex},
    remat::ScheduleStep,
};
use edgecut_graph::units::Bytes;

/// Buffers with lifetimes in steps of the schedule (half open): one per lifetime of a value, then one per workspace.
/// Offsets are multiples of `align` bytes. A value that is copied to the host stays live until the copy ends.
pub(crate) fn schedule_buffers(program: &Program, steps: &[ScheduleStep], align: u64) -> Vec<Buffer> {
    let mut allocator = BufferAllocator {
        program,
        align,
        buffers: Vec::new(),
        workspaces: Vec::new(),
        held: vec![None; program.values.len()],
        ready: vec![0.0; program.values.len()],
        computing: 0.0,
        copying: 0.0,
        storing: None,
    };
    for (step, run) in (0u64..).zip(steps) {
        match *run {
            ScheduleStep::Run(operator) => allocator.run(step, program.operator(operator)),
            ScheduleStep::Store(value) => allocator.store(step, value),
            ScheduleStep::Load(value) => allocator.load(step, value),
        }
    }
    for (value, held) in program.values.iter().zip(&allocator.held) {
        if let (true, Some(buffer)) = (value.result, held) {
            allocator.buffers[*buffer].upper = steps.len() as u64 + 1;
        }
    }
    let mut buffers = allocator.buffers;
    buffers.extend(allocator.workspaces);
    buffers
}

/// State of the simulation of a schedule; times in microseconds.
struct BufferAllocator<'a> {
    program: &'a Program,
    align: u64,
    buffers: Vec<Buffer>,
    workspaces: Vec<Buffer>,
    /// The buffer of each live value.
    held: Vec<Option<usize>>,
    /// By value: when it is available, if it was loaded; else 0.
    ready: Vec<f64>,
    /// When the compute stream and the copy stream become idle.
    computing: f64,
    copying: f64,
    /// The buffer that is being copied to the host, and when the copy ends.
    storing: Option<(usize, f64)>,
}

impl BufferAllocator<'_> {
    fn run(&mut self, step: u64, operator: &Operator) {
        let start = operator.reads.iter().map(|&read| self.ready[read as usize]).fold(self.computing, f64::max);
        self.begin(step, start);
        self.computing = start + operator.time.0;
        for &read in &operator.reads {
            if let Some(buffer) = self.held[read as usize] {
                self.extend(buffer, step);
            }
        }
        for &write in &operator.writes {
            let value = self.program.value(write);
            let overwritten = value.replaces.and_then(|old| self.held[old as usize].take());
            let buffer = overwritten.unwrap_or_else(|| self.allocate(step, value.bytes));
            self.extend(buffer, step);
            self.held[write as usize] = Some(buffer);
            self.ready[write as usize] = 0.0;
        }
        if operator.workspace > Bytes::ZERO {
            self.workspaces.push(Buffer::new(step, step + 1, operator.workspace).align(self.align));
        }
    }

    fn store(&mut self, step: u64, value: ValueIndex) {
        self.begin_copy(step, value);
        if let Some(buffer) = self.held[value as usize] {
            self.extend(buffer, step);
            self.storing = Some((buffer, self.copying));
        }
    }

    fn load(&mut self, step: u64, value: ValueIndex) {
        self.begin_copy(step, value);
        let buffer = self.allocate(step, self.program.value(value).bytes);
        self.held[value as usize] = Some(buffer);
        self.ready[value as usize] = self.copying;
    }

    /// Starts a copy once both streams are idle; the compute stream then continues.
    fn begin_copy(&mut self, step: u64, value: ValueIndex) {
        let start = self.computing.max(self.copying);
        self.begin(step, start);
        let time = self.program.copy_time(value).unwrap_or_default().0;
        (self.computing, self.copying) = (start, start + time);
    }

    /// Begins a step at time `start`; a buffer that is being copied to the host then stays live.
    fn begin(&mut self, step: u64, start: f64) {
        self.storing = self.storing.filter(|(_, until)| start < *until);
        if let Some((buffer, _)) = self.storing {
            self.extend(buffer, step);
        }
    }

    fn allocate(&mut self, step: u64, bytes: Bytes) -> usize {
        self.buffers.push(Buffer::new(step, step + 1, bytes).align(self.align));
        self.buffers.len() - 1
    }

    fn extend(&mut self, buffer: usize, step: u64) {
        self.buffers[buffer].upper = self.buffers[buffer].upper.max(step + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Value;
    use edgecut_graph::{LinkCost, units::Micros};

    #[test]
    fn a_stored_value_is_live_until_its_copy_ends() {
        // Three operators without operands; the first result is copied to the host during the second.
        let host = Some(LinkCost::per_byte(Micros(15.0), 0.0));
        let mut program = Program { host, ..Program::default() };
        for index in 0..3u32 {
            let writes = [index].into_iter().collect();
            program.operators.push(Operator { time: Micros(10.0), writes, ..Operator::default() });
            let result = index == 2;
            let value = Value { bytes: Bytes(8), producer: Some(index), result, storage: index, ..Value::default() };
            program.values.push(value);
        }
        use ScheduleStep::{Load, Run, Store};
        let lifetimes = |steps: &[ScheduleStep]| -> Vec<(u64, u64)> {
            schedule_buffers(&program, steps, 1).iter().map(|b| (b.lower, b.upper)).collect()
        };
        assert_eq!(lifetimes(&[Run(0), Run(1), Run(2)]), [(0, 1), (1, 2), (2, 4)]);
        // The copy runs from 10 to 25 us: during the second operator and the start of the third.
        assert_eq!(lifetimes(&[Run(0), Store(0), Run(1), Run(2)]), [(0, 4), (2, 3), (3, 5)]);
        assert_eq!(lifetimes(&[Run(0), Store(0), Load(0)]), [(0, 2), (2, 3)]);
    }
}
