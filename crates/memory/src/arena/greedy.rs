//! The first packing: the lowest of several that are made without search.
//!
//! First fit in several orders takes time in proportion to the pairs of buffers that are live at the same time. Where there
//! are many buffers, valleys are filled first, and only so many orders of first fit are tried as the effort allows.

use super::{
    fill::{FILLINGS, fill},
    first_fit::{place, traits},
    preference::FIRST_FIT,
    problem::Problem,
    watch::Watch,
};

/// Up to this number of buffers, first fit and the exact search are all that is needed, and fast.
pub(super) const FEW: usize = 512;
/// Work of first fit for each pair, in hundredths.
const WORK_OF_PAIRS: u64 = 50;
/// Work of first fit that is done whatever the effort: as much as a few thousand buffers take that are all live at
/// the same time.
const AT_LEAST: u64 = 60_000_000;
/// One part in this number of the effort may go to filling, and another one to first fit.
const SHARE: u64 = 4;

/// A packing, and how much of the effort it took.
pub(super) struct Greedy {
    pub offsets: Vec<u64>,
    pub work: u64,
}

/// The lowest packing of the portfolio; stops as soon as `target` is reached.
pub(super) fn pack(problem: &Problem<'_>, target: u64, effort: u64, watch: &mut Watch<'_>) -> Greedy {
    let mut best = Best { offsets: Vec::new(), height: None, problem };
    let is_large = problem.born().len() > FEW;
    let mut spent = 0;
    if is_large {
        for &filling in FILLINGS {
            let (offsets, work) = fill(problem, filling, watch);
            spent += work;
            best.offer(offsets, watch);
            if best.is_within(target) || spent > effort / SHARE || watch.has_stopped() {
                break;
            }
        }
    }
    let each = (problem.timeline().pairs() / 100).saturating_mul(WORK_OF_PAIRS);
    let limit = AT_LEAST.max(effort / SHARE);
    let mut fitted = 0;
    let ends = |best: &Best<'_>, fitted: u64, watch: &Watch<'_>| {
        let is_costly = is_large && fitted + each > limit;
        best.is_within(target) || best.height.is_some() && (is_costly || watch.has_stopped())
    };
    if !ends(&best, fitted, watch) {
        let traits = traits(problem);
        let mut order: Vec<u32> = (0..problem.buffers.len() as u32).collect();
        for preference in FIRST_FIT {
            preference.sort(&mut order, |buffer| traits[buffer as usize]);
            best.offer(place(problem, &order), watch);
            watch.stops(each);
            fitted += each;
            if ends(&best, fitted, watch) {
                break;
            }
        }
    }
    // The effort of small problems is that of the search alone, and all others have half of it left.
    Greedy { offsets: best.offsets, work: if is_large { (spent + fitted).min(effort / 2) } else { 0 } }
}

/// The lowest packing so far.
struct Best<'a> {
    offsets: Vec<u64>,
    height: Option<u64>,
    problem: &'a Problem<'a>,
}

impl Best<'_> {
    fn offer(&mut self, offsets: Vec<u64>, watch: &mut Watch<'_>) {
        let height = self.problem.height(&offsets);
        if self.height.is_none_or(|lowest| height < lowest) {
            self.height = Some(height);
            self.offsets = offsets;
            watch.reached(height);
        }
    }

    fn is_within(&self, target: u64) -> bool {
        self.height.is_some_and(|height| height <= target)
    }
}
