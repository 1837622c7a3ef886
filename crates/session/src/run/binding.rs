//! Selection of a binding by the shapes of the inputs: the smallest binding with these shapes, or the smallest that the
//! inputs can be padded to. Outputs of padded inputs are cropped.

use std::path::Path;

use edgecut_graph::{Dim, TensorData, TensorType};
use edgecut_onnx::{OpenModel, UnknownDim, is_onnx};
use edgecut_ops::passes::bindings::{Binding, OpenDim, OpenInput, Smallest, smallest};
use edgecut_values::resized;

use super::options::Padding;
use crate::{
    Error, Events, Model, ModelOptions, decoder::sizes::located, error::Message, input as file, model::given::Given,
};

/// The selected binding of a run.
pub struct ChosenBinding {
    /// Its index in the bindings to select from.
    pub at: usize,
    /// The binding as text, if there were several.
    pub label: Option<String>,
    /// The contents of the inputs, padded if necessary.
    given: Given,
    /// The output types without padding, if inputs are padded and the types are known.
    output_types: Option<Vec<TensorType>>,
}

/// A model and the bindings to select from. The sizes in `options` are ignored.
pub(super) struct BindingChoice<'a> {
    pub model: &'a Path,
    pub options: &'a ModelOptions,
    pub bindings: &'a [Binding],
    /// Whether a run returns the outputs that are states.
    pub returns_states: bool,
    pub events: &'a Events,
}

/// The inputs of a model with unknown dimensions, and the given contents.
struct Inputs {
    open: Vec<OpenInput>,
    given: Given,
}

impl ChosenBinding {
    /// The binding of a model that was already read.
    pub(super) fn sole() -> ChosenBinding {
        ChosenBinding { at: 0, label: None, given: Given::default(), output_types: None }
    }

    /// Reads the model with the contents for this binding.
    pub(super) fn open(&self, path: &Path, options: &ModelOptions) -> Result<Model, Error> {
        Model::open_with(path, options, self.given.clone())
    }

    /// `outputs` without the padding.
    pub(super) fn crop(&self, outputs: Vec<TensorData>, events: &Events) -> Vec<TensorData> {
        let Some(types) = &self.output_types else { return outputs };
        let crop = |(at, output): (usize, TensorData)| match types.get(at).and_then(|ty| crop_output(&output, ty)) {
            Some(cropped) => cropped,
            None => {
                events.notice(format_args!("output {at} is not cropped: its size without padding is not known"));
                output
            }
        };
        outputs.into_iter().enumerate().map(crop).collect()
    }
}

impl BindingChoice<'_> {
    /// Selects a binding by the shapes of the given inputs. If `padding` allows it, the inputs are padded if no binding
    /// has exactly their shapes.
    ///
    /// # Errors
    /// If no given input has an unknown dimension to select by, or no binding fits the inputs.
    pub fn choose(&self, padding: Padding) -> Result<ChosenBinding, Error> {
        let given = Given::open(self.options.inputs.as_deref())?;
        if padding == Padding::Always && given.is_empty() {
            let what = "option `pad_inputs` has no effect with generated inputs: give some with option `inputs`";
            return Err(Error::BadInput(what.into()));
        }
        let pads = padding != Padding::Never && !given.is_empty();
        if self.bindings.len() == 1 && !pads {
            return Ok(ChosenBinding { at: 0, label: None, given, output_types: None });
        }
        let inputs = Inputs { open: self.open_inputs()?, given };
        if inputs.shapes().next().is_none() && self.bindings.len() > 1 {
            return Err(self.error("no array of option `inputs` has a shape to choose by", self.advice(0)));
        }
        let Smallest { exact, holding } = smallest(self.bindings, &inputs.open, |name| inputs.shape(name));
        let (at, is_padded) = match (exact, holding) {
            (Some(at), _) => (at, false),
            (None, Some(at)) if pads => (at, true),
            (None, Some(at)) => {
                let what = format!("none has exactly the shapes of the inputs ({})", inputs.text());
                let advice = format!(
                    "option `pad_inputs` pads them with zeros to the smallest that holds them, `{}`",
                    self.bindings[at]
                );
                return Err(self.error(&what, advice));
            }
            (None, None) => {
                let what = format!("none holds the inputs ({})", inputs.text());
                let advice = "give smaller inputs, or a binding with larger sizes".to_string();
                return Err(self.error(&what, advice));
            }
        };
        let binding = &self.bindings[at];
        let label = (self.bindings.len() > 1).then(|| binding.to_string());
        if !is_padded {
            label.iter().for_each(|label| self.events.status(format_args!("binding {label}")));
            return Ok(ChosenBinding { at, label, given: inputs.given, output_types: None });
        }
        let shapes = inputs.shapes().map(|(input, shape)| (input.name.clone(), binding.shape(input, &shape))).collect();
        self.events.status(format_args!("binding {binding}: inputs ({}) are padded with zeros", inputs.text()));
        let padded = inputs.given.resized(&shapes)?;
        let output_types = self.output_types(binding, &inputs);
        Ok(ChosenBinding { at, label, given: padded, output_types })
    }

    /// The types of the model's outputs for the unpadded inputs. Emits a notice if they are not known.
    fn output_types(&self, binding: &Binding, inputs: &Inputs) -> Option<Vec<TensorType>> {
        let sized = binding.with_shapes_of(&inputs.open, |name| inputs.shape(name));
        let options = self.options.with_binding(&sized, &[]);
        match Model::open_with(self.model, &options, inputs.given.clone()) {
            Ok(model) => {
                let graph = &model.import.graph;
                let is_state =
                    |name: &str| !self.returns_states && model.states.iter().any(|state| state.output == name);
                let returned =
                    graph.outputs.iter().map(|id| graph.tensor(*id)).filter(|tensor| !is_state(&tensor.name));
                Some(returned.map(|tensor| tensor.ty.clone()).collect())
            }
            Err(error) => {
                let why = error.message().map_or(String::new(), |message| format!(": {message}"));
                let events = self.events;
                events.notice(format_args!(
                    "outputs are not cropped: the model does not accept the sizes of the inputs without padding{why}"
                ));
                None
            }
        }
    }

    fn open_inputs(&self) -> Result<Vec<OpenInput>, Error> {
        let located = located(self.model, self.options)?;
        let bytes = file::read(&located.file)?;
        if is_onnx(&bytes) {
            let open = OpenModel::read(&located.file.display().to_string(), bytes.into());
            let mut inputs = open.map_err(Error::bad_input)?.inputs;
            inputs.retain(|input| input.dims.iter().any(|dim| matches!(dim, OpenDim::Open(_))));
            return Ok(inputs);
        }
        let options = self.options.with_binding(&Binding::default(), &[]);
        let model = Model::open_with(self.model, &options, Given::default())?;
        let graph = &model.import.graph;
        let open = graph.inputs().map(|id| graph.tensor(id)).filter(|tensor| tensor.ty.shape.contains(&Dim::Any));
        let dim = |dim: &Dim| dim.get().map_or(OpenDim::Open(None), OpenDim::Known);
        let input = |tensor: &edgecut_graph::Tensor| OpenInput {
            name: tensor.name.clone(),
            dims: tensor.ty.shape.iter().map(dim).collect(),
        };
        Ok(open.map(input).collect())
    }

    fn advice(&self, at: usize) -> String {
        format!("give inputs, or choose one, such as {}", UnknownDim::options_of(self.bindings[at].dims()))
    }

    fn error(&self, what: &str, advice: String) -> Error {
        let bindings = Binding::list(self.bindings.iter().cloned());
        Error::BadInput(Message::from(format!("the bindings are {bindings}, and {what}: {advice}")))
    }
}

impl Inputs {
    /// The given shape of the input `name`.
    fn shape(&self, name: &str) -> Option<Vec<u64>> {
        self.given.ty(name)?.shape.iter().map(|dim| dim.get()).collect()
    }

    /// The inputs with unknown dimensions that are given, and their shapes.
    fn shapes(&self) -> impl Iterator<Item = (&OpenInput, Vec<u64>)> {
        self.open.iter().filter_map(|input| Some((input, self.shape(&input.name)?)))
    }

    /// [`Inputs::shapes`] as text for messages.
    fn text(&self) -> String {
        let shape = |shape: Vec<u64>| shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("×");
        let named = self.shapes().take(MAX_LISTED).map(|(input, of)| format!("{} {}", input.name, shape(of)));
        let more = if self.shapes().nth(MAX_LISTED).is_some() { ", …" } else { "" };
        named.collect::<Vec<_>>().join(", ") + more
    }
}

/// Maximum number of inputs in a message.
const MAX_LISTED: usize = 4;

/// `output` cropped to the type `ty`; `None` if sizes of `ty` are unknown or larger than those of `output`.
fn crop_output(output: &TensorData, ty: &TensorType) -> Option<TensorData> {
    let sizes: Vec<u64> = ty.shape.iter().map(|dim| dim.get()).collect::<Option<_>>()?;
    let is_part =
        sizes.len() == output.shape().len() && sizes.iter().zip(output.shape()).all(|(size, has)| size <= has);
    resized(output, &sizes).filter(|_| is_part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::DType;

    #[test]
    fn outputs_are_cropped_if_the_size_is_known_and_smaller() {
        let output = TensorData::new(DType::U8, [1, 3], vec![1, 2, 3]).unwrap();
        let ty = |dims: &[Dim]| TensorType::new(DType::U8, dims.iter().copied().collect());
        for (dims, want) in [
            (&[Dim::Known(1), Dim::Known(2)][..], Some(&[1, 2][..])),
            (&[Dim::Known(1), Dim::Known(3)], Some(&[1, 2, 3])),
            (&[Dim::Known(1), Dim::Known(4)], None),
            (&[Dim::Known(1), Dim::Any], None),
            (&[Dim::Known(3)], None),
        ] {
            let cropped = crop_output(&output, &ty(dims));
            assert_eq!(cropped.as_ref().map(|data| data.bytes().as_ref()), want, "{dims:?}");
        }
    }
}
