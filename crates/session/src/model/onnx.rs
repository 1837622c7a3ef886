//! Import of ONNX models: contents of inputs, parameters and defaults, and notices about those that decided something.

use std::path::Path;

use bytes::Bytes;
use smol_str::SmolStr;

use super::given::Given;
use crate::{Error, input::max_bytes};
use edgecut_engine::{Engine, EngineOptions, GeneratedContents, TractEngine};
use edgecut_graph::{Graph, TensorData};
use edgecut_onnx::{Content, Decision, Defaults, ImportOptions, Imported, UnknownDim, import};
use edgecut_ops::passes::retype::{BindDim, bound_size};
use edgecut_relay::Params;

/// Maximum number of listed decisions of one kind.
const LISTED: usize = 4;

/// What the options give for a model's inputs and parameters.
pub(super) struct OnnxSource<'a> {
    pub bind_dims: Vec<BindDim>,
    pub given: &'a Given,
    pub params: &'a Params,
    pub is_seeded: &'a dyn Fn(&str) -> bool,
    pub defaults: Defaults,
    /// Guess the sizes of dimensions that neither the file nor an option gives.
    pub guess_dims: bool,
    /// The ONNX Runtime library, if an option names it.
    pub library: Option<&'a Path>,
}

/// Imports the model at `path`, whose content is `bytes`. Also returns notices about contents that decided something.
pub(super) fn read_onnx(
    path: &Path,
    bytes: Vec<u8>,
    source: &OnnxSource<'_>,
) -> Result<(Imported, Vec<String>), Error> {
    let OnnxSource { given, params, is_seeded, defaults, guess_dims, library, .. } = *source;
    let name = path.display().to_string();
    let engine = TractEngine::new(1).map_err(Error::failed)?;
    let compute = |graph: &Graph, content: &Content<'_>| evaluate(&engine, graph, content);
    let engines = EngineOptions { library: library.map(Path::to_path_buf), ..EngineOptions::default() };
    let infer_types = |model: &[u8]| engines.output_types(model).map_err(|error| error.to_string());
    let options = ImportOptions {
        infer_types: &infer_types,
        bind_dims: &source.bind_dims,
        inputs: &|name| given.get(name).cloned(),
        input_type: &|name| given.ty(name).cloned(),
        parameters: &|name| params.get(name).cloned(),
        is_parameter: is_seeded,
        defaults,
        file: Some(path),
        max_external_bytes: max_bytes(),
        ..ImportOptions::new(&compute)
    };
    let bytes = Bytes::from(bytes);
    let imported = match guess_dims {
        false => import(&name, bytes, &options),
        true => {
            let guessed = import(&name, bytes.clone(), &ImportOptions { guess_dims: true, ..options });
            // The model may not accept guessed sizes.
            guessed.or_else(|_| import(&name, bytes, &options))
        }
    };
    let imported = imported.map_err(Error::bad_input)?;
    let notices = notes(&imported).into_iter().map(|line| format!("{name}: {line}")).collect();
    Ok((imported, notices))
}

/// Whether other contents of inputs can lead to another graph.
pub(super) fn is_decided_by_given(imported: &Imported) -> bool {
    let is_given = |decision: &Decision| !decision.is_generated;
    imported.is_sized || !imported.replaced.is_empty() || imported.decisions.iter().any(is_given)
}

/// Notices for the user about contents that decided something.
fn notes(imported: &Imported) -> Vec<String> {
    let quoted = |names: &[SmolStr]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let mut lines = Vec::new();
    if !imported.guessed.is_empty() {
        let dims: Vec<UnknownDim> = imported.interface.unknown_dims().collect();
        let is_guessed = |dim: &UnknownDim| bound_size(&imported.guessed, &dim.input, dim.axis, dim.symbol.as_deref());
        let dims: Vec<UnknownDim> = dims.into_iter().filter(|dim| is_guessed(dim).is_some()).collect();
        lines.push(format!("sizes of unknown dimensions are guessed: {}", UnknownDim::options(&dims)));
    }
    if let [first, ..] = &imported.replaced[..] {
        let (values, are) = if imported.replaced.len() == 1 { ("default", "is") } else { ("defaults", "are") };
        let names = quoted(&imported.replaced);
        lines.push(format!("the {values} of {names} {are} replaced by option `inputs` (array `in_{first}`)"));
    }
    for is_generated in [false, true] {
        let of = imported.decisions.iter().filter(|decision| decision.is_generated == is_generated);
        let of: Vec<&Decision> = of.collect();
        for decision in of.iter().take(LISTED) {
            let Decision { what, inputs, .. } = decision;
            let by = quoted(inputs);
            lines.push(match is_generated {
                false => format!("{what} is folded, by the content of {by}"),
                true => format!(
                    "{what} is folded, by the generated content of {by}: give another with option `inputs` (array `in_{}`)",
                    inputs.first().map(|name| name.as_str()).unwrap_or_default()
                ),
            });
        }
        if let Some(more) = of.len().checked_sub(LISTED + 1) {
            lines.push(format!("and {} more are folded likewise", more + 1));
        }
    }
    lines
}

/// Computes the outputs of `graph`. Contents that `given` lacks are generated.
fn evaluate(engine: &dyn Engine, graph: &Graph, given: &Content<'_>) -> Result<Vec<TensorData>, String> {
    let generated = GeneratedContents::of(graph);
    let content = |id| given(&graph.tensor(id).name).map_or_else(|| generated.get(id), Ok);
    engine.evaluate(graph, &content).map_err(|error| error.to_string())
}
