//! The latency of an assignment: the time at which one sample is finished.
//!
//! An accelerator runs contiguous blocks, one at a time. A block starts when all its inputs are computed and the
//! accelerator's previous block has finished; it takes the transfers of its inputs, the times of its operators, and the
//! transfers of what leaves it. CPUs are unlimited: an operator there starts as soon as its inputs are in host memory.
//!
//! The blocks follow from the assignment: the operators of an accelerator are one block if that is possible; else the
//! block number of an operator is one more than the maximum number of times that a path to it leaves the accelerator
//! (the rule of the authors' evaluator). If even these blocks depend on each other in a cycle, the assignment cannot run.

use super::{PlacementWorkload, bundles::Bundles};

/// Evaluates the latency of assignments of one workload, with reusable tables.
#[derive(Debug, Clone)]
pub struct LatencyEvaluator<'a> {
    workload: &'a PlacementWorkload,
    problem: &'a Bundles,
    /// Operators in topological order.
    order: Vec<u32>,
    /// Start of each operator's slice of `readers`.
    first: Vec<u32>,
    readers: Vec<u32>,
    tables: Tables,
}

/// State by unit: a unit is a block, or an operator on a CPU.
#[derive(Debug, Clone, Default)]
struct Tables {
    /// The unit of each operator. Blocks have the lowest indices, then operators on CPUs.
    unit: Vec<u32>,
    blocks: usize,
    waiting: Vec<u32>,
    ready: Vec<f64>,
    /// The unit that it waited for last.
    cause: Vec<u32>,
    /// The unit that finished last.
    last: u32,
    duration: Vec<f64>,
    stamp: Vec<u32>,
    /// Start of each block's slice of `members`.
    bounds: Vec<u32>,
    members: Vec<u32>,
    stack: Vec<u32>,
    /// The next block on the accelerator of each block.
    successor: Vec<u32>,
    /// From the last split into blocks: the accelerator of each operator, its block index there, and the number of blocks
    /// of each accelerator. Only accelerators that have changed since are split again.
    home: Vec<u32>,
    number: Vec<u32>,
    most: Vec<u32>,
    depth: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl<'a> LatencyEvaluator<'a> {
    pub fn new(workload: &'a PlacementWorkload, problem: &'a Bundles) -> LatencyEvaluator<'a> {
        let count = workload.operators.len();
        let order = workload.order().unwrap_or_default().into_iter().map(|i| i as u32).collect();
        // Edges are sorted by source.
        let mut first = vec![0u32; count + 1];
        workload.edges.iter().for_each(|(from, _)| first[from + 1] += 1);
        for at in 0..count {
            first[at + 1] += first[at];
        }
        let readers = workload.edges.iter().map(|(_, to)| *to as u32).collect();
        LatencyEvaluator { workload, problem, order, first, readers, tables: Tables::default() }
    }

    /// The latency; infinite if the blocks depend on each other in a cycle. `device` gives the device of each bundle: the
    /// accelerators by index, every other number is a CPU.
    pub fn latency(&mut self, device: &[usize]) -> f64 {
        self.whole_blocks(device);
        let finish = self.run();
        if finish.is_finite() || !self.split_blocks(device) {
            return finish;
        }
        self.run()
    }

    /// The block of each operator in the last evaluation, numbered over all accelerators; `None` on a CPU.
    pub fn blocks(&self) -> Vec<Option<u32>> {
        let blocks = self.tables.blocks as u32;
        self.tables.unit.iter().map(|unit| (*unit < blocks).then_some(*unit)).collect()
    }

    /// The operators on the critical path of the last evaluation.
    pub fn critical(&self) -> Vec<u32> {
        let Tables { blocks, bounds, members, cause, .. } = &self.tables;
        let mut critical = Vec::new();
        let mut at = self.tables.last;
        while at != NONE {
            let unit = at as usize;
            match unit < *blocks {
                true => critical.extend(&members[bounds[unit] as usize..bounds[unit + 1] as usize]),
                false => critical.push((unit - blocks) as u32),
            }
            at = cause.get(unit).copied().unwrap_or(NONE);
        }
        critical
    }

    /// Assigns one block to each accelerator.
    fn whole_blocks(&mut self, device: &[usize]) {
        let accelerators = self.problem.accelerators;
        let unit = &mut self.tables.unit;
        unit.clear();
        unit.resize(self.workload.operators.len(), 0);
        for (bundle, &device) in self.problem.bundles.iter().zip(device) {
            for &op in &bundle.operators {
                unit[op] = if device < accelerators { device as u32 } else { (accelerators + op) as u32 };
            }
        }
        self.tables.blocks = accelerators;
        self.tables.successor.clear();
        self.tables.successor.resize(accelerators, NONE);
    }

    /// Splits accelerators into blocks where paths leave and come back; false if no accelerator is split.
    fn split_blocks(&mut self, device: &[usize]) -> bool {
        let count = self.workload.operators.len();
        let accelerators = self.problem.accelerators;
        let Tables { unit, home, number, most, depth, .. } = &mut self.tables;
        home.resize(count, NONE);
        number.resize(count, 0);
        most.resize(accelerators, 0);
        let mut changed = vec![false; accelerators];
        for (bundle, &device) in self.problem.bundles.iter().zip(device) {
            let here = if device < accelerators { device as u32 } else { NONE };
            for &op in &bundle.operators {
                let before = std::mem::replace(&mut home[op], here);
                if before != here {
                    [before, here].into_iter().filter(|at| *at != NONE).for_each(|at| changed[at as usize] = true);
                }
            }
        }
        for accelerator in (0..accelerators).filter(|at| changed[*at]) {
            let here = accelerator as u32;
            most[accelerator] = 0;
            depth.clear();
            depth.resize(count, 0);
            for &op in &self.order {
                let at = op as usize;
                if home[at] == here {
                    depth[at] = depth[at].max(1);
                    number[at] = depth[at] - 1;
                    most[accelerator] = most[accelerator].max(depth[at]);
                }
                for &reader in &self.readers[self.first[at] as usize..self.first[at + 1] as usize] {
                    let entered = u32::from(home[reader as usize] == here && home[at] != here);
                    depth[reader as usize] = depth[reader as usize].max(depth[at] + entered);
                }
            }
        }
        let mut first_block = vec![0u32; accelerators + 1];
        for (accelerator, most) in most.iter().enumerate() {
            first_block[accelerator + 1] = first_block[accelerator] + most;
        }
        let is_split = most.iter().any(|most| *most > 1);
        let blocks = first_block[accelerators] as usize;
        for op in 0..count {
            unit[op] = match home[op] {
                NONE => (blocks + op) as u32,
                accelerator => first_block[accelerator as usize] + number[op],
            };
        }
        self.tables.blocks = blocks;
        self.tables.successor.clear();
        self.tables.successor.resize(blocks, NONE);
        for window in first_block.windows(2) {
            for block in window[0]..window[1].saturating_sub(1) {
                self.tables.successor[block as usize] = block + 1;
            }
        }
        is_split
    }

    /// List-schedules the units; infinite if some of them wait for each other.
    fn run(&mut self) -> f64 {
        self.count_dependencies();
        self.list_members();
        let Tables {
            unit,
            blocks,
            waiting,
            ready,
            cause,
            last: latest,
            duration,
            bounds,
            members,
            stack,
            successor,
            ..
        } = &mut self.tables;
        let (count, blocks) = (self.workload.operators.len(), *blocks);
        stack.clear();
        let is_used = |block: &usize| bounds[block + 1] > bounds[*block];
        stack.extend((0..blocks).filter(is_used).filter(|b| waiting[*b] == 0).map(|b| b as u32));
        let is_free = |op: &usize| unit[*op] as usize == blocks + op && waiting[blocks + op] == 0;
        stack.extend((0..count).filter(is_free).map(|op| (blocks + op) as u32));
        let (mut last, mut run) = (0.0f64, 0);
        while let Some(at) = stack.pop() {
            let at = at as usize;
            let finish = ready[at] + duration[at];
            if finish > last {
                (last, *latest) = (finish, at as u32);
            }
            let single = [(at.wrapping_sub(blocks)) as u32];
            let own: &[u32] =
                if at < blocks { &members[bounds[at] as usize..bounds[at + 1] as usize] } else { &single };
            run += own.len();
            let mut release = |there: usize| {
                if finish > ready[there] {
                    (ready[there], cause[there]) = (finish, at as u32);
                }
                waiting[there] -= 1;
                if waiting[there] == 0 {
                    stack.push(there as u32);
                }
            };
            for &op in own {
                for &reader in &self.readers[self.first[op as usize] as usize..self.first[op as usize + 1] as usize] {
                    let there = unit[reader as usize] as usize;
                    if there != at {
                        release(there);
                    }
                }
            }
            if at < blocks && successor[at] != NONE {
                release(successor[at] as usize);
            }
        }
        if run == count { last } else { f64::INFINITY }
    }

    /// Fills, by unit, the number of dependencies and the duration; by block, the number of operators.
    fn count_dependencies(&mut self) {
        let Tables { unit, blocks, waiting, ready, cause, last, duration, stamp, bounds, successor, .. } =
            &mut self.tables;
        let (count, blocks) = (self.workload.operators.len(), *blocks);
        let units = blocks + count;
        waiting.clear();
        waiting.resize(units, 0);
        ready.clear();
        ready.resize(units, 0.0);
        cause.clear();
        cause.resize(units, NONE);
        *last = NONE;
        duration.clear();
        duration.resize(units, 0.0);
        stamp.clear();
        stamp.resize(blocks, NONE);
        bounds.clear();
        bounds.resize(blocks + 1, 0);
        for at in 0..count {
            let (home, operator) = (unit[at] as usize, &self.workload.operators[at]);
            if home < blocks {
                bounds[home + 1] += 1;
                duration[home] += operator.accelerator_time;
            } else {
                duration[home] += operator.cpu_time;
            }
            let mut leaves = false;
            for &reader in &self.readers[self.first[at] as usize..self.first[at + 1] as usize] {
                let there = unit[reader as usize] as usize;
                if there == home {
                    continue;
                }
                waiting[there] += 1;
                leaves = true;
                if there < blocks && stamp[there] != at as u32 {
                    stamp[there] = at as u32;
                    duration[there] += operator.transfer;
                }
            }
            if leaves && home < blocks {
                duration[home] += operator.transfer;
            }
        }
        for next in successor.iter().filter(|next| **next != NONE) {
            waiting[*next as usize] += 1;
        }
    }

    /// Fills the operators of each block.
    fn list_members(&mut self) {
        let Tables { unit, blocks, bounds, members, .. } = &mut self.tables;
        let blocks = *blocks;
        for block in 0..blocks {
            bounds[block + 1] += bounds[block];
        }
        members.clear();
        members.resize(bounds[blocks] as usize, 0);
        let mut fill = bounds.clone();
        for (at, home) in unit.iter().enumerate() {
            if let Some(slot) = fill.get_mut(*home as usize).filter(|_| (*home as usize) < blocks) {
                members[*slot as usize] = at as u32;
                *slot += 1;
            }
        }
    }
}
