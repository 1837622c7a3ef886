//! Offsets of buffers in an arena (dynamic storage allocation).
//!
//! | module | contents |
//! |---|---|
//! | `problem`, `conflicts`, `peaks` | validated buffers, and which of them are live at the same time |
//! | `first_fit`, `preference` | a portfolio of first-fit orders, which nearly always suffices for a network |
//! | `fill`, `candidates` | packings that fill the lowest valley of the skyline, for any number of buffers |
//! | `search`, `sections`, `failed_states` | a canonical branch and bound for one capacity |
//! | `beam`, `skyline` | a beam search for low packings |
//! | `minimize` | searches at decreasing capacities, for what has few buffers |
//! | `eject` | makes many buffers fit below a lower height, some of them at a time |
//! | [`pools`] | several memories, filled in order of preference |
//! | [`watch`] | what is reported meanwhile, and the end before the effort is used up |
//!
//! Effort is counted in work, not in time, so that the same input always gives the same packing. Memory is linear in the
//! number of buffers, but for searches of at most a few thousand.

mod beam;
mod candidates;
mod conflicts;
mod eject;
mod failed_states;
mod fill;
mod first_fit;
mod greedy;
mod hash;
mod minimize;
mod peaks;
pub mod pools;
mod preference;
mod problem;
mod search;
mod sections;
mod skyline;
pub mod watch;

pub use problem::ArenaError;

use std::ops::ControlFlow;

use problem::Problem;
use watch::{Watch, Watcher};

use super::{Buffer, Packing, bound};
use edgecut_graph::units::Bytes;

/// Target and effort of a packing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackOptions {
    /// Stop at the first packing that fits into this capacity instead of searching for the lowest one.
    pub capacity: Option<Bytes>,
    /// Unplaced buffers that the search may examine, summed over its steps; about 3·10⁷ take a second. 0: first fit only.
    pub effort: u64,
}

/// One part in this number of the effort goes to ejections where all that is too high can be searched afterwards.
const EJECTION: u64 = 2;

impl Default for PackOptions {
    fn default() -> PackOptions {
        PackOptions { capacity: None, effort: 1_000_000 }
    }
}

/// Assigns every buffer an offset, with an arena as small as possible.
///
/// # Errors
/// If an alignment is 0, a lifetime ends before it begins, fixed offsets overlap, or the sizes add up to more than
/// 2^62 bytes.
pub fn pack(buffers: &[Buffer], options: &PackOptions) -> Result<Packing, ArenaError> {
    pack_watched(buffers, options, &mut |_| ControlFlow::Continue(()))
}

/// The same, while `watcher` receives the best height so far. If it breaks, the best packing so far is returned.
///
/// # Errors
/// As [`pack`].
pub fn pack_watched(
    buffers: &[Buffer],
    options: &PackOptions,
    watcher: &mut Watcher<'_>,
) -> Result<Packing, ArenaError> {
    let problem = Problem::new(buffers)?;
    let mut bound = bound::arena(buffers).0;
    let target = options.capacity.map_or(bound, |capacity| capacity.0.max(bound));
    let mut watch = Watch::new(watcher, bound);
    let greedy = greedy::pack(&problem, target, options.effort, &mut watch);
    let (mut offsets, mut left) = (greedy.offsets, options.effort.saturating_sub(greedy.work));
    let is_open = |offsets: &[u64], left: u64, watch: &Watch<'_>| {
        problem.height(offsets) > target && left > 0 && !watch.has_stopped()
    };
    if problem.born().len() > greedy::FEW && is_open(&offsets, left, &watch) {
        let share = if minimize::searches(&problem, &offsets, target) { left / EJECTION } else { left };
        left -= eject::lower(&problem, &mut offsets, target, share, &mut watch).min(left);
    }
    if is_open(&offsets, left, &watch) {
        bound = bound.max(minimize::minimize(&problem, &mut offsets, target, left, &mut watch));
    }
    let height = Bytes(problem.height(&offsets));
    Ok(Packing { offsets: offsets.into_iter().map(Bytes).collect(), height, bound: Bytes(bound) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        pools::{PoolError, pack_pools},
        *,
    };
    use crate::{Pool, check};

    const QUICK: PackOptions = PackOptions { capacity: None, effort: 20_000 };

    fn buffers() -> impl Strategy<Value = Vec<Buffer>> {
        let buffer = (0u64..40, 1u64..12, 0u64..50, 0u32..4)
            .prop_map(|(lower, long, size, align)| Buffer::new(lower, lower + long, Bytes(size)).align(1 << align));
        prop::collection::vec(buffer, 0..40)
    }

    /// A rectangle of 24 steps and 64 bytes, cut into buffers: they can be packed without a gap.
    fn jigsaw() -> impl Strategy<Value = Vec<Buffer>> {
        prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), 0.0..1.0f64), 1..24).prop_map(|cuts| {
            let mut buffers = vec![Buffer::new(0, 24, Bytes(64))];
            for (which, across, at) in cuts {
                let index = which.index(buffers.len());
                let mut rest = buffers[index];
                if across {
                    let cut = rest.lower + (at * (rest.upper - rest.lower) as f64) as u64;
                    (buffers[index].upper, rest.lower) = (cut, cut);
                } else {
                    let cut = Bytes((at * rest.size.0 as f64) as u64);
                    (buffers[index].size, rest.size) = (cut, rest.size - cut);
                }
                buffers.push(rest);
            }
            buffers
        })
    }

    /// The lowest height over all orders of first fit, which contain an optimal one: let every buffer of an optimal
    /// packing sink, then take them in order of offset.
    fn best_of_all_orders(buffers: &[Buffer]) -> u64 {
        fn extend(buffers: &[Buffer], placed: &mut Vec<(usize, u64)>, best: &mut u64) {
            let height = placed.iter().map(|(i, at)| at + buffers[*i].size.0).max().unwrap_or(0);
            if height >= *best {
                return;
            }
            if placed.len() == buffers.len() {
                *best = height;
                return;
            }
            for next in (0..buffers.len()).filter(|i| !placed.iter().any(|(p, _)| p == i)).collect::<Vec<_>>() {
                let conflicts = placed.iter().filter(|(p, _)| buffers[*p].overlaps(&buffers[next]));
                let top = conflicts.map(|(p, at)| at + buffers[*p].size.0).max().unwrap_or(0);
                placed.push((next, top.next_multiple_of(buffers[next].align)));
                extend(buffers, placed, best);
                placed.pop();
            }
        }
        let mut best = u64::MAX;
        extend(buffers, &mut Vec::new(), &mut best);
        best
    }

    proptest! {
        #[test]
        fn packings_are_right(buffers in buffers()) {
            let packing = pack(&buffers, &QUICK).unwrap();
            prop_assert_eq!(check::packing(&buffers, &packing), Ok(()));
        }

        #[test]
        fn fixed_offsets_are_kept(mut buffers in buffers()) {
            let packing = pack(&buffers, &QUICK).unwrap();
            for (buffer, offset) in buffers.iter_mut().zip(&packing.offsets).step_by(3) {
                buffer.fixed = Some(*offset);
            }
            let again = pack(&buffers, &QUICK).unwrap();
            prop_assert_eq!(check::packing(&buffers, &again), Ok(()));
        }

        #[test]
        fn pools_hold_what_they_can(
            mut buffers in buffers(),
            first in 0u64..200,
            second in 0u64..200,
            last in prop::option::of(0u64..100),
            fixed in prop::option::of((any::<prop::sample::Index>(), 0u64..60)),
        ) {
            if let Some((index, offset)) = fixed.filter(|_| !buffers.is_empty()) {
                let buffer = index.get(&buffers).align(1).fixed(Bytes(offset));
                let place = index.index(buffers.len());
                buffers[place] = buffer;
            }
            let pool = |name: &str, capacity| Pool { name: name.to_string(), capacity };
            let pools = [
                pool("sram", Some(Bytes(first))),
                pool("dram", Some(Bytes(second))),
                pool("flash", last.map(Bytes)),
            ];
            match pack_pools(&buffers, &pools, &QUICK) {
                Ok(pooled) => prop_assert_eq!(check::pools(&buffers, &pools, &pooled), Ok(())),
                // A pool without an end takes everything.
                Err(error) => prop_assert!(last.is_some() && matches!(error, PoolError::Full { .. }), "{}", error),
            }
        }

        #[test]
        fn jigsaws_are_solved(buffers in jigsaw()) {
            let packing = pack(&buffers, &PackOptions { effort: 100_000_000, ..PackOptions::default() }).unwrap();
            prop_assert_eq!(check::packing(&buffers, &packing), Ok(()));
            prop_assert_eq!(packing.height, Bytes(64));
        }
    }

    /// `count` buffers that fill a rectangle: cut in two again and again, mostly where it is large.
    fn large_jigsaw(count: usize, seed: u64) -> Vec<Buffer> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut buffers = vec![Buffer::new(0, 2000, Bytes(1 << 20))];
        let area = |b: &Buffer| (b.upper - b.lower) * b.size.0;
        while buffers.len() < count {
            let largest = (0..3).map(|_| rng.usize(0..buffers.len())).max_by_key(|&index| area(&buffers[index]));
            let index = largest.unwrap_or(0);
            let mut rest = buffers[index];
            if rng.bool() && rest.upper - rest.lower >= 2 {
                let cut = rng.u64(rest.lower + 1..rest.upper);
                (buffers[index].upper, rest.lower) = (cut, cut);
            } else if rest.size.0 >= 2 {
                let cut = Bytes(rng.u64(1..rest.size.0));
                (buffers[index].size, rest.size) = (cut, rest.size - cut);
            } else {
                continue;
            }
            buffers.push(rest);
        }
        rng.shuffle(&mut buffers);
        buffers
    }

    #[test]
    fn large_jigsaws_come_near_their_bound() {
        let mut gaps = Vec::new();
        for (count, seed) in [(200, 1), (300, 2), (500, 3)] {
            let buffers = large_jigsaw(count, seed);
            let options = PackOptions { effort: 60_000_000, ..PackOptions::default() };
            let packing = pack(&buffers, &options).unwrap();
            assert_eq!(check::packing(&buffers, &packing), Ok(()));
            assert_eq!(packing.bound, Bytes(1 << 20));
            gaps.push(packing.gap());
        }
        assert!(gaps.iter().all(|gap| *gap < 0.1) && gaps.contains(&0.0), "{gaps:?}");
    }

    #[test]
    fn thousands_of_pieces_come_near_their_bound() {
        let mut buffers = large_jigsaw(3000, 4);
        buffers.truncate(2700);
        let options = PackOptions { effort: 60_000_000, ..PackOptions::default() };
        let packing = pack(&buffers, &options).unwrap();
        assert_eq!(check::packing(&buffers, &packing), Ok(()));
        assert!(packing.gap() < 0.15, "{}", packing.gap());
        assert_eq!(pack(&buffers, &options), Ok(packing));
    }

    #[test]
    fn training_with_many_buffers_is_packed_at_its_bound() {
        let mut rng = fastrand::Rng::with_seed(6);
        let half = 20_000;
        let buffers: Vec<Buffer> = (0..half)
            .flat_map(|k| {
                let kept = Buffer::new(k, 2 * half - k + rng.u64(0..4), Bytes(256 * rng.u64(1..5000)));
                let scratch = Buffer::new(k, k + rng.u64(1..5), Bytes(256 * rng.u64(1..1000)));
                [kept, scratch]
            })
            .collect();
        let packing = pack(&buffers, &PackOptions { effort: 1_000_000, ..PackOptions::default() }).unwrap();
        assert_eq!(check::packing(&buffers, &packing), Ok(()));
        assert!(packing.gap() < 0.001, "{}", packing.gap());
    }

    #[test]
    fn a_watcher_ends_the_search_with_a_packing() {
        for buffers in [large_jigsaw(2000, 7), large_jigsaw(300, 8)] {
            let mut calls = 0;
            let options = PackOptions { effort: u64::MAX, ..PackOptions::default() };
            let packing = pack_watched(&buffers, &options, &mut |standing| {
                calls += 1;
                assert!(standing.height.is_none_or(|height| height >= standing.bound));
                if calls == 20 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert_eq!(check::packing(&buffers, &packing.unwrap()), Ok(()));
            assert_eq!(calls, 20);
        }
    }

    #[test]
    fn sizes_up_to_the_largest_sum_are_packed() {
        let size = |count: u64| Bytes((1 << 62) / count - 1);
        for count in [1, 600, 5000] {
            let buffers: Vec<Buffer> =
                (0..count).map(|k| Buffer::new(k, [k, k + 2, u64::MAX][k as usize % 3], size(count))).collect();
            let packing = pack(&buffers, &PackOptions::default()).unwrap();
            assert_eq!(check::packing(&buffers, &packing), Ok(()));
        }
        let huge = vec![Buffer::new(0, u64::MAX, Bytes(u64::MAX)).align(u64::MAX); 600];
        assert_eq!(pack(&huge, &PackOptions::default()), Err(ArenaError::TooLarge));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
        #[test]
        fn small_problems_are_solved_to_the_optimum(
            buffers in prop::collection::vec((0u64..4, 1u64..4, 1u64..6, 0u32..3), 1..8)
        ) {
            let buffer = |(lower, long, size, align)| Buffer::new(lower, lower + long, Bytes(size)).align(1u64 << align);
            let buffers: Vec<Buffer> = buffers.into_iter().map(buffer).collect();
            let packing = pack(&buffers, &PackOptions { effort: 1_000_000, ..PackOptions::default() }).unwrap();
            prop_assert_eq!(check::packing(&buffers, &packing), Ok(()));
            prop_assert_eq!(packing.height.0, best_of_all_orders(&buffers));
            prop_assert_eq!(packing.bound, packing.height);
        }
    }
}
