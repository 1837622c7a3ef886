//! The split of an operator as shardings of its tensors, and back.

use std::collections::{BTreeSet, HashMap, HashSet};

use edgecut_graph::{Graph, Operator, TensorId};
use edgecut_onnx::{NodeSharding, ShardedDim, TensorSharding};
use edgecut_ops::{
    passes::{axes::axes, shard_graph::Sharding},
    split::{Join, SplitAxis},
};
use edgecut_plan::file::Split;
use serde::{Deserialize, Serialize};

/// The metadata key for splits that shardings cannot express: a [`StatedSplit`] as JSON.
pub(crate) const SPLIT_KEY: &str = "edgecut.split";

/// How an operator is split over devices of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StatedSplit {
    #[serde(flatten)]
    pub sharding: Sharding,
    pub devices: Vec<usize>,
}

/// Where an operator runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Spec {
    Whole(usize),
    Split(StatedSplit),
}

impl StatedSplit {
    /// All of `operator` on each of `devices`.
    pub fn replicas(graph: &Graph, operator: &Operator, devices: Vec<usize>) -> StatedSplit {
        let sharding = Sharding::replicated(axes(graph, operator).len(), devices.len() as u64);
        StatedSplit { sharding, devices }
    }
}

impl From<&Split> for StatedSplit {
    /// The devices of the plan are those of the configuration.
    fn from(split: &Split) -> StatedSplit {
        let devices = split.devices.iter().map(|device| device.0 as usize).collect();
        StatedSplit { sharding: split.sharding(), devices }
    }
}

impl Spec {
    /// The devices, each once.
    pub fn devices(&self) -> BTreeSet<usize> {
        match self {
            Spec::Whole(device) => BTreeSet::from([*device]),
            Spec::Split(split) => split.devices.iter().copied().collect(),
        }
    }
}

/// The shardings of the operands and results of `operator` where `spec` says that it runs.
pub(crate) fn specs(graph: &Graph, operator: &Operator, spec: &Spec) -> Vec<(TensorId, TensorSharding)> {
    let tensors = || operator.operands().chain(operator.outputs.iter().copied());
    let split = match spec {
        Spec::Whole(device) => return tensors().map(|id| (id, whole(graph, id, &[*device]))).collect(),
        Spec::Split(split) => split,
    };
    let devices: Vec<usize> = spec.devices().into_iter().collect();
    let all = axes(graph, operator);
    match all.get(split.sharding.axis) {
        Some(axis) => {
            let of = |(id, along): (TensorId, Option<usize>)| match along {
                Some(along) => (id, sharded(graph, id, along, &split.devices)),
                None => (id, whole(graph, id, &devices)),
            };
            sharded_axes(operator, axis).into_iter().map(of).collect()
        }
        // The axis of replicas.
        None => tensors().map(|id| (id, whole(graph, id, &devices))).collect(),
    }
}

/// The axis along which the split along `axis` shards each tensor of `operator`; of a tensor that it has twice, the first.
fn sharded_axes(operator: &Operator, axis: &SplitAxis) -> Vec<(TensorId, Option<usize>)> {
    let operands = operator.operands().zip(&axis.operands);
    let operands = operands.map(|(id, access)| (id, access.as_ref().map(|access| access.axis)));
    let results = operator.outputs.iter().enumerate().map(|(index, id)| match &axis.join {
        Join::Axis(along) => (*id, along.get(index).copied().flatten()),
        Join::Sum | Join::Replicated => (*id, None),
    });
    let mut seen = BTreeSet::new();
    operands.chain(results).filter(|(id, _)| seen.insert(*id)).collect()
}

fn whole(graph: &Graph, id: TensorId, devices: &[usize]) -> TensorSharding {
    TensorSharding { shards: vec![devices.to_vec()], ..described(graph, id, |_| 1) }
}

fn sharded(graph: &Graph, id: TensorId, along: usize, devices: &[usize]) -> TensorSharding {
    let count = devices.len() as u64;
    let shards = devices.iter().map(|device| vec![*device]).collect();
    TensorSharding { shards, ..described(graph, id, |axis| if axis == along { count } else { 1 }) }
}

/// Describes every axis of a tensor, with its number of shards.
fn described(graph: &Graph, id: TensorId, shards: impl Fn(usize) -> u64) -> TensorSharding {
    let tensor = graph.tensor(id);
    let dims = tensor.ty.shape.iter().enumerate();
    let dims = dims.map(|(axis, dim)| ShardedDim { axis: axis as i64, size: dim.get(), shards: shards(axis) });
    TensorSharding { tensor: tensor.name.to_string(), shards: Vec::new(), dims: dims.collect() }
}

/// The placement of `operator` by the annotations of its `entry`; `None` if it has none.
///
/// # Errors
/// If no split of the operator has these shardings, or not exactly.
pub(crate) fn placement(graph: &Graph, operator: &Operator, entry: &NodeSharding) -> Result<Option<Spec>, String> {
    if let Some((_, text)) = entry.metadata.iter().find(|(key, _)| key == SPLIT_KEY) {
        return exact(graph, operator, text).map(Some);
    }
    let by_name: HashMap<&str, &TensorSharding> =
        entry.tensors.iter().map(|tensor| (tensor.tensor.as_str(), tensor)).collect();
    let named = |id: TensorId| Some((id, *by_name.get(graph.tensor(id).name.as_str())?));
    let stated: Vec<(TensorId, &TensorSharding)> =
        operator.operands().chain(operator.outputs.iter().copied()).filter_map(named).collect();
    let rank = |id: TensorId| graph.tensor(id).ty.shape.len();
    if let Some((_, tensor)) =
        stated.iter().find(|(id, tensor)| tensor.dims.iter().any(|dim| dim.index(rank(*id)).is_none()))
    {
        return Err(format!("sharding of `{}`: an axis is out of range", tensor.tensor));
    }
    let mut sharded = stated.iter().filter(|(_, tensor)| tensor.shards.len() > 1);
    let Some((_, first)) = sharded.next() else {
        let own: HashSet<&str> = stated.iter().map(|(_, own)| own.tensor.as_str()).collect();
        let is_other = |tensor: &&TensorSharding| tensor.shards.len() > 1 && !own.contains(tensor.tensor.as_str());
        // For example, the product in an entry that also adds a bias.
        if let Some(other) = entry.tensors.iter().find(is_other) {
            let what = format!("`{}` is sharded, but no operand or result of {}", other.tensor, operator.name);
            return Err(format!("{what}: give the split in metadata `{SPLIT_KEY}`"));
        }
        // An entry runs where its results are; operands may be on other devices.
        let result = stated.iter().rev().find(|(id, _)| operator.outputs.contains(id)).or(stated.first());
        return Ok(result.map(|(_, tensor)| replicated(graph, operator, &tensor.shards[0])));
    };
    let on_one = |devices: &Vec<usize>| (devices.len() == 1).then(|| devices[0]);
    let devices: Option<Vec<usize>> = first.shards.iter().map(on_one).collect();
    let devices = devices.ok_or("shards on groups of devices are not supported: give each shard one device")?;
    if sharded.any(|(_, tensor)| tensor.shards != first.shards) {
        return Err("its tensors are sharded over different devices".into());
    }
    let all_devices: BTreeSet<usize> = devices.iter().copied().collect();
    let is_elsewhere = |(id, tensor): &&(TensorId, &TensorSharding)| {
        operator.outputs.contains(id) && tensor.shards.concat().into_iter().collect::<BTreeSet<_>>() != all_devices
    };
    if let Some((_, result)) = stated.iter().find(is_elsewhere) {
        return Err(format!("`{}` is not on all devices of the shards", result.tensor));
    }
    let along: HashMap<TensorId, Vec<usize>> =
        stated.iter().map(|(id, tensor)| (*id, tensor.sharded_axes(rank(*id)))).collect();
    let fits = |axis: &SplitAxis| {
        let of = |(id, wanted): &(TensorId, Option<usize>)| {
            along.get(id).is_none_or(|axes| *axes == Vec::from_iter(*wanted))
        };
        sharded_axes(operator, axis).iter().all(of)
    };
    let all = axes(graph, operator);
    let (number, axis) = all.iter().enumerate().find(|(_, axis)| fits(axis)).ok_or_else(|| {
        let listed = stated.iter().map(|(id, tensor)| match &along[id][..] {
            [] => format!("`{}` whole", tensor.tensor),
            axes => format!("`{}` along {axes:?}", tensor.tensor),
        });
        format!("{} has no split with these shardings: {}", operator.name, listed.collect::<Vec<_>>().join(", "))
    })?;
    let count = devices.len() as u64;
    if !axis.size.is_multiple_of(count) || !(axis.size / count).is_multiple_of(axis.grain) {
        let (size, grain) = (axis.size, axis.grain);
        let what = format!(
            "{size} positions in steps of {grain} do not divide into {count} equal shards: give the split in metadata `{SPLIT_KEY}`"
        );
        return Err(what);
    }
    let cuts = (0..=count).map(|shard| shard * (axis.size / count)).collect();
    Ok(Some(Spec::Split(StatedSplit { sharding: Sharding::disjoint(number, cuts), devices })))
}

/// All of `operator` on each of `devices`.
fn replicated(graph: &Graph, operator: &Operator, devices: &[usize]) -> Spec {
    match devices {
        [device] => Spec::Whole(*device),
        _ => Spec::Split(StatedSplit::replicas(graph, operator, devices.to_vec())),
    }
}

/// The split that metadata give exactly.
fn exact(graph: &Graph, operator: &Operator, text: &str) -> Result<Spec, String> {
    let of = |what: &str| format!("metadata `{SPLIT_KEY}`: {what}");
    let split: StatedSplit = serde_json::from_str(text).map_err(|error| of(&error.to_string()))?;
    let StatedSplit { sharding, devices } = &split;
    let (all, axis) = (axes(graph, operator), sharding.axis);
    let replicas = (axis == all.len()).then(|| SplitAxis::of_replicas(operator));
    let found = all.get(axis).or(replicas.as_ref());
    let found = found.ok_or_else(|| of(&format!("{} has no axis {axis}", operator.name)))?;
    if !sharding.fits(found) || sharding.cuts.len() != devices.len() + 1 {
        return Err(of(&format!(
            "not a valid split of {} along axis {axis}, which has {} positions",
            operator.name, found.size
        )));
    }
    Ok(Spec::Split(split))
}
