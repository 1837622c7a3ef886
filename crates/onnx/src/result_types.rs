//! Types of the results of an opaque operator: as the file states them, else as an engine infers them.
//!
//! The engine is asked about a model of that node alone, whose inputs have the types that the import knows: shapes that
//! the file leaves open are fixed by then. It computes nothing.

use std::rc::Rc;

use edgecut_graph::{Origin, TensorId, TensorType};
use edgecut_ops::passes::retype::bound_size;
use prost::Message as _;

use crate::{
    error::Message,
    export::{ir_version, type_proto},
    lowering::Lowering,
    opaque::TypeError,
    proto::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto},
    tensor,
};

/// Constants up to this size are part of the model: sizes, axes and positions, on which shapes depend.
const MAX_CONSTANT_BYTES: usize = 1 << 10;

impl Lowering<'_> {
    /// The types of the results of `node`, those that the file does not name left out. `alone` is the node with its
    /// attributes resolved; `version` that of its operator set in `domain`.
    pub fn result_types(
        &mut self,
        node: &NodeProto,
        alone: NodeProto,
        (domain, version): (&str, i64),
        inputs: &[Option<TensorId>],
    ) -> Result<Vec<TensorType>, TypeError> {
        let is_fixed = |ty: &TensorType| ty.shape.fixed().is_some();
        let named: Vec<&String> = node.output.iter().filter(|name| !name.is_empty()).collect();
        let mut types: Vec<Option<TensorType>> =
            named.iter().map(|name| self.stated_type(name).filter(is_fixed)).collect();
        if types.iter().any(Option::is_none) {
            let model = self.model_of(node, alone, (domain, version), inputs).map_err(TypeError::NotInferred)?;
            let inferred = self.infer(model, named.len()).map_err(TypeError::NotInferred)?;
            for (ty, inferred) in types.iter_mut().zip(inferred) {
                *ty = ty.take().or(inferred.filter(is_fixed));
            }
        }
        types.into_iter().collect::<Option<_>>().ok_or(TypeError::Unknown)
    }

    /// The type that the file states for the value `name`, with bound dimensions.
    fn stated_type(&self, name: &str) -> Option<TensorType> {
        let bind = |symbol: &str, axis| bound_size(self.options.bind_dims, name, axis, Some(symbol));
        tensor::tensor_type(self.declared.get(name).copied(), bind).ok()
    }

    /// A model of one node, whose outputs are those that the file names.
    fn model_of(
        &self,
        node: &NodeProto,
        mut alone: NodeProto,
        (domain, version): (&str, i64),
        inputs: &[Option<TensorId>],
    ) -> Result<ModelProto, Message> {
        let mut graph = GraphProto { name: Some("node".to_string()), ..GraphProto::default() };
        alone.input = Vec::new();
        for (at, input) in inputs.iter().enumerate() {
            let Some(input) = input else {
                alone.input.push(String::new());
                continue;
            };
            let name = format!("x{at}");
            let tensor = self.graph.tensor(*input);
            match &tensor.origin {
                Origin::Constant(data) if data.bytes().len() <= MAX_CONSTANT_BYTES => {
                    graph.initializer.push(TensorProto {
                        name: Some(name.clone()),
                        dims: data.shape().iter().filter_map(|size| i64::try_from(*size).ok()).collect(),
                        data_type: Some(tensor::element_type(data.dtype())?),
                        raw_data: Some(data.bytes().clone()),
                        ..TensorProto::default()
                    });
                }
                _ => {
                    graph.input.push(ValueInfoProto { name: Some(name.clone()), r#type: Some(type_proto(&tensor.ty)?) })
                }
            }
            alone.input.push(name);
        }
        let output = |(at, name): (usize, &String)| if name.is_empty() { String::new() } else { format!("y{at}") };
        alone.output = node.output.iter().enumerate().map(output).collect();
        let untyped = |name: &String| ValueInfoProto { name: Some(name.clone()), ..ValueInfoProto::default() };
        graph.output = alone.output.iter().filter(|name| !name.is_empty()).map(untyped).collect();
        graph.node = vec![alone];
        let main = self.versions.get("").copied().unwrap_or(if domain.is_empty() { version } else { 1 });
        let set = |domain: &str, version| OperatorSetIdProto {
            domain: (!domain.is_empty()).then(|| domain.to_string()),
            version: Some(version),
        };
        let mut sets = vec![set("", main)];
        if !domain.is_empty() {
            sets.push(set(domain, version));
        }
        Ok(ModelProto {
            ir_version: Some(ir_version(main)),
            opset_import: sets,
            graph: Some(graph),
            ..ModelProto::default()
        })
    }

    /// The types of the first `count` outputs of `model`. An engine reports a value of unknown rank as a scalar, so
    /// scalars are confirmed by the type of their shape.
    fn infer(&mut self, mut model: ModelProto, count: usize) -> Result<Vec<Option<TensorType>>, Message> {
        let mut types = self.ask(&model)?.to_vec();
        types.resize(count, None);
        if !types.iter().flatten().any(|ty| ty.shape.rank() == 0) {
            return Ok(types);
        }
        if let Some(graph) = &mut model.graph {
            for at in 0..graph.output.len() {
                let name = graph.output[at].name.clone().unwrap_or_default();
                let shape = format!("{name}_shape");
                graph.node.push(NodeProto {
                    op_type: Some("Shape".to_string()),
                    input: vec![name],
                    output: vec![shape.clone()],
                    ..NodeProto::default()
                });
                graph.output.push(ValueInfoProto { name: Some(shape), ..ValueInfoProto::default() });
            }
        }
        let shapes = self.ask(&model)?;
        let is_scalar = |at: usize| match shapes.get(count + at) {
            Some(Some(ty)) => ty.shape.fixed().is_some_and(|dims| dims.iter().eq([&0])),
            _ => false,
        };
        for (at, ty) in types.iter_mut().enumerate() {
            *ty = ty.take().filter(|ty| ty.shape.rank() > 0 || is_scalar(at));
        }
        Ok(types)
    }

    /// The engine's answer about `model`, cached for equal models.
    fn ask(&mut self, model: &ModelProto) -> Result<Rc<[Option<TensorType>]>, Message> {
        let bytes = model.encode_to_vec();
        let key = blake3::hash(&bytes);
        if let Some(known) = self.answers.get(&key) {
            return known.clone();
        }
        self.charge_preparation()?;
        let answer = (self.options.infer_types)(&bytes).map(Rc::from);
        self.answers.insert(key, answer.clone());
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use edgecut_graph::{DType, Dim, Graph};

    use super::*;
    use crate::{
        Content, ImportOptions, import,
        test_models::{FLOAT, info, int, model, node},
    };

    /// What is read where an engine answers by `infer`, and the models that it was asked about.
    fn read(
        model: &ModelProto,
        infer: impl Fn(&ModelProto) -> Result<Vec<Option<TensorType>>, String>,
    ) -> (Result<Graph, String>, Vec<ModelProto>) {
        let asked = RefCell::new(Vec::new());
        let infer_types = |bytes: &[u8]| {
            let model = ModelProto::decode(bytes).unwrap();
            asked.borrow_mut().push(model.clone());
            infer(&model)
        };
        let evaluate = |_: &Graph, _: &Content<'_>| Err("nothing is computed here".to_string());
        let options = ImportOptions { infer_types: &infer_types, ..ImportOptions::new(&evaluate) };
        let read = import("m.onnx", model.encode_to_vec().into(), &options);
        (read.map(|read| read.graph).map_err(|error| error.to_string()), asked.into_inner())
    }

    fn wonders() -> ModelProto {
        let wonder = |input, output, n| node("Wonder", &[input, "k"], &[output], vec![int("n", n)]);
        let nodes = vec![wonder("x", "a", 1), wonder("a", "b", 1), wonder("b", "y", 2)];
        let mut made = model(&[info("x", FLOAT, &["2", "3"])], nodes, &[info("y", FLOAT, &["p", "q"])]);
        made.graph.as_mut().unwrap().initializer.push(TensorProto {
            name: Some("k".to_string()),
            data_type: Some(7),
            dims: vec![1],
            int64_data: vec![5],
            ..TensorProto::default()
        });
        made
    }

    #[test]
    fn an_engine_is_asked_once_a_kind() {
        let ty = TensorType::of(DType::F32, &[2, 3]);
        let (read, asked) = read(&wonders(), |_| Ok(vec![Some(TensorType::of(DType::F32, &[2, 3]))]));
        let graph = read.unwrap();
        assert_eq!(graph.operators().len(), 3);
        assert_eq!(graph.tensor(graph.outputs[0]).ty, ty);
        assert_eq!(asked.len(), 2);
        let graph = asked[0].graph.as_ref().unwrap();
        assert_eq!(graph.node[0].input, ["x0", "x1"]);
        assert_eq!((graph.input.len(), graph.initializer[0].name.as_deref()), (1, Some("x1")));
        assert_eq!(asked[0].opset_import[0].version, Some(17));
    }

    #[test]
    fn what_an_engine_does_not_know_is_refused() {
        for (answer, expected) in [
            (
                Err("ONNX Runtime is not installed".to_string()),
                "is not supported, and the file does not state the type",
            ),
            (
                Ok(vec![Some(TensorType::new(DType::F32, [Dim::Known(2), Dim::Any].into_iter().collect()))]),
                "depend on data",
            ),
            (Ok(vec![None]), "depend on data"),
            // A scalar whose shape has no known length: its rank is not known.
            (Ok(vec![Some(TensorType::of(DType::F32, &[]))]), "depend on data"),
        ] {
            let error = read(&wonders(), |_| answer.clone()).0.unwrap_err();
            assert!(error.starts_with("m.onnx: Wonder `Wonder_1` in graph `main`: operator Wonder"), "{error}");
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn scalars_are_confirmed() {
        let answer = |model: &ModelProto| {
            let scalar = TensorType::of(DType::F32, &[]);
            let outputs = model.graph.as_ref().unwrap().output.len();
            Ok([scalar, TensorType::of(DType::I64, &[0])].into_iter().take(outputs).map(Some).collect())
        };
        let graph = read(&wonders(), answer).0.unwrap();
        assert_eq!(graph.tensor(graph.outputs[0]).ty, TensorType::of(DType::F32, &[]));
    }
}
