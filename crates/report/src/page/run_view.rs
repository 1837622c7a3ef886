//! Results of a run for the page: measured times and starts next to predicted ones, and how far they are apart.

use edgecut_agent::results::{Activity, Breakdown, Latencies, MemoryUse, Outcome, TransferCost, file::plan_hash};
use edgecut_graph::units::Micros;
use edgecut_plan::{Plan, file::Transfer};
use serde::Serialize;

use super::columns::{Dictionary, five_digits, median, nanoseconds};
use crate::subject::MeasuredRun;

/// Everything that the page shows of one run. Names are indices into the page's words.
#[derive(Debug, PartialEq, Serialize)]
pub struct RunView {
    pub name: String,
    /// The plan that was run, by its index on the page; `None` if it is none of them.
    pub plan: Option<usize>,
    pub latency: Latencies,
    pub predicted_latency_us: f64,
    pub interval_us: Option<f64>,
    pub predicted_interval_us: f64,
    pub clock_uncertainty_us: f64,
    pub memory: Vec<MemoryUse>,
    pub groups: TimeColumns,
    pub transfers: TimeColumns,
    pub breakdown: Option<BreakdownView>,
    /// Whether any start was measured.
    pub has_starts: bool,
    /// How far the outputs are from those of one device, in a sentence.
    pub outputs: Option<String>,
}

/// Groups or transfers, one entry of each column each.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct TimeColumns {
    /// Its index in the plan; `None` for what the plan does not list.
    pub index: Vec<Option<usize>>,
    pub name: Vec<u32>,
    /// The device, or both ends of the link.
    pub place: Vec<u32>,
    pub predicted_us: Vec<Option<f64>>,
    pub measured_us: Vec<f64>,
    pub start_us: Vec<Option<f64>>,
    /// Of abs(measured − predicted) / predicted.
    pub error: ErrorView,
}

/// Where the latency goes on each device, one entry of each column an activity of a device.
#[derive(Debug, PartialEq, Serialize)]
pub struct BreakdownView {
    pub latency_us: f64,
    pub n: usize,
    pub device: Vec<u32>,
    pub activity: Vec<Activity>,
    /// Whom it waits for, where it does.
    pub peer: Vec<Option<u32>>,
    pub time_us: Vec<f64>,
}

/// How far measured times are from predicted ones.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct ErrorView {
    /// The entries behind it: those with a prediction.
    pub n: usize,
    pub median: Option<f64>,
    pub worst: Option<f64>,
    /// The entry of the worst.
    pub worst_at: Option<usize>,
    /// The sum of measured over the sum of predicted times.
    pub ratio: Option<f64>,
}

impl RunView {
    pub fn of(name: &str, run: &MeasuredRun, plans: &[&Plan], words: &mut Dictionary) -> RunView {
        let MeasuredRun { about, outcome } = run;
        let named = about.as_ref().and_then(|about| {
            let is_named = |plan: &&Plan| plan_hash(plan).is_ok_and(|hash| hash == about.plan_blake3);
            plans.iter().position(is_named)
        });
        let plan = named.or_else(|| plans.iter().position(|plan| is_of(outcome, plan)));
        let groups = groups(outcome, words);
        let transfers = transfers(outcome, plan.map(|index| plans[index]), words);
        let has_starts = groups.start_us.iter().chain(&transfers.start_us).any(Option::is_some);
        RunView {
            name: name.to_string(),
            plan,
            latency: outcome.latency,
            predicted_latency_us: outcome.predicted_latency_us.0,
            interval_us: outcome.interval_us.map(|interval| interval.0),
            predicted_interval_us: outcome.predicted_interval_us.0,
            clock_uncertainty_us: nanoseconds(outcome.clock_uncertainty_us.0),
            memory: outcome.memory.clone(),
            breakdown: outcome.breakdown.as_ref().map(|breakdown| BreakdownView::of(breakdown, words)),
            groups,
            transfers,
            has_starts,
            outputs: outcome.outputs.map(|difference| difference.to_string()),
        }
    }
}

impl BreakdownView {
    fn of(breakdown: &Breakdown, words: &mut Dictionary) -> BreakdownView {
        let times = &breakdown.times;
        BreakdownView {
            latency_us: nanoseconds(breakdown.latency_us.0),
            n: breakdown.n,
            device: times.iter().map(|time| words.add(&time.device)).collect(),
            activity: times.iter().map(|time| time.activity).collect(),
            peer: times.iter().map(|time| (!time.peer.is_empty()).then(|| words.add(&time.peer))).collect(),
            time_us: times.iter().map(|time| nanoseconds(time.time_us.0)).collect(),
        }
    }
}

/// Whether the run is one of `plan`, as far as it can be told of results that do not name it, or whose plan another version
/// wrote: it has the names, devices and predicted times of its groups.
fn is_of(outcome: &Outcome, plan: &Plan) -> bool {
    let near = |a: Micros, b: Micros| (a.0 - b.0).abs() <= 1e-6 * a.0.abs().max(1.0);
    let is_same = |group: &edgecut_agent::results::GroupTime| {
        plan.groups.get(group.group as usize).is_some_and(|planned| {
            planned.name == group.name
                && near(planned.time_us, group.predicted_us)
                && plan.device_name(planned.device).is_some_and(|device| device.to_string() == group.device)
        })
    };
    near(outcome.predicted_latency_us, plan.predicted.latency_us) && outcome.groups.iter().all(is_same)
}

fn groups(outcome: &Outcome, words: &mut Dictionary) -> TimeColumns {
    let mut columns = TimeColumns::default();
    for group in &outcome.groups {
        columns.index.push(Some(group.group as usize));
        columns.name.push(words.add(&group.name));
        columns.place.push(words.add(&group.device));
        columns.predicted_us.push(Some(nanoseconds(group.predicted_us.0)));
        columns.measured_us.push(nanoseconds(group.measured_us.0));
        columns.start_us.push(group.measured_start_us.map(|start| nanoseconds(start.0)));
    }
    columns.error = ErrorView::of(&columns);
    columns
}

fn transfers(outcome: &Outcome, plan: Option<&Plan>, words: &mut Dictionary) -> TimeColumns {
    let mut columns = TimeColumns::default();
    for transfer in &outcome.transfers {
        let is_same = |plan: &Plan, planned: &Transfer| {
            let server = |device: edgecut_plan::DeviceId| plan.devices[device.0 as usize].server.as_str();
            planned.name == transfer.tensor
                && planned.part == transfer.part
                && (server(planned.from), server(planned.to)) == (transfer.from.as_str(), transfer.to.as_str())
        };
        let TransferCost { from, to, tensor, predicted_us, measured_us, measured_start_us, .. } = transfer;
        columns.index.push(plan.and_then(|plan| plan.transfers.iter().position(|planned| is_same(plan, planned))));
        columns.name.push(words.add(tensor));
        columns.place.push(words.add(&format!("{from} → {to}")));
        columns.predicted_us.push(predicted_us.map(|time| nanoseconds(time.0)));
        columns.measured_us.push(nanoseconds(measured_us.0));
        columns.start_us.push(measured_start_us.map(|start| nanoseconds(start.0)));
    }
    columns.error = ErrorView::of(&columns);
    columns
}

impl ErrorView {
    fn of(columns: &TimeColumns) -> ErrorView {
        let both = columns.predicted_us.iter().zip(&columns.measured_us).enumerate();
        // What is predicted to take no time has no relative error.
        let both =
            both.filter_map(|(at, (predicted, measured))| Some((at, predicted.filter(|p| *p > 0.0)?, *measured)));
        let errors: Vec<(usize, f64)> = both.clone().map(|(at, p, m)| (at, ((m - p) / p).abs())).collect();
        let worst = errors.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a });
        let sums = both.fold((0.0, 0.0), |sums, (_, predicted, measured)| (sums.0 + predicted, sums.1 + measured));
        ErrorView {
            n: errors.len(),
            median: median(errors.iter().map(|error| error.1).collect()).map(five_digits),
            worst: worst.map(|worst| five_digits(worst.1)),
            worst_at: worst.map(|worst| worst.0),
            ratio: (sums.0 > 0.0).then(|| five_digits(sums.1 / sums.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing, *};
    use edgecut_agent::results::file::RunAbout;

    #[test]
    fn a_run_is_of_the_plan_that_it_names_else_of_one_with_the_same_groups_and_times() {
        let (plan, run) = (testing::plan(), MeasuredRun { about: None, outcome: testing::outcome() });
        let mut other = plan.clone();
        other.groups[0].time_us = Micros(11.0);
        let mut words = Dictionary::default();
        let view = RunView::of("run.json", &run, &[&other, &plan], &mut words);
        assert_eq!((view.plan, view.has_starts), (Some(1), true));
        assert_eq!((view.groups.index, view.transfers.index), (vec![Some(0), Some(1), Some(2)], vec![Some(0)]));
        let error = &view.groups.error;
        assert_eq!((error.n, error.median, error.worst, error.worst_at), (3, Some(0.0), Some(1.0), Some(1)));
        assert_eq!((error.ratio, view.transfers.error.median), (Some(1.3125), Some(0.5)));
        assert_eq!(RunView::of("run.json", &run, &[&other], &mut words).plan, None);
        // Of plans with the same times the one that is named.
        let twin = Plan { notes: vec!["made again".into()], ..plan.clone() };
        for (named, at) in [(&plan, 1), (&twin, 0), (&other, 0)] {
            let run = MeasuredRun { about: RunAbout::now(named, "plan.json", 1).ok(), ..run.clone() };
            assert_eq!(RunView::of("run.json", &run, &[&twin, &plan], &mut words).plan, Some(at));
        }
    }
}
