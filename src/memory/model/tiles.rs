//! Which stretches of a model to compute in parts, and in how many: for every limit on the peak the division of the
//! groups' order into stretches that costs the least time. Exact under the estimates of [`Segment`]: a stretch's peak
//! depends on nothing but itself and what lives across it, so this is a shortest path through the order.

use super::{
    Costs,
    segment::{Line, Segment},
};

/// Numbers of parts that are tried.
const PARTS: [u64; 9] = [2, 3, 4, 5, 6, 8, 10, 14, 20];
/// No stretch has more groups.
const LONGEST: usize = 48;
/// Each limit is this part of the one before it.
const NEXT_LIMIT: f64 = 0.94;
/// Divisions that are slower than this, of the whole, are left out.
const SLOWEST: f64 = 1.5;
/// Groups below this part of the peak are no reason to split anything.
const HIGH: f64 = 0.15;

/// A division of an order of groups.
#[derive(Debug, Clone, PartialEq)]
pub struct Tiling {
    /// Those that are computed in parts, by place.
    pub segments: Vec<Segment>,
}

/// The divisions of least time under lower and lower limits.
pub fn tilings(line: &Line<'_>, costs: &dyn Costs) -> Vec<Tiling> {
    let count = line.groups.len();
    let top = (0..count).map(|place| line.load(place)).max().unwrap_or(0);
    let whole: f64 = line.times.iter().map(|time| time.0).sum();
    let segments = all(line, (top as f64 * HIGH) as u64, costs);
    let mut found: Vec<Tiling> = Vec::new();
    for joined in [false, true] {
        let peak = |segment: &Segment| if joined { segment.joined } else { segment.peak };
        let mut limit = top as f64 * NEXT_LIMIT;
        while limit > 1.0 {
            let Some(tiling) = shortest(line, &segments, &peak, limit as u64, whole * SLOWEST) else { break };
            limit = NEXT_LIMIT * limit.min(highest(line, &tiling, &peak) as f64);
            if !found.contains(&tiling) {
                found.push(tiling);
            }
        }
    }
    found
}

/// Stretches around what is high, by the place after their last group.
fn all(line: &Line<'_>, high: u64, costs: &dyn Costs) -> Vec<Vec<Segment>> {
    let count = line.groups.len();
    let mut segments: Vec<Vec<Segment>> = vec![Vec::new(); count + 1];
    for last in 0..count {
        let Some(end) = line.groups[last].last() else { continue };
        for axis in line.splits.result_axes(*end) {
            for parts in PARTS {
                let made = line.segments(last, axis, parts, LONGEST, costs);
                let is_high = |s: &Segment| (s.first..=s.last).any(|place| line.load(place) > high);
                let gains = |s: &Segment| s.peak < (s.first..=s.last).map(|p| line.load(p)).max().unwrap_or(0);
                segments[last + 1].extend(made.into_iter().filter(|s| is_high(s) && gains(s)));
            }
        }
    }
    segments
}

/// The division of least time whose stretches all keep a limit.
fn shortest(
    line: &Line<'_>,
    segments: &[Vec<Segment>],
    peak: &dyn Fn(&Segment) -> u64,
    limit: u64,
    slowest: f64,
) -> Option<Tiling> {
    let count = line.groups.len();
    // For each place the least time of all before it, and the stretch that ends there; `None` if a whole group does.
    let mut best: Vec<(f64, Option<Segment>)> = vec![(f64::INFINITY, None); count + 1];
    best[0].0 = 0.0;
    for end in 1..=count {
        if line.load(end - 1) <= limit {
            best[end] = (best[end - 1].0 + line.times[end - 1].0, None);
        }
        for segment in segments[end].iter().filter(|segment| peak(segment) <= limit) {
            let time = best[segment.first].0 + segment.time;
            if time < best[end].0 {
                best[end] = (time, Some(*segment));
            }
        }
    }
    if best[count].0 > slowest {
        return None;
    }
    let (mut at, mut chosen) = (count, Vec::new());
    while at > 0 {
        at = match best[at].1 {
            Some(segment) => {
                chosen.push(segment);
                segment.first
            }
            None => at - 1,
        };
    }
    chosen.reverse();
    Some(Tiling { segments: chosen })
}

/// The estimated peak of a division.
fn highest(line: &Line<'_>, tiling: &Tiling, peak: &dyn Fn(&Segment) -> u64) -> u64 {
    let inside = |place: &usize| tiling.segments.iter().any(|s| (s.first..=s.last).contains(place));
    let whole = (0..line.groups.len()).filter(|place| !inside(place)).map(|place| line.load(place));
    whole.chain(tiling.segments.iter().map(peak)).max().unwrap_or(0)
}
