//! Schedules of a MAGIS graph: whole, and split along the batch into each number of equal parts.

use super::{Export, ExportError, Op, program, simulate::simulate, split::Region};
use edgecut_graph::units::{Bytes, Micros};
use edgecut_memory::{
    program::Program,
    remat::{ParetoFront, RematOptions, ScheduleDecision, expand, pareto_front, search_variants},
};

/// Part of the budget that the whole graph gets; the rest goes to the splits.
const WHOLE: f64 = 0.35;
/// Splits slower than this, for nothing but being split, are left out.
const SLOWEST: f64 = 2.0;

/// One way to split the graph, with the schedules found for it.
pub struct Variant {
    /// 1 if the graph is whole.
    pub parts: u64,
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
    region: Option<Region>,
    variants: Vec<Variant>,
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
    let region = Region::of(ops);
    let whole = program::program(ops, &export.cost_model, 1);
    let limit = whole.time().0 * SLOWEST;
    let mut variants = vec![variant(1, whole, ops.to_vec(), Outside::default())];
    for parts in region.iter().flat_map(Region::divisors) {
        let Some(region) = &region else { continue };
        let inner = region.part(parts, &export.cost_model);
        let mut program = program::program(&inner, &export.cost_model, parts);
        // With nothing inside, the simulation gives what lies around.
        let hollow = region.around(Vec::new(), parts, 0.0, &mut 0);
        let at = hollow.iter().position(|op| op.fission.is_some()).unwrap_or(0);
        program.resident = live_at(&hollow, at);
        let outside =
            Outside { peak: Bytes(simulate(&hollow).peak_bytes), time: Micros(simulate(&hollow).latency_ms * 1e3) };
        if program.time().0 <= limit {
            variants.push(variant(parts, program, inner, outside));
        }
    }
    let programs: Vec<&Program> = variants.iter().map(|variant| &variant.program).collect();
    let (fronts, evaluated) = search_variants(&programs, WHOLE, options);
    variants.iter_mut().zip(fronts).for_each(|(variant, front)| variant.front = front);
    Ok(MagisSchedules { export, region, variants, evaluated })
}

fn variant(parts: u64, program: Program, ops: Vec<Op>, outside: Outside) -> Variant {
    Variant { parts, program, ops, outside, front: ParetoFront::default() }
}

/// Bytes that live while one operator runs, in schedule order without copies.
fn live_at(ops: &[Op], at: usize) -> Bytes {
    let needed = |op: &Op| {
        let mut users = ops.iter().enumerate().filter(|(_, user)| user.args.contains(&op.id)).map(|(i, _)| i);
        users.next_back().is_none_or(|last| last >= at)
    };
    ops[..=at].iter().enumerate().filter(|(i, op)| *i == at || needed(op)).map(|(_, op)| Bytes(op.out_bytes)).sum()
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

    /// No schedule of the whole graph, and none of a split one, needs less.
    pub fn peak_bound(&self) -> Bytes {
        self.variants.iter().map(|v| v.program.peak_bound().max(v.outside.peak)).min().unwrap_or_default()
    }

    /// The schedule as a file; `None` if the choice cannot be unfolded.
    pub fn export(&self, schedule: &Schedule<'_>) -> Option<Export> {
        let steps = expand(&schedule.variant.program, schedule.decision)?;
        let mut fresh = self.export.ops.iter().map(|op| op.id).max().unwrap_or(0);
        let mut ops = program::operators(&schedule.variant.ops, &self.export.cost_model, &steps, &mut fresh);
        if let (Some(region), parts @ 2..) = (&self.region, schedule.variant.parts) {
            let latency = simulate(&ops).latency_ms;
            ops = region.around(ops, parts, latency, &mut fresh);
        }
        let found = simulate(&ops);
        let mut export = Export { ops, ..self.export.clone() };
        (export.latency_ms, export.peak_bytes) = (found.latency_ms, found.peak_bytes);
        Some(export)
    }
}
