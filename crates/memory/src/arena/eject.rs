//! Lowers a packing of many buffers by ejection search.
//!
//! The method of guided ejection search (Nagata, Bräysy, "A powerful route minimization heuristic for the vehicle routing
//! problem with time windows", Operations Research Letters 2009), for packings: the capacity is set below the height, and
//! the buffers above it are taken out. They are placed one by one, the largest area first, where the buffers in the
//! way weigh least, which are taken out in turn. What is taken out gets heavier, so that not the same buffers make room
//! again and again. An attempt ends when all are placed, or after many steps without fewer being out. The capacity then
//! falls by a larger or a smaller part of the distance to the bound.

use std::collections::BinaryHeap;

use super::{
    first_fit,
    hash::{mix, unit},
    problem::Problem,
    watch::Watch,
};

/// The power of area by which a buffer weighs: between 0.5 and 1, on rectangles of 20 000 pieces. Small buffers are the
/// easier ones to place again, by more than their area says.
const WEIGHT: f64 = 0.6;
/// How much heavier a buffer gets by each time it is taken out, in multiples of its first weight, on average. With 0.1
/// the height after 15 s was 4 % higher on those rectangles, with 1 a percent.
const HEAVIER: f64 = 2.0;
/// Steps in which the weight that is out must get less: a part of the number of buffers, and some more.
const PATIENCE: (usize, usize) = (4, 1000);
/// The part of the distance to the bound by which the first capacity is lower than the height, then how it changes after
/// a success and a failure.
const FIRST_PART: f64 = 0.1;
const LARGER: f64 = 1.3;
const SMALLER: f64 = 0.6;
const LARGEST_PART: f64 = 0.5;
/// The part of the bound from which on a fall of the capacity is not worth an attempt.
const LEAST_FALL: f64 = 1e-5;
/// The number of times that the search starts over with larger falls after it came to such small ones, in vain.
const STARTS: u32 = 3;
/// Work for each conflict that a step looks at and sorts.
const WORK_PER_CONFLICT: u64 = 4;
/// Where sinking all buffers after a success takes less than this part of the work that is left, it is done.
const SINKING: u64 = 64;

/// The offset of a buffer that is out.
const OUT: u64 = u64::MAX;

/// Lowers `offsets` to `target`, until `effort` is used up or nothing more is found. Returns the work.
pub(super) fn lower(
    problem: &Problem<'_>,
    offsets: &mut Vec<u64>,
    target: u64,
    effort: u64,
    watch: &mut Watch<'_>,
) -> u64 {
    let mut search = Ejection::new(problem);
    let sinking = problem.timeline().pairs().saturating_mul(WORK_PER_CONFLICT);
    let (mut part, mut starts) = (FIRST_PART, 0);
    let mut height = problem.height(offsets);
    while height > target && search.work < effort && !watch.has_stopped() {
        let gap = (height - target) as f64;
        let least = target as f64 * LEAST_FALL;
        if gap * part < least {
            starts += 1;
            if starts > STARTS {
                break;
            }
            part = if gap * FIRST_PART < least { 1.0 } else { FIRST_PART };
        }
        let capacity = (height - ((gap * part) as u64).max(1)).max(target);
        if !search.attempt(offsets, capacity, effort, watch) {
            part *= SMALLER;
            continue;
        }
        (part, starts) = ((part * LARGER).min(LARGEST_PART), 0);
        search.write(offsets);
        if sinking < effort.saturating_sub(search.work) / SINKING {
            search.work += sinking;
            sink(problem, offsets);
        }
        height = problem.height(offsets);
        watch.reached(height);
    }
    search.work
}

/// Lets every buffer fall to the lowest place that is free, in order of offset: none gets higher.
fn sink(problem: &Problem<'_>, offsets: &mut Vec<u64>) {
    let mut order: Vec<u32> = (0..offsets.len() as u32).collect();
    order.sort_by_key(|&index| offsets[index as usize]);
    *offsets = first_fit::place(problem, &order);
}

/// The state of the search. Buffers are numbered by their position in [`Problem::born`].
struct Ejection<'a> {
    problem: &'a Problem<'a>,
    /// [`OUT`] for those that are out.
    offsets: Vec<u64>,
    sizes: Vec<u64>,
    areas: Vec<f64>,
    /// At the start of an attempt.
    weights: Vec<f64>,
    heavier: Vec<f64>,
    /// The buffers that are out, by area.
    out: BinaryHeap<(u64, u32)>,
    out_weight: f64,
    starts: Vec<(u64, u32)>,
    ends: Vec<(u64, u32)>,
    work: u64,
    /// Of the random numbers.
    draws: u64,
}

/// The lightest offset for a buffer.
struct Gap {
    offset: u64,
    weight: f64,
}

impl<'a> Ejection<'a> {
    fn new(problem: &'a Problem<'a>) -> Ejection<'a> {
        let sizes: Vec<u64> = problem.born().iter().map(|&index| problem.buffers[index as usize].size.0).collect();
        let length = |at: usize| problem.timeline().span(at as u32).len() as f64;
        let areas: Vec<f64> = sizes.iter().enumerate().map(|(at, &size)| size as f64 * length(at)).collect();
        let weights: Vec<f64> = areas.iter().map(|area| area.powf(WEIGHT)).collect();
        Ejection {
            problem,
            offsets: Vec::new(),
            heavier: weights.clone(),
            weights,
            areas,
            sizes,
            out: BinaryHeap::new(),
            out_weight: 0.0,
            starts: Vec::new(),
            ends: Vec::new(),
            work: 0,
            draws: 0,
        }
    }

    /// Whether the packing could be changed so that no buffer ends above `capacity`; see [`Ejection::write`].
    fn attempt(&mut self, from: &[u64], capacity: u64, effort: u64, watch: &mut Watch<'_>) -> bool {
        self.offsets.clear();
        self.offsets.extend(self.problem.born().iter().map(|&index| from[index as usize]));
        self.heavier.copy_from_slice(&self.weights);
        self.out.clear();
        self.out_weight = 0.0;
        self.work += self.offsets.len() as u64;
        for at in 0..self.offsets.len() {
            if self.offsets[at] + self.sizes[at] > capacity {
                self.take_out(at);
            }
        }
        let mut least = self.out_weight;
        let mut left = self.patience();
        while let Some((_, at)) = self.out.pop() {
            let before = self.work;
            let is_placed = left > 0 && self.insert(at as usize, capacity);
            if !is_placed || watch.stops(self.work - before) || self.work >= effort {
                return false;
            }
            left -= 1;
            // Sums of floats in another order differ a little.
            if self.out_weight < least * 0.999 {
                (least, left) = (self.out_weight, self.patience());
            }
        }
        true
    }

    fn patience(&self) -> usize {
        self.offsets.len() / PATIENCE.0 + PATIENCE.1
    }

    /// Copies the offsets that the last attempt found.
    fn write(&self, offsets: &mut [u64]) {
        self.problem.born().iter().zip(&self.offsets).for_each(|(&index, offset)| offsets[index as usize] = *offset);
    }

    fn take_out(&mut self, at: usize) {
        self.offsets[at] = OUT;
        self.out_weight += self.weights[at];
        self.out.push((self.areas[at] as u64, at as u32));
    }

    /// Places a buffer that is out, and takes out what is in its way; `false` if buffers with fixed offsets leave it no
    /// place.
    fn insert(&mut self, at: usize, capacity: u64) -> bool {
        let size = self.sizes[at];
        self.starts.clear();
        self.ends.clear();
        for other in self.problem.timeline().of(at as u32) {
            self.work += WORK_PER_CONFLICT;
            let offset = self.offsets[other as usize];
            if offset != OUT {
                self.starts.push((offset, other));
                self.ends.push((offset + self.sizes[other as usize], other));
            }
        }
        self.starts.sort_unstable();
        self.ends.sort_unstable();
        let Some(Gap { offset, weight }) = self.lightest(at, capacity) else { return false };
        self.out_weight -= self.weights[at];
        self.offsets[at] = offset;
        if weight > 0.0 {
            for index in 0..self.starts.len() {
                let (start, other) = self.starts[index];
                if start >= offset + size {
                    break;
                }
                if start + self.sizes[other as usize] > offset {
                    self.take_out(other as usize);
                    self.draws += 1;
                    self.heavier[other as usize] +=
                        self.weights[other as usize] * HEAVIER * (0.5 + unit(mix(self.draws)));
                }
            }
        }
        true
    }

    /// The offset at which the buffers in the way weigh least, the lowest of several. The weight only falls where a
    /// buffer ends, so it is one of these ends, or 0.
    fn lightest(&self, at: usize, capacity: u64) -> Option<Gap> {
        let (size, align) = (self.sizes[at], self.problem.at(at).align);
        let is_fixed = |buffer: u32| self.problem.at(buffer as usize).fixed.is_some();
        let mut best: Option<Gap> = None;
        let (mut started, mut ended, mut fixed) = (0, 0, 0u32);
        let mut weight = 0.0;
        let mut offset = 0;
        loop {
            while let Some(&(_, buffer)) = self.starts.get(started).filter(|start| start.0 < offset + size) {
                started += 1;
                weight += self.heavier[buffer as usize];
                fixed += u32::from(is_fixed(buffer));
            }
            while let Some(&(_, buffer)) = self.ends.get(ended).filter(|end| end.0 <= offset) {
                ended += 1;
                weight -= self.heavier[buffer as usize];
                fixed -= u32::from(is_fixed(buffer));
            }
            if started == ended {
                return Some(Gap { offset, weight: 0.0 });
            }
            if fixed == 0 && best.as_ref().is_none_or(|best| weight < best.weight) {
                // What is in the way weighs something, however the sum is rounded.
                best = Some(Gap { offset, weight: weight.max(f64::MIN_POSITIVE) });
            }
            let Some(next) = self.ends.get(ended) else { return best };
            offset = next.0.next_multiple_of(align);
            if offset + size > capacity {
                return best;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::{Buffer, Packing, bound, check};
    use edgecut_graph::units::Bytes;

    #[test]
    fn packings_get_lower_and_stay_valid() {
        let mut rng = fastrand::Rng::with_seed(9);
        for round in 0..60 {
            let mut buffers: Vec<Buffer> = Vec::new();
            for at in 0..rng.u64(1..80) {
                let lower = rng.u64(0..30);
                let buffer =
                    Buffer::new(lower, lower + rng.u64(0..12), Bytes(rng.u64(0..50))).align(1 << rng.u32(0..4));
                buffers.push(if round % 4 == 0 && rng.u8(..) < 20 { buffer.fixed(Bytes(64 * at)) } else { buffer });
            }
            let problem = Problem::new(&buffers).unwrap();
            let order: Vec<u32> = (0..buffers.len() as u32).collect();
            let mut offsets = first_fit::place(&problem, &order);
            let (before, bound) = (problem.height(&offsets), bound::arena(&buffers));
            let mut watcher = |_| ControlFlow::Continue(());
            lower(&problem, &mut offsets, bound.0, 1_000_000, &mut Watch::new(&mut watcher, bound.0));
            let height = problem.height(&offsets);
            assert!(height <= before);
            let offsets = offsets.into_iter().map(Bytes).collect();
            assert_eq!(check::packing(&buffers, &Packing { offsets, height: Bytes(height), bound }), Ok(()));
        }
    }
}
