//! Latency: when one sample is finished.
//!
//! An accelerator runs contiguous blocks, one at a time: a block starts when all its inputs have been computed and
//! the accelerator's block before it is done, pays its inputs' transfers, its operators' times one after another,
//! then the transfers of what leaves it. On CPUs, of which there are as many as it takes, an operator starts as soon
//! as its inputs are in host memory.
//!
//! The blocks follow from the assignment: what an accelerator has is one block if it can be, else an operator is in
//! block number 1 + the most times that a path to it leaves the accelerator (the rule of the authors' evaluator).
//! Where even these blocks wait for each other in a circle, the assignment cannot run.

use super::{Workload, load::Bundles};

/// Evaluates assignments of one workload; keeps its tables between evaluations.
#[derive(Debug, Clone)]
pub struct Finish<'a> {
    workload: &'a Workload,
    problem: &'a Bundles,
    /// Operators in topological order.
    order: Vec<u32>,
    /// Readers of each operator, one slice of `readers` after another.
    first: Vec<u32>,
    readers: Vec<u32>,
    tables: Tables,
}

/// By unit: a block, or an operator on a CPU.
#[derive(Debug, Clone, Default)]
struct Tables {
    /// By operator: its unit. Blocks come first, operators on CPUs after them.
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
    /// Members of the blocks, one slice of `members` after another.
    bounds: Vec<u32>,
    members: Vec<u32>,
    stack: Vec<u32>,
    /// By block: the next one on its accelerator.
    successor: Vec<u32>,
    /// Of the last splitting into blocks, by operator: its accelerator, and its block's number there, from 0; and by
    /// accelerator how many blocks. What did not change since is not counted again.
    home: Vec<u32>,
    number: Vec<u32>,
    most: Vec<u32>,
    depth: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl<'a> Finish<'a> {
    pub fn new(workload: &'a Workload, problem: &'a Bundles) -> Finish<'a> {
        let count = workload.operators.len();
        let order = workload.order().unwrap_or_default().into_iter().map(|i| i as u32).collect();
        // Edges are sorted by source.
        let mut first = vec![0u32; count + 1];
        workload.edges.iter().for_each(|(from, _)| first[from + 1] += 1);
        for at in 0..count {
            first[at + 1] += first[at];
        }
        let readers = workload.edges.iter().map(|(_, to)| *to as u32).collect();
        Finish { workload, problem, order, first, readers, tables: Tables::default() }
    }

    /// When the sample is finished; infinite if the blocks wait for each other.
    ///
    /// `device` is by bundle, accelerators first; every other number is some CPU.
    pub fn of(&mut self, device: &[usize]) -> f64 {
        self.whole_blocks(device);
        let finish = self.run();
        if finish.is_finite() || !self.split_blocks(device) {
            return finish;
        }
        self.run()
    }

    /// By operator: the block it is in, counted over all accelerators; `None` on a CPU. Of the last evaluation.
    pub fn blocks(&self) -> Vec<Option<u32>> {
        let blocks = self.tables.blocks as u32;
        self.tables.unit.iter().map(|unit| (*unit < blocks).then_some(*unit)).collect()
    }

    /// The operators of the units that each kept the next one waiting, up to the one that finished last. Of the last
    /// evaluation.
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

    /// One block an accelerator.
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

    /// As many blocks as paths leave and come back. False if that is at most one for each accelerator.
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

    /// Runs the units as they become ready.
    fn run(&mut self) -> f64 {
        let Tables {
            unit,
            blocks,
            waiting,
            ready,
            cause,
            last: latest,
            duration,
            stamp,
            bounds,
            members,
            stack,
            successor,
            ..
        } = &mut self.tables;
        let (count, blocks) = (self.workload.operators.len(), *blocks);
        let units = blocks + count;
        waiting.clear();
        waiting.resize(units, 0);
        ready.clear();
        ready.resize(units, 0.0);
        cause.clear();
        cause.resize(units, NONE);
        *latest = NONE;
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
        for block in 0..blocks {
            bounds[block + 1] += bounds[block];
            if successor[block] != NONE {
                waiting[successor[block] as usize] += 1;
            }
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
        stack.clear();
        let filled = |block: &usize| bounds[block + 1] > bounds[*block];
        stack.extend((0..blocks).filter(filled).filter(|b| waiting[*b] == 0).map(|b| b as u32));
        stack.extend(
            (0..count)
                .filter(|op| unit[*op] as usize == blocks + op && waiting[blocks + op] == 0)
                .map(|op| (blocks + op) as u32),
        );
        let (mut last, mut run) = (0.0f64, 0);
        while let Some(at) = stack.pop() {
            let at = at as usize;
            let finish = ready[at] + duration[at];
            if finish > last {
                (last, *latest) = (finish, at as u32);
            }
            let alone = [(at.wrapping_sub(blocks)) as u32];
            let own: &[u32] = if at < blocks { &members[bounds[at] as usize..bounds[at + 1] as usize] } else { &alone };
            run += own.len();
            for &op in own {
                for &reader in &self.readers[self.first[op as usize] as usize..self.first[op as usize + 1] as usize] {
                    let there = unit[reader as usize] as usize;
                    if there != at {
                        if finish > ready[there] {
                            (ready[there], cause[there]) = (finish, at as u32);
                        }
                        waiting[there] -= 1;
                        if waiting[there] == 0 {
                            stack.push(there as u32);
                        }
                    }
                }
            }
            if at < blocks && successor[at] != NONE {
                let there = successor[at] as usize;
                if finish > ready[there] {
                    (ready[there], cause[there]) = (finish, at as u32);
                }
                waiting[there] -= 1;
                if waiting[there] == 0 {
                    stack.push(there as u32);
                }
            }
        }
        if run == count { last } else { f64::INFINITY }
    }
}
