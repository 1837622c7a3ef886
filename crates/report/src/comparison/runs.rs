//! Two runs of plans of one model: what was measured.

use edgecut_agent::results::{GroupTime, Outcome, Scatter, ServerEnergy, TransferCost, file::RunAbout};
use edgecut_graph::units::{Joules, Micros};

use super::{
    ComparedKind, Comparison, ComparisonError, ComparisonRow, GroupKey, TransferKey, estimate::Estimate, other_sources,
    paired, sort, unpaired,
};
use crate::subject::MeasuredRun;

/// Compares the run `a`, from the file `name_a`, with `b`.
///
/// # Errors
/// If the two have no group in common.
pub fn runs(
    (name_a, a): (&str, &MeasuredRun),
    (name_b, b): (&str, &MeasuredRun),
) -> Result<Comparison, ComparisonError> {
    let (of_a, of_b) = (&a.outcome, &b.outcome);
    let (pairs, alone_a, alone_b) = paired(groups(of_a), groups(of_b));
    if pairs.is_empty() {
        return Err(ComparisonError::Nothing { a: name_a.to_string(), b: name_b.to_string() });
    }
    let mut rows = whole(of_a, of_b);
    for ((id, part, _), a, b) in pairs {
        let row = ComparisonRow::times(ComparedKind::Group, &a.name, group(a), group(b));
        rows.push(row.of(id, part).on(&a.device, &b.device));
    }
    let (sent, sent_a, sent_b) = paired(transfers(of_a), transfers(of_b));
    for ((id, part, _, from, to), a, b) in sent {
        let way = format!("{from} → {to}");
        let time = |of: &TransferCost| estimate(of.measured_us, &of.scatter);
        let row = ComparisonRow::times(ComparedKind::Transfer, &a.tensor, time(a), time(b));
        rows.push(row.of(id, part).on(&way, &way));
    }
    rows.extend(memory(of_a, of_b));
    rows.extend(energy(of_a, of_b));
    sort(&mut rows);
    let mut notes = Vec::new();
    if let (Some(a), Some(b)) = (&a.about, &b.about)
        && a.model_blake3 != b.model_blake3
    {
        notes.push(format!("the runs are of different files: {} and {}", a.model, b.model));
    }
    if of_a.interval_us.is_some() != of_b.interval_us.is_some() {
        let what = "one is of a stream, whose latency has the time that inputs wait for each other, and whose inferences share the idle power: latencies and energy do not compare";
        notes.push(what.to_string());
    }
    for of_a in &of_a.energy {
        let of_b = of_b.energy.iter().find(|of_b| of_b.server == of_a.server);
        let sources = |energy: &ServerEnergy| energy.sources.iter().map(|of| of.source.clone()).collect();
        notes.extend(of_b.and_then(|of_b| other_sources(&of_a.server, &sources(of_a), &sources(of_b))));
    }
    notes.extend(unpaired("groups or parts", alone_a, alone_b));
    notes.extend(unpaired("transfers", sent_a, sent_b));
    Ok(Comparison { a: described(name_a, a), b: described(name_b, b), rows, notes })
}

fn described(name: &str, run: &MeasuredRun) -> String {
    let n = run.outcome.latency.n;
    match &run.about {
        None => format!("{name}: {n} inferences"),
        Some(RunAbout { plan, edgecut, measured_at, .. }) => {
            format!("{name}: {plan} by edgecut {edgecut}, {n} inferences, measured {}", measured_at.date())
        }
    }
}

fn estimate(median: Micros, scatter: &Scatter) -> Estimate {
    Estimate::median(median.0, Some(scatter.mad_us.0), scatter.n)
}

fn group(time: &GroupTime) -> Estimate {
    estimate(time.measured_us, &time.scatter)
}

fn groups(run: &Outcome) -> impl Iterator<Item = (GroupKey<'_>, &GroupTime)> {
    run.groups.iter().map(|group| ((group.id, group.part.as_str(), group.name.as_str()), group))
}

fn transfers(run: &Outcome) -> impl Iterator<Item = (TransferKey<'_>, &TransferCost)> {
    run.transfers.iter().map(|transfer| {
        let id = transfer.id.map(|id| id.0);
        let (part, tensor) = (transfer.part.as_str(), transfer.tensor.as_str());
        ((id, part, tensor, transfer.from.clone(), transfer.to.clone()), transfer)
    })
}

/// The latency, and the time between results where both are of streams.
fn whole(a: &Outcome, b: &Outcome) -> Vec<ComparisonRow> {
    let latency = |run: &Outcome| {
        let latency = &run.latency;
        Estimate::median(latency.median_us.0, Some(latency.mad_us.0), latency.n)
    };
    let mut rows = vec![ComparisonRow::times(ComparedKind::Whole, "latency", latency(a), latency(b))];
    if let (Some(a), Some(b)) = (a.interval_us, b.interval_us) {
        let interval = (Estimate::exact(a.0), Estimate::exact(b.0));
        rows.push(ComparisonRow::times(ComparedKind::Whole, "between results", interval.0, interval.1));
    }
    rows
}

/// What each server consumed for an inference.
fn energy(a: &Outcome, b: &Outcome) -> Vec<ComparisonRow> {
    let of = |run: &'_ Outcome| -> Vec<(String, Joules)> {
        run.energy.iter().map(|server| (server.server.to_string(), server.measured_energy_j)).collect()
    };
    let (pairs, _, _) = paired(of(a).into_iter(), of(b).into_iter());
    let row = |(server, a, b): (String, Joules, Joules)| {
        ComparisonRow::energy(ComparedKind::Device, "energy", a, b).on(&server, &server)
    };
    pairs.into_iter().map(row).collect()
}

/// What each device held at most.
fn memory(a: &Outcome, b: &Outcome) -> Vec<ComparisonRow> {
    let of = |run: &'_ Outcome| -> Vec<(String, u64)> {
        run.memory.iter().map(|device| (device.device.clone(), device.peak_bytes.0)).collect()
    };
    let (pairs, _, _) = paired(of(a).into_iter(), of(b).into_iter());
    let row = |(device, a, b): (String, u64, u64)| {
        ComparisonRow::bytes(ComparedKind::Device, "memory", a, b).on(&device, &device)
    };
    pairs.into_iter().map(row).collect()
}
