//! A decoder's file, and the sizes of the dimensions that it leaves open: one sequence, the tokens of a step, and states
//! with room for the whole context.

use std::{borrow::Cow, path::Path};

use edgecut_graph::StatePair;
use edgecut_onnx::{OpenModel, is_onnx};
use edgecut_ops::passes::{
    bindings::{OpenDim, OpenInput},
    retype::{BindDim, bound_size},
};
use smol_str::SmolStr;

use super::config::{FILE_NAME, GenaiConfig, InputNames};
use crate::{Error, ModelOptions, input};

/// The longest context that a step has room for unless an option asks for more: states take memory in proportion.
const DEFAULT_CONTEXT: u64 = 2048;

/// The axis of the tokens in a cache: keys and values are [batch, heads, tokens, size].
pub(super) const CACHE_AXIS: usize = 2;

/// Advice where the length of a KV cache is unknown.
pub(crate) const CONTEXT_ADVICE: &str = "the model is a decoder: set the length of its KV cache with option `context`";

/// Whether the file at `path` is a decoder that appends to its KV cache, and `options` do not set the length of the cache.
pub(crate) fn has_unknown_context(path: &Path, options: &ModelOptions) -> bool {
    let Ok(Some(sized)) = SizedDecoder::read(path, options) else { return false };
    let mut appended = sized.open.appended.iter().map(|state| &state.input);
    options.context.is_none()
        && appended.any(|input| sized.names.is_cache(input) && sized.size(input, CACHE_AXIS).is_none())
}

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
    let mut sizes = Sizes {
        appended: Vec::new(),
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
    let open = OpenModel::read(&file.display().to_string(), bytes.into()).map_err(Error::bad_input)?;
    sizes.step = fixed_step(&open.inputs, &names).unwrap_or(sizes.step);
    let growing: Vec<StatePair> =
        open.appended.iter().filter(|state| sizes.is_growing(&open, &state.input)).cloned().collect();
    sizes.appended = growing.iter().map(|state| state.input.clone()).collect();
    let given: Vec<BindDim> = options.bindings()?.iter().flat_map(|binding| binding.dims().to_vec()).collect();
    let mut options = options.clone();
    options.bind_dim.extend(sizes.of(&open.inputs, &given).into_iter().map(Into::into));
    let is_named = |pair: &StatePair| options.state.iter().any(|state| state.input == pair.input);
    let unnamed: Vec<StatePair> = growing.into_iter().filter(|pair| !is_named(pair)).collect();
    options.state.extend(unnamed);
    Ok(Located { file, options: Cow::Owned(options) })
}

/// The tokens of a step, if the file fixes them.
fn fixed_step(inputs: &[OpenInput], names: &InputNames) -> Option<u64> {
    let ids = inputs.iter().find(|input| input.name == names.input_ids)?;
    if let OpenDim::Known(step) = ids.dims.get(1)? { Some(*step) } else { None }
}

/// `options`, which give the sizes of a step of the decoder at `path`, for a step of `step` tokens; `None` if the file fixes the
/// number of tokens. Profiles of such steps are next to those of the model, not in their place.
///
/// # Errors
/// If the file or its configuration cannot be read.
pub(crate) fn with_step(path: &Path, options: &ModelOptions, step: u64) -> Result<Option<ModelOptions>, Error> {
    let Some(mut sized) = SizedDecoder::read(path, options)? else { return Ok(None) };
    let InputNames { input_ids, position_ids, .. } = sized.names.clone();
    let lengths: Vec<(SmolStr, u64)> = sized.appended_cache_lengths(&input_ids);
    for (cache, length) in lengths {
        sized.bind(&cache, CACHE_AXIS, length.saturating_sub(step));
    }
    sized.bind(&position_ids, 1, step);
    Ok(sized.bind(&input_ids, 1, step).then(|| sized.into_options(options)))
}

/// `options` for a step of `step` tokens of the decoder at `path` at the end of a context of `context` tokens: neither `caches` nor
/// the mask has padding. `None` if the file fixes their length, or another number of tokens.
///
/// # Errors
/// If the file or its configuration cannot be read.
pub(crate) fn without_padding(
    path: &Path,
    options: &ModelOptions,
    caches: &[StatePair],
    (step, context): (u64, u64),
) -> Result<Option<ModelOptions>, Error> {
    let Some(mut sized) = SizedDecoder::read(path, options)? else { return Ok(None) };
    let InputNames { input_ids, position_ids, attention_mask, .. } = sized.names.clone();
    let mut is_open = sized.bind(&attention_mask, 1, context);
    sized.bind(&position_ids, 1, step);
    is_open &= sized.bind(&input_ids, 1, step) || sized.size(&input_ids, 1) == Some(step);
    for StatePair { input, .. } in caches {
        let is_appended = sized.open.appended.iter().any(|appended| appended.input == *input);
        let new = if is_appended { step } else { 0 };
        is_open &= sized.bind(input, CACHE_AXIS, context.saturating_sub(new));
    }
    Ok(is_open.then(|| sized.into_options(options)))
}

/// A decoder's file with the sizes that options give its unknown dimensions.
struct SizedDecoder {
    names: InputNames,
    open: OpenModel,
    dims: Vec<BindDim>,
}

impl SizedDecoder {
    /// `None` if the file at `path` is not ONNX.
    fn read(path: &Path, options: &ModelOptions) -> Result<Option<SizedDecoder>, Error> {
        let config = GenaiConfig::of_model(path)?;
        let names = config.map(|config| config.model.decoder.inputs).unwrap_or_default();
        let bytes = input::read(path)?;
        if !is_onnx(&bytes) {
            return Ok(None);
        }
        let open = OpenModel::read(&path.display().to_string(), bytes.into()).map_err(Error::bad_input)?;
        Ok(Some(SizedDecoder { names, open, dims: options.binding()?.dims().to_vec() }))
    }

    fn dim(&self, name: &str, axis: usize) -> Option<&OpenDim> {
        self.open.inputs.iter().find(|input| input.name == name)?.dims.get(axis)
    }

    /// The size of a dimension, if it is known.
    fn size(&self, name: &str, axis: usize) -> Option<u64> {
        match self.dim(name, axis)? {
            OpenDim::Known(size) => Some(*size),
            OpenDim::Open(symbol) => bound_size(&self.dims, name, axis, symbol.as_deref()),
        }
    }

    /// The caches to which a step appends the tokens of the input `ids`, and the length of each afterwards.
    fn appended_cache_lengths(&self, ids: &str) -> Vec<(SmolStr, u64)> {
        let Some(step) = self.size(ids, 1) else { return Vec::new() };
        let context = |input: &SmolStr| Some((input.clone(), self.size(input, CACHE_AXIS)?.saturating_add(step)));
        self.open.appended.iter().filter_map(|state| context(&state.input)).collect()
    }

    /// Gives a dimension another size. Returns whether the file leaves it open.
    fn bind(&mut self, name: &str, axis: usize, size: u64) -> bool {
        let Some(OpenDim::Open(symbol)) = self.dim(name, axis).cloned() else { return false };
        self.dims.retain(|dim| match dim {
            BindDim::All(_) => true,
            BindDim::One { tensor, axis: bound_axis, .. } => *tensor != name || *bound_axis != axis,
            BindDim::Symbol { name, .. } => Some(name) != symbol.as_ref(),
        });
        self.dims.push(BindDim::of(&name.into(), axis, symbol.as_deref(), size));
        true
    }

    fn into_options(self, options: &ModelOptions) -> ModelOptions {
        let bind_dim = self.dims.into_iter().map(Into::into).collect();
        ModelOptions { bind_dim, context: None, prompt: None, is_one_of_several: true, ..options.clone() }
    }
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
    /// The caches that a step appends to: its input holds only past tokens, i.e. context − step.
    appended: Vec<SmolStr>,
}

impl Sizes<'_> {
    /// Whether the input `name` is a cache to which a step appends, of a length that the file leaves open.
    fn is_growing(&self, open: &OpenModel, name: &str) -> bool {
        let dims = open.inputs.iter().find(|input| input.name == name).map(|input| &input.dims[..]);
        self.names.is_cache(name) && matches!(dims, Some([_, _, OpenDim::Open(_), _]))
    }

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
        let InputNames { input_ids, attention_mask, position_ids, .. } = self.names;
        let is_cache = self.names.is_cache(name);
        match axis {
            0 if is_cache || [input_ids, attention_mask, position_ids].into_iter().any(|of| of == name) => Some(1),
            1 if name == input_ids || name == position_ids => Some(self.step),
            1 if name == attention_mask => Some(self.context),
            CACHE_AXIS if is_cache && self.appended.iter().any(|of| of == name) => {
                Some(self.context.saturating_sub(self.step))
            }
            CACHE_AXIS if is_cache => Some(self.context),
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
        let mut sizes = Sizes { context: 64, step: 4, head: Some(8), names: &names, appended: Vec::new() };
        let inputs = [
            open("input_ids", &["batch", "sequence"]),
            open("attention_mask", &["batch", "total"]),
            open("past_key_values.0.key", &["batch", "2", "past", "head"]),
            open("other", &["n"]),
        ];
        let text = |sizes: &Sizes<'_>, given: &[BindDim]| {
            sizes.of(&inputs, given).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(text(&sizes, &[]), "batch=1 sequence=4 total=64 past=64 head=8");
        let given = ["batch=2".parse().unwrap(), "past=16".parse().unwrap()];
        assert_eq!(text(&sizes, &given), "sequence=4 total=64 head=8");
        sizes.appended = vec!["past_key_values.0.key".into()];
        assert_eq!(text(&sizes, &[]), "batch=1 sequence=4 total=64 past=60 head=8");
        for (context, step, longest, is_ok) in
            [(64, 1, None, true), (64, 65, None, false), (64, 0, None, false), (64, 1, Some(63), false)]
        {
            let sizes = Sizes { context, step, head: None, names: &names, appended: Vec::new() };
            assert_eq!(sizes.check(longest).is_ok(), is_ok, "{context} {step}");
        }
    }
}
