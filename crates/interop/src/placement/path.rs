//! Lower bound on latency by paths: operators on a path never overlap, and not all of them fit on accelerators.
//!
//! On a path of the graph, every operator is on a CPU or in a block of an accelerator. A block takes at least the times
//! of its operators on the path and the transfers of the path into and out of it, and fits into one accelerator's
//! memory. The best placement of a path is a shortest path, found by dynamic programming; the total accelerator memory
//! is a Lagrangian price, and every price gives a bound. Many paths are tried, and the best again with the costs of
//! block [boundaries](super::border) and [interiors](super::inside).

use std::collections::{HashMap, HashSet, VecDeque};

use fastrand::Rng;

use super::{
    PlacementWorkload,
    border::{Borders, Neighbours},
    bundles::Bundles,
    inside::Inside,
};

/// Limits on the paths tried, and on the operators visited over all of them.
const PATHS: usize = 400;
const WORK: usize = 40_000_000;
/// Prices that are tried for one path.
const PRICES: usize = 24;
/// Paths that are looked at closely; blocks of one of them, and of all together with what comes into them.
const CLOSELY: usize = 60;
const MAX_BLOCKS: usize = 700_000;
const BLOCKS: usize = 4_000_000;

/// What the bound needs of each operator.
struct Paths<'a> {
    workload: &'a PlacementWorkload,
    order: Vec<usize>,
    readers: Vec<Vec<usize>>,
    /// By operator: those that it reads.
    makers: Vec<Vec<usize>>,
    /// Infinite where the operator cannot run.
    cpu: Vec<f64>,
    accelerator: Vec<f64>,
    /// By operator: its bundle, and the bytes that come onto an accelerator with it.
    bundle: Vec<usize>,
    size: Vec<f64>,
    memory: f64,
    accelerators: f64,
}

/// The strongest bound of the paths that are tried.
pub fn latency(workload: &PlacementWorkload, problem: &Bundles, seed: u64) -> f64 {
    let paths = Paths::new(workload, problem);
    let mut rng = Rng::with_seed(seed);
    let mut seen = HashSet::new();
    let mut found: Vec<(f64, Vec<usize>)> = Vec::new();
    let (mut best, mut chosen) = (0.0f64, [1.0, 0.0, 0.0, 0.0]);
    let most = PATHS.min(WORK / (PRICES * (1 + workload.operators.len())));
    for round in 0..most.max(4) {
        // Weights of least time, CPU time, size and transfer: each alone, then at random, then near the best so far.
        let mix: [f64; 4] = std::array::from_fn(|part| match round {
            0..4 => f64::from(u8::from(part == round)),
            _ if round % 2 == 0 => rng.f64().powi(2),
            _ => chosen[part] * (1.5 * (rng.f64() - 0.5)).exp(),
        });
        let path = paths.longest(mix);
        if seen.insert(path.clone()) {
            let along = Along::new(&paths, &path);
            let bound = along.bound(0.0, &|price| along.shortest(price));
            if bound > best {
                (best, chosen) = (bound, mix);
            }
            found.push((bound, path));
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut left = BLOCKS;
    for (_, path) in found.iter().take(CLOSELY) {
        let along = Along::new(&paths, path);
        left = left.saturating_sub(workload.operators.len());
        if let Some(blocks) = along.blocks(&mut left) {
            best = best.max(along.bound(blocks.inside, &|price| along.shortest_with(&blocks, price)));
        }
    }
    // Sums in another order than the simulation's must not put the bound above what can be reached.
    best * (1.0 - 1e-9)
}

impl<'a> Paths<'a> {
    fn new(workload: &'a PlacementWorkload, problem: &Bundles) -> Paths<'a> {
        let count = workload.operators.len();
        let mut paths = Paths {
            workload,
            order: workload.order().unwrap_or_default(),
            readers: vec![Vec::new(); count],
            makers: vec![Vec::new(); count],
            cpu: vec![f64::INFINITY; count],
            accelerator: vec![f64::INFINITY; count],
            bundle: vec![0; count],
            size: vec![0.0; count],
            memory: problem.memory,
            accelerators: problem.accelerators as f64,
        };
        for (from, to) in &workload.edges {
            paths.readers[*from].push(*to);
            paths.makers[*to].push(*from);
        }
        for (index, bundle) in problem.bundles.iter().enumerate() {
            let usable = problem.fits_accelerator(bundle);
            for &op in &bundle.operators {
                (paths.bundle[op], paths.size[op]) = (index, bundle.size);
                if problem.cpus > 0 {
                    paths.cpu[op] = workload.operators[op].cpu_time;
                }
                if usable {
                    paths.accelerator[op] = workload.operators[op].accelerator_time;
                }
            }
        }
        paths
    }

    /// The path of the largest sum of weights.
    fn longest(&self, mix: [f64; 4]) -> Vec<usize> {
        let totals = |of: &dyn Fn(usize) -> f64| (0..self.cpu.len()).map(of).sum::<f64>().max(f64::MIN_POSITIVE);
        let least = |op: usize| self.cpu[op].min(self.accelerator[op]).min(f64::MAX);
        let slow = |op: usize| self.workload.operators[op].cpu_time;
        let parts: [&dyn Fn(usize) -> f64; 4] =
            [&least, &slow, &|op| self.size[op], &|op| self.workload.operators[op].transfer];
        let scale: [f64; 4] = std::array::from_fn(|part| mix[part] / totals(parts[part]));
        let weight = |op: usize| (0..4).map(|part| scale[part] * parts[part](op)).sum::<f64>();
        let mut length: Vec<f64> = (0..self.cpu.len()).map(weight).collect();
        let own = length.clone();
        let mut before = vec![usize::MAX; length.len()];
        for &op in &self.order {
            for &reader in &self.readers[op] {
                if length[op] + own[reader] > length[reader] {
                    (length[reader], before[reader]) = (length[op] + own[reader], op);
                }
            }
        }
        let mut at = (0..length.len()).max_by(|a, b| length[*a].total_cmp(&length[*b])).unwrap_or(usize::MAX);
        let mut path = Vec::new();
        while at != usize::MAX {
            path.push(at);
            at = before[at];
        }
        path.reverse();
        path
    }
}

/// One path, and the bytes that come onto an accelerator with each of its operators.
struct Along<'a> {
    paths: &'a Paths<'a>,
    path: &'a [usize],
    sizes: Vec<f64>,
    /// By bundle: how many of its operators are on the path.
    members: HashMap<usize, f64>,
}

/// Every block of a path that fits on an accelerator, by its end.
struct Blocks {
    blocks: Vec<Block>,
    /// Bytes that blocks may hold in addition to those of the path.
    inside: f64,
}

/// A block of a path: from where to where, and in addition to the path's operators, the time that it takes at its
/// border and inside, and the bytes inside.
struct Block {
    from: u32,
    to: u32,
    time: f64,
    size: f64,
}

impl<'a> Along<'a> {
    fn new(paths: &'a Paths<'a>, path: &'a [usize]) -> Along<'a> {
        // A bundle's bytes come with any of its operators; spread over those on the path they are counted at most once.
        let mut members: HashMap<usize, f64> = HashMap::new();
        path.iter().for_each(|op| *members.entry(paths.bundle[*op]).or_insert(0.0) += 1.0);
        let sizes = path.iter().map(|op| paths.size[*op] / members[&paths.bundle[*op]]).collect();
        Along { paths, path, sizes, members }
    }

    /// The best of the bounds that the prices of memory give, where `shortest` says what the path takes at a price,
    /// with blocks that hold up to `inside` bytes in addition to those of the path.
    fn bound(&self, inside: f64, shortest: &dyn Fn(f64) -> f64) -> f64 {
        let room = self.paths.memory * self.paths.accelerators;
        // Memory without a limit has no price: 0 · ∞ is NaN.
        let at = |price: f64| shortest(price) - if price > 0.0 { price * room } else { 0.0 };
        let free = at(0.0);
        if self.sizes.iter().sum::<f64>() + inside <= room || free.is_infinite() {
            return free;
        }
        let worth = self.path.iter().zip(&self.sizes).filter(|(_, size)| **size > 0.0);
        let dearest = worth.map(|(op, size)| self.paths.workload.operators[*op].cpu_time / size).fold(0.0, f64::max);
        // Concave in the price: sections of three.
        let (mut low, mut high, mut best) = (0.0, dearest, free);
        for _ in 0..PRICES / 2 {
            let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
            let (at_a, at_b) = (at(a), at(b));
            best = best.max(at_a).max(at_b);
            if at_a < at_b { low = a } else { high = b }
        }
        best
    }

    fn fits(&self, size: f64) -> bool {
        size <= self.paths.memory * (1.0 + 1e-12)
    }

    /// The least time that the path takes if every byte on an accelerator costs `price` and only the operators before
    /// and after a block's ends cross its border.
    fn shortest(&self, price: f64) -> f64 {
        let transfer = |at: usize| self.paths.workload.operators[self.path[at]].transfer;
        let Some(last) = self.path.len().checked_sub(1) else { return 0.0 };
        // When everything before a place is done, wherever; and sums over the operators before it, as in one block.
        let (mut done, mut time, mut size) = (0.0, 0.0, 0.0);
        // Places where the block at hand may have begun: what came before less the sums up to there, least first.
        let mut begun: VecDeque<(f64, f64)> = VecDeque::new();
        for (at, &op) in self.path.iter().enumerate() {
            if self.paths.accelerator[op].is_finite() {
                let entering = if at == 0 { 0.0 } else { transfer(at - 1) };
                let value = done + entering - time;
                while begun.back().is_some_and(|(other, _)| *other >= value) {
                    begun.pop_back();
                }
                begun.push_back((value, size));
                time += self.paths.accelerator[op] + price * self.sizes[at];
                size += self.sizes[at];
                while begun.front().is_some_and(|(_, from)| !self.fits(size - from)) {
                    begun.pop_front();
                }
            } else {
                begun.clear();
            }
            let leaving = if at == last { 0.0 } else { transfer(at) };
            let in_block = begun.front().map_or(f64::INFINITY, |(value, _)| value + time + leaving);
            done = in_block.min(done + self.paths.cpu[op]);
        }
        done
    }

    /// Every block that fits on an accelerator; `None` if there are too many, or that takes more than what is `left`.
    fn blocks(&self, left: &mut usize) -> Option<Blocks> {
        let transfer = |op: usize| self.paths.workload.operators[op].transfer;
        let graph = Neighbours { readers: &self.paths.readers, makers: &self.paths.makers, transfer: &transfer };
        let inside = Inside::new(self.path, &self.paths.order, &self.paths.readers);
        let borders = Borders::new(self.path, &graph, &inside);
        // The bytes of a bundle with operators on the path come with those.
        let inner_size = |op: usize| match self.members.contains_key(&self.paths.bundle[op]) {
            true => 0.0,
            false => self.paths.workload.operators[op].size,
        };
        let mut blocks = Vec::new();
        for from in 0..self.path.len() {
            let (mut on_path, mut size, mut time) = (0.0, 0.0, 0.0);
            borders.blocks(from, |to, border| {
                on_path += self.sizes[to];
                *left = left.saturating_sub(1);
                for op in inside.entering(from, to) {
                    *left = left.saturating_sub(1);
                    size += inner_size(op);
                    time += self.paths.accelerator[op];
                }
                let usable = self.paths.accelerator[self.path[to]].is_finite() && time.is_finite();
                let fits = usable && self.fits(on_path + size);
                if fits {
                    blocks.push(Block { from: from as u32, to: to as u32, time: border + time, size });
                }
                fits && blocks.len() <= MAX_BLOCKS && *left > 0
            });
            if blocks.len() > MAX_BLOCKS || *left == 0 {
                return None;
            }
        }
        blocks.sort_by_key(|block| block.to);
        let inside = inside.all().map(inner_size).sum();
        Some(Blocks { blocks, inside })
    }

    /// As [`Along::shortest`], with all that blocks pay at their borders and have inside.
    fn shortest_with(&self, blocks: &Blocks, price: f64) -> f64 {
        let mut done = vec![0.0f64];
        let mut sums = vec![0.0f64];
        let mut blocks = blocks.blocks.iter().peekable();
        for (at, &op) in self.path.iter().enumerate() {
            let own = self.paths.accelerator[op];
            let own = if own.is_finite() { own + price * self.sizes[at] } else { 0.0 };
            sums.push(sums[at] + own);
            let mut best = done[at] + self.paths.cpu[op];
            while let Some(block) = blocks.next_if(|block| block.to as usize == at) {
                let from = block.from as usize;
                best = best.min(done[from] + block.time + price * block.size + sums[at + 1] - sums[from]);
            }
            done.push(best);
        }
        done.last().copied().unwrap_or(0.0)
    }
}
