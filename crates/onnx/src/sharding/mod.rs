//! Device configurations and shardings of an ONNX file (IR 11): on which devices each node runs, and how its tensors are sharded.
//!
//! Semantics follow the comments in `onnx.proto`. A tensor without a sharded axis is on one device, or replicated on several.
//!
//! | module | contents |
//! |---|---|
//! | `annotation` | [`ShardedModel`]: what a file states |
//! | `read` | parses a file; errors name the node |
//! | `check` | validates shapes and pipeline stages |
//! | `write` | adds annotations to an exported model |

mod annotation;
mod check;
mod read;
mod write;

pub use annotation::{DeviceConfiguration, NodeSharding, ShardedDim, ShardedModel, TensorSharding};
pub use check::{Shape, ShardingError};
pub(crate) use read::read_shardings;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ExportOptions, export,
        proto::{
            DeviceConfigurationProto, IntIntListEntryProto, ModelProto, NodeDeviceConfigurationProto, NodeProto,
            ShardedDimProto, ShardingSpecProto, SimpleShardedDimProto, simple_sharded_dim_proto::Dim,
        },
        test_models::{FLOAT, info, model, node, read},
    };
    use edgecut_graph::Graph;

    fn dim(axis: i64, size: Option<i64>, shards: i64) -> ShardedDimProto {
        let simple = SimpleShardedDimProto { num_shards: Some(shards), dim: size.map(Dim::DimValue) };
        ShardedDimProto { axis: Some(axis), simple_sharding: vec![simple] }
    }

    fn spec(tensor: &str, device: &[i64], sharded_dim: Vec<ShardedDimProto>) -> ShardingSpecProto {
        let tensor_name = Some(tensor.to_string());
        ShardingSpecProto { tensor_name, device: device.to_vec(), sharded_dim, ..ShardingSpecProto::default() }
    }

    fn on(id: &str, stage: i32, sharding_spec: Vec<ShardingSpecProto>) -> NodeDeviceConfigurationProto {
        NodeDeviceConfigurationProto { configuration_id: Some(id.into()), sharding_spec, pipeline_stage: Some(stage) }
    }

    /// Two operators on two devices: the first split along the rows, the second on the second device.
    fn two_devices() -> ModelProto {
        let (x, y) = (info("x", FLOAT, &["4", "6"]), info("y", FLOAT, &["4", "6"]));
        let rows = |name: &str| spec(name, &[0, 1], vec![dim(0, Some(4), 2), dim(-1, None, 1)]);
        let first = node("Relu", &["x"], &["r"], Vec::new());
        let second = NodeProto { name: Some("last".into()), ..node("Tanh", &["r"], &["y"], Vec::new()) };
        let whole = |name: &str| spec(name, &[1], Vec::new());
        let nodes = vec![
            NodeProto { device_configurations: vec![on("two", 0, vec![rows("x"), rows("r")])], ..first },
            NodeProto { device_configurations: vec![on("two", 1, vec![whole("r"), whole("y")])], ..second },
        ];
        let mut made = model(&[x], nodes, &[y]);
        made.configuration = vec![DeviceConfigurationProto {
            name: Some("two".into()),
            num_devices: Some(2),
            device: vec!["a/cpu".into(), "b/cpu".into()],
        }];
        made
    }

    fn of_tensor<'n>(node: &'n NodeSharding, name: &str) -> &'n TensorSharding {
        node.tensors.iter().find(|tensor| tensor.tensor == name).unwrap()
    }

    fn shapes(graph: &Graph) -> impl Fn(&str) -> Option<Vec<u64>> {
        |name| {
            let (_, tensor) = graph.tensors().find(|(_, tensor)| tensor.name == name)?;
            tensor.ty.shape.iter().map(|dim| dim.get()).collect()
        }
    }

    /// What is wrong with a model, if anything.
    fn wrong(made: &ModelProto) -> String {
        let imported = read(made, &[]).unwrap();
        match &imported.sharded {
            Err(error) => error.to_string(),
            Ok(None) => "nothing".into(),
            Ok(Some(sharded)) => {
                let errors = sharded.errors(&shapes(&imported.graph));
                errors.iter().map(ShardingError::to_string).collect::<Vec<_>>().join("\n")
            }
        }
    }

    #[test]
    fn what_a_file_states_is_read_and_written_again() {
        let made = two_devices();
        let imported = read(&made, &[]).unwrap();
        let sharded = imported.sharded.unwrap().unwrap();
        assert_eq!(sharded.configurations[0].names, ["a/cpu", "b/cpu"]);
        let [first, second] = &sharded.entries[..] else { panic!("{:?}", sharded.entries) };
        assert_eq!((first.stage, second.stage), (Some(0), Some(1)));
        let r = of_tensor(first, "r");
        assert_eq!((r.shards.clone(), r.sharded_axes(2)), (vec![vec![0], vec![1]], vec![0]));
        assert_eq!(of_tensor(second, "y").shards, [[1]]);
        assert_eq!(wrong(&made), "");
        let mut written = export(&imported.graph, &ExportOptions::new(&|_| Ok(None))).unwrap();
        written.set_shardings(&sharded);
        let again = read(&written.model, &[]).unwrap().sharded.unwrap().unwrap();
        assert_eq!(again.configurations, sharded.configurations);
        for (node, wanted) in again.entries.iter().zip(&sharded.entries) {
            assert_eq!((node.number, node.stage, &node.tensors), (wanted.number, wanted.stage, &wanted.tensors));
        }
        assert_eq!(again.entries.len(), 2);
        assert!(written.model.ir_version() >= 11);
    }

    #[test]
    fn replicas_are_one_shard_on_several_devices() {
        let group = IntIntListEntryProto { key: Some(-1), value: vec![0, 1] };
        for (device, groups) in [(vec![0, 1], vec![]), (vec![-1], vec![group])] {
            let mut made = two_devices();
            let nodes = &mut made.graph.as_mut().unwrap().node;
            let stated = &mut nodes[1].device_configurations[0].sharding_spec[1];
            (stated.device, stated.index_to_device_group_map) = (device, groups);
            let sharded = read(&made, &[]).unwrap().sharded.unwrap().unwrap();
            assert_eq!(of_tensor(&sharded.entries[1], "y").shards, [[0, 1]]);
            assert_eq!(wrong(&made), "");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        type Change = fn(&mut ModelProto);
        /// The sharding of a tensor of a node.
        fn of(model: &mut ModelProto, node: usize, tensor: usize) -> &mut ShardingSpecProto {
            &mut stated(model, node).sharding_spec[tensor]
        }
        fn stated(model: &mut ModelProto, node: usize) -> &mut NodeDeviceConfigurationProto {
            &mut model.graph.as_mut().unwrap().node[node].device_configurations[0]
        }
        let cases: [(Change, &str); 19] = [
            (|m| m.configuration[0].num_devices = Some(0), "configuration 0 `two`: it has 0 devices"),
            (|m| m.configuration[0].num_devices = Some(3), "it has 3 devices and 2 names"),
            (|m| m.configuration[0].device[1] = "a/cpu".into(), "two devices are called `a/cpu`"),
            (|m| m.configuration[0].name = None, "it has no name"),
            (|m| m.configuration = [&m.configuration[..], &m.configuration[..]].concat(), "has the same name"),
            (
                |m| stated(m, 1).configuration_id = Some("three".into()),
                "m.onnx: node 1, Tanh `last`: configuration `three` does not exist; the model has `two`",
            ),
            (|m| stated(m, 0).pipeline_stage = Some(-1), "node 0, Relu `Relu_1`: pipeline stage -1"),
            (
                |m| stated(m, 0).pipeline_stage = Some(2),
                "node 1, Tanh `last`: pipeline stage 1: input `r` is computed in later",
            ),
            (|m| stated(m, 1).pipeline_stage = Some(2), "pipeline stage 2: no node is in stage 1"),
            (|m| of(m, 1, 0).tensor_name = Some("x".into()), "sharding of `x`: not an input or output"),
            (|m| of(m, 1, 0).tensor_name = Some("y".into()), "sharding of `y`: it is given twice"),
            (|m| of(m, 0, 1).device = vec![0, 2], "sharding of `r`: device 2 does not exist: the configuration has 2"),
            (|m| of(m, 0, 1).device = vec![0], "2 shards, but 1 devices"),
            (|m| of(m, 0, 1).sharded_dim[0].axis = Some(2), "sharding of `r`: axis 2 is out of range for rank 2"),
            (|m| of(m, 0, 1).sharded_dim[1].axis = Some(-2), "axis 0 is given twice"),
            (|m| of(m, 0, 1).sharded_dim[0] = dim(0, Some(8), 2), "axis 0 has 4 positions, not 8"),
            (|m| of(m, 0, 1).sharded_dim[0] = dim(0, None, 0), "axis 0: 0 shards: expected at least 1"),
            (
                |m| {
                    of(m, 0, 1).sharded_dim[0] = dim(0, None, 5);
                    of(m, 0, 1).device = vec![0, 1, 0, 1, 0];
                },
                "axis 0 has 4 positions for 5 shards",
            ),
            (
                |m| {
                    of(m, 1, 1).index_to_device_group_map = vec![IntIntListEntryProto { key: Some(-1), value: vec![0] }]
                },
                "device group -1 is not used",
            ),
        ];
        for (change, expected) in cases {
            let mut made = two_devices();
            change(&mut made);
            let said = wrong(&made);
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }
}
