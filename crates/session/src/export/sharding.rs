//! A plan as one ONNX file of the whole model, with a device configuration, and shardings and pipeline stages of its operators (IR 11).
//!
//! What the format cannot express of a split is in the metadata of the operator: see [`StatedSplit`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use edgecut_graph::{Graph, OperatorId, Origin, TensorId};
use edgecut_onnx::{
    DeviceConfiguration, ExportOptions as OnnxOptions, NodeSharding, ShardedModel, TensorSharding, WrittenNode,
    export as export_onnx,
};
use edgecut_plan::{Plan, planned_graph, stages::stages};
use edgecut_profile::items;

use super::{
    file::{Content, Export, ExportedFile},
    options::ExportOptions,
    placement::whole_placement,
};
use crate::{
    Error, Events, Model,
    sharding::{SPLIT_KEY, ShardingSummary, Spec, StatedSplit, placement, specs},
};

/// The name of the device configuration.
const CONFIGURATION: &str = "edgecut";

/// The file of `plan` for its `model`, whose graph has no splits and schedules.
pub(super) fn export(plan: &Plan, model: &Model, options: &ExportOptions, events: &Events) -> Result<Export, Error> {
    let (graph, path) = (model.graph(), options.onnx_file()?);
    let contents = model.contents(graph)?;
    let content = |id: TensorId| contents.of(id).map(Some).map_err(|error| error.to_string());
    let mut written = export_onnx(graph, &OnnxOptions::new(&content)).map_err(Error::bad_input)?;
    let mut placed = Placed::of(plan, graph)?;
    placed.composed = written.compositions.iter().map(|(id, _)| *id).collect();
    let entries = written.entries();
    let mut stated = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        stated.extend(placed.stated(number, entry));
    }
    number_stages(&mut stated);
    let is_on_several_devices = |entry: &&WrittenNode<'_>| {
        let devices: BTreeSet<_> = entry.operators.iter().map(|id| placed.spec(*id).devices()).collect();
        devices.len() > 1
    };
    let merged = entries.iter().filter(is_on_several_devices).count();
    let composed = placed.composed.iter().filter(|id| placed.splits.contains_key(id)).count();
    events.notices(&notices(plan, merged, composed));
    let devices = plan.devices.iter().map(|device| device.device_name().to_string());
    let configuration =
        DeviceConfiguration { name: CONFIGURATION.into(), devices: plan.devices.len(), names: devices.collect() };
    let sharded = ShardedModel { configurations: vec![configuration], entries: stated };
    let summary =
        ShardingSummary::of(&sharded).iter().map(|summary| format!("{}: {summary}", path.display())).collect();
    written.set_shardings(&sharded);
    let content = Content::Onnx { model: Box::new(written), external_data: options.external_data };
    Ok(Export { files: vec![ExportedFile::new(path, content)], text: None, summary })
}

/// Where the operators of a model run.
struct Placed<'a> {
    graph: &'a Graph,
    whole: Vec<usize>,
    splits: HashMap<OperatorId, StatedSplit>,
    /// By operator: the first stage of the plan that computes a part of its group.
    stages: HashMap<OperatorId, u32>,
    /// Operators that are written as several.
    composed: HashSet<OperatorId>,
}

impl<'a> Placed<'a> {
    fn of(plan: &Plan, graph: &'a Graph) -> Result<Placed<'a>, Error> {
        let whole = whole_placement(plan, graph).map_err(Error::bad_input)?;
        let mut splits: HashMap<OperatorId, StatedSplit> =
            plan.splits.iter().map(|split| (split.operator, split.into())).collect();
        // What depends on parameters alone is copied for each shard of its group.
        for item in items(graph, plan.granularity) {
            let Some(split) = item.operators.last().and_then(|last| splits.get(last)) else { continue };
            let devices: BTreeSet<usize> = split.devices.iter().copied().collect();
            for id in item.operators.iter().filter(|_| devices.len() > 1) {
                let replicas = || StatedSplit::replicas(graph, graph.operator(*id), devices.iter().copied().collect());
                splits.entry(*id).or_insert_with(replicas);
            }
        }
        Ok(Placed {
            graph,
            whole: whole.devices.iter().map(|device| device.0 as usize).collect(),
            splits,
            stages: first_stages(plan, graph)?,
            composed: HashSet::new(),
        })
    }

    fn spec(&self, id: OperatorId) -> Spec {
        self.splits.get(&id).map_or_else(|| Spec::Whole(self.whole[id.0 as usize]), |split| Spec::Split(split.clone()))
    }

    /// What entry `number` of the written model states; `None` for one that computes no operator, or a part of one that is split.
    fn stated(&self, number: usize, entry: &WrittenNode<'_>) -> Option<NodeSharding> {
        let made = entry.outputs.iter().filter_map(|value| match self.graph.tensor(value.tensor?).origin {
            Origin::Operator { operator, .. } => Some(operator),
            _ => None,
        });
        let main = made.max().or(entry.operators.iter().max().copied())?;
        let spec = self.spec(main);
        if matches!(spec, Spec::Split(_)) && entry.operators.iter().any(|id| self.composed.contains(id)) {
            return None;
        }
        let mut tensors: BTreeMap<TensorId, TensorSharding> = BTreeMap::new();
        for id in std::iter::once(main).chain(entry.operators.iter().copied()) {
            for (tensor, sharding) in specs(self.graph, self.graph.operator(id), &self.spec(id)) {
                tensors.entry(tensor).or_insert(sharding);
            }
        }
        let mut seen = BTreeSet::new();
        let values = entry.inputs.iter().chain(&entry.outputs).filter(|value| seen.insert(value.name));
        let tensors = values.filter_map(|value| {
            let tensor = value.name.to_string();
            match (value.tensor.and_then(|id| tensors.get(&id)), &spec) {
                (Some(sharding), _) => Some(TensorSharding { tensor, ..sharding.clone() }),
                (None, Spec::Whole(device)) => {
                    Some(TensorSharding { tensor, shards: vec![vec![*device]], dims: Vec::new() })
                }
                (None, Spec::Split(_)) => None,
            }
        });
        let tensors = tensors.collect();
        let metadata = self.metadata(main, &spec).into_iter().collect();
        let stage = self.stages.get(&main).copied();
        Some(NodeSharding { number, stage, tensors, metadata, ..NodeSharding::default() })
    }

    /// The metadata of an entry that computes `operator`, if its shardings alone do not give `spec`.
    fn metadata(&self, operator: OperatorId, spec: &Spec) -> Option<(String, String)> {
        let Spec::Split(split) = spec else { return None };
        let operator = self.graph.operator(operator);
        let tensors = specs(self.graph, operator, spec).into_iter().map(|(_, sharding)| sharding).collect();
        let entry = NodeSharding { tensors, ..NodeSharding::default() };
        let is_said = placement(self.graph, operator, &entry).is_ok_and(|found| found.as_ref() == Some(spec));
        (!is_said).then(|| serde_json::to_string(split).ok().map(|text| (SPLIT_KEY.to_string(), text))).flatten()
    }
}

/// By operator of the model: the first stage of the plan that computes a part of its group.
fn first_stages(plan: &Plan, graph: &Graph) -> Result<HashMap<OperatorId, u32>, Error> {
    let planned = planned_graph(graph, plan).map_err(Error::bad_input)?;
    let items = items(graph, plan.granularity);
    let mut first: HashMap<OperatorId, u32> = HashMap::new();
    for (number, stage) in (0u32..).zip(&stages(plan, &planned).map_err(Error::bad_input)?) {
        let groups = stage.groups.iter().filter_map(|group| plan.groups[group.0 as usize].id);
        for operator in groups.filter_map(|id| items.get(id as usize)).flat_map(|item| &item.operators) {
            first.entry(*operator).or_insert(number);
        }
    }
    Ok(first)
}

/// Numbers the stages of `entries` from 0 on, without gaps.
fn number_stages(entries: &mut [NodeSharding]) {
    let stages: BTreeSet<u32> = entries.iter().filter_map(|entry| entry.stage).collect();
    let numbers: HashMap<u32, u32> = stages.into_iter().zip(0u32..).collect();
    entries.iter_mut().for_each(|entry| entry.stage = entry.stage.map(|stage| numbers[&stage]));
}

/// What of `plan` the file does not have.
fn notices(plan: &Plan, merged: usize, composed: usize) -> Vec<String> {
    let mut notices = Vec::new();
    if merged > 0 {
        notices.push(format!(
            "{merged} ONNX operators each compute several operators of the plan, on different devices: they are placed with their results"
        ));
    }
    if composed > 0 {
        notices
            .push(format!("{composed} split operators are written as several ONNX operators, which have no shardings"));
    }
    if !plan.schedules.is_empty() {
        notices.push("the plan's schedules within memory limits are not in the file".into());
    }
    if !plan.transfer.is_exact() {
        notices.push(format!("the plan's transfer format, {}, is not in the file", plan.transfer));
    }
    notices
}
