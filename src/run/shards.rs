//! Shards measured on the devices that a plan gives them to: a split is planned with estimates first, then with what its
//! shards really take. What was measured is kept in the devices' profiles, so that it is measured once.

use std::{collections::HashMap, path::Path};

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
    units::{Bytes, Micros},
};

/// A shard that takes longer than was expected by this factor is measured again, so often at the most and each time after
/// all others: machines are slower for some seconds now and then, and a plan would avoid for good what such a second made
/// look slow. The least counts.
const SURPRISE: f64 = 1.2;
const AGAIN: usize = 2;

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
    /// The item in whose name it is kept.
    first: usize,
    share: Share,
    graph: Graph,
    part: Item,
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
            let is_waiting = |other: &Unknown| (other.device, other.first) == (device, first) && other.share.is(&share);
            if store.shares().iter().any(is_same) || unknown.iter().any(is_waiting) {
                continue;
            }
            let graph = alone(&expanded.graph, &group.operators);
            let operators: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
            let part = Item::new(&graph, operators);
            let expected = expanded.problem.cost(*id, device).map_or(Micros::ZERO, |cost| cost.time);
            unknown.push(Unknown {
                device,
                first,
                share,
                graph,
                part,
                expected,
                name: group.name.clone(),
                least: None,
            });
        }
        for look in 0..=AGAIN {
            let mut surprising = Vec::new();
            for mut one in unknown {
                let (spec, store) = &mut self.devices[one.device.0 as usize];
                let same = store.shares().iter().find(|row| row.signature == one.part.signature);
                let cost = match same.map(|row| row.cost().ok_or_else(|| row.note.clone())) {
                    Some(cost) => cost,
                    None => {
                        if look == 0 {
                            each(&one.name);
                        }
                        let Some(agent) = fleet.agent(&spec.name.server) else { continue };
                        measure_share(agent?, spec, one.graph.clone(), self.displaces, self.sampling).await?
                    }
                };
                let cost = match (one.least.take(), cost) {
                    (Some(least), Ok(cost)) if cost.time.median < least.time.median => Ok(cost),
                    (Some(least), _) => Ok(least),
                    (None, cost) => cost,
                };
                match cost {
                    Ok(cost) if look < AGAIN && cost.time.median.0 > SURPRISE * one.expected.0 => {
                        surprising.push(Unknown { least: Some(cost), ..one });
                    }
                    cost => {
                        store.record_share(one.first, &self.items[one.first], &one.part, &one.share, &cost)?;
                        added += 1;
                    }
                }
            }
            unknown = surprising;
        }
        Ok(added)
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
