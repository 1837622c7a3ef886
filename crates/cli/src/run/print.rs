//! A plan's run on stdout: predicted against measured.

use super::breakdown;
use crate::{
    Outcome,
    format::{Format, print_csv, print_json},
    stderr::notice,
    stdout::print_line,
    table::{MANY_GROUPS, SMALL, Table, numbered, shortened, small, table},
};
use edgecut_agent::results::{self, Breakdown, MemoryUse, TransferCost, table as run_table};
use edgecut_graph::units::{Bytes, Micros};
use edgecut_plan::Plan;
use edgecut_session::busy::busy;

/// Prints a run, with its breakdown if that is wanted.
pub(crate) fn print(format: Format, plan: &Plan, outcome: &results::Outcome, with_breakdown: bool) -> Outcome {
    let breakdown = outcome.breakdown.as_ref().filter(|_| with_breakdown);
    if with_breakdown && breakdown.is_none() {
        notice!("no breakdown: not all agents reported all runs");
    }
    match format {
        Format::Json => print_json(outcome)?,
        Format::Csv => match breakdown {
            Some(breakdown) => print_csv(&breakdown.times)?,
            None => print_csv(&run_table::rows(outcome))?,
        },
        Format::Table => {
            print_line!("{}", page(plan, outcome, breakdown));
            match outcome.outputs {
                Some(difference) if !plan.transfer.is_exact() && difference.is_finite() => {
                    print_line!(
                        "outputs of transfers in {} against one device: {}",
                        plan.transfer,
                        difference.errors()
                    );
                }
                Some(difference) => print_line!("outputs against one device: {difference}"),
                None => {}
            }
        }
    }
    if let Some(warning) = busy_machine(outcome) {
        notice!("{warning}");
    }
    Ok(())
}

/// A run that exceeds its prediction by more than this fraction, on a busy machine, is warned about.
const MAX_DIFFERENCE: f64 = 0.1;

/// A warning that other workloads may be why a run took longer than predicted.
fn busy_machine(outcome: &results::Outcome) -> Option<String> {
    let (predicted, measured) = match outcome.interval_us {
        None => (outcome.predicted_latency_us, outcome.latency.median_us),
        Some(interval) => (outcome.predicted_interval_us, interval),
    };
    if measured.0 <= predicted.0 * (1.0 + MAX_DIFFERENCE) {
        return None;
    }
    let busy = busy(outcome.load.iter().map(|of| (of.server.as_str(), of.load)))?;
    Some(format!(
        "{busy} during the run, which may be why it took {measured} instead of the predicted {predicted}; run it again \
         when the machine is idle"
    ))
}

/// How far a measured time is from its prediction.
pub(super) fn off(predicted: Micros, measured: Micros) -> String {
    if predicted.0 > 0.0 { format!("{:+.1} %", 100.0 * (measured.0 / predicted.0 - 1.0)) } else { String::new() }
}

/// All transfers in a line. Those over different links go at the same time.
fn moved(transfers: &[TransferCost]) -> String {
    let bytes: Bytes = transfers.iter().map(|transfer| transfer.bytes).sum();
    let sent: Bytes = transfers.iter().map(|transfer| transfer.sent_bytes).sum();
    let sent = if sent == bytes { String::new() } else { format!(", sent as {sent}") };
    let predicted: Micros = transfers.iter().filter_map(|transfer| transfer.predicted_us).sum();
    let measured: Micros = transfers.iter().map(|transfer| transfer.measured_us).sum();
    let count = transfers.len();
    format!(
        "{count} transfers of {bytes} together{sent}: predicted {predicted}, measured {measured} ({})",
        off(predicted, measured)
    )
}

fn page(plan: &Plan, outcome: &results::Outcome, breakdown: Option<&Breakdown>) -> String {
    let mut text = outcome.binding.as_ref().map_or(String::new(), |binding| format!("binding {binding}\n\n"));
    text += &groups(outcome);
    if !outcome.transfers.is_empty() {
        text += &format!("{}\n{}\n\n", transfers(&outcome.transfers), moved(&outcome.transfers));
    }
    text += &breakdown.map_or(String::new(), breakdown::page);
    text += &format!("{}\n\n{}", memory(&outcome.memory), latency(outcome));
    if let Some(interval) = outcome.interval_us {
        let predicted = plan.predicted.interval_us;
        let rate = |interval: Micros| 1e6 / interval.0.max(f64::MIN_POSITIVE);
        text += &format!(
            "between results: predicted {predicted} ({:.1}/s), measured {interval} ({:.1}/s)\n",
            rate(predicted),
            rate(interval)
        );
    }
    let most = |of: fn(&MemoryUse) -> Bytes| outcome.memory.iter().map(of).max().unwrap_or_default();
    let (running, loading) = (most(|device| device.peak_bytes), most(|device| device.loading_bytes));
    text += &format!("memory: at most {running} on any device while it ran, {loading} while it was loaded\n");
    for engines in &outcome.engines {
        text += &format!("{engines}\n");
    }
    for energy in &outcome.energy {
        let sources: Vec<String> = energy.sources.iter().map(|of| of.source.clone()).collect();
        let predicted = energy.predicted_energy_j.map_or(String::new(), |energy| format!("predicted {energy}, "));
        let (server, measured) = (&energy.server, energy.measured_energy_j);
        text += &format!("energy of {server}: {predicted}measured {measured} a run ({})\n", sources.join("; "));
    }
    if outcome.clock_uncertainty_us > Micros::ZERO {
        text += &format!("clocks of different servers agree to ± {}\n", outcome.clock_uncertainty_us);
    }
    text.truncate(text.trim_end().len());
    text
}

/// Predicted and measured times of groups; the short ones of many in one line.
fn groups(outcome: &results::Outcome) -> String {
    let all: Micros = outcome.groups.iter().map(|group| group.measured_us).sum();
    let mut groups = table([">group", "operators", "device", ">predicted", ">measured", ">off"]);
    let (mut hidden, mut hidden_time) = (0, Micros::ZERO);
    for group in &outcome.groups {
        if outcome.groups.len() > MANY_GROUPS && group.measured_us.0 < SMALL * all.0 {
            (hidden, hidden_time) = (hidden + 1, hidden_time + group.measured_us);
            continue;
        }
        groups.add_row([
            numbered(group.id),
            shortened(&group.name, 56),
            group.device.clone(),
            group.predicted_us.to_string(),
            group.measured_us.to_string(),
            off(group.predicted_us, group.measured_us),
        ]);
    }
    format!("{groups}\n{}\n", small(hidden, hidden_time))
}

fn transfers(costs: &[TransferCost]) -> Table {
    let mut transfers = table(["transfer", "from", "to", ">bytes", ">sent", ">predicted", ">measured", ">waited"]);
    for transfer in costs {
        transfers.add_row([
            shortened(&transfer.tensor, 40),
            transfer.from.clone(),
            transfer.to.clone(),
            transfer.bytes.to_string(),
            transfer.sent_bytes.to_string(),
            transfer.predicted_us.map_or(String::new(), |time| time.to_string()),
            transfer.measured_us.to_string(),
            transfer.waited_us.to_string(),
        ]);
    }
    transfers
}

fn memory(devices: &[MemoryUse]) -> Table {
    let mut memory = table([
        "device",
        ">predicted parameters",
        ">measured",
        ">predicted load",
        ">predicted arena",
        ">measured peak",
        ">limit",
    ]);
    for device in devices {
        memory.add_row([
            device.device.clone(),
            device.predicted_parameter_bytes.to_string(),
            device.parameter_bytes.to_string(),
            device.predicted_load_bytes.to_string(),
            device.predicted_arena_bytes.to_string(),
            device.peak_bytes.to_string(),
            device.limit_bytes.map_or("none".to_string(), |limit| limit.to_string()),
        ]);
    }
    memory
}

/// Predicted and measured latency in a line.
fn latency(outcome: &results::Outcome) -> String {
    let latency = &outcome.latency;
    format!(
        "latency: predicted {}, measured {} ({}){}\n",
        outcome.predicted_latency_us,
        latency.median_us,
        match outcome.interval_us {
            None => off(outcome.predicted_latency_us, latency.median_us),
            Some(_) => "with queueing, which is not predicted".to_string(),
        },
        match latency.n {
            1 => "; one run".to_string(),
            n => format!("; median of {n} runs, ± {}, min {}, p95 {}", latency.mad_us, latency.min_us, latency.p95_us),
        }
    )
}
