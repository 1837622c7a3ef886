//! TVM Relay text: reading it into the typed graph.
//!
//! [`import`] goes from bytes to a [`Graph`] in one pass over the text: `token` and `parse` make a module in
//! arenas, `lower` evaluates its entry function into the graph, inlining everything and inferring every type by
//! `ops`; `ty=` comments only check the result. `metadata`, `record` and `params` read constants and `.params`
//! files. Knows `graph` and `ops`; knows nothing of devices, plans or terminals.

pub mod ast;
mod error;
mod lower;
mod metadata;
pub mod numbers;
mod params;
mod parse;
pub mod print;
mod record;
mod strict;
mod suggest;
mod text;
mod token;

pub use error::{Fault, ImportError, Span, Spot};
pub use params::Params;
pub use token::Mode;

use crate::{
    graph::{Graph, Place, TensorData},
    ops::retype::BindDim,
};

/// Reads a Relay file into its graph. `name` is what messages call the file.
///
/// # Errors
/// If the text cannot be read, an operator's type is wrong or unknown, or the program has control flow that
/// depends on data. The error knows its line and column.
pub fn import(name: &str, bytes: &[u8], options: &ImportOptions<'_>) -> Result<Import, ImportError> {
    import_located(bytes, options).map_err(|error| error.in_file(name, bytes)).map(|lowered| Import {
        graph: lowered.graph,
        name: name.to_string(),
        hash: blake3::hash(bytes).to_hex().to_string(),
        checks: lowered.checks,
    })
}

/// Computes the only output of a graph, or says why not: which of its inputs is not known.
pub type Evaluate<'a> = dyn Fn(&Graph) -> Result<TensorData, String> + 'a;

/// How to read a file.
#[derive(Clone, Default)]
pub struct ImportOptions<'a> {
    pub mode: Mode,
    /// Content of parameters: what it names is a parameter, and must fit its type.
    pub params: Option<&'a Params>,
    /// Sizes of dimensions that the file leaves unknown.
    pub bind_dims: Vec<BindDim>,
    pub external: ExternalCalls,
    /// Computes conditions of `if`s that depend on inputs; without it they are refused.
    pub evaluate: Option<&'a Evaluate<'a>>,
}

/// What becomes of a call to a function that another compiler provides (`Compiler="…"`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExternalCalls {
    /// Its body is inlined, so that it runs here.
    #[default]
    Inline,
    /// It stays one opaque operator, as in TVM's own tables.
    Keep,
}

/// A model that has been read.
#[derive(Debug, Clone, PartialEq)]
pub struct Import {
    pub graph: Graph,
    /// What the caller named the file.
    pub name: String,
    /// BLAKE3 of the file's bytes, in hexadecimal: what profiles and plans know the model by.
    pub hash: String,
    pub checks: TypeChecks,
}

/// How far the types that the file states agree with the inferred ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypeChecks {
    /// `ty=` comments and annotations that were compared.
    pub checked: usize,
    pub disagreements: Vec<Disagreement>,
}

/// A type in the file that inference does not confirm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disagreement {
    pub place: Place,
    /// What the file says.
    pub theirs: String,
    /// The inferred type, or why there is none.
    pub ours: String,
}

/// Reads a Relay file into its syntax alone: no types, no metadata, nothing inlined.
///
/// # Errors
/// If the text breaks the grammar or uses names that are not bound.
pub fn parse<'a>(name: &str, bytes: &'a [u8], mode: Mode) -> Result<ast::Module<'a>, ImportError> {
    let module = text_of(bytes).and_then(|text| parse_text(text, mode));
    module.map_err(|error| error.in_file(name, bytes))
}

fn parse_text(text: &str, mode: Mode) -> error::Result<ast::Module<'_>> {
    let module = parse::parse(text, mode)?;
    if mode == Mode::Strict {
        strict::check(&module)?;
    }
    Ok(module)
}

/// Bytes at the beginning of a file that tell text from the formats of other tools.
const LOOKED_AT: usize = 64;

fn text_of(bytes: &[u8]) -> error::Result<&str> {
    if u32::try_from(bytes.len()).is_err() {
        return Err(Fault::TooLong(bytes.len()).nowhere());
    }
    if let Some(at) = bytes.iter().take(LOOKED_AT).position(|byte| *byte < b' ' && !byte.is_ascii_whitespace()) {
        return Err(Fault::NotText.at(Span::new(at, at + 1)));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        Fault::NotText.at(Span::new(at, at + 1))
    })
}

fn import_located(bytes: &[u8], options: &ImportOptions<'_>) -> error::Result<lower::Lowered> {
    let text = text_of(bytes)?;
    let module = parse_text(text, options.mode)?;
    let metadata = match module.metadata {
        Some(json) => Some(metadata::Metadata::read(json).map_err(|error| {
            let at = bytes.len() - json.len() + error.offset;
            Fault::Metadata(error.what).at(Span::new(at, at + 1))
        })?),
        None => None,
    };
    let code = &text[..text.len() - module.metadata.map_or(0, str::len)];
    lower::lower(&module, metadata.as_ref(), code, options)
}
