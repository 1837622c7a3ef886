//! Branches: resolved during the import, from constants or from inputs that the caller provides.

use std::collections::BTreeSet;

use super::{
    lowering::Lowering,
    value::{ActivationId, EvalTask, Value},
};
use crate::{
    Fault,
    ast::{Expr, ExprId},
    error::Result,
};
use edgecut_graph::{DType, Graph, OperatorId, Origin, Part, TensorData, TensorId};

impl Lowering<'_, '_> {
    /// Evaluates the branch of an `if` that the condition on the stack selects; the other one is dropped.
    pub(super) fn branch(&mut self, expr: ExprId, activation: ActivationId) -> Result<()> {
        let Expr::If { condition, then, otherwise } = self.module.expr(expr) else { return Err(self.broken()) };
        let value = self.pop()?;
        let tensor = match value {
            Value::Tensor(tensor) if self.is_condition(tensor) => tensor,
            value => {
                let found = self.value_type(value).map_or("a function".to_string(), |ty| format!("`{ty}`"));
                let what = format!("the condition of `if` must be a scalar of type `bool`, found {found}");
                return Err(Fault::Other(what).at(self.span(condition)));
            }
        };
        let taken = if self.decide(expr, tensor)? { then } else { otherwise };
        self.tasks.push(EvalTask::Eval(taken, activation));
        Ok(())
    }

    fn is_condition(&self, tensor: TensorId) -> bool {
        let ty = &self.graph.tensor(tensor).ty;
        ty.dtype == DType::Bool && ty.shape.rank() == 0
    }

    fn decide(&mut self, expr: ExprId, tensor: TensorId) -> Result<bool> {
        let truth = |data: &TensorData| data.bytes().first().is_some_and(|byte| *byte != 0);
        if let Origin::Constant(data) = &self.graph.tensor(tensor).origin {
            return Ok(truth(data));
        }
        let operators = ancestors(&self.graph, tensor);
        let undecided = |reason: String| Fault::ControlFlow { construct: "this `if`", reason }.at(self.span(expr));
        let Some(evaluate) = self.options.evaluate else {
            let names = sources(&self.graph, &operators, tensor);
            return Err(undecided(format!(
                "its condition depends on {names}: give the content with option `inputs`, and the branch \
                 that it selects is taken"
            )));
        };
        let part = computing(&self.graph, &operators, tensor);
        match evaluate(&part) {
            Ok(data) => Ok(truth(&data)),
            Err(why) => Err(undecided(format!("its condition cannot be computed: {why}"))),
        }
    }
}

/// The operators that compute `tensor`, in program order.
fn ancestors(graph: &Graph, tensor: TensorId) -> Vec<OperatorId> {
    let mut found = BTreeSet::new();
    let mut pending = vec![tensor];
    while let Some(tensor) = pending.pop() {
        if let Some(operator) = graph.producer(tensor)
            && found.insert(operator)
        {
            pending.extend(graph.operator(operator).operands());
        }
    }
    found.into_iter().collect()
}

/// A graph whose only output is `tensor`, made by `operators`.
fn computing(graph: &Graph, operators: &[OperatorId], tensor: TensorId) -> Graph {
    let mut part = Part::cut(graph, operators);
    let here = part.whole_tensor.iter().position(|whole| *whole == tensor);
    let output = match here {
        Some(at) => TensorId(at as u32),
        None => {
            let source = graph.tensor(tensor);
            part.graph.add_tensor(source.name.clone(), source.ty.clone(), source.origin.clone())
        }
    };
    part.graph.outputs = vec![output];
    part.graph
}

/// The names of the inputs that `tensor`, made by `operators`, depends on.
fn sources(graph: &Graph, operators: &[OperatorId], tensor: TensorId) -> String {
    let operands = operators.iter().flat_map(|operator| graph.operator(*operator).operands());
    let tensors: BTreeSet<TensorId> = operands.chain([tensor]).collect();
    let inputs = tensors.into_iter().map(|tensor| graph.tensor(tensor));
    let names: Vec<String> = inputs
        .filter(|tensor| matches!(tensor.origin, Origin::Input | Origin::Parameter))
        .map(|tensor| format!("`%{}`", tensor.name))
        .collect();
    match names.len() {
        0 => "operators that are not computed while importing".to_string(),
        1..=4 => names.join(", "),
        more => format!("{} and {} more", names[..3].join(", "), more - 3),
    }
}
