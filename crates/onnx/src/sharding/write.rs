//! Shardings into a written model.

use super::annotation::{NodeSharding, ShardedModel, TensorSharding};
use crate::{
    export::Exported,
    proto::{
        DeviceConfigurationProto, IntIntListEntryProto, NodeDeviceConfigurationProto, ShardedDimProto,
        ShardingSpecProto, SimpleShardedDimProto, StringStringEntryProto, simple_sharded_dim_proto::Dim,
    },
};

/// The first version of the format with device configurations.
const IR_VERSION: i64 = 11;

impl Exported {
    /// Writes `sharded`, whose nodes are those of this model by number, and the metadata of these.
    pub fn set_shardings(&mut self, sharded: &ShardedModel) {
        self.model.ir_version = self.model.ir_version.max(Some(IR_VERSION));
        let configuration = sharded.configurations.iter().map(|one| DeviceConfigurationProto {
            name: Some(one.name.clone()),
            num_devices: Some(one.devices as i32),
            device: one.names.clone(),
        });
        self.model.configuration = configuration.collect();
        let Some(graph) = &mut self.model.graph else { return };
        for stated in &sharded.entries {
            let Some(node) = graph.node.get_mut(stated.number) else { continue };
            let name = &sharded.configurations[stated.configuration].name;
            node.device_configurations.push(node_configuration(stated, name));
            let entry = |(key, value): &(String, String)| StringStringEntryProto {
                key: Some(key.clone()),
                value: Some(value.clone()),
            };
            node.metadata_props.extend(stated.metadata.iter().map(entry));
        }
    }
}

fn node_configuration(node: &NodeSharding, name: &str) -> NodeDeviceConfigurationProto {
    NodeDeviceConfigurationProto {
        configuration_id: Some(name.to_string()),
        sharding_spec: node.tensors.iter().map(sharding_spec).collect(),
        pipeline_stage: node.stage.map(|stage| stage as i32),
    }
}

fn sharding_spec(tensor: &TensorSharding) -> ShardingSpecProto {
    let mut groups = Vec::new();
    let mut device = |devices: &Vec<usize>| match devices[..] {
        [device] => device as i64,
        _ => {
            // Groups have negative numbers, which no device has.
            let key = -1 - groups.len() as i64;
            let value = devices.iter().map(|device| *device as i64).collect();
            groups.push(IntIntListEntryProto { key: Some(key), value });
            key
        }
    };
    let device = tensor.shards.iter().map(&mut device).collect();
    let dims = tensor.dims.iter().map(|dim| {
        let size = dim.size.and_then(|size| i64::try_from(size).ok()).map(Dim::DimValue);
        let sharding = SimpleShardedDimProto { num_shards: Some(dim.shards as i64), dim: size };
        ShardedDimProto { axis: Some(dim.axis), simple_sharding: vec![sharding] }
    });
    ShardingSpecProto {
        tensor_name: Some(tensor.tensor.clone()),
        device,
        sharded_dim: dims.collect(),
        index_to_device_group_map: groups,
    }
}
