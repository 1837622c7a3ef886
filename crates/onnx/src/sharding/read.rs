//! Shardings from a file.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::annotation::{DeviceConfiguration, NodeSharding, ShardedDim, ShardedModel, TensorSharding};
use crate::{
    error::{OnnxError, Result, shown},
    node_name::title,
    proto::{
        DeviceConfigurationProto, ModelProto, NodeDeviceConfigurationProto, NodeProto, ShardedDimProto,
        ShardingSpecProto, simple_sharded_dim_proto::Dim,
    },
};

/// Maximum number of configurations: every node can have annotations for each.
const MAX_CONFIGURATIONS: usize = 64;

/// Maximum number of devices of a configuration.
const MAX_DEVICES: i32 = 1 << 16;

/// Maximum number of device references in all sharding specs, with groups expanded.
const MAX_DEVICE_REFERENCES: usize = 1 << 22;

/// The shardings that `model` states, in its nodes outside bodies and functions; `None` if it has no device configuration.
/// `name` is the file name used in messages.
///
/// # Errors
/// If it names devices, tensors or configurations that it does not have; with the place.
pub(crate) fn read_shardings(name: &str, model: &ModelProto) -> std::result::Result<Option<ShardedModel>, OnnxError> {
    let mut sharded = ShardedModel::default();
    if model.configuration.len() > MAX_CONFIGURATIONS {
        return Err(OnnxError::new(name, None, format!("it has more than {MAX_CONFIGURATIONS} device configurations")));
    }
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for (index, configuration) in model.configuration.iter().enumerate() {
        let read = match numbers.insert(configuration.name(), index) {
            Some(_) => Err("another configuration has the same name".into()),
            None => read_configuration(configuration),
        };
        let place = || Some(format!("configuration {index} `{}`", shown(configuration.name())));
        sharded.configurations.push(read.map_err(|what| OnnxError::new(name, place(), what))?);
    }
    let mut names: HashMap<&str, usize> = HashMap::new();
    for node in model.graph.iter().flat_map(|graph| &graph.node) {
        *names.entry(node.name()).or_default() += 1;
    }
    let mut references = MAX_DEVICE_REFERENCES;
    for (number, node) in model.graph.iter().flat_map(|graph| &graph.node).enumerate() {
        let place = format!("node {number}, {}", title(node));
        let mut seen = HashSet::new();
        for stated in &node.device_configurations {
            let id = stated.configuration_id();
            let read = match numbers.get(id) {
                None => Err(unknown_configuration(id, &sharded)),
                Some(_) if !seen.insert(id) => Err(format!("it has configuration `{}` twice", shown(id))),
                Some(index) => {
                    let name = if names[node.name()] == 1 { node.name().to_string() } else { String::new() };
                    let read = read_node(stated, node, sharded.configurations[*index].devices, &mut references);
                    read.map(|read| NodeSharding { number, name, title: place.clone(), configuration: *index, ..read })
                }
            };
            sharded.entries.push(read.map_err(|what| OnnxError::new(name, Some(place.clone()), what))?);
        }
    }
    Ok((!sharded.configurations.is_empty()).then_some(sharded))
}

fn read_configuration(configuration: &DeviceConfigurationProto) -> Result<DeviceConfiguration> {
    let (name, names) = (configuration.name().to_string(), configuration.device.clone());
    let count = configuration.num_devices();
    if name.is_empty() {
        return Err("it has no name".into());
    }
    if !(1..=MAX_DEVICES).contains(&count) {
        return Err(format!("it has {count} devices: expected 1 to {MAX_DEVICES}"));
    }
    if !names.is_empty() && names.len() != count as usize {
        return Err(format!("it has {count} devices and {} names of devices", names.len()));
    }
    let mut seen = HashSet::new();
    if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
        return Err(format!("two devices are called `{}`", shown(twice)));
    }
    Ok(DeviceConfiguration { name, devices: count as usize, names })
}

fn unknown_configuration(id: &str, model: &ShardedModel) -> String {
    let known: Vec<String> = model.configurations.iter().map(|one| format!("`{}`", shown(&one.name))).collect();
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    format!("configuration `{}` does not exist; the model has {known}", shown(id))
}

/// What `node` states for a configuration of `devices` devices.
fn read_node(
    stated: &NodeDeviceConfigurationProto,
    node: &NodeProto,
    devices: usize,
    references: &mut usize,
) -> Result<NodeSharding> {
    let stage = stated
        .pipeline_stage
        .map(|stage| u32::try_from(stage).map_err(|_| format!("pipeline stage {stage}: expected a number from 0 on")));
    let values: HashSet<&str> = node.input.iter().chain(&node.output).map(String::as_str).collect();
    let mut seen = HashSet::new();
    let mut tensors = Vec::new();
    for spec in &stated.sharding_spec {
        let name = spec.tensor_name();
        let of = |what: &str| format!("sharding of `{}`: {what}", shown(name));
        if name.is_empty() || !values.contains(name) {
            return Err(of("not an input or output of this node"));
        }
        if !seen.insert(name) {
            return Err(of("it is given twice"));
        }
        tensors.push(read_spec(spec, devices, references).map_err(|what| of(&what))?);
    }
    Ok(NodeSharding {
        inputs: node.input.clone(),
        outputs: node.output.clone(),
        stage: stage.transpose()?,
        tensors,
        metadata: node.metadata_props.iter().map(|entry| (entry.key().into(), entry.value().into())).collect(),
        ..NodeSharding::default()
    })
}

fn read_spec(spec: &ShardingSpecProto, devices: usize, references: &mut usize) -> Result<TensorSharding> {
    let device = |index: i64| {
        let known = usize::try_from(index).ok().filter(|index| *index < devices);
        known.ok_or_else(|| format!("device {index} does not exist: the configuration has {devices}, from 0 on"))
    };
    let mut groups: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for entry in &spec.index_to_device_group_map {
        let members = entry.value.iter().map(|index| device(*index)).collect::<Result<Vec<_>>>()?;
        if members.is_empty() || members.iter().collect::<HashSet<_>>().len() < members.len() {
            return Err(format!("device group {}: expected devices, each once", entry.key()));
        }
        if groups.insert(entry.key(), members).is_some() {
            return Err(format!("device group {} is given twice", entry.key()));
        }
    }
    let size = |index: &i64| groups.get(index).map_or(1, Vec::len);
    let left = references.checked_sub(spec.device.iter().map(size).sum());
    *references = left.ok_or_else(|| {
        format!("the sharding specs of the file have more than {MAX_DEVICE_REFERENCES} device references")
    })?;
    let member = |index: &i64| groups.get(index).cloned().map_or_else(|| device(*index).map(|one| vec![one]), Ok);
    let mut shards = spec.device.iter().map(member).collect::<Result<Vec<_>>>()?;
    let used: HashSet<i64> = spec.device.iter().copied().collect();
    if let Some(unused) = groups.keys().find(|key| !used.contains(key)) {
        return Err(format!("device group {unused} is not used"));
    }
    let dims = spec.sharded_dim.iter().map(read_dim).collect::<Result<Vec<_>>>()?;
    let wanted = dims.iter().try_fold(1u64, |product, dim| product.checked_mul(dim.shards));
    // Several devices for a tensor that is whole: replicas.
    if wanted == Some(1) && shards.len() > 1 {
        shards = vec![shards.concat()];
    }
    if wanted != Some(shards.len() as u64) {
        let wanted = wanted.map_or("too many".into(), |wanted| wanted.to_string());
        return Err(format!("{wanted} shards, but {} devices or device groups", shards.len()));
    }
    Ok(TensorSharding { tensor: spec.tensor_name().to_string(), shards, dims })
}

fn read_dim(dim: &ShardedDimProto) -> Result<ShardedDim> {
    let axis = dim.axis.ok_or("a sharded dimension has no axis")?;
    let of = |what: &str| format!("axis {axis}: {what}");
    let (mut size, mut shards) = (Some(1u64), 1u64);
    for part in &dim.simple_sharding {
        let count = u64::try_from(part.num_shards()).unwrap_or_default();
        if count == 0 {
            return Err(of(&format!("{} shards: expected at least 1", part.num_shards())));
        }
        shards = shards.checked_mul(count).ok_or_else(|| of("too many shards"))?;
        let positions = match &part.dim {
            Some(Dim::DimValue(value)) => {
                Some(u64::try_from(*value).map_err(|_| of(&format!("{value} positions: expected a size")))?)
            }
            Some(Dim::DimParam(_)) | None => None,
        };
        size = size.zip(positions).and_then(|(size, positions)| size.checked_mul(positions));
    }
    if dim.simple_sharding.is_empty() {
        return Err(of("it has no `simple_sharding`"));
    }
    // ONNX allows this for axes that a reshape fused.
    if dim.simple_sharding[1..].iter().any(|part| part.num_shards() > 1) {
        return Err(of("sharding an inner part of a fused axis is not supported: its shards are not contiguous"));
    }
    Ok(ShardedDim { axis, size, shards })
}
