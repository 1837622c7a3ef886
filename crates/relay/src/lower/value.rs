//! The values and activations of symbolic evaluation.

use smol_str::SmolStr;

use crate::ast::{ExprId, List, OpId, TypeId, VarId};
use edgecut_graph::TensorId;

/// Index of an [`Activation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ActivationId(pub u32);

/// One inlined call of a function; the first one is the module.
pub(super) struct Activation {
    /// Number of functions that enclose the body.
    pub level: u32,
    /// The activation whose variables the function captures.
    pub parent: ActivationId,
    /// The label of operators added here.
    pub label: Option<SmolStr>,
}

/// What an expression evaluates to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    Tensor(TensorId),
    /// A range of `Lowering::fields`.
    Tuple(List),
    /// Index into `Lowering::closures`.
    Closure(u32),
    Operator(OpId),
}

/// A pending task; the stack is processed last first.
#[derive(Debug, Clone, Copy)]
pub(super) enum EvalTask {
    /// Evaluate and push the value.
    Eval(ExprId, ActivationId),
    /// Memoise the value on top as that of the expression.
    Keep(ExprId, ActivationId),
    /// Compare the value on top, that of the expression, with the declared result type of its function.
    Check(TypeId, ExprId),
    /// Pop a value and bind it.
    Bind(VarId, ActivationId),
    /// Make a tuple of the topmost values.
    Tuple(List),
    Project(ExprId, u32),
    /// Call the function below its operands, or the operator that the callee names.
    Call(ExprId, ActivationId),
    /// Evaluate the branch that the condition on top selects.
    Branch(ExprId, ActivationId),
}
