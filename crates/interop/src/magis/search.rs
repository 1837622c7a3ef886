//! Schedules of a MAGIS graph: whole, and all or the part around its peak split along the batch into each number of equal
//! parts.

use std::{cmp::Reverse, collections::HashMap, ops::Range, rc::Rc};

use super::{Export, ExportError, Op, program, simulate::simulate, split::Region};
use edgecut_graph::units::{Bytes, Micros};
use edgecut_memory::{
    program::Program,
    remat::{ParetoFront, RematOptions, ScheduleDecision, ScheduleExpander, expand, pareto_front, search_variants},
};

/// Part of the budget that the splits of a part of the graph get.
const PARTIAL_SHARE: f64 = 0.3;
/// Part of the rest that the whole graph gets; what is left goes to its splits.
const WHOLE: f64 = 0.35;
/// Splits slower than this, for nothing but being split, are left out.
const SLOWEST: f64 = 2.0;
/// The number of splits of a part of the graph that are searched.
const PARTIAL: usize = 6;
/// Places where a split may begin, and where it may end.
const CUTS: usize = 16;

/// One way to split the graph, with the schedules found for it.
pub struct Variant {
    /// 1 if the graph is whole.
    pub parts: u64,
    /// What is split, if anything is.
    region: Option<Rc<Region>>,
    program: Program,
    ops: Vec<Op>,
    /// What lies around the parts while they run, and what the rest takes.
    outside: Outside,
    front: ParetoFront,
}

#[derive(Clone, Copy, Default)]
struct Outside {
    peak: Bytes,
    time: Micros,
}

/// Schedules of a graph.
pub struct MagisSchedules<'a> {
    export: &'a Export,
    variants: Vec<Variant>,
    peak_bound: Bytes,
    pub evaluated: u64,
}

/// One schedule of the front over all variants.
#[derive(Clone, Copy)]
pub struct Schedule<'a> {
    pub peak: Bytes,
    pub time: Micros,
    pub variant: &'a Variant,
    decision: &'a ScheduleDecision,
}

/// Searches schedules of a graph.
///
/// # Errors
/// If the file is a schedule already.
pub fn search_schedules<'a>(export: &'a Export, options: &RematOptions) -> Result<MagisSchedules<'a>, ExportError> {
    let ops = export.plain()?;
    let whole = program::program(ops, &export.cost_model, 1);
    let limit = whole.time().0 * SLOWEST;
    let mut variants = vec![Variant::new(1, None, whole, ops.to_vec(), Outside::default())];
    if let Some(region) = Region::of(ops).map(Rc::new) {
        variants.extend(region.divisors().into_iter().map(|parts| Variant::split(&region, parts, export)));
    }
    let mut peak_bound = variants.iter().map(Variant::peak_bound).min().unwrap_or_default();
    variants.retain(|variant| variant.parts == 1 || variant.program.time().0 <= limit);
    let partial = partial_splits(export, ops, &variants, &mut peak_bound);
    let share = if partial.is_empty() { 0.0 } else { PARTIAL_SHARE };
    let mut evaluated = 0;
    let mut search = |mut variants: Vec<Variant>, first: f64, share: f64| {
        let programs: Vec<&Program> = variants.iter().map(|variant| &variant.program).collect();
        let budget = (options.budget as f64 * share) as u64;
        let (fronts, looked_at) = search_variants(&programs, first, &RematOptions { budget, ..*options });
        variants.iter_mut().zip(fronts).for_each(|(variant, front)| variant.front = front);
        evaluated += looked_at;
        variants
    };
    let mut variants = search(variants, WHOLE, 1.0 - share);
    let first = 1.0 / partial.len().max(1) as f64;
    variants.extend(search(partial, first, share));
    Ok(MagisSchedules { export, variants, peak_bound, evaluated })
}

/// Splits of only a range of the operators around the peak: those that neither another one nor one of `others` beats in
/// peak and time before any search, at most [`PARTIAL`] of them, evenly over their peaks.
///
/// `peak_bound` falls to the least that one of them needs.
fn partial_splits(export: &Export, ops: &[Op], others: &[Variant], peak_bound: &mut Bytes) -> Vec<Variant> {
    let mut splits: Vec<(Rc<Region>, u64)> = Vec::new();
    let mut found: Vec<(ScheduleFigures, Option<usize>)> =
        others.iter().filter_map(|variant| Some((variant.unsearched()?, None))).collect();
    for range in ranges(ops) {
        let Some(region) = Region::within(ops, range).map(Rc::new) else { continue };
        for parts in region.divisors() {
            let variant = Variant::split(&region, parts, export);
            *peak_bound = variant.peak_bound().min(*peak_bound);
            found.extend(variant.unsearched().map(|figures| (figures, Some(splits.len()))));
            splits.push((Rc::clone(&region), parts));
        }
    }
    let front = pareto_front(found, |(figures, _)| (figures.peak, figures.time));
    let best: Vec<usize> = front.into_iter().filter_map(|(_, split)| split).collect();
    let step = best.len().div_ceil(PARTIAL).max(1);
    let chosen = best.into_iter().step_by(step).map(|index| &splits[index]);
    chosen.map(|(region, parts)| Variant::split(region, *parts, export)).collect()
}

/// Ranges of the operators around the peak of the schedule. They begin at the first operator or where fewer bytes live than
/// at any place nearer to the peak, and end at such a place.
fn ranges(ops: &[Op]) -> Vec<Range<usize>> {
    let live = live_bytes(ops);
    let Some(peak) = (0..ops.len()).max_by_key(|&at| (live[at], Reverse(at))) else { return Vec::new() };
    let first = ops.iter().position(|op| !op.is_placeholder()).unwrap_or(0);
    let lower = |places: &mut dyn Iterator<Item = usize>| {
        let mut found: Vec<usize> = Vec::new();
        for at in places {
            if found.last().is_none_or(|&nearer| live[at] < live[nearer]) {
                found.push(at);
            }
        }
        let step = found.len().div_ceil(CUTS).max(1);
        found.into_iter().step_by(step).collect::<Vec<_>>()
    };
    let (mut begins, ends) = (lower(&mut (first..=peak).rev()), lower(&mut (peak + 1..ops.len())));
    begins.push(first);
    begins.dedup();
    begins.iter().flat_map(|&from| ends.iter().map(move |&to| from..to)).collect()
}

/// Bytes that live while each operator runs, in schedule order without copies.
fn live_bytes(ops: &[Op]) -> Vec<u64> {
    let mut last: HashMap<u64, usize> = HashMap::new();
    for (at, op) in ops.iter().enumerate() {
        last.extend(op.args.iter().map(|&arg| (arg, at)));
    }
    let mut change = vec![0i64; ops.len() + 1];
    for (at, op) in ops.iter().enumerate() {
        change[at] += op.out_bytes as i64;
        change[last.get(&op.id).map_or(ops.len(), |last| last + 1)] -= op.out_bytes as i64;
    }
    let running = change.iter().scan(0, |live, change| {
        *live += change;
        Some(*live as u64)
    });
    running.take(ops.len()).zip(ops).map(|(live, op)| live + op.extra_bytes).collect()
}

/// Peak and time of a schedule.
#[derive(Debug, Clone, Copy)]
struct ScheduleFigures {
    peak: Bytes,
    time: Micros,
}

impl Variant {
    fn new(parts: u64, region: Option<Rc<Region>>, program: Program, ops: Vec<Op>, outside: Outside) -> Variant {
        Variant { parts, region, program, ops, outside, front: ParetoFront::default() }
    }

    /// A region in parts, and all else whole.
    fn split(region: &Rc<Region>, parts: u64, export: &Export) -> Variant {
        let inner = region.part(parts, &export.cost_model);
        let mut program = program::program(&inner, &export.cost_model, parts);
        // With nothing inside, the simulation gives what lies around.
        let hollow = region.around(Vec::new(), parts, 0.0, &mut 0);
        let at = hollow.iter().position(|op| op.fission.is_some()).unwrap_or(0);
        program.resident = Bytes(live_bytes(&hollow).get(at).copied().unwrap_or(0));
        let around = simulate(&hollow);
        let outside = Outside { peak: Bytes(around.peak_bytes), time: Micros(around.latency_ms * 1e3) };
        Variant::new(parts, Some(Rc::clone(region)), program, inner, outside)
    }

    /// No schedule of this variant needs less.
    fn peak_bound(&self) -> Bytes {
        self.program.peak_bound().max(self.outside.peak)
    }

    /// Peak and time in the order of the file.
    fn unsearched(&self) -> Option<ScheduleFigures> {
        let kept = ScheduleDecision::keep_all(&self.program);
        let cost = ScheduleExpander::new(&self.program).cost(&kept, Bytes(u64::MAX))?;
        Some(ScheduleFigures { peak: cost.peak.max(self.outside.peak), time: cost.time + self.outside.time })
    }
}

impl<'a> MagisSchedules<'a> {
    /// All schedules that no other one beats in both peak and time, by rising peak.
    pub fn front(&self) -> Vec<Schedule<'_>> {
        let mut all: Vec<Schedule<'_>> = Vec::new();
        for variant in &self.variants {
            all.extend(variant.front.points().iter().map(|point| Schedule {
                peak: point.peak.max(variant.outside.peak),
                time: point.time + variant.outside.time,
                variant,
                decision: &point.decision,
            }));
        }
        pareto_front(all, |schedule| (schedule.peak, schedule.time))
    }

    /// No schedule of the whole graph needs less, and none of a split, whether it was searched or is too slow.
    pub fn peak_bound(&self) -> Bytes {
        self.peak_bound
    }

    /// The schedule as a file; `None` if the choice cannot be unfolded.
    pub fn export(&self, schedule: &Schedule<'_>) -> Option<Export> {
        let steps = expand(&schedule.variant.program, schedule.decision)?;
        let mut fresh = self.export.ops.iter().map(|op| op.id).max().unwrap_or(0);
        let mut ops = program::operators(&schedule.variant.ops, &self.export.cost_model, &steps, &mut fresh);
        if let (Some(region), parts @ 2..) = (&schedule.variant.region, schedule.variant.parts) {
            let latency = simulate(&ops).latency_ms;
            ops = region.around(ops, parts, latency, &mut fresh);
        }
        let found = simulate(&ops);
        let mut export = Export { ops, ..self.export.clone() };
        (export.latency_ms, export.peak_bytes) = (found.latency_ms, found.peak_bytes);
        Some(export)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::magis::check;

    /// A small input, large results, and then many small ones, whose time is that of their launch.
    fn large_then_small() -> Export {
        let (launch_ms, peak_bw) = (0.005, 1e12);
        let mut elements = 8u64;
        let mut operator = |id: u64, width: u64| {
            let read = std::mem::replace(&mut elements, 8 * width);
            let moved = 4 * (read + 8 * width);
            json!({
                "id": id, "tag": if id == 0 { "placeholder" } else { "pool2d.avg" }, "shape": [8, width],
                "args": if id == 0 { vec![] } else { vec![id - 1] }, "out_bytes": 32 * width, "extra_bytes": 0,
                "latency_ms": if id == 0 { 1e-8 } else { launch_ms + 1e3 * moved as f64 / peak_bw }, "flops": 0,
                "in_mem": true, "is_weight": false, "is_view": false, "is_remat": false
            })
        };
        let widths = [&[1][..], &[4_000_000; 3], &[1; 40]].concat();
        let ops: Vec<Value> = (0..).zip(widths).map(|(id, width)| operator(id, width)).collect();
        let cost_model = json!({
            "peak_flops": 1e12, "eff_f": 1.0, "peak_bw": peak_bw, "eff_b": 1.0, "launch_ms": launch_ms, "pcie": 1e9,
            "mem_launch_ms": 0.01, "dtype_bytes": 4
        });
        let export = json!({
            "name": "large then small", "peak_bytes": 0, "latency_ms": 0.0, "cost_model": cost_model,
            "memory_model": "", "ops": ops
        });
        Export::parse(export.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_part_around_the_peak_is_split_by_itself() {
        let export = large_then_small();
        let original = simulate(&export.ops);
        let found = search_schedules(&export, &RematOptions { seed: 1, budget: 200_000, cut_off: None }).unwrap();
        let allowed = Micros(original.latency_ms * 1e3 * 1.1);
        let least = found.front().into_iter().find(|schedule| schedule.time <= allowed).unwrap();
        // Four parts, which all operators together would be too slow in, even in two.
        assert_eq!(least.variant.parts, 4);
        assert!(least.peak.0 < original.peak_bytes / 3, "{} of {}", least.peak.0, original.peak_bytes);
        let written = found.export(&least).unwrap();
        assert_eq!(check::operators(&export, &written), Ok(()));
        assert_eq!(written.peak_bytes, least.peak.0);
    }
}
