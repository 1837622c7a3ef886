//! Reads a Relay file: bytes → syntax → graph.

use crate::{
    Fault, ImportError, ImportOptions, ParseMode, Span, TypeChecks, ast, error, lower, metadata, parse::parse_module,
    strict,
};
use edgecut_graph::Graph;
use smol_str::SmolStr;

/// Reads a Relay file into a graph. `name` is the file name used in messages.
///
/// # Errors
/// If the text cannot be parsed, the type of an operator is wrong or unknown, or control flow depends on data. Errors
/// have a line and a column.
pub fn import(name: &str, bytes: &[u8], options: &ImportOptions<'_>) -> Result<Import, ImportError> {
    import_located(bytes, options).map_err(|error| error.in_file(name, bytes)).map(|lowered| Import {
        graph: lowered.graph,
        name: name.to_string(),
        hash: blake3::hash(bytes).to_hex().to_string(),
        checks: lowered.checks,
        guessed: lowered.guessed,
    })
}

/// An imported model.
#[derive(Debug, Clone, PartialEq)]
pub struct Import {
    pub graph: Graph,
    /// The file name that the caller passed.
    pub name: String,
    /// BLAKE3 hash of the file, in hexadecimal: identifies the model in profiles and plans.
    pub hash: String,
    pub checks: TypeChecks,
    /// Arguments that are parameters by their names or uses: Relay does not say which are.
    pub guessed: Vec<SmolStr>,
}

/// Parses a Relay file: no types, no metadata, nothing inlined.
///
/// # Errors
/// If the text violates the grammar or uses undefined names.
pub fn parse<'a>(name: &str, bytes: &'a [u8], mode: ParseMode) -> Result<ast::Module<'a>, ImportError> {
    let module = text_of(bytes).and_then(|text| parse_text(text, mode));
    module.map_err(|error| error.in_file(name, bytes))
}

fn parse_text(text: &str, mode: ParseMode) -> error::Result<ast::Module<'_>> {
    let module = parse_module(text, mode)?;
    if mode == ParseMode::Strict {
        strict::check(&module)?;
    }
    Ok(module)
}

/// Number of leading bytes that are checked for binary formats.
const SNIFFED_BYTES: usize = 64;

fn text_of(bytes: &[u8]) -> error::Result<&str> {
    if u32::try_from(bytes.len()).is_err() {
        return Err(Fault::TooLong(bytes.len()).nowhere());
    }
    if let Some(at) = bytes.iter().take(SNIFFED_BYTES).position(|byte| *byte < b' ' && !byte.is_ascii_whitespace()) {
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
