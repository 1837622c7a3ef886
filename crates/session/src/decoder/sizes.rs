//! A decoder's file, and the sizes of the dimensions that it leaves open: one sequence, the tokens of a step, and states
//! with room for the whole context.

use std::{borrow::Cow, path::Path};

use edgecut_onnx::{is_onnx, open_inputs};
use edgecut_ops::passes::{
    bindings::{OpenDim, OpenInput},
    retype::{BindDim, bound_size},
};

use super::config::{FILE_NAME, GenaiConfig, InputNames, layer};
use crate::{Error, ModelOptions, input};

/// The longest context that a step has room for unless an option asks for more: states take memory in proportion.
const DEFAULT_CONTEXT: u64 = 2048;

/// Where a model is, and how it is read.
pub(crate) struct Located<'a> {
    pub file: Cow<'a, Path>,
    pub options: Cow<'a, ModelOptions>,
}

/// The file of the model at `path`, and the options to read it with. Decoders are a folder with `genai_config.json`, the
/// file that it names, and a file with options `context` or `prompt`. The sizes of their dimensions are added to the
/// options.
///
/// # Errors
/// If the folder has no decoder, its configuration cannot be read, or an option does not fit the model.
pub(crate) fn located<'a>(path: &'a Path, options: &'a ModelOptions) -> Result<Located<'a>, Error> {
    let is_folder = path.is_dir();
    let config = GenaiConfig::of_model(path)?;
    let file: Cow<'a, Path> = match (&config, is_folder) {
        (Some(config), true) => path.join(&config.model.decoder.filename).into(),
        (None, true) => {
            let what = format!("{}: a folder without {FILE_NAME}: name the model's file", path.display());
            return Err(Error::BadInput(what.into()));
        }
        (_, false) => path.into(),
    };
    let is_asked = options.context.is_some() || options.prompt.is_some();
    if config.is_none() && !is_asked {
        return Ok(Located { file, options: Cow::Borrowed(options) });
    }
    let names = config.as_ref().map(|config| config.model.decoder.inputs.clone()).unwrap_or_default();
    let longest = config.as_ref().and_then(|config| config.model.context_length);
    let sizes = Sizes {
        context: options
            .context
            .unwrap_or_else(|| longest.map_or(DEFAULT_CONTEXT, |longest| longest.min(DEFAULT_CONTEXT))),
        step: options.prompt.unwrap_or(1),
        head: config.as_ref().and_then(|config| config.model.decoder.head_size),
        names: &names,
    };
    sizes.check(longest)?;
    let bytes = input::read(&file)?;
    if !is_onnx(&bytes) {
        let what = format!("{}: options `context` and `prompt` are of decoders in ONNX", file.display());
        return Err(Error::BadInput(what.into()));
    }
    let open = open_inputs(&file.display().to_string(), bytes.into()).map_err(Error::bad_input)?;
    let given: Vec<BindDim> = options.bindings()?.iter().flat_map(|binding| binding.dims().to_vec()).collect();
    let mut options = options.clone();
    options.bind_dim.extend(sizes.of(&open, &given).into_iter().map(Into::into));
    Ok(Located { file, options: Cow::Owned(options) })
}

/// `options`, which give the sizes of a step of the decoder at `path`, for a step of `step` tokens; `None` if the file fixes the
/// number of tokens. Profiles of such steps are next to those of the model, not in their place.
///
/// # Errors
/// If the file or its configuration cannot be read.
pub(crate) fn with_step(path: &Path, options: &ModelOptions, step: u64) -> Result<Option<ModelOptions>, Error> {
    let config = GenaiConfig::of_model(path)?;
    let names = config.map(|config| config.model.decoder.inputs).unwrap_or_default();
    let bytes = input::read(path)?;
    if !is_onnx(&bytes) {
        return Ok(None);
    }
    let open = open_inputs(&path.display().to_string(), bytes.into()).map_err(Error::bad_input)?;
    let of_tokens = open.iter().filter(|input| [&names.input_ids, &names.position_ids].contains(&&input.name));
    let mut dims: Vec<BindDim> = options.binding()?.dims().to_vec();
    let mut is_open = false;
    for input in of_tokens {
        let Some(OpenDim::Open(symbol)) = input.dims.get(1) else { continue };
        is_open |= input.name == names.input_ids;
        dims.retain(|dim| match dim {
            BindDim::All(_) => true,
            BindDim::One { tensor, axis, .. } => *tensor != input.name || *axis != 1,
            BindDim::Symbol { name, .. } => Some(name) != symbol.as_ref(),
        });
        dims.push(BindDim::of(&input.name, 1, symbol.as_deref(), step));
    }
    let bind_dim = dims.into_iter().map(Into::into).collect();
    let sized = ModelOptions { bind_dim, context: None, prompt: None, is_one_of_several: true, ..options.clone() };
    Ok(is_open.then_some(sized))
}

/// The sizes of a step.
struct Sizes<'a> {
    /// The tokens that the states have room for.
    context: u64,
    /// The tokens of a step.
    step: u64,
    /// The size of a head, where the file leaves it open.
    head: Option<u64>,
    names: &'a InputNames,
}

impl Sizes<'_> {
    /// Checks the sizes against `longest`, the longest context of the model, if it is known.
    fn check(&self, longest: Option<u64>) -> Result<(), Error> {
        let Sizes { context, step, .. } = self;
        let what = match longest {
            _ if *step == 0 => "option `prompt`: expected at least one token".to_string(),
            _ if step > context => {
                format!("option `prompt`: steps of {step} tokens do not fit into a context of {context}")
            }
            Some(longest) if *context > longest => {
                format!("option `context`: the model is for contexts of up to {longest} tokens, not {context}")
            }
            _ => return Ok(()),
        };
        Err(Error::BadInput(what.into()))
    }

    /// The sizes of the dimensions in `open` that `given` leaves open: of a dimension that the file names by its name.
    fn of(&self, open: &[OpenInput], given: &[BindDim]) -> Vec<BindDim> {
        let mut made: Vec<BindDim> = Vec::new();
        for input in open {
            for (axis, dim) in input.dims.iter().enumerate() {
                let OpenDim::Open(symbol) = dim else { continue };
                let known = [given, &made].concat();
                let is_known = bound_size(&known, &input.name, axis, symbol.as_deref()).is_some();
                let Some(size) = self.size(&input.name, axis).filter(|_| !is_known) else { continue };
                made.push(BindDim::of(&input.name, axis, symbol.as_deref(), size));
            }
        }
        made
    }

    /// The size of a dimension of the input `name`, if its role is known.
    fn size(&self, name: &str, axis: usize) -> Option<u64> {
        let InputNames { input_ids, attention_mask, position_ids, past_key_names, past_value_names } = self.names;
        let is_cache = [past_key_names, past_value_names].into_iter().any(|past| layer(name, past).is_some());
        match axis {
            0 if is_cache || [input_ids, attention_mask, position_ids].into_iter().any(|of| of == name) => Some(1),
            1 if name == input_ids || name == position_ids => Some(self.step),
            1 if name == attention_mask => Some(self.context),
            2 if is_cache => Some(self.context),
            3 if is_cache => self.head,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(name: &str, dims: &[&str]) -> OpenInput {
        let dim = |text: &&str| text.parse().map_or_else(|_| OpenDim::Open(Some((*text).into())), OpenDim::Known);
        OpenInput { name: name.into(), dims: dims.iter().map(dim).collect() }
    }

    #[test]
    fn dimensions_get_the_sizes_of_a_step() {
        let names = InputNames::default();
        let sizes = Sizes { context: 64, step: 4, head: Some(8), names: &names };
        let inputs = [
            open("input_ids", &["batch", "sequence"]),
            open("attention_mask", &["batch", "total"]),
            open("past_key_values.0.key", &["batch", "2", "past", "head"]),
            open("other", &["n"]),
        ];
        let text =
            |given: &[BindDim]| sizes.of(&inputs, given).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(text(&[]), "batch=1 sequence=4 total=64 past=64 head=8");
        assert_eq!(text(&["batch=2".parse().unwrap(), "past=16".parse().unwrap()]), "sequence=4 total=64 head=8");
        for (context, step, longest, is_ok) in
            [(64, 1, None, true), (64, 65, None, false), (64, 0, None, false), (64, 1, Some(63), false)]
        {
            let sizes = Sizes { context, step, head: None, names: &names };
            assert_eq!(sizes.check(longest).is_ok(), is_ok, "{context} {step}");
        }
    }
}
