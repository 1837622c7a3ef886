//! Pattern libraries as TOML: `[[pattern]]` with `name` and `query`, and `[conditions.…]`.

use std::{collections::BTreeMap, ops::Range};

use serde::Deserialize;
use smol_str::SmolStr;
use toml::{Spanned, Value};

use edgecut_graph::{
    Attr, Graph, Origin, TensorId,
    query::{Query, Subject},
};

/// The built-in library.
const BUILT_IN: &str = include_str!("patterns.toml");

/// Relative tolerance of comparisons with constants: models print six digits.
const TOLERANCE: f64 = 1e-4;

/// Patterns in matching order, with the conditions that they use.
#[derive(Debug, Clone)]
pub struct Library {
    patterns: Vec<Pattern>,
    conditions: BTreeMap<String, Condition>,
}

/// A query and the name of its matches.
#[derive(Debug, Clone)]
pub struct Pattern {
    pub name: SmolStr,
    pub query: Query,
}

/// Why a text is not a pattern library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LibraryError {
    pub message: String,
    /// The byte range of the text that is wrong.
    pub span: Option<Range<usize>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    pattern: Vec<PatternText>,
    #[serde(default)]
    conditions: BTreeMap<String, Spanned<BTreeMap<String, Value>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PatternText {
    name: Spanned<String>,
    query: Spanned<String>,
}

/// A predicate on operators or tensors.
#[derive(Debug, Clone, Default)]
struct Condition {
    /// The scalar value of a constant operand, or of the tensor itself.
    constant: Option<f64>,
    /// Whether an operand is a parameter.
    parameter: Option<bool>,
    attributes: Vec<(String, Value)>,
}

impl Library {
    /// Patterns of common layers.
    ///
    /// # Errors
    /// Never: a test parses it.
    pub fn built_in() -> Result<Library, LibraryError> {
        Library::parse(BUILT_IN)
    }

    /// # Errors
    /// If the text is not TOML, has unknown fields, or a query is invalid; with the position.
    pub fn parse(text: &str) -> Result<Library, LibraryError> {
        let file: File =
            toml::from_str(text).map_err(|e| LibraryError { message: e.message().to_string(), span: e.span() })?;
        if file.pattern.is_empty() {
            let message = "no pattern: expected at least one [[pattern]] with `name` and `query`".to_string();
            return Err(LibraryError { message, span: None });
        }
        let mut library = Library { patterns: Vec::new(), conditions: BTreeMap::new() };
        for (name, entries) in file.conditions {
            let span = entries.span();
            let condition = condition(entries.into_inner()).map_err(|message| LibraryError {
                message: format!("condition `{name}`: {message}"),
                span: Some(span),
            })?;
            library.conditions.insert(name, condition);
        }
        for entry in file.pattern {
            library.add(text, &entry)?;
        }
        Ok(library)
    }

    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// Whether a condition holds; unknown conditions never do.
    pub fn holds(&self, name: &str, graph: &Graph, subject: Subject) -> bool {
        let Some(condition) = self.conditions.get(name) else { return false };
        let (tensors, attrs) = match subject {
            Subject::Tensor(tensor) => (vec![tensor], None),
            Subject::Operator(id) => {
                let operator = graph.operator(id);
                (operator.operands().collect(), Some(&operator.attrs))
            }
        };
        let is_parameter = |t: &TensorId| matches!(graph.tensor(*t).origin, Origin::Parameter | Origin::Constant(_));
        let is_number = |t: &TensorId, wanted: f64| match &graph.tensor(*t).origin {
            Origin::Constant(data) => data.to_f64s().is_some_and(|values| match values.as_slice() {
                [value] => (value - wanted).abs() <= TOLERANCE * wanted.abs(),
                _ => false,
            }),
            _ => false,
        };
        condition.constant.is_none_or(|number| tensors.iter().any(|t| is_number(t, number)))
            && condition.parameter.is_none_or(|wanted| tensors.iter().any(is_parameter) == wanted)
            && condition.attributes.iter().all(|(name, value)| {
                let found = attrs.and_then(|attrs| attrs.get(name));
                found.is_some_and(|found| equal(found, value))
            })
    }

    fn add(&mut self, text: &str, entry: &PatternText) -> Result<(), LibraryError> {
        let name = entry.name.get_ref();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        if name.is_empty() || !name.chars().all(is_word) || ["Parameter", "Producer", "Input"].contains(&name.as_str())
        {
            let message =
                format!("`{name}` cannot be a name: expected letters, digits, `_` and `.`, such as `ConvRelu`");
            return Err(LibraryError { message, span: Some(entry.name.span()) });
        }
        let query = entry.query.get_ref();
        let at = |message: String, span: Range<usize>| LibraryError {
            message,
            span: Some(inside(text, entry.query.span(), query, span)),
        };
        let parsed = Query::parse(query).map_err(|error| at(error.message, error.span))?;
        if let Some(condition) = parsed.conditions().iter().find(|name| !self.conditions.contains_key(*name)) {
            let start = query.find(&format!("[{condition}]")).unwrap_or(0);
            let message = format!("condition `{condition}` is not known: expected a table [conditions.{condition}]");
            return Err(at(message, start..start + condition.len() + 2));
        }
        self.patterns.push(Pattern { name: name.into(), query: parsed });
        Ok(())
    }
}

/// The position of a part of a string value in the file; the whole string if it contains escapes.
fn inside(text: &str, literal: Range<usize>, value: &str, part: Range<usize>) -> Range<usize> {
    let Some(raw) = text.get(literal.clone()) else { return literal };
    let long = raw.starts_with("\"\"\"") || raw.starts_with("'''");
    let quote = if long { 3 } else { 1 };
    let begin = quote + raw.get(quote..).map_or(0, |r| r.len() - r.trim_start_matches(['\r', '\n']).len());
    match raw.get(begin..).is_some_and(|content| content.starts_with(value)) {
        true => literal.start + begin + part.start..literal.start + begin + part.end,
        false => literal,
    }
}

fn condition(entries: BTreeMap<String, Value>) -> Result<Condition, String> {
    let mut condition = Condition::default();
    if entries.is_empty() {
        return Err("expected attributes with their values, `constant` or `parameter`".to_string());
    }
    for (key, value) in entries {
        match (key.as_str(), &value) {
            ("constant", Value::Float(number)) => condition.constant = Some(*number),
            ("constant", Value::Integer(number)) => condition.constant = Some(*number as f64),
            ("constant", _) => return Err("expected a number after `constant`".to_string()),
            ("parameter", Value::Boolean(wanted)) => condition.parameter = Some(*wanted),
            ("parameter", _) => return Err("expected true or false after `parameter`".to_string()),
            (_, Value::Table(_) | Value::Datetime(_)) => {
                return Err(format!("expected a number, a string, true, false or a list of them after `{key}`"));
            }
            _ => condition.attributes.push((key, value)),
        }
    }
    Ok(condition)
}

/// Whether an attribute equals a value; lists of scalars are compared element by element.
fn equal(attr: &Attr, value: &Value) -> bool {
    match (attr, value) {
        (Attr::List(items), Value::Array(values)) => {
            items.len() == values.len() && items.iter().zip(values).all(|(item, value)| same(item, value))
        }
        _ => same(attr, value),
    }
}

fn same(attr: &Attr, value: &Value) -> bool {
    match value {
        Value::Integer(wanted) => attr.int() == Some(*wanted),
        Value::Float(wanted) => attr.float().is_some_and(|x| (x - wanted).abs() <= TOLERANCE * wanted.abs()),
        Value::Boolean(wanted) => attr.bool() == Some(*wanted),
        Value::String(wanted) => attr.str() == Some(wanted),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_library_is_valid() {
        assert!(Library::built_in().unwrap().patterns().len() > 5);
    }

    #[test]
    fn errors_have_positions() {
        let pattern = |query: &str| format!("[[pattern]]\nname = \"A\"\nquery = {query}\n");
        for (text, wrong, what) in [
            (pattern("\"a->>b\""), ">b", "found `>`"),
            (pattern("'''\na->\n  (b|c'''"), "'''\n", "expected `)`"),
            (pattern("\"a[odd]->b\""), "[odd]", "expected a table [conditions.odd]"),
            (pattern("7"), "7", "expected a string"),
            (pattern("\"a->b\"").replace("\"A\"", "\"A B\""), "\"A B\"", "cannot be a name"),
            (pattern("\"a->b\"").replace("query", "queries"), "queries", "unknown field"),
            (pattern("\"a->b\"") + "[conditions.c]\nconstant = \"x\"\n", "", "expected a number after `constant`"),
            ("[[pattern]]\nname = \n".to_string(), "", "quoted"),
        ] {
            let error = Library::parse(&text).unwrap_err();
            assert!(error.message.contains(what), "{text}: {error:?}");
            let span = error.span.unwrap_or_default();
            assert!(text[span.start..].starts_with(wrong), "{text}: {} at {:?}", error.message, &text[span.start..]);
        }
        assert!(Library::parse("").unwrap_err().message.contains("no pattern"));
    }
}
