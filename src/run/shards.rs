//! Shards measured on the devices that a plan gives them to: a split is planned with estimates first, then with what its
//! shards really take. What was measured is kept in the devices' profiles, so that it is measured once.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use crate::{
    agent::{AgentError, fleet::Fleet, share::measure_share, survey::Surveyed},
    cluster::DeviceSpec,
    graph::{Graph, OperatorId},
    plan::{
        DeviceId,
        problem::Cost,
        split::{
            Expanded, Sampled,
            alone::{FRACTIONS, alone},
            costs::copied_bytes,
        },
    },
    profile::{Item, Row, Sampling, Share, Signature, Store, StoreError, measure, model::CostModel},
    statistics::quantile,
    units::{Bytes, Micros},
};

/// A shard that takes longer than was expected by this factor is measured again, after all others and so often at the
/// most: machines are slower for some seconds now and then, and a plan would avoid for good what such a second made look
/// slow. The least counts. Where [`MANY`] shards of a device were measured and most take longer than expected, that much
/// is no surprise.
const SURPRISE: f64 = 1.2;
const AGAIN: usize = 2;
const MANY: usize = 5;

/// What is known of shards of the items of one model.
pub struct Shards<'a> {
    items: &'a [Item],
    /// The first item of each signature, in whose name its shards are kept.
    first: HashMap<&'a Signature, usize>,
    /// By device; in the order of the inventory.
    devices: Vec<(DeviceSpec, Store)>,
    sampling: Sampling,
    /// What the model touches: displaced from the caches before each sample.
    displaces: Bytes,
}

/// A shard that is to be measured.
struct Unknown {
    device: DeviceId,
    /// The items in whose names it is kept, as what it is of each.
    kept: Vec<(usize, Item, Share)>,
    graph: Graph,
    /// What the plan that asks for it took it to take.
    expected: Micros,
    name: String,
    /// The least that it took so far.
    least: Option<measure::Cost>,
}

/// Why a shard could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<'a> Shards<'a> {
    /// Reads what is known from the profiles in `folder`.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn open(
        folder: &Path,
        profiles: &[Surveyed],
        items: &'a [Item],
        sampling: Sampling,
        displaces: Bytes,
    ) -> Result<Shards<'a>, StoreError> {
        let open = |profile: &Surveyed| Ok((profile.device.clone(), Store::open(folder, &profile.key)?));
        let devices = profiles.iter().map(open).collect::<Result<_, StoreError>>()?;
        let mut first = HashMap::new();
        for (id, item) in items.iter().enumerate() {
            first.entry(&item.signature).or_insert(id);
        }
        Ok(Shards { items, first, devices, sampling, displaces })
    }

    /// Adds all that was measured to `sampled`, and what is to be expected after it of shards that were not.
    pub fn tell(&self, sampled: &mut Sampled) {
        for (device, (_, store)) in (0u32..).map(DeviceId).zip(&self.devices) {
            tell(self.items, device, store.shares(), sampled);
            expect(self.items, device, &CostModel::of(store.rows().iter().chain(store.shares())), sampled);
        }
    }

    /// Measures the shards of `expanded` that nothing is known of, each on its device. Returns how many rows that
    /// added; a shard that a device cannot compute has one too, and stays as it was estimated.
    ///
    /// # Errors
    /// If an agent is lost, or a row cannot be written.
    pub async fn measure(
        &mut self,
        fleet: &Fleet,
        expanded: &Expanded,
        each: &mut dyn FnMut(&str),
    ) -> Result<usize, ShardError> {
        let (mut unknown, mut added) = self.unknown(expanded)?;
        // By device: how many times longer than expected its shards take as a rule, where that is longer.
        let mut usual: BTreeMap<DeviceId, f64> = BTreeMap::new();
        for look in 0..=AGAIN {
            let (mut surprising, mut seen): (Vec<Unknown>, BTreeMap<DeviceId, Vec<f64>>) = Default::default();
            let mut left = unknown.into_iter();
            while let Some(mut one) = left.next() {
                if look == 0 {
                    each(&one.name);
                }
                match self.look(fleet, &one).await {
                    Ok(Some(Ok(cost)))
                        if one.least.as_ref().is_none_or(|least| cost.time.median < least.time.median) =>
                    {
                        one.least = Some(cost);
                    }
                    Ok(Some(Err(why))) if one.least.is_none() => added += self.keep(&one, &Err(why))?,
                    Ok(_) => {}
                    Err(error) => {
                        for one in surprising.into_iter().chain([one]).chain(left) {
                            self.keep_least(one)?;
                        }
                        return Err(error.into());
                    }
                }
                seen.entry(one.device).or_default().extend(one.longer());
                match look < AGAIN && one.surprises(&usual) {
                    true => surprising.push(one),
                    false => added += self.keep_least(one)?,
                }
            }
            if look == 0 {
                let median = |mut of: Vec<f64>| {
                    of.sort_by(f64::total_cmp);
                    quantile(&of, 0.5).unwrap_or(1.0).max(1.0)
                };
                let many = seen.into_iter().filter(|(_, of)| of.len() >= MANY);
                usual = many.map(|(device, of)| (device, median(of))).collect();
            }
            let (again, usual_ones): (Vec<Unknown>, Vec<Unknown>) =
                surprising.into_iter().partition(|one| one.surprises(&usual));
            for one in usual_ones {
                added += self.keep_least(one)?;
            }
            unknown = again;
        }
        Ok(added)
    }

    /// The shards of `expanded` that are to be measured, each once. What is known of some by the same shards of other items is
    /// kept as theirs; how many rows that added.
    fn unknown(&mut self, expanded: &Expanded) -> Result<(Vec<Unknown>, usize), StoreError> {
        let mut unknown: Vec<Unknown> = Vec::new();
        let mut added = 0;
        for (id, shard) in &expanded.shards {
            let group = expanded.problem.group(*id);
            let device = expanded.problem.device_ids().find(|d| expanded.problem.cost(*id, *d).is_some());
            let place = device.and_then(|device| self.devices.get_mut(device.0 as usize));
            let item = shard.group.and_then(|group| self.items.get(group));
            let (Some(device), Some((_, store)), Some(item)) = (device, place, item) else { continue };
            let Some(first) = self.first.get(&item.signature).copied() else { continue };
            let copied = copied_bytes(&expanded.graph, shard);
            let share = Share { axis: shard.axis, fraction: shard.share, copied };
            let is_same = |row: &Row| row.id == first && row.share().is_some_and(|other| other.is(&share));
            let mut waiting = unknown.iter().filter(|other| other.device == device).flat_map(|other| &other.kept);
            if store.shares().iter().any(is_same) || waiting.any(|(id, _, other)| *id == first && other.is(&share)) {
                continue;
            }
            let graph = alone(&expanded.graph, &group.operators);
            let operators: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
            let part = Item::new(&graph, operators);
            let known = store.shares().iter().find(|row| row.signature == part.signature);
            if let Some(cost) = known.map(|row| row.cost().ok_or_else(|| row.note.clone())) {
                store.record_share(first, &self.items[first], &part, &share, &cost)?;
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
    async fn look(&self, fleet: &Fleet, one: &Unknown) -> Result<Option<Result<measure::Cost, String>>, AgentError> {
        let spec = &self.devices[one.device.0 as usize].0;
        let Some(agent) = fleet.agent(&spec.name.server) else { return Ok(None) };
        measure_share(agent?, spec, one.graph.clone(), self.displaces, self.sampling).await.map(Some)
    }

    /// Keeps the least that `one` took, if it was measured. Returns how many rows that added.
    fn keep_least(&mut self, mut one: Unknown) -> Result<usize, StoreError> {
        one.least.take().map_or(Ok(0), |least| self.keep(&one, &Ok(least)))
    }

    fn keep(&mut self, one: &Unknown, cost: &Result<measure::Cost, String>) -> Result<usize, StoreError> {
        let store = &mut self.devices[one.device.0 as usize].1;
        for (first, part, share) in &one.kept {
            store.record_share(*first, &self.items[*first], part, share, cost)?;
        }
        Ok(one.kept.len())
    }
}

impl Unknown {
    /// How many times longer than expected it took at least, if it was measured.
    fn longer(&self) -> Option<f64> {
        self.least.as_ref().map(|least| least.time.median.0 / self.expected.0.max(f64::MIN_POSITIVE))
    }

    /// Whether that is more than is `usual` on its device.
    fn surprises(&self, usual: &BTreeMap<DeviceId, f64>) -> bool {
        let usual = usual.get(&self.device).copied().unwrap_or(1.0);
        self.longer().is_some_and(|longer| longer > SURPRISE * usual)
    }
}

/// Adds to `sampled` what `rows` of parts of `items` say of `device`.
pub fn tell(items: &[Item], device: DeviceId, rows: &[Row], sampled: &mut Sampled) {
    let mut of: HashMap<&Signature, Vec<usize>> = HashMap::new();
    for (id, item) in items.iter().enumerate() {
        of.entry(&item.signature).or_default().push(id);
    }
    for row in rows {
        let (Some(share), Some(cost), Some(item)) = (row.share(), row.cost(), items.get(row.id)) else { continue };
        let cost = planned(&cost, Bytes(row.parameter_bytes));
        for group in of.get(&item.signature).into_iter().flatten() {
            sampled.add(device, *group, share.axis, share.fraction, share.copied, cost);
        }
    }
}

/// Adds to `sampled` what `model` expects of parts of `items` on `device`, as far as it knows their families and what
/// they cost whole.
pub fn expect(items: &[Item], device: DeviceId, model: &CostModel, sampled: &mut Sampled) {
    for (group, item) in items.iter().enumerate() {
        let Some(whole) = model.cost(item).map(|estimate| estimate.cost) else { continue };
        for share in FRACTIONS {
            let Some(time) = model.part(item, whole.time.median, share) else { continue };
            let workspace = Bytes((whole.workspace.0 as f64 * share) as u64);
            let held = whole.held - item.parameter_bytes;
            sampled.expect(device, group, share, Cost { time, workspace, held });
        }
    }
}

/// A measured cost as the planner counts it: parameters apart.
pub fn planned(cost: &measure::Cost, parameters: Bytes) -> Cost {
    Cost { time: cost.time.median, workspace: cost.workspace, held: cost.held - parameters }
}
