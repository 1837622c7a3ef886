//! Nodes as composite operators: the node itself, with the operators that its family lowers it to as the decomposition.
//!
//! The decomposition is built in a graph of its own, whose inputs are the operands. Constant operands are inputs there
//! too, so that weights are neither folded nor converted; their contents are available where axes or sizes depend on
//! them.

use std::{collections::HashMap, sync::Arc};

use edgecut_graph::{Graph, Origin, TensorId, TensorType, units::Bytes};

use crate::{
    live::live,
    lowering::{Call, Lower, Lowering, Value, tensors},
    opaque,
    proto::{AttributeProto, NodeProto},
};

impl<'m> Lowering<'m> {
    /// Adds `node` as a composite operator. `None` if it cannot be one: `lower` refuses it without the rest of the graph, its
    /// types are unknown, it is not a function of tensors alone, or its data has no elements, for which many kernels fail. A
    /// function of constants is folded instead, unless that would make the model larger.
    pub fn composite(
        &mut self,
        node: &'m NodeProto,
        lower: Lower,
        version: i64,
        inputs: &[Option<Value>],
    ) -> Option<Vec<Value>> {
        let operands = tensors(inputs)?;
        let is_fixed = |tensor: &TensorId| self.graph.tensor(*tensor).ty.shape.fixed().is_some();
        let is_empty = |tensor: &TensorId| self.graph.tensor(*tensor).ty.shape.elements() == Some(0);
        if !operands.iter().flatten().all(is_fixed)
            || operands.first().is_some_and(|data| data.as_ref().is_some_and(is_empty))
        {
            return None;
        }
        let attribute = |a: &'m AttributeProto| self.attribute(a);
        let operator = opaque::operator(node, version, &operands, attribute)?;
        let decomposition = self.decomposition(node, lower, version, &operands)?;
        let ty = |tensor: &TensorId| decomposition.tensor(*tensor).ty.clone();
        let types: Vec<TensorType> = decomposition.outputs.iter().map(ty).collect();
        let are_fixed = decomposition.tensors().all(|(_, tensor)| tensor.ty.shape.fixed().is_some());
        let are_constants = operands.iter().flatten().all(|tensor| self.known(*tensor).is_some());
        let bytes = |ty: &TensorType| ty.bytes().unwrap_or_default();
        let read: Bytes = operands.iter().flatten().map(|tensor| bytes(&self.graph.tensor(*tensor).ty)).sum();
        let grows = types.iter().map(bytes).sum::<Bytes>() > read;
        if types.is_empty() || !are_fixed || (are_constants && !grows) {
            return None;
        }
        self.inner_operators += decomposition.operators().len();
        let operator = operator.with_layer(self.layer.clone()).with_decomposition(Arc::new(decomposition));
        let id = self.graph.add_operator(operator, &types);
        Some(self.results(node, id))
    }

    /// The graph that `lower` builds for `node`, from its operands to its named results.
    fn decomposition(
        &mut self,
        node: &'m NodeProto,
        lower: Lower,
        version: i64,
        operands: &[Option<TensorId>],
    ) -> Option<Graph> {
        let mut inner = Graph::new();
        let mut contents = HashMap::new();
        let input = |operand: &Option<TensorId>| {
            operand.map(|id| {
                let tensor = self.graph.tensor(id);
                let new = inner.add_tensor(tensor.name.clone(), tensor.ty.clone(), Origin::Input);
                if let Origin::Constant(data) = &tensor.origin {
                    contents.insert(new, data.clone());
                }
                Value::Tensor(new)
            })
        };
        let inputs: Vec<Option<Value>> = operands.iter().map(input).collect();
        self.outer = Some(std::mem::replace(&mut self.graph, inner));
        let scalars = std::mem::take(&mut self.scalars);
        self.operand_contents = contents;
        let results = lower(&mut Call { lowering: self, node, inputs, version });
        self.operand_contents.clear();
        self.scalars = scalars;
        let outer = self.outer.take().unwrap_or_default();
        let mut inner = std::mem::replace(&mut self.graph, outer);
        let results = results.ok()?;
        let named = (0..).zip(&node.output).filter(|(_, name)| !name.is_empty());
        let result = |at: usize| match results.get(at) {
            Some(Value::Tensor(tensor)) => Some(*tensor),
            _ => None,
        };
        inner.outputs = named.map(|(at, _)| result(at)).collect::<Option<_>>()?;
        Some(live(&inner))
    }
}

#[cfg(test)]
mod tests {
    use edgecut_graph::{Graph, OperatorId, Origin};

    use crate::{
        ExportOptions, export,
        proto::{ModelProto, NodeProto, TensorProto},
        test_models::{FLOAT, info, int, model, node, read},
    };

    fn microsoft(kind: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
        NodeProto { domain: Some("com.microsoft".into()), ..node(kind, inputs, outputs, Vec::new()) }
    }

    /// A vector of four numbers as an initializer of `model`.
    fn with_weight(mut model: ModelProto, name: &str) -> ModelProto {
        let weight = TensorProto {
            name: Some(name.into()),
            data_type: Some(FLOAT),
            dims: vec![4],
            float_data: vec![1.0, 2.0, 3.0, 4.0],
            ..TensorProto::default()
        };
        model.graph.as_mut().unwrap().initializer.push(weight);
        model
    }

    fn nodes(graph: &Graph) -> Vec<NodeProto> {
        export(graph, &ExportOptions::new(&|_| Ok(None))).unwrap().model.graph.unwrap().node
    }

    #[test]
    fn a_node_stays_one_operator_and_its_weights_stay_operands() {
        let (x, y) = (info("x", FLOAT, &["2", "4"]), info("y", FLOAT, &["2", "4"]));
        let made = model(&[x], vec![microsoft("BiasGelu", &["x", "b"], &["y"])], &[y]);
        let graph = read(&with_weight(made, "b"), &[]).unwrap().graph;
        let operator = graph.operator(OperatorId(0));
        assert_eq!((graph.operators().len(), operator.name.as_str()), (1, "com.microsoft.BiasGelu"));
        assert_eq!((operator.opaque_reason(), operator.layer.as_deref()), (None, Some("BiasGelu_1")));
        let inner = operator.decomposition.as_deref().unwrap();
        assert_eq!((inner.inputs().count(), inner.operator(OperatorId(0)).name.as_str()), (2, "add"));
        let scalars = inner.parameters().all(|id| inner.tensor(id).ty.shape.rank() == 0);
        assert!(scalars && inner.operators().all(|(_, part)| part.decomposition.is_none()));
        let written = nodes(&graph);
        assert_eq!((written.len(), written[0].op_type.as_deref()), (1, Some("BiasGelu")));
        assert_eq!((written[0].input.join(" "), written[0].output.join(" ")), ("x b".into(), "y".into()));
    }

    #[test]
    fn results_that_the_file_does_not_name_are_none() {
        let sizes = &["2", "3", "4"][..];
        let (x, y) = (info("x", FLOAT, sizes), info("y", FLOAT, sizes));
        let skip = microsoft("SkipLayerNormalization", &["x", "x", "b"], &["t", "", "", "y"]);
        let graph = read(&with_weight(model(&[x], vec![skip], &[y]), "b"), &[]).unwrap().graph;
        assert_eq!(graph.operator(OperatorId(0)).outputs.len(), 2);
        let written = nodes(&graph);
        assert_eq!((written[0].input.join(" "), written[0].output[1..].join(" ")), ("x x b".into(), "  y".into()));
    }

    #[test]
    fn what_lacks_the_rest_of_the_graph_is_lowered_or_opaque() {
        let (x, y) = (info("x", FLOAT, &["2", "4"]), info("y", FLOAT, &["2", "4"]));
        // The statistics of a fused normalisation are not expressed.
        let skip = microsoft("SkipSimplifiedLayerNormalization", &["x", "x", "b"], &["t", "y"]);
        let made = model(std::slice::from_ref(&x), vec![skip], &[info("y", FLOAT, &["2", "1"])]);
        let error = read(&with_weight(made, "b"), &[]).unwrap_err().to_string();
        assert!(error.contains("statistics"), "{error}");
        // A function of constants is folded, or stays a function of constants.
        let made = model(&[x], vec![microsoft("Gelu", &["b"], &["t"]), node("Add", &["x", "t"], &["y"], vec![])], &[y]);
        let graph = read(&with_weight(made, "b"), &[]).unwrap().graph;
        assert!(graph.operators().all(|(_, operator)| operator.decomposition.is_none()));
    }

    #[test]
    fn a_function_of_constants_that_are_smaller_stays() {
        let (x, y) = (info("x", FLOAT, &["4"]), info("y", FLOAT, &["4"]));
        let blocks = vec![int("axis", 0), int("block_size", 4)];
        let nodes_read =
            vec![node("DequantizeLinear", &["w", "s"], &["d"], blocks), node("Add", &["x", "d"], &["y"], vec![])];
        let mut made = model(&[x], nodes_read, &[y]);
        made.opset_import[0].version = Some(21);
        let tensor = |name: &str, data_type: i32, dims: Vec<i64>, raw: Vec<u8>| TensorProto {
            name: Some(name.into()),
            data_type: Some(data_type),
            dims,
            raw_data: Some(raw.into()),
            ..TensorProto::default()
        };
        let initializers =
            [tensor("w", 3, vec![4], vec![1, 2, 3, 4]), tensor("s", FLOAT, vec![1], 0.5f32.to_le_bytes().into())];
        made.graph.as_mut().unwrap().initializer.extend(initializers);
        let written = nodes(&read(&made, &[]).unwrap().graph);
        let kinds: Vec<_> = written.iter().filter_map(|node| node.op_type.as_deref()).collect();
        assert_eq!(kinds, ["DequantizeLinear", "Add"]);
    }

    #[test]
    fn unknown_sizes_are_those_of_the_model() {
        let relus = ["x", "r1", "r2", "r3"].windows(2);
        let mut nodes: Vec<NodeProto> = relus.map(|pair| node("Relu", &pair[..1], &pair[1..], vec![])).collect();
        nodes.push(microsoft("FusedMatMul", &["r3", "b"], &["y"]));
        let made = model(&[info("x", FLOAT, &["batch", "4"])], nodes, &[info("y", FLOAT, &["batch"])]);
        let error = read(&with_weight(made, "b"), &[]).unwrap_err().to_string();
        assert!(error.contains("option `bind_dim=") && error.contains("batch"), "{error}");
    }

    #[test]
    fn attention_stays_one_operator_where_onnx_runtime_has_a_kernel() {
        let mut all = ["q", "k", "v"].map(|name| info(name, FLOAT, &["1", "2", "3", "4"])).to_vec();
        all.extend([info("m", FLOAT, &["3", "3"]), info("padding", FLOAT, &["1", "3"])]);
        for (mask, outputs, count) in [
            ("", &["y"][..], Some(1)),
            ("m", &["y"], Some(1)),
            ("padding", &["y"], None),
            ("", &["y", "", "", "s"], Some(2)),
        ] {
            let attributes = vec![int("qk_matmul_output_mode", 1)];
            let attention = node("Attention", &["q", "k", "v", mask], outputs, attributes);
            let mut made = model(&all, vec![attention], &[info("y", FLOAT, &["1", "2", "3", "4"])]);
            made.opset_import[0].version = Some(23);
            let graph = read(&made, &[]).unwrap().graph;
            let kept = graph.operators().find(|(_, operator)| operator.name == "onnx.Attention");
            assert_eq!(kept.map(|(_, operator)| operator.outputs.len()), count);
            assert!(graph.tensors().all(|(_, tensor)| !matches!(tensor.origin, Origin::Parameter)));
        }
    }
}
