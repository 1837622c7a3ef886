//! What ONNX Runtime calls the operators of a model: of the model's own file, and of the file that an export writes.

use edgecut_graph::Graph;
use edgecut_interop::ort_names::OrtNames;
use edgecut_onnx::{ExportOptions, KernelNames, export, is_onnx, kernel_names};

use crate::{
    Error, Model, input,
    sharding::{NamedEntry, entry_operators},
};

/// The names of the operators of `model` in sessions of its file, and in sessions of what it is exported as.
///
/// # Errors
/// If the file can no longer be read.
pub(crate) fn ort_names(model: &Model) -> Result<OrtNames, Error> {
    let (graph, mut names) = (model.graph(), OrtNames::default());
    let bytes = input::read(&model.path)?;
    if is_onnx(&bytes) {
        let file = model.path.display().to_string();
        let kernels = kernel_names(&file, bytes.into()).map_err(Error::bad_input)?;
        add_file(&mut names, graph, &kernels);
    }
    // A model that cannot be exported, or not without its weights, is not one that a session read.
    if let Ok(exported) = export(graph, &ExportOptions::new(&|_| Ok(None))) {
        for entry in exported.entries() {
            names.add(&entry.unique_name, entry.operators);
            names.add(entry.name, entry.operators);
        }
    }
    Ok(names)
}

/// Adds the names of `kernels`, which `graph` was read from.
fn add_file(names: &mut OrtNames, graph: &Graph, kernels: &[KernelNames]) {
    let entries: Vec<NamedEntry<'_>> =
        kernels.iter().map(|kernel| NamedEntry { name: &kernel.name, outputs: &kernel.outputs }).collect();
    for (kernel, operators) in kernels.iter().zip(entry_operators(graph, &entries)) {
        names.add(&kernel.unique, &operators);
        names.add(&kernel.profiled, &operators);
        // ONNX Runtime names some kernels that it makes after a result.
        kernel.outputs.iter().for_each(|output| names.add(output, &operators));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{DType, Operator, OperatorId, Origin, TensorType};

    #[test]
    fn operators_are_found_by_name_and_by_result() {
        let (ty, mut graph) = (TensorType::of(DType::F32, &[4]), Graph::new());
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let named = Operator::new("nn.relu", [x]).with_layer(Some("/act/Relu".into()));
        let named = graph.add_operator(named, std::slice::from_ref(&ty));
        let y = graph.operator(named).outputs[0];
        let unnamed = graph.add_operator(Operator::new("tanh", [y]), std::slice::from_ref(&ty));
        let z = graph.operator(unnamed).outputs[0];
        (graph.tensor_mut(y).name, graph.tensor_mut(z).name) = ("y".into(), "z".into());
        let kernel = |name: &str, profiled: &str, output: &str| KernelNames {
            name: name.to_string(),
            profiled: profiled.to_string(),
            unique: format!("{profiled}_1"),
            outputs: vec![output.to_string()],
        };
        let kernels =
            [kernel("/act/Relu", "/act/Relu", "y"), kernel("", "Tanh_1", "z"), kernel("/gone", "/gone", "folded")];
        let mut names = OrtNames::default();
        add_file(&mut names, &graph, &kernels);
        let found = |name: &str| names.of(name).map(<[OperatorId]>::to_vec);
        assert_eq!([found("/act/Relu"), found("y")], [Some(vec![named]), Some(vec![named])]);
        assert_eq!([found("Tanh_1"), found("Tanh_1_1"), found("z")], [(); 3].map(|()| Some(vec![unnamed])));
        assert_eq!([found("/gone"), found("other")], [Some(Vec::new()), None]);
    }
}
