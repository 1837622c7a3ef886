//! Two plans of one model: what they predict, and what each has where.

use std::collections::BTreeMap;

use edgecut_graph::DeviceName;
use edgecut_plan::{
    DeviceId, Plan,
    file::{GroupPlan, Transfer},
};

use super::{
    ComparedKind, Comparison, ComparisonError, ComparisonRow, GroupKey, TransferKey, estimate::Estimate, paired, sort,
    unpaired,
};

/// Compares the plan `a`, from the file `name_a`, with `b`.
///
/// # Errors
/// If they have no group in common.
pub fn plans((name_a, a): (&str, &Plan), (name_b, b): (&str, &Plan)) -> Result<Comparison, ComparisonError> {
    let (pairs, alone_a, alone_b) = paired(groups(a), groups(b));
    let (sent, sent_a, sent_b) = paired(transfers(a), transfers(b));
    if pairs.is_empty() {
        return Err(ComparisonError::Nothing { a: name_a.to_string(), b: name_b.to_string() });
    }
    let mut rows = whole(a, b);
    rows.extend(devices(a, b));
    for ((id, part, _), of_a, of_b) in pairs {
        let (time_a, time_b) = (Estimate::exact(of_a.time_us.0), Estimate::exact(of_b.time_us.0));
        let row = ComparisonRow::times(ComparedKind::Group, &of_a.name, time_a, time_b);
        rows.push(row.of(id, part).on(&device(a, of_a.device), &device(b, of_b.device)));
    }
    for ((id, part, ..), of_a, of_b) in sent {
        let (time_a, time_b) = (Estimate::exact(of_a.time_us.0), Estimate::exact(of_b.time_us.0));
        let row = ComparisonRow::times(ComparedKind::Transfer, &of_a.name, time_a, time_b);
        rows.push(row.of(id, part).on(&way(a, of_a), &way(b, of_b)));
    }
    sort(&mut rows);
    let mut notes = Vec::new();
    if a.model.blake3 != b.model.blake3 {
        notes.push(format!("the plans are of different files: {} and {}", a.model.path, b.model.path));
    }
    if a.granularity != b.granularity {
        notes.push("the plans have groups of different granularity, which have other numbers".to_string());
    }
    notes.extend(unpaired("groups or parts", alone_a, alone_b));
    notes.extend(unpaired("transfers", sent_a, sent_b));
    Ok(Comparison { a: described(name_a, a), b: described(name_b, b), rows, notes })
}

fn described(name: &str, plan: &Plan) -> String {
    let used = plan.used_devices().count();
    // The gap is a fraction of the value, and this one of the bound.
    let above = match plan.gap {
        gap if gap < 1.0 => format!("{:.1} % above its bound", 100.0 * gap / (1.0 - gap)),
        _ => "with a bound of 0".to_string(),
    };
    format!("{name}: {used} of {} devices, for {}, {above}", plan.devices.len(), plan.objective)
}

fn device(plan: &Plan, id: DeviceId) -> String {
    plan.device_name(id).map_or(String::new(), |name| name.to_string())
}

fn way(plan: &Plan, transfer: &Transfer) -> String {
    format!("{} → {}", device(plan, transfer.from), device(plan, transfer.to))
}

fn groups(plan: &Plan) -> impl Iterator<Item = (GroupKey<'_>, &GroupPlan)> {
    plan.groups.iter().map(|group| ((group.id, group.part.as_str(), group.name.as_str()), group))
}

fn transfers(plan: &Plan) -> impl Iterator<Item = (TransferKey<'_>, &Transfer)> {
    plan.transfers.iter().map(|transfer| {
        let id = transfer.id.map(|id| id.0);
        let (part, name) = (transfer.part.as_str(), transfer.name.as_str());
        ((id, part, name, device(plan, transfer.from), device(plan, transfer.to)), transfer)
    })
}

/// Latency, time between results, peak memory, what is sent, and energy where both plans have it.
fn whole(a: &Plan, b: &Plan) -> Vec<ComparisonRow> {
    let time = |name: &str, of: fn(&Plan) -> f64| {
        ComparisonRow::times(ComparedKind::Whole, name, Estimate::exact(of(a)), Estimate::exact(of(b)))
    };
    let sent = |plan: &Plan| plan.transfers.iter().map(|transfer| transfer.sent().0).sum();
    let peaks = (a.predicted.peak_bytes.0, b.predicted.peak_bytes.0);
    let energy = a.predicted.energy_j.zip(b.predicted.energy_j);
    let energy = energy.map(|(a, b)| ComparisonRow::energy(ComparedKind::Whole, "energy", a, b));
    let rows = [
        time("latency", |plan| plan.predicted.latency_us.0),
        time("between results", |plan| plan.predicted.interval_us.0),
        ComparisonRow::bytes(ComparedKind::Whole, "peak memory", peaks.0, peaks.1),
        ComparisonRow::bytes(ComparedKind::Whole, "sent", sent(a), sent(b)),
    ];
    rows.into_iter().chain(energy).collect()
}

/// How long each device computes, and the memory that it takes.
fn devices(a: &Plan, b: &Plan) -> Vec<ComparisonRow> {
    let of_b: BTreeMap<DeviceName, _> = b.devices.iter().map(|device| (device.device_name(), device)).collect();
    let mut rows = Vec::new();
    for device in &a.devices {
        let name = device.device_name();
        let Some(other) = of_b.get(&name) else { continue };
        let name = name.to_string();
        let busy = (Estimate::exact(device.busy_us.0), Estimate::exact(other.busy_us.0));
        rows.push(ComparisonRow::times(ComparedKind::Device, "busy", busy.0, busy.1).on(&name, &name));
        let load = (device.memory.load_bytes.0, other.memory.load_bytes.0);
        rows.push(ComparisonRow::bytes(ComparedKind::Device, "memory", load.0, load.1).on(&name, &name));
    }
    rows
}
