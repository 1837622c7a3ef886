//! Traced PyTorch graphs as their Python text (`fwd.py`, `bwd.py`), as the G10 liveness tool takes them.
//!
//! One assignment a statement: `a: "f32[2, 8]" = torch.ops.aten.addmm.default(p2, p4, p1)`. An operator with several
//! results has no type; they are taken out with `x[0]`. What the forward function is given is global.
//!
//! Every statement is a kernel with tensors of its own, views included, but for those that the G10 tool leaves out by
//! name: `squeeze_1` and `unsqueeze_1` (not `squeeze` and `unsqueeze`) are other names of their operand; `copy_`, which
//! updates a parameter in place, `_unsafe_index_put` and the seeds of random numbers are skipped; random numbers are
//! tensors that no kernel makes.
//!
//! `text` splits what all versions of PyTorch print into statements, `types` reads types, `times` the times of kernels.

mod error;
mod text;
mod times;
mod types;

use std::collections::{HashMap, HashSet};

use edgecut_graph::units::{Bytes, Micros};
use edgecut_memory::liveness::{Kernel, TensorUse, Trace, TracedTensor};

pub use error::FxError;
pub use times::times;

/// Names of results that the G10 tool takes for their operand if something follows: `squeeze_1`.
const ALIASES: [&str; 2] = ["squeeze", "unsqueeze"];

/// Names of results that the G10 tool skips with all their operands.
const SKIPPED: [&str; 2] = ["copy_", "_unsafe_index_put"];

/// Operators that the G10 tool skips: the seeds of random numbers.
const SEEDS: [&str; 2] = ["torch.ops.prims.inductor_seeds.default", "torch.ops.prims.inductor_lookup_seed.default"];

/// The operator whose result the G10 tool takes for a tensor that is there when it is first read.
const RANDOM: &str = "torch.ops.prims.inductor_random.default";

/// Names of what the backward function is given in every iteration, where both functions are traced as one.
const TANGENTS: &str = "tangents";

/// Reads the forward and the backward function; the times are those of the kernels of both, in microseconds.
///
/// # Errors
/// With the line, if a statement is malformed or reads a name without a type.
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

#[derive(Default)]
struct FxParser {
    trace: Trace,
    /// What a name stands for.
    names: HashMap<String, TensorUse>,
    /// Operators with several results: the kernel of each.
    several: HashMap<String, usize>,
    /// Parameters whose type is not known (yet).
    untyped: HashSet<String>,
}

impl FxParser {
    /// Reads the first function of a text. What follows its `return` are functions that it calls.
    fn function(&mut self, text: &str, forward: bool) -> Result<(), FxError> {
        let mut started = false;
        for (line, statement) in text::statements(text) {
            let fault = |what: String| FxError::Text { line, what };
            if let Some(signature) = statement.strip_prefix("def ") {
                self.signature(signature, forward).map_err(fault)?;
                started = true;
            } else if started && let Some(results) = statement.strip_prefix("return") {
                self.results(results);
                return Ok(());
            } else if started {
                self.statement(&statement, forward).map_err(fault)?;
            }
        }
        Ok(())
    }

    fn signature(&mut self, signature: &str, forward: bool) -> Result<(), String> {
        let (open, close) = (signature.find('('), signature.rfind(')'));
        let (Some(open), Some(close)) = (open, close) else { return Err("expected `def f(…):`".into()) };
        for parameter in text::list(&signature[open + 1..close.max(open + 1)]) {
            match text::annotated(parameter) {
                (name, None) => drop(self.untyped.insert(name.to_string())),
                (name, Some(ty)) => self.parameter(name, ty, forward)?,
            }
        }
        Ok(())
    }

    /// A parameter of the function: one that is known is a result of the forward function.
    fn parameter(&mut self, name: &str, ty: &str, forward: bool) -> Result<(), String> {
        if !types::is_host(ty) && !self.names.contains_key(name) {
            self.tensor(name, ty, forward && !name.starts_with(TANGENTS))?;
        }
        Ok(())
    }

    fn results(&mut self, results: &str) {
        for name in results.split(|c: char| !(c.is_alphanumeric() || c == '_')) {
            if let Some(result) = self.names.get(name) {
                self.trace.tensors[result.tensor].result = true;
            }
        }
    }

    fn statement(&mut self, text: &str, forward: bool) -> Result<(), String> {
        let Some((target, value)) = text::assignment(text) else {
            // `primals_1: "f32[2]"` declares a parameter.
            return match text::annotated(text) {
                (name, Some(ty)) if !name.contains(' ') => self.parameter(name, ty, forward),
                _ => Ok(()),
            };
        };
        // `a = b = None` ends names, `a, b, = …` takes parameters out of their containers.
        let ends_names = text::split(value, '=').last().is_some_and(|value| value.trim() == "None");
        if ends_names || text::split(target, ',').len() > 1 {
            return Ok(());
        }
        let (name, ty) = text::annotated(target);
        if SKIPPED.iter().any(|prefix| name.starts_with(prefix)) || ty.is_some_and(types::is_host) {
            return Ok(());
        }
        if let Some((source, _)) = value.split_once('[')
            && let Some(&kernel) = self.several.get(source.trim())
        {
            // Results without a type are numbers of the host, or absent.
            if let Some(ty) = ty {
                let made = self.tensor(name, ty, false)?;
                self.trace.kernels[kernel].outputs.push(made);
            }
            return Ok(());
        }
        match (text::call(value), ty) {
            (Some((operator, arguments)), _) => self.kernel(name, ty, operator, &text::list(arguments)),
            // A constant of the module; without a type it is a function.
            (None, Some(ty)) if value.starts_with("self.") => self.tensor(name, ty, true).map(drop),
            (None, None) if value.starts_with("self.") => Ok(()),
            (None, _) => Err(format!("expected `operator(…)`, found `{value}`")),
        }
    }

    fn kernel(&mut self, name: &str, ty: Option<&str>, operator: &str, arguments: &[&str]) -> Result<(), String> {
        if SEEDS.contains(&operator) {
            return Ok(());
        }
        if let (RANDOM, Some(ty)) = (operator, ty) {
            return self.tensor(name, ty, false).map(drop);
        }
        let mut inputs: Vec<TensorUse> = Vec::new();
        for word in arguments.iter().flat_map(|argument| text::names(argument)) {
            match self.names.get(word) {
                Some(input) => inputs.push(input.clone()),
                None if self.untyped.contains(word) => types::parse(word, "").map(drop)?,
                None => {}
            }
        }
        let is_alias = ALIASES.iter().any(|alias| name.len() > alias.len() && name.starts_with(alias));
        if let (true, Some(source), Some(ty)) = (is_alias, inputs.first(), ty) {
            let (_, dimensions) = types::parse(name, ty)?;
            let alias = TensorUse { tensor: source.tensor, name: name.to_string(), dimensions };
            self.names.insert(name.to_string(), alias);
            return Ok(());
        }
        let kernel = Kernel { name: format!("{operator}({})", arguments.join(", ")), inputs, ..Kernel::default() };
        self.trace.kernels.push(kernel);
        let index = self.trace.kernels.len() - 1;
        match ty {
            Some(ty) => {
                let made = self.tensor(name, ty, false)?;
                self.trace.kernels[index].outputs.push(made);
            }
            None => drop(self.several.insert(name.to_string(), index)),
        }
        Ok(())
    }

    /// A new tensor of a type such as `f32[2, 8]`.
    fn tensor(&mut self, name: &str, ty: &str, global: bool) -> Result<TensorUse, String> {
        let (bytes, dimensions) = types::parse(name, ty)?;
        let tensor = self.trace.tensors.len();
        self.trace.tensors.push(TracedTensor {
            name: name.to_string(),
            bytes: Bytes(bytes),
            global,
            ..TracedTensor::default()
        });
        let made = TensorUse { tensor, name: name.to_string(), dimensions };
        self.names.insert(name.to_string(), made.clone());
        Ok(made)
    }
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
        let untyped = "def forward(self, w):\n    a: \"f32[4]\" = torch.ops.aten.relu.default(w)\n";
        assert!(parse(untyped, "", &[]).unwrap_err().to_string().starts_with("line 2: `w` has no type"));
    }

    #[test]
    fn random_numbers_are_made_by_no_kernel_and_seeds_are_skipped() {
        let text = "def forward(self, w: \"f32[4]\", index: \"i64[2]\"):\n    \
                    seeds: \"i64[1]\" = torch.ops.prims.inductor_seeds.default(1, device(type='cuda', index=0))\n    \
                    seed: \"i64[]\" = torch.ops.prims.inductor_lookup_seed.default(seeds, 0);  seeds = None\n    \
                    random: \"f32[4]\" = torch.ops.prims.inductor_random.default([4], seed, 'rand');  seed = None\n    \
                    ones: \"f32[4]\" = torch.ops.aten.full.default([4], 1, device = device(type='cuda', index=0))\n    \
                    gt: \"b8[4]\" = torch.ops.aten.gt.Scalar(random, 0.1);  random = None\n    \
                    _unsafe_index_put: \"f32[4]\" = torch.ops.aten._unsafe_index_put.default(w, [index], gt)\n    \
                    return [gt]\n";
        let trace = parse(text, "", &[]).unwrap();
        let names: Vec<&str> = trace.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names, ["w", "index", "random", "ones", "gt"]);
        assert_eq!(trace.kernels.len(), 2);
        assert!(trace.kernels[0].inputs.is_empty());
        assert_eq!(trace.kernels[1].inputs[0].name, "random");
        assert_eq!(trace.liveness()[2].birth, Some(1));
    }

    #[test]
    fn results_without_a_type_are_no_tensors() {
        let text = "def forward(self, q: \"f32[2, 8]\"):\n    \
                    _tensor_constant0: \"f32[]\" = self._tensor_constant0\n    \
                    attention = torch.ops.aten._scaled_dot_product_flash_attention.default(q, q, q, scale = 0.125)\n    \
                    getitem: \"f32[2, 8]\" = attention[0]\n    getitem_4 = attention[4]\n    \
                    getitem_5: \"Sym(8)\" = attention[5];  attention = None\n    \
                    add: \"Sym(9)\" = getitem_5 + 1\n    \
                    mul: \"f32[2, 8]\" = torch.ops.aten.mul.Tensor(getitem, _tensor_constant0)\n    return (mul,)\n    \
                    def forward(self, inner: \"f32[1]\"):\n    x: \"f32[1]\" = torch.ops.aten.sin.default(inner)\n";
        let trace = parse(text, "", &[]).unwrap();
        let tensors: Vec<(&str, bool)> = trace.tensors.iter().map(|t| (t.name.as_str(), t.global)).collect();
        assert_eq!(tensors, [("q", true), ("_tensor_constant0", true), ("getitem", false), ("mul", false)]);
        assert_eq!((trace.kernels.len(), trace.kernels[0].inputs.len(), trace.kernels[0].outputs.len()), (2, 3, 1));
    }
}
