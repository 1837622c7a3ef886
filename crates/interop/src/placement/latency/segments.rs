//! Partitions of a topological order into contiguous segments, each on the CPUs or a block on an
//! accelerator.
//!
//! Dynamic programming finds the best cuts of each order, as if segments ran strictly in sequence. This overestimates
//! the latency of segments that could overlap; evaluation and annealing take overlap into account. There are two
//! families of cuts: with at most one block per accelerator; and with any number of blocks and a price per byte (a
//! Lagrange multiplier on memory), at the lowest price at which the blocks can be packed into the memories.

use fastrand::Rng;

use super::candidate::LatencyCandidate;
use crate::placement::{
    PlacementWorkload, bundles::Bundles, latency_evaluator::LatencyEvaluator, order::order, segment::Segments,
};

/// Number of random orders, in addition to the file's own.
const ORDERS: usize = 24;
/// Number of candidates returned.
const KEPT: usize = 4;
/// Limit on the table cells filled over all orders.
const CELLS: usize = 150_000_000;
/// Number of prices tried per order.
const PRICES: usize = 10;

/// The best cuts of several orders with every number of blocks, best first. Stops between orders when `late` returns
/// true.
pub fn search(
    workload: &PlacementWorkload,
    problem: &Bundles,
    seed: u64,
    late: &dyn Fn() -> bool,
) -> Vec<LatencyCandidate> {
    let mut rng = Rng::with_seed(seed);
    let mut evaluator = LatencyEvaluator::new(workload, problem);
    let count = problem.bundles.len();
    let mut found: Vec<LatencyCandidate> = Vec::new();
    if problem.cpus > 0 {
        found.push(LatencyCandidate::of(&mut evaluator, problem, vec![problem.accelerators; count]));
    }
    let cells = (count * count * (problem.accelerators + 1 + PRICES)).max(1);
    // With too many bundles not even one table is filled.
    let orders = if cells > CELLS { 0 } else { 1 + ORDERS.min(CELLS / cells) };
    for round in 0..orders {
        if round > 0 && late() {
            break;
        }
        let order = order(workload, problem, round, &mut rng);
        let table = LatencyTable::new(problem, &order);
        for device in table.cuts().into_iter().chain(table.priced_cuts()) {
            found.push(LatencyCandidate::of(&mut evaluator, problem, device));
        }
    }
    found.sort_by(LatencyCandidate::cmp_quality);
    found.dedup();
    found.truncate(KEPT);
    found
}

/// One order, and the times of its segments.
struct LatencyTable<'a> {
    problem: &'a Bundles,
    order: &'a [usize],
    blocks: Segments,
    /// By segment, the sum of CPU times on its longest path: row-major, row start, column end − 1.
    chains: Vec<f64>,
}

impl<'a> LatencyTable<'a> {
    fn new(problem: &'a Bundles, order: &'a [usize]) -> LatencyTable<'a> {
        let count = order.len();
        let chains = if problem.cpus > 0 { chains(problem, order) } else { vec![f64::INFINITY; count * count] };
        LatencyTable { problem, order, blocks: Segments::new(problem, order), chains }
    }

    /// The best cuts with 0, 1, … blocks, each on a separate accelerator: the device of every bundle.
    fn cuts(&self) -> Vec<Vec<usize>> {
        let (count, accelerators) = (self.order.len(), self.problem.accelerators);
        let mut best = vec![vec![f64::INFINITY; count + 1]; accelerators + 1];
        let mut from = vec![vec![(0usize, false); count + 1]; accelerators + 1];
        for blocks in 0..=accelerators {
            best[blocks][0] = 0.0;
            for end in 1..=count {
                for start in 0..end {
                    let on_cpu = best[blocks][start] + self.chains[start * count + end - 1];
                    let as_block = if blocks > 0 {
                        best[blocks - 1][start] + self.blocks.accelerator(start, end)
                    } else {
                        f64::INFINITY
                    };
                    let (value, accelerated) = if as_block < on_cpu { (as_block, true) } else { (on_cpu, false) };
                    if value < best[blocks][end] {
                        best[blocks][end] = value;
                        from[blocks][end] = (start, accelerated);
                    }
                }
            }
        }
        let finite = (0..=accelerators).filter(|blocks| best[*blocks][count].is_finite());
        finite
            .map(|mut blocks| {
                let mut device = vec![accelerators; count];
                let mut end = count;
                while end > 0 {
                    let (start, accelerated) = from[blocks][end];
                    if accelerated {
                        blocks -= 1;
                        self.order[start..end].iter().for_each(|bundle| device[*bundle] = blocks);
                    }
                    end = start;
                }
                device
            })
            .collect()
    }

    /// The cuts at prices of memory at which the blocks can be packed onto the accelerators. Price 0 is tried first; then
    /// the lowest such price is approached, by steps of an eighth of the interval from its lower end, later by bisection.
    fn priced_cuts(&self) -> Vec<Vec<usize>> {
        let mut found = Vec::new();
        let sized = self.problem.bundles.iter().filter(|bundle| bundle.size > 0.0);
        let highest = sized.map(|bundle| bundle.cpu_time / bundle.size).fold(0.0, f64::max);
        let (mut low, mut high) = (0.0, highest);
        for round in 0..PRICES {
            let price = if round == 0 { 0.0 } else { low + (high - low) / if round < 4 { 8.0 } else { 2.0 } };
            match self.blocks_at(price).and_then(|blocks| self.packed(blocks)) {
                Some(device) => {
                    found.push(device);
                    high = price;
                    if round == 0 {
                        break;
                    }
                }
                None => low = price,
            }
        }
        found
    }

    /// The blocks `(start, end)` of the best cuts if every byte on an accelerator costs `price`, in units of time;
    /// `None` if no cut is feasible.
    fn blocks_at(&self, price: f64) -> Option<Vec<(usize, usize)>> {
        let count = self.order.len();
        let mut sums = vec![0.0];
        for bundle in self.order {
            sums.push(sums.last().copied().unwrap_or(0.0) + price * self.problem.bundles[*bundle].size);
        }
        let mut best = vec![0.0f64];
        let mut from = vec![(0usize, false)];
        for end in 1..=count {
            let mut least = (f64::INFINITY, (0, false));
            for start in 0..end {
                let on_cpu = best[start] + self.chains[start * count + end - 1];
                let as_block = best[start] + self.blocks.accelerator(start, end) + sums[end] - sums[start];
                for (value, choice) in [(on_cpu, (start, false)), (as_block, (start, true))] {
                    if value < least.0 {
                        least = (value, choice);
                    }
                }
            }
            best.push(least.0);
            from.push(least.1);
        }
        let mut blocks = Vec::new();
        let mut end = count;
        while end > 0 && best[count].is_finite() {
            let (start, accelerated) = from[end];
            if accelerated {
                blocks.push((start, end));
            }
            end = start;
        }
        best[count].is_finite().then_some(blocks)
    }

    /// Assigns blocks to accelerators by best-fit decreasing: the device of every bundle; `None` if some block does not
    /// fit.
    fn packed(&self, mut blocks: Vec<(usize, usize)>) -> Option<Vec<usize>> {
        let size = |block: &(usize, usize)| -> f64 {
            self.order[block.0..block.1].iter().map(|bundle| self.problem.bundles[*bundle].size).sum()
        };
        blocks.sort_by(|a, b| size(b).total_cmp(&size(a)).then(a.cmp(b)));
        let mut left = vec![self.problem.memory; self.problem.accelerators];
        let mut device = vec![self.problem.accelerators; self.order.len()];
        for block in blocks {
            let need = size(&block);
            let (at, room) =
                left.iter_mut().enumerate().filter(|(_, room)| **room >= need).min_by(|a, b| a.1.total_cmp(b.1))?;
            *room -= need;
            self.order[block.0..block.1].iter().for_each(|bundle| device[*bundle] = at);
        }
        Some(device)
    }
}

/// By segment, the sum of CPU times on its longest path: row-major, row start, column end − 1.
fn chains(problem: &Bundles, order: &[usize]) -> Vec<f64> {
    let count = order.len();
    let mut place = vec![0; count];
    order.iter().enumerate().for_each(|(at, bundle)| place[*bundle] = at);
    let sources: Vec<Vec<usize>> = order
        .iter()
        .map(|bundle| problem.bundles[*bundle].reads.iter().map(|net| place[problem.nets[*net].source]).collect())
        .collect();
    let mut chains = vec![0.0; count * count];
    let mut depth = vec![0.0f64; count];
    for start in 0..count {
        let mut longest = 0.0f64;
        for end in start..count {
            let before =
                sources[end].iter().filter(|s| (start..end).contains(*s)).map(|s| depth[*s]).fold(0.0, f64::max);
            depth[end] = before + problem.bundles[order[end]].cpu_time;
            longest = longest.max(depth[end]);
            chains[start * count + end] = longest;
        }
    }
    chains
}
