//! Shards measured on the devices that a plan gives them to: a split is planned with estimates first, then with what
//! its shards really take. What was measured is kept in the devices' profiles, so that it is measured once.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use crate::survey::{DeviceProfile, measure_shard};
use edgecut_agent::{
    DeviceSpec,
    client::{AgentError, Fleet},
};
use edgecut_engine::statistics::quantile;
use edgecut_graph::{
    Graph, OperatorId,
    units::{Bytes, Micros},
};
use edgecut_plan::{
    DeviceId, Stop,
    problem::Cost,
    split::{
        Expanded, ShardCosts,
        costs::copied_bytes,
        shard_graphs::{FRACTIONS, alone},
    },
};
use edgecut_profile::{
    Calibration, Cost as MeasuredCost, Item, ProfileError, ProfileRow, ProfileStore, ProfiledShard, Sampling,
    Signature, model::CostModel, representatives,
};

/// A shard slower than expected by more than this factor is measured again after all others, and the fastest
/// measurement counts: machines are sometimes slow for some seconds, and a plan would never reconsider a shard that was
/// measured then.
const REMEASURE_RATIO: f64 = 1.2;
/// Maximum number of repetitions of such a measurement.
const MAX_REMEASUREMENTS: usize = 2;
/// If at least this number of shards of a device were measured, the median slowdown of all is expected of each.
const MIN_SHARDS_FOR_MEDIAN: usize = 5;

/// What is known of shards of the items of one model.
pub struct Shards<'a> {
    items: &'a [Item],
    /// By item: the first of its signature, in whose name its shards are kept.
    first: Vec<usize>,
    /// By device; in the order of the inventory.
    devices: Vec<(DeviceSpec, ProfileStore)>,
    sampling: Sampling,
    /// By device.
    calibrations: Vec<Calibration>,
    /// What the model touches: displaced from the caches before each sample.
    displaces: Bytes,
}

/// A shard that is to be measured.
struct Unknown {
    device: DeviceId,
    /// The items in whose names it is kept, as what it is of each.
    kept: Vec<(usize, Item, ProfiledShard)>,
    graph: Graph,
    /// What the plan that asks for it took it to take.
    expected: Micros,
    name: String,
    /// The least that it took so far.
    least: Option<MeasuredCost>,
}

/// Why a shard could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Store(#[from] ProfileError),
}

impl<'a> Shards<'a> {
    /// Reads what is known from the profiles in `folder`.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn open(
        folder: &Path,
        profiles: &[DeviceProfile],
        items: &'a [Item],
        sampling: Sampling,
        displaces: Bytes,
    ) -> Result<Shards<'a>, ProfileError> {
        let open = |profile: &DeviceProfile| Ok((profile.device.clone(), ProfileStore::open(folder, &profile.key)?));
        let devices = profiles.iter().map(open).collect::<Result<_, ProfileError>>()?;
        let calibrations = vec![Calibration::default(); profiles.len()];
        Ok(Shards { items, first: representatives(items), devices, calibrations, sampling, displaces })
    }

    /// The same in the times of runs, by the calibrations of the devices.
    #[must_use]
    pub fn with_calibrations(self, calibrations: Vec<Calibration>) -> Shards<'a> {
        Shards { calibrations, ..self }
    }

    /// Costs of all shards that were measured, with estimates for others.
    pub fn costs(&self) -> ShardCosts {
        let known = self.devices.iter().zip(&self.calibrations).map(|((_, store), calibration)| KnownRows {
            rows: store.rows(),
            shards: store.shards(),
            calibration: *calibration,
        });
        shard_costs(self.items, &known.collect::<Vec<_>>())
    }

    /// Measures the shards of `expanded` that nothing is known of, each on its device, until `stop` is requested. Devices
    /// measure at the same time, as they compute at the same time in a run, which matters where they share memory. Returns
    /// how many rows that added; a shard that a device cannot compute has one too, and stays as it was estimated. `each`
    /// gets the name of every shard before it, its number and how many there are.
    ///
    /// # Errors
    /// If an agent is lost, or a row cannot be written.
    pub async fn measure(
        &mut self,
        fleet: &Fleet,
        expanded: &Expanded,
        stop: Stop,
        each: &mut dyn FnMut(&str, usize, usize),
    ) -> Result<usize, ShardError> {
        let (mut unknown, mut added) = self.unknown(expanded)?;
        let count = unknown.len();
        // By device: how many times longer than expected its shards take as a rule, where that is longer.
        let mut usual: BTreeMap<DeviceId, f64> = BTreeMap::new();
        for look in 0..=MAX_REMEASUREMENTS {
            let (mut surprising, mut seen): (Vec<Unknown>, BTreeMap<DeviceId, Vec<f64>>) = Default::default();
            let (mut number, mut left) = (0, rounds(unknown).into_iter());
            while let Some(round) = left.next() {
                if stop.is_requested() {
                    for one in surprising.into_iter().chain(round).chain(left.flatten()) {
                        added += self.keep_fastest(one)?;
                    }
                    return Ok(added);
                }
                for one in round.iter().filter(|_| look == 0) {
                    number += 1;
                    each(&one.name, number, count);
                }
                let looks = futures::future::join_all(round.iter().map(|one| self.measure_once(fleet, one))).await;
                let mut lost = None;
                for (mut one, looked) in round.into_iter().zip(looks) {
                    match looked {
                        Ok(Some(Ok(cost)))
                            if one.least.as_ref().is_none_or(|least| cost.time.median < least.time.median) =>
                        {
                            one.least = Some(cost);
                        }
                        Ok(Some(Err(why))) if one.least.is_none() => added += self.keep(&one, &Err(why))?,
                        Ok(_) => {}
                        Err(error) => lost = Some(error),
                    }
                    seen.entry(one.device).or_default().extend(one.longer());
                    match look < MAX_REMEASUREMENTS && one.needs_remeasure(&usual) {
                        true => surprising.push(one),
                        false => added += self.keep_fastest(one)?,
                    }
                }
                if let Some(error) = lost {
                    for one in surprising.into_iter().chain(left.flatten()) {
                        self.keep_fastest(one)?;
                    }
                    return Err(error.into());
                }
            }
            if look == 0 {
                let median = |mut of: Vec<f64>| {
                    of.sort_by(f64::total_cmp);
                    quantile(&of, 0.5).unwrap_or(1.0).max(1.0)
                };
                let many = seen.into_iter().filter(|(_, of)| of.len() >= MIN_SHARDS_FOR_MEDIAN);
                usual = many.map(|(device, of)| (device, median(of))).collect();
            }
            let (again, usual_ones): (Vec<Unknown>, Vec<Unknown>) =
                surprising.into_iter().partition(|one| one.needs_remeasure(&usual));
            for one in usual_ones {
                added += self.keep_fastest(one)?;
            }
            unknown = again;
        }
        Ok(added)
    }

    /// The shards of `expanded` that are to be measured, each once. What is known of some by the same shards of other
    /// items is kept as theirs; how many rows that added.
    fn unknown(&mut self, expanded: &Expanded) -> Result<(Vec<Unknown>, usize), ProfileError> {
        let mut unknown: Vec<Unknown> = Vec::new();
        let mut added = 0;
        for (id, shard) in &expanded.shards {
            let group = expanded.problem.group(*id);
            let device = expanded.problem.device_ids().find(|d| expanded.problem.cost(*id, *d).is_some());
            let place = device.and_then(|device| self.devices.get_mut(device.0 as usize));
            let first = shard.group.and_then(|group| self.first.get(group).copied());
            let (Some(device), Some((_, store)), Some(first)) = (device, place, first) else { continue };
            let copied = copied_bytes(&expanded.graph, shard);
            let share = ProfiledShard { axis: shard.axis, fraction: shard.share, copied };
            let is_same =
                |row: &ProfileRow| row.id == first && row.shard().is_some_and(|other| other.same_cost(&share));
            let mut waiting = unknown.iter().filter(|other| other.device == device).flat_map(|other| &other.kept);
            if store.shards().iter().any(is_same)
                || waiting.any(|(id, _, other)| *id == first && other.same_cost(&share))
            {
                continue;
            }
            let graph = alone(&expanded.graph, &group.operators);
            // Engines skip what nothing reads.
            if graph.outputs.is_empty() {
                continue;
            }
            let operators: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
            let part = Item::new(&graph, operators);
            let known = store.shards().iter().find(|row| row.signature == part.signature);
            if let Some(cost) = known.map(|row| row.cost().ok_or_else(|| row.note.clone())) {
                store.record_shard(first, &self.items[first], &part, &share, &cost)?;
                added += 1;
                continue;
            }
            let is_alike = |other: &&mut Unknown| {
                other.device == device && other.kept.iter().any(|(_, other, _)| other.signature == part.signature)
            };
            if let Some(alike) = unknown.iter_mut().find(is_alike) {
                alike.kept.push((first, part, share));
                continue;
            }
            let expected = expanded.problem.cost(*id, device).map_or(Micros::ZERO, |cost| cost.time);
            let (name, kept) = (group.name.clone(), vec![(first, part, share)]);
            unknown.push(Unknown { device, kept, graph, expected, name, least: None });
        }
        Ok((unknown, added))
    }

    /// Measures `one` once; `None` if its server is none of the fleet's.
    async fn measure_once(
        &self,
        fleet: &Fleet,
        one: &Unknown,
    ) -> Result<Option<Result<MeasuredCost, String>>, AgentError> {
        let spec = &self.devices[one.device.0 as usize].0;
        let Some(agent) = fleet.agent(&spec.name.server) else { return Ok(None) };
        measure_shard(agent?, spec, one.graph.clone(), self.displaces, self.sampling).await.map(Some)
    }

    /// Keeps the least that `one` took, if it was measured. Returns how many rows that added.
    fn keep_fastest(&mut self, mut one: Unknown) -> Result<usize, ProfileError> {
        one.least.take().map_or(Ok(0), |least| self.keep(&one, &Ok(least)))
    }

    fn keep(&mut self, one: &Unknown, cost: &Result<MeasuredCost, String>) -> Result<usize, ProfileError> {
        let store = &mut self.devices[one.device.0 as usize].1;
        for (first, part, share) in &one.kept {
            store.record_shard(*first, &self.items[*first], part, share, cost)?;
        }
        Ok(one.kept.len())
    }
}

/// The shards that are measured at the same time: one of each device, in their order.
fn rounds(unknown: Vec<Unknown>) -> Vec<Vec<Unknown>> {
    let mut rounds: Vec<Vec<Unknown>> = Vec::new();
    for one in unknown {
        let free = rounds.iter_mut().find(|round| round.iter().all(|other| other.device != one.device));
        match free {
            Some(round) => round.push(one),
            None => rounds.push(vec![one]),
        }
    }
    rounds
}

impl Unknown {
    /// How many times longer than expected it took at least, if it was measured.
    fn longer(&self) -> Option<f64> {
        self.least.as_ref().map(|least| least.time.median.0 / self.expected.0.max(f64::MIN_POSITIVE))
    }

    /// Whether that is more than is `usual` on its device.
    fn needs_remeasure(&self, usual: &BTreeMap<DeviceId, f64>) -> bool {
        let usual = usual.get(&self.device).copied().unwrap_or(1.0);
        self.longer().is_some_and(|longer| longer > REMEASURE_RATIO * usual)
    }
}

/// What is known of a device.
pub(crate) struct KnownRows<'a> {
    /// Of whole items.
    pub rows: &'a [ProfileRow],
    /// Of shards of items.
    pub shards: &'a [ProfileRow],
    pub calibration: Calibration,
}

/// Costs of shards of `items` on `devices`, in the times of runs: as measured, else as on a device of the same hardware,
/// engine and number of threads, else as estimated from the rows of other items.
pub(crate) fn shard_costs(items: &[Item], devices: &[KnownRows<'_>]) -> ShardCosts {
    let mut groups: HashMap<&Signature, Vec<usize>> = HashMap::new();
    for (id, item) in items.iter().enumerate() {
        groups.entry(&item.signature).or_default().push(id);
    }
    let groups_of = |row: &ProfileRow| items.get(row.id).and_then(|item| groups.get(&item.signature));
    let mut costs = ShardCosts::default();
    for (device, known) in (0u32..).map(DeviceId).zip(devices) {
        for row in known.shards {
            let (Some(share), Some(cost), Some(groups)) = (row.shard(), row.cost(), groups_of(row)) else { continue };
            let cost = calibrated(&cost, row.parameter_bytes, &known.calibration);
            for group in groups {
                costs.add_measured(device, *group, share.axis, share.fraction, share.copied, cost);
            }
        }
    }
    for (device, known) in (0u32..).map(DeviceId).zip(devices) {
        let alike = devices.iter().filter(|other| other.identity().is_some() && other.identity() == known.identity());
        for (other, row) in alike.flat_map(|other| other.shards.iter().map(move |row| (other, row))) {
            let (Some(share), Some(mut cost), Some(groups)) = (row.shard(), row.cost(), groups_of(row)) else {
                continue;
            };
            let (Some(whole), Some(others)) = (known.whole_time(row.id), other.whole_time(row.id)) else { continue };
            cost.time.median = Micros(cost.time.median.0 * whole.0 / others.0.max(f64::MIN_POSITIVE));
            let cost = calibrated(&cost, row.parameter_bytes, &known.calibration);
            for group in groups {
                costs.add_estimated(device, *group, Some(share.axis), share.fraction, share.copied, cost);
            }
        }
        add_estimated(items, device, known, &mut costs);
    }
    costs
}

impl KnownRows<'_> {
    /// What devices that compute alike have in common.
    fn identity(&self) -> Option<(&str, &str, &str, usize)> {
        let row = self.rows.first()?;
        Some((&row.hardware, &row.engine, &row.engine_version, row.threads))
    }

    /// What all of item number `id` takes.
    fn whole_time(&self, id: usize) -> Option<Micros> {
        // Rows are in the order of items as a rule.
        let at = self.rows.get(id).filter(|row| row.id == id);
        at.or_else(|| self.rows.iter().find(|row| row.id == id))?.time_us_median
    }
}

/// Adds to `costs` estimates for parts of `items` on `device`, as far as there is a model of their families and costs of
/// the whole.
fn add_estimated(items: &[Item], device: DeviceId, known: &KnownRows<'_>, costs: &mut ShardCosts) {
    let model = CostModel::of(known.rows.iter().chain(known.shards));
    for (group, item) in items.iter().enumerate() {
        let Some(whole) = model.cost(item).map(|estimate| estimate.cost) else { continue };
        for share in FRACTIONS {
            // Which axis it is along is not known: along most that a search begins with, all weights are read.
            let time = model.shard_time(item, whole.time.median, share);
            let time = known.calibration.time(time, item.parameter_bytes);
            let workspace = Bytes((whole.workspace.0 as f64 * share) as u64);
            let held = whole.held - item.parameter_bytes;
            let cost = Cost { time, workspace, held, ..Cost::default() };
            costs.add_estimated(device, group, None, share, Bytes::ZERO, cost);
        }
    }
}

/// A measured cost as the planner counts it: parameters apart, and power instead of energy.
pub fn planned(cost: &MeasuredCost, parameters: Bytes) -> Cost {
    let time = cost.time.median;
    let power = cost.energy.map(|energy| energy.power_above_idle(time)).unwrap_or_default();
    Cost { time, workspace: cost.workspace, held: cost.held - parameters, power }
}

/// The same in the time of runs, at the same power.
pub(super) fn calibrated(cost: &MeasuredCost, parameters: Bytes, calibration: &Calibration) -> Cost {
    let planned = planned(cost, parameters);
    Cost { time: calibration.time(planned.time, parameters), ..planned }
}
