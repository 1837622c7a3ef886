//! Schedules of a MAGIS graph: whole, and split along the batch into every number of equal parts.

use super::{Export, ExportError, Op, program, simulate::simulate, split::Region};
use crate::memory::{
    fit::{self, Choice, Front, Options},
    program::Program,
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
    front: Front,
}

#[derive(Clone, Copy, Default)]
struct Outside {
    peak: u64,
    time: f64,
}

/// Schedules of a graph.
pub struct Fitted<'a> {
    export: &'a Export,
    region: Option<Region>,
    variants: Vec<Variant>,
    pub evaluated: u64,
}

/// One schedule of the front over all variants.
#[derive(Clone, Copy)]
pub struct Schedule<'a> {
    pub peak: u64,
    /// Microseconds.
    pub time: f64,
    pub variant: &'a Variant,
    choice: &'a Choice,
}

/// Searches schedules of a graph.
///
/// # Errors
/// If the file is a schedule already.
pub fn fit<'a>(export: &'a Export, options: &Options) -> Result<Fitted<'a>, ExportError> {
    let ops = export.plain()?;
    let region = Region::of(ops);
    let whole = program::program(ops, &export.cost_model, 1);
    let limit = whole.time() * SLOWEST;
    let mut variants = vec![variant(1, whole, ops.to_vec(), Outside::default())];
    for parts in region.iter().flat_map(Region::divisors) {
        let Some(region) = &region else { continue };
        let inner = region.part(parts, &export.cost_model);
        let mut program = program::program(&inner, &export.cost_model, parts);
        // With nothing inside, the simulation gives what lies around.
        let hollow = region.around(Vec::new(), parts, 0.0, &mut 0);
        let at = hollow.iter().position(|op| op.fission.is_some()).unwrap_or(0);
        program.resident = live_at(&hollow, at);
        let outside = Outside { peak: simulate(&hollow).peak_bytes, time: simulate(&hollow).latency_ms * 1e3 };
        if program.time() <= limit {
            variants.push(variant(parts, program, inner, outside));
        }
    }
    let programs: Vec<&Program> = variants.iter().map(|variant| &variant.program).collect();
    let (fronts, evaluated) = fit::fit_variants(&programs, WHOLE, options);
    variants.iter_mut().zip(fronts).for_each(|(variant, front)| variant.front = front);
    Ok(Fitted { export, region, variants, evaluated })
}

fn variant(parts: u64, program: Program, ops: Vec<Op>, outside: Outside) -> Variant {
    Variant { parts, program, ops, outside, front: Front::default() }
}

/// Bytes that live while one operator runs, in schedule order without copies.
fn live_at(ops: &[Op], at: usize) -> u64 {
    let needed = |op: &Op| {
        let mut users = ops.iter().enumerate().filter(|(_, user)| user.args.contains(&op.id)).map(|(i, _)| i);
        users.next_back().is_none_or(|last| last >= at)
    };
    ops[..=at].iter().enumerate().filter(|(i, op)| *i == at || needed(op)).map(|(_, op)| op.out_bytes).sum()
}

impl<'a> Fitted<'a> {
    /// All schedules that no other one beats in both peak and time, by rising peak.
    pub fn front(&self) -> Vec<Schedule<'_>> {
        let mut all: Vec<Schedule<'_>> = Vec::new();
        for variant in &self.variants {
            all.extend(variant.front.points().iter().map(|point| Schedule {
                peak: point.peak.max(variant.outside.peak),
                time: point.time + variant.outside.time,
                variant,
                choice: &point.choice,
            }));
        }
        fit::unbeaten(all, |schedule| (schedule.peak, schedule.time))
    }

    /// No schedule of the whole graph, and none of a split one, needs less.
    pub fn least_peak(&self) -> u64 {
        self.variants.iter().map(|v| v.program.least_peak().max(v.outside.peak)).min().unwrap_or(0)
    }

    /// The schedule as a file; `None` if the choice cannot be unfolded.
    pub fn export(&self, schedule: &Schedule<'_>) -> Option<Export> {
        let steps = fit::steps(&schedule.variant.program, schedule.choice)?;
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
