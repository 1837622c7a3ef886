//! From a parsed module to the typed graph: evaluates the entry function on symbolic tensors.
//!
//! Evaluation inlines function literals and globals, names lets and graph variables away, takes tuples
//! apart and leaves one operator in the graph for each primitive call, in TVM's post-order. It is a machine
//! with an explicit stack of [`Task`]s; each expression is evaluated once in every activation of the function
//! that binds its innermost variable, so sharing in the text stays sharing in the graph.

mod attrs;
mod branch;
mod call;
mod control;
mod entry;
mod fold;
mod memo;
mod parameters;
mod recursion;
mod shapes;
mod typing;

use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
};

use foldhash::fast::RandomState;
use smol_str::SmolStr;

use super::{
    ExternalCalls, ImportOptions, TypeChecks,
    ast::{Expr, ExprId, FunctionId, List, Module, OpId, TypeId, VarId},
    error::{Fault, Located, Result, Span},
    metadata::Metadata,
};
use crate::graph::{Attrs, Graph, Origin, Place, TensorId, TensorType, Type};

/// What evaluating a module gives.
pub(super) struct Lowered {
    pub graph: Graph,
    pub checks: TypeChecks,
}

/// Evaluates `module`, whose text is `text`.
pub(super) fn lower<'a>(
    module: &Module<'a>,
    metadata: Option<&Metadata<'a>>,
    text: &str,
    options: &ImportOptions<'_>,
) -> Result<Lowered> {
    let lines = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at as u32 + 1).collect();
    let mut lowering = Lowering {
        module,
        metadata,
        options,
        lines,
        fold: fold::needed(module),
        folded: 0,
        budget: 10_000 + text.len(),
        spent: 0,
        unfolded: Cell::new(0),
        graph: Graph::new(),
        activations: vec![Activation { level: 0, parent: ActivationId(0), label: None }],
        closures: Vec::new(),
        calls: HashMap::default(),
        fields: Vec::new(),
        values: memo::Memo::new(module.exprs.len()),
        vars: memo::Memo::new(module.vars.len()),
        constants: HashMap::default(),
        attr_lists: HashMap::default(),
        shapes: shapes::Recent::default(),
        types: vec![None; module.types.len()],
        unknown: Vec::new(),
        untyped: HashSet::default(),
        tasks: Vec::new(),
        stack: Vec::new(),
        checks: TypeChecks::default(),
    };
    let calls = module.exprs.iter().filter(|expr| matches!(expr, Expr::Call { .. })).count();
    lowering.graph.reserve(calls, calls + module.vars.len());
    let outputs = lowering.entry()?;
    lowering.graph.outputs = outputs;
    parameters::classify(&mut lowering.graph, options.params);
    Ok(Lowered { graph: lowering.graph, checks: lowering.checks })
}

/// Index of an [`Activation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ActivationId(u32);

/// One inlined call of a function; the first one is the module itself.
struct Activation {
    /// How many functions enclose the body.
    level: u32,
    /// The activation whose variables the function captures.
    parent: ActivationId,
    /// The label of operators made here.
    label: Option<SmolStr>,
}

/// What an expression evaluates to.
#[derive(Debug, Clone, Copy)]
enum Value {
    Tensor(TensorId),
    /// A run of `Lowering::fields`.
    Tuple(List),
    /// Index into `Lowering::closures`.
    Closure(u32),
    Operator(OpId),
}

/// What is still to be done, last first.
#[derive(Debug, Clone, Copy)]
enum Task {
    /// Evaluate and push the value.
    Eval(ExprId, ActivationId),
    /// The value on top is that of the expression: remember it.
    Keep(ExprId, ActivationId),
    /// Compare the value on top, that of the expression, with the type that its function says it returns.
    Check(TypeId, ExprId),
    /// Bind the value on top, taking it.
    Bind(VarId, ActivationId),
    /// Make a tuple of the topmost values.
    Tuple(List),
    Project(ExprId, u32),
    /// Call the function below its operands, or the operator that the callee names.
    Call(ExprId, ActivationId),
    /// Take the branch that the condition on top says.
    Branch(ExprId, ActivationId),
}

struct Lowering<'m, 'a> {
    module: &'m Module<'a>,
    metadata: Option<&'m Metadata<'a>>,
    options: &'m ImportOptions<'m>,
    /// Where each line but the first begins.
    lines: Vec<u32>,
    /// Whether operators on known scalars are computed now.
    fold: bool,
    /// Bytes of all folded results.
    folded: usize,
    /// Most operators, activations and tuple fields that the file may make.
    budget: usize,
    spent: usize,
    /// Values that objects of the metadata section were unfolded to.
    unfolded: Cell<usize>,
    graph: Graph,
    activations: Vec<Activation>,
    closures: Vec<(FunctionId, ActivationId)>,
    /// How often each function was called, and where last.
    calls: HashMap<FunctionId, (u32, ExprId), RandomState>,
    fields: Vec<Value>,
    values: memo::Memo,
    vars: memo::Memo,
    /// Tensors of constants in the metadata section, by their index.
    constants: HashMap<u32, TensorId, RandomState>,
    /// Attributes of calls, by where their list begins.
    attr_lists: HashMap<u32, Attrs, RandomState>,
    /// Shapes of results, to be shared by those that follow.
    shapes: shapes::Recent,
    /// Types as the graph has them, once converted.
    types: Vec<Option<Type>>,
    /// The dimensions of inputs that the text leaves unknown, by tensor and axis.
    unknown: Vec<(SmolStr, usize)>,
    /// Parameters whose type nothing has said yet.
    untyped: HashSet<TensorId, RandomState>,
    tasks: Vec<Task>,
    stack: Vec<Value>,
    checks: TypeChecks,
}

impl<'m, 'a> Lowering<'m, 'a> {
    /// Evaluates `expr` and everything it needs.
    fn eval(&mut self, expr: ExprId, activation: ActivationId) -> Result<Value> {
        self.tasks.push(Task::Eval(expr, activation));
        while let Some(task) = self.tasks.pop() {
            // Evaluation goes down to the first operator before the graph grows: the stack gives its room back.
            if self.tasks.len() < self.tasks.capacity() / 4 * 3 && self.tasks.capacity() > 1 << 10 {
                self.tasks.shrink_to(self.tasks.len() / 8 * 9);
            }
            match task {
                Task::Eval(expr, activation) => self.begin(expr, activation)?,
                Task::Keep(expr, activation) => {
                    let value = self.top(expr)?;
                    let owner = self.owner(self.module.note(expr).level, activation, expr)?;
                    self.values.insert(expr.index(), owner, value);
                    self.check_note(expr, value);
                }
                Task::Bind(var, activation) => {
                    let value = self.pop()?;
                    self.bind(var, activation, value)?;
                }
                Task::Check(ty, expr) => {
                    let value = self.top(expr)?;
                    self.check_annotation(ty, value, self.span(expr))?;
                }
                Task::Tuple(list) => {
                    let value = self.tuple_of_top(list.len as usize)?;
                    self.stack.push(value);
                }
                Task::Project(expr, index) => {
                    let value = self.pop()?;
                    let field = self.project(expr, value, index)?;
                    self.stack.push(field);
                }
                Task::Call(expr, activation) => self.call(expr, activation)?,
                Task::Branch(expr, activation) => self.branch(expr, activation)?,
            }
        }
        self.pop()
    }

    /// Pushes the value of `expr` if it is known or simple, else the tasks that make it.
    fn begin(&mut self, expr: ExprId, activation: ActivationId) -> Result<()> {
        let module = self.module;
        let level = module.note(expr).level;
        let value = match module.expr(expr) {
            Expr::Var(var) => self.var(var, activation, expr)?,
            Expr::Operator(operator) => Value::Operator(operator),
            Expr::Global(global) => self.global(global, expr)?,
            other => {
                let owner = self.owner(level, activation, expr)?;
                if let Some(value) = self.values.get(expr.index(), owner) {
                    self.stack.push(value);
                    return Ok(());
                }
                self.tasks.push(Task::Keep(expr, owner));
                match other {
                    Expr::Scalar(index) => self.scalar(expr, module.scalars[index as usize]),
                    Expr::Meta(index) => self.constant(expr, module.metas[index as usize])?,
                    Expr::Function(function) => {
                        let home = self.owner(module.functions[function.index()].level - 1, activation, expr)?;
                        self.closure(function, home)
                    }
                    Expr::Tuple(list) => {
                        self.spend(list.len as usize, expr)?;
                        self.tasks.push(Task::Tuple(list));
                        self.eval_all(list, activation);
                        return Ok(());
                    }
                    Expr::Project(tuple, index) => {
                        self.tasks.push(Task::Project(expr, index));
                        self.tasks.push(Task::Eval(tuple, activation));
                        return Ok(());
                    }
                    Expr::Call { callee, args, .. } => {
                        self.tasks.push(Task::Call(expr, activation));
                        self.eval_all(args, activation);
                        if !matches!(module.expr(callee), Expr::Operator(_)) {
                            self.tasks.push(Task::Eval(callee, activation));
                        }
                        return Ok(());
                    }
                    Expr::Let { var, value, body } => {
                        self.tasks.push(Task::Eval(body, activation));
                        self.tasks.push(Task::Bind(var, activation));
                        self.tasks.push(Task::Eval(value, activation));
                        return Ok(());
                    }
                    Expr::If { condition, .. } => {
                        self.tasks.push(Task::Branch(expr, activation));
                        self.tasks.push(Task::Eval(condition, activation));
                        return Ok(());
                    }
                    _ => return Err(self.refuse(expr)),
                }
            }
        };
        self.stack.push(value);
        Ok(())
    }

    /// Evaluates the expressions of `list`, the first one first.
    fn eval_all(&mut self, list: List, activation: ActivationId) {
        let exprs = self.module.exprs_of(list);
        self.tasks.extend(exprs.iter().rev().map(|expr| Task::Eval(*expr, activation)));
    }

    /// The activation, `activation` or one it captures from, that a variable of this level is bound in.
    fn owner(&self, level: u32, activation: ActivationId, expr: ExprId) -> Result<ActivationId> {
        let mut at = activation;
        loop {
            let here = &self.activations[at.0 as usize];
            match here.level.cmp(&level) {
                std::cmp::Ordering::Equal => return Ok(at),
                std::cmp::Ordering::Greater => at = here.parent,
                std::cmp::Ordering::Less => return Err(self.out_of_scope(expr)),
            }
        }
    }

    fn var(&self, var: VarId, activation: ActivationId, expr: ExprId) -> Result<Value> {
        let owner = self.owner(self.module.vars[var.index()].level, activation, expr)?;
        self.vars.get(var.index(), owner).ok_or_else(|| self.out_of_scope(expr))
    }

    fn bind(&mut self, var: VarId, activation: ActivationId, value: Value) -> Result<()> {
        self.check_var(var, value)?;
        self.vars.insert(var.index(), activation, value);
        Ok(())
    }

    fn out_of_scope(&self, expr: ExprId) -> Box<Located> {
        let name = match self.module.expr(expr) {
            Expr::Var(var) => format!("%{}", self.module.vars[var.index()].name),
            _ => "this expression".to_string(),
        };
        Fault::Undefined { name, hint: "here: it is used before its binding, or outside of its function" }
            .at(self.span(expr))
    }

    fn closure(&mut self, function: FunctionId, home: ActivationId) -> Value {
        self.closures.push((function, home));
        Value::Closure(self.closures.len() as u32 - 1)
    }

    fn tuple_of_top(&mut self, len: usize) -> Result<Value> {
        let at = self.stack.len().checked_sub(len).ok_or_else(|| self.broken())?;
        let start = self.fields.len() as u32;
        self.fields.extend(self.stack.drain(at..));
        Ok(Value::Tuple(List { start, len: len as u32 }))
    }

    fn project(&self, expr: ExprId, tuple: Value, index: u32) -> Result<Value> {
        let len = match tuple {
            Value::Tuple(list) if index < list.len => return Ok(self.fields[list.start as usize + index as usize]),
            Value::Tuple(list) => list.len,
            _ => {
                return Err(
                    Fault::Other("the projection is of a value that is no tuple".to_string()).at(self.span(expr))
                );
            }
        };
        Err(Fault::Other(format!("there is no field {index} in a tuple of {len}")).at(self.span(expr)))
    }

    /// The tensors of a value, tuples flattened left to right.
    fn flatten(&mut self, value: Value, expr: ExprId) -> Result<Vec<TensorId>> {
        let (mut found, mut stack) = (Vec::new(), vec![value]);
        while let Some(value) = stack.pop() {
            match value {
                Value::Tensor(tensor) => found.push(tensor),
                Value::Tuple(list) => {
                    self.spend(list.len as usize, expr)?;
                    stack.extend(self.fields[list.range()].iter().rev());
                }
                Value::Closure(_) | Value::Operator(_) => return Err(self.function_value(expr)),
            }
        }
        Ok(found)
    }

    /// Counts what the file makes the graph grow by.
    fn spend(&mut self, amount: usize, expr: ExprId) -> Result<()> {
        self.spent += amount;
        if self.spent <= self.budget {
            return Ok(());
        }
        Err(match self.endless() {
            Some((call, name)) => {
                let reason = format!("{name} calls itself, and nothing that is known while importing ends it");
                Fault::ControlFlow { construct: "this recursion", reason }.at(self.span(call))
            }
            None => Fault::TooLarge(self.budget).at(self.span(expr)),
        })
    }

    fn function_value(&self, expr: ExprId) -> Box<Located> {
        let reason = "a function is used as a value; only calls of known functions can be inlined".to_string();
        Fault::ControlFlow { construct: "a function value", reason }.at(self.span(expr))
    }

    fn top(&self, expr: ExprId) -> Result<Value> {
        self.stack.last().copied().ok_or_else(|| Fault::Other("no value".to_string()).at(self.span(expr)))
    }

    fn pop(&mut self) -> Result<Value> {
        self.stack.pop().ok_or_else(|| self.broken())
    }

    /// The stack is balanced by construction; a slip here is reported, not a panic.
    fn broken(&self) -> Box<Located> {
        Fault::Other("evaluation lost a value; please report this file".to_string()).nowhere()
    }

    fn span(&self, expr: ExprId) -> Span {
        self.module.note(expr).span
    }

    fn place(&self, span: Span) -> Place {
        let line = self.lines.partition_point(|start| *start <= span.start);
        let start = line.checked_sub(1).and_then(|line| self.lines.get(line)).copied().unwrap_or(0);
        Place { line: line as u32 + 1, column: span.start - start + 1 }
    }

    /// Adds an input of the given type, or one for each tensor of a tuple.
    fn add_inputs(&mut self, name: &str, ty: &Type) -> Value {
        match ty {
            Type::Tensor(tensor) => Value::Tensor(self.add_input(name, tensor.clone())),
            Type::Tuple(fields) => {
                let fields: Vec<Value> =
                    fields.iter().enumerate().map(|(i, ty)| self.add_inputs(&format!("{name}.{i}"), ty)).collect();
                let start = self.fields.len() as u32;
                self.fields.extend(&fields);
                Value::Tuple(List { start, len: fields.len() as u32 })
            }
        }
    }

    fn add_input(&mut self, name: &str, ty: TensorType) -> TensorId {
        self.graph.add_tensor(name, ty, Origin::Input)
    }

    fn external(&self, function: FunctionId) -> bool {
        let attrs = self.module.functions[function.index()].attrs;
        self.options.external == ExternalCalls::Keep && self.module.attr(attrs, "Compiler").is_some()
    }

    fn type_of(&mut self, ty: TypeId) -> Option<Type> {
        if self.types[ty.index()].is_none() {
            self.types[ty.index()] = typing::convert(self.module, ty);
        }
        self.types[ty.index()].clone()
    }
}
