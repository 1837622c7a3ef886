//! Traced PyTorch graphs as their Python text (`fwd.py`, `bwd.py`), as the G10 liveness tool takes them.
//!
//! One assignment a statement: `a: "f32[2, 8]" = torch.ops.aten.addmm.default(p2, p4, p1)`. An operator with several
//! results has no type; they are taken out with `x[0]`. What the forward function is given is global.
//!
//! Every statement is a kernel with tensors of its own, views included, but for those that the G10 tool leaves out by
//! their names: `squeeze_1` and `unsqueeze_1` (not `squeeze` and `unsqueeze`) are other names of their operand, and
//! `copy_`, which updates a parameter in place, is skipped.

use std::collections::HashMap;

use edgecut_graph::units::{Bytes, Micros};
use edgecut_memory::liveness::{Kernel, TensorUse, Trace, TracedTensor};

/// Names, up to their number, of results that the G10 tool takes for their operand.
const ALIASES: [&str; 2] = ["squeeze_", "unsqueeze_"];

/// Names of results that the G10 tool skips with all their operands.
const SKIPPED: &str = "copy_";

/// Element sizes in bytes, by PyTorch's abbreviations of element types (`torch.utils._dtype_abbrs`).
const SIZES: &[(&str, u64)] = &[
    ("f64", 8),
    ("f32", 4),
    ("f16", 2),
    ("bf16", 2),
    ("i64", 8),
    ("i32", 4),
    ("i16", 2),
    ("i8", 1),
    ("u8", 1),
    ("b8", 1),
    ("u16", 2),
    ("u32", 4),
    ("u64", 8),
    ("f8e4m3fn", 1),
    ("f8e4m3fnuz", 1),
    ("f8e5m2", 1),
    ("f8e5m2fnuz", 1),
    ("f8e8m0fnu", 1),
    ("c32", 4),
    ("c64", 8),
    ("c128", 16),
];

/// Why a text is not a valid traced graph.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FxError {
    #[error("line {line}: {what}")]
    Text { line: usize, what: String },
    #[error("there are {times} times for {kernels} kernels")]
    Times { times: usize, kernels: usize },
    #[error("found no kernel: expected `def forward(self, …):` and assignments such as `a: \"f32[2, 8]\" = f(x)`")]
    Empty,
}

/// Reads the forward and the backward function; the times are those of the kernels of both, in microseconds.
///
/// # Errors
/// With the line, if a statement is malformed or reads an unknown name.
pub fn parse(forward: &str, backward: &str, times: &[Micros]) -> Result<Trace, FxError> {
    let mut reader = FxParser::default();
    reader.function(forward, true)?;
    if reader.trace.kernels.is_empty() {
        return Err(FxError::Empty);
    }
    reader.function(backward, false)?;
    let mut trace = reader.trace;
    if !times.is_empty() && times.len() != trace.kernels.len() {
        return Err(FxError::Times { times: times.len(), kernels: trace.kernels.len() });
    }
    trace.kernels.iter_mut().zip(times).for_each(|(kernel, time)| kernel.time = *time);
    Ok(trace)
}

/// Reads `0 0.125 ms` lines into microseconds, in order of the kernels.
///
/// # Errors
/// With the line that is of another form.
pub fn times(text: &str) -> Result<Vec<Micros>, FxError> {
    let mut found = Vec::new();
    for (line, content) in (1..).zip(text.lines()).filter(|(_, content)| !content.trim().is_empty()) {
        let mut words = content.split_whitespace();
        let index = words.next().and_then(|word| word.parse::<usize>().ok());
        let time = words.next().and_then(|word| word.parse::<f64>().ok());
        let factor = match words.next() {
            Some("us") => Some(1.0),
            Some("ms") | None => Some(1e3),
            Some("s") => Some(1e6),
            _ => None,
        };
        match (index, time, factor) {
            (Some(index), Some(time), Some(factor)) if index == found.len() => found.push(Micros(time * factor)),
            _ => {
                let what = format!("expected `{} TIME ms`, found `{content}`", found.len());
                return Err(FxError::Text { line, what });
            }
        }
    }
    Ok(found)
}

#[derive(Default)]
struct FxParser {
    trace: Trace,
    /// What a name stands for.
    names: HashMap<String, TensorUse>,
    /// Operators with several results: the kernel of each.
    several: HashMap<String, usize>,
}

impl FxParser {
    fn function(&mut self, text: &str, forward: bool) -> Result<(), FxError> {
        let mut statement = String::new();
        let mut from = 0;
        for (line, content) in (1..).zip(text.lines()) {
            let content = without_comment(content);
            if statement.is_empty() {
                from = line;
            }
            statement.push_str(content.trim());
            statement.push(' ');
            if depth(&statement) > 0 {
                continue;
            }
            let whole = std::mem::take(&mut statement);
            for part in split(&whole, ';') {
                self.statement(part.trim(), from, forward)?;
            }
        }
        Ok(())
    }

    fn statement(&mut self, text: &str, line: usize, forward: bool) -> Result<(), FxError> {
        let fault = |what: String| FxError::Text { line, what };
        if let Some(signature) = text.strip_prefix("def ") {
            let (open, close) = (signature.find('('), signature.rfind(')'));
            let (Some(open), Some(close)) = (open, close) else { return Err(fault("expected `def f(…):`".into())) };
            for parameter in split(&signature[open + 1..close.max(open + 1)], ',') {
                let (name, ty) = parameter.split_once(':').unwrap_or((parameter, ""));
                let (name, ty) = (name.trim(), ty.trim().trim_matches('"'));
                // A dynamic dimension has no storage.
                let is_tensor = name != "self" && !name.is_empty() && !ty.starts_with("Sym(");
                if !is_tensor || self.names.contains_key(name) {
                    continue;
                }
                self.tensor(name, ty, forward).map_err(fault)?;
            }
            return Ok(());
        }
        if let Some(results) = text.strip_prefix("return") {
            for name in words(results) {
                if let Some(result) = self.names.get(name) {
                    self.trace.tensors[result.tensor].result = true;
                }
            }
            return Ok(());
        }
        // `a = b = None` ends names.
        let ends_names = split(text, '=').last().is_some_and(|value| value.trim() == "None");
        let Some((target, value)) = split_assignment(text).filter(|_| !ends_names) else { return Ok(()) };
        let (name, ty) = target.split_once(':').map_or((target, None), |(n, t)| (n, Some(t.trim().trim_matches('"'))));
        let name = name.trim();
        if name.starts_with(SKIPPED) {
            return Ok(());
        }
        if let Some((source, _)) = value.split_once('[')
            && let Some(&kernel) = self.several.get(source.trim())
        {
            let made = self.tensor(name, ty.unwrap_or_default(), false).map_err(fault)?;
            self.trace.kernels[kernel].outputs.push(made);
            return Ok(());
        }
        let (operator, arguments) = value
            .split_once('(')
            .and_then(|(operator, rest)| Some((operator.trim(), rest.trim_end().strip_suffix(')')?)))
            .ok_or_else(|| fault(format!("expected `operator(…)`, found `{value}`")))?;
        let listed: Vec<&str> = split(arguments, ',').into_iter().map(str::trim).filter(|a| !a.is_empty()).collect();
        let values = listed.iter().map(|argument| split_assignment(argument).map_or(*argument, |(_, value)| value));
        let inputs: Vec<TensorUse> = values.flat_map(words).filter_map(|word| self.names.get(word).cloned()).collect();
        let is_alias = ALIASES.iter().any(|prefix| name.starts_with(prefix));
        if let (true, Some(source), Some(ty)) = (is_alias, inputs.first(), ty) {
            let alias = TensorUse { tensor: source.tensor, name: name.to_string(), dimensions: dimensions(ty) };
            self.names.insert(name.to_string(), alias);
            return Ok(());
        }
        let kernel = Kernel { name: format!("{operator}({})", listed.join(", ")), inputs, ..Kernel::default() };
        self.trace.kernels.push(kernel);
        let index = self.trace.kernels.len() - 1;
        match ty {
            Some(ty) => {
                let made = self.tensor(name, ty, false).map_err(fault)?;
                self.trace.kernels[index].outputs.push(made);
            }
            None => drop(self.several.insert(name.to_string(), index)),
        }
        Ok(())
    }

    /// A new tensor of a type such as `f32[2, 8]`.
    fn tensor(&mut self, name: &str, ty: &str, global: bool) -> Result<TensorUse, String> {
        let bad = || format!("`{name}` has no type such as \"f32[2, 8]\", but `{ty}`");
        let (element, rest) = ty.split_once('[').ok_or_else(bad)?;
        let element = SIZES.iter().find(|(dtype, _)| *dtype == element.trim()).ok_or_else(bad)?.1;
        let mut bytes = element;
        for dim in rest.split(']').next().unwrap_or_default().split(',').map(str::trim).filter(|d| !d.is_empty()) {
            let dim: u64 = dim.parse().map_err(|_| bad())?;
            bytes = bytes.checked_mul(dim).ok_or_else(bad)?;
        }
        let tensor = self.trace.tensors.len();
        self.trace.tensors.push(TracedTensor {
            name: name.to_string(),
            bytes: Bytes(bytes),
            global,
            ..TracedTensor::default()
        });
        let made = TensorUse { tensor, name: name.to_string(), dimensions: dimensions(ty) };
        self.names.insert(name.to_string(), made.clone());
        Ok(made)
    }
}

/// The element type and the dimensions of a type; newer versions of PyTorch print strides and the device behind them.
fn dimensions(ty: &str) -> String {
    ty.split_inclusive(']').next().unwrap_or(ty).to_string()
}

fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let at = line.char_indices().find(|(_, c)| {
        quoted ^= *c == '"';
        *c == '#' && !quoted
    });
    at.map_or(line, |(at, _)| &line[..at])
}

/// How many brackets are open at the end.
fn depth(text: &str) -> i32 {
    let mut quoted = false;
    text.chars().fold(0, |depth, c| {
        quoted ^= c == '"';
        match c {
            '(' | '[' if !quoted => depth + 1,
            ')' | ']' if !quoted => depth - 1,
            _ => depth,
        }
    })
}

/// Splits at a separator that stands in no bracket and no quotation.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut depth, mut quoted, mut from, mut parts) = (0, false, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' | '[' if !quoted => depth += 1,
            ')' | ']' if !quoted => depth -= 1,
            _ if c == separator && depth == 0 && !quoted => {
                parts.push(&text[from..at]);
                from = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

/// `target = value`, the `=` standing in no bracket.
fn split_assignment(text: &str) -> Option<(&str, &str)> {
    let target = split(text, '=').first().copied()?;
    let value = text[target.len()..].strip_prefix('=')?;
    Some((target.trim(), value.trim()))
}

/// Everything in a text that may be a name.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_squeezes_are_aliases_and_all_else_is_a_kernel() {
        let text = "def forward(self, w: \"f32[4]\", n: \"Sym(s0)\"):\n    \
                    a: \"f32[4][1]cuda:0\" = torch.ops.aten.relu.default(w)  # x\n    \
                    view: \"f32[2, 2]\" = torch.ops.aten.view.default(a, [2, 2]);  a = w = None\n    \
                    unsqueeze: \"f32[1, 2, 2]\" = torch.ops.aten.unsqueeze.default(view, 0)\n    \
                    unsqueeze_1: \"f32[1, 1, 2, 2]\" = torch.ops.aten.unsqueeze.default(unsqueeze, 0)\n    \
                    two = torch.ops.aten.topk.default(unsqueeze_1, 1, view = 3)\n    \
                    first: \"f32[1, 1, 2, 1]\" = two[0]\n    \
                    copy_: \"f32[4]\" = torch.ops.aten.copy_.default(w, first);  w = first = None\n    return [first]\n";
        let trace = parse(text, "", &[]).unwrap();
        let names: Vec<&str> = trace.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "torch.ops.aten.relu.default(w)",
                "torch.ops.aten.view.default(a, [2, 2])",
                "torch.ops.aten.unsqueeze.default(view, 0)",
                "torch.ops.aten.topk.default(unsqueeze_1, 1, view = 3)",
            ]
        );
        let alias = TensorUse { tensor: 3, name: "unsqueeze_1".into(), dimensions: "f32[1, 1, 2, 2]".into() };
        assert_eq!(trace.kernels[3].inputs, [alias]);
        assert_eq!(trace.kernels[0].outputs[0].dimensions, "f32[4]");
        assert_eq!(trace.kernels[3].outputs[0].tensor, 4);
        assert!(trace.tensors[0].global && trace.tensors[4].result);
        assert_eq!(trace.tensors.len(), 5);
    }

    #[test]
    fn faults_have_lines() {
        let bad = "def forward(self, w: \"f32[4]\"):\n    a: \"q9[4]\" = torch.ops.aten.relu.default(w)\n";
        assert!(parse(bad, "", &[]).unwrap_err().to_string().starts_with("line 2: `a` has no type"));
        let good = "def forward(self, w: \"f32[4]\"):\n    a: \"f32[4]\" = torch.ops.aten.relu.default(w)\n";
        assert_eq!(parse(good, "", &[Micros(1.0), Micros(2.0)]).unwrap_err(), FxError::Times { times: 2, kernels: 1 });
        assert!(times("0 1 ms\n2 1 ms\n").unwrap_err().to_string().starts_with("line 2: expected `1 TIME ms`"));
    }
}
