//! Files of a model: ONNX, and the parameters of Relay text.

use std::path::Path;

use edgecut_graph::{Graph, Origin, TensorId};
use edgecut_onnx::{ExportOptions as OnnxOptions, export};
use edgecut_relay::{Params, print::parameter_names};

use super::{
    file::{Content, Export, ExportedFile},
    options::ExportOptions,
};
use crate::{Error, Model, model::contents::Contents};

/// The model as one ONNX file.
pub(super) fn onnx(model: &Model, options: &ExportOptions) -> Result<Export, Error> {
    let (graph, contents) = (model.graph(), model.contents(model.graph())?);
    let path = options.onnx_file()?;
    let content = |id: TensorId| match options.seeded_weights {
        true => Ok(None),
        false => contents.of(id).map(Some).map_err(|error| error.to_string()),
    };
    let onnx = OnnxOptions { content: &content, interface: model.interface.as_ref() };
    let model = export(graph, &onnx).map_err(Error::bad_input)?;
    let (operators, composed) = (graph.operators().len(), model.compositions.len());
    let summary = format!("{}: {operators} operators, {composed} of them as compositions of several", path.display());
    let content = Content::Onnx { model: Box::new(model), external_data: options.external_data };
    Ok(Export { files: vec![ExportedFile::new(path, content)], text: None, summary: vec![summary] })
}

/// The parameters of the model, for its Relay text at `path`.
pub(super) fn params(model: &Model, path: &Path) -> Result<ExportedFile, Error> {
    let graph = model.graph();
    let named = parameter_names(graph).into_iter().filter(|(id, _)| is_parameter(graph, *id));
    params_file(path, named, &model.contents(graph)?)
}

fn is_parameter(graph: &Graph, id: TensorId) -> bool {
    matches!(graph.tensor(id).origin, Origin::Parameter)
}

/// The contents of tensors, by the names that the module at `path` has for them, as a file next to it.
pub(super) fn params_file(
    path: &Path,
    named: impl Iterator<Item = (TensorId, String)>,
    contents: &Contents<'_>,
) -> Result<ExportedFile, Error> {
    let content = |(id, name): (TensorId, String)| Ok((name, contents.of(id).map_err(Error::bad_input)?));
    let params: Params = named.map(content).collect::<Result<_, Error>>()?;
    Ok(ExportedFile::new(path.with_extension("params"), Content::Bytes(params.write())))
}
