//! The evaluation machine: an explicit stack of tasks.

use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
};

use foldhash::fast::RandomState;
use smol_str::SmolStr;

use super::{
    fold::Folding,
    memo::Memo,
    shape_cache::ShapeCache,
    types,
    value::{Activation, ActivationId, EvalTask, Value},
};
use crate::{
    ExternalCalls, Fault, ImportOptions, Span, TypeChecks,
    ast::{Expr, ExprId, FunctionId, List, Module, TypeId, VarId},
    error::{LocatedFault, Result},
    metadata::Metadata,
};
use edgecut_graph::{Attrs, Graph, Origin, SourceLocation, TensorId, TensorType, Type};

pub(super) struct Lowering<'m, 'a> {
    pub(super) module: &'m Module<'a>,
    pub(super) metadata: Option<&'m Metadata<'a>>,
    pub(super) options: &'m ImportOptions<'m>,
    /// Offsets of all lines but the first.
    pub(super) lines: Vec<u32>,
    /// Which operators on constants are folded.
    pub(super) folding: Folding,
    /// Size of all folded results in bytes.
    pub(super) folded: usize,
    /// Limit on operators, activations and tuple fields, proportional to the size of the file.
    pub(super) budget: usize,
    pub(super) spent: usize,
    /// Number of values that metadata objects were expanded to.
    pub(super) unfolded: Cell<usize>,
    pub(super) graph: Graph,
    pub(super) activations: Vec<Activation>,
    pub(super) closures: Vec<(FunctionId, ActivationId)>,
    /// Number of calls of each function, and the last one.
    pub(super) calls: HashMap<FunctionId, (u32, ExprId), RandomState>,
    pub(super) fields: Vec<Value>,
    pub(super) values: Memo,
    pub(super) vars: Memo,
    /// Tensors of constants in the metadata section, by their index.
    pub(super) constants: HashMap<u32, TensorId, RandomState>,
    /// Attributes of calls, by the start of their list.
    pub(super) attr_lists: HashMap<u32, Attrs, RandomState>,
    /// Shapes of results, shared by later ones.
    pub(super) shapes: ShapeCache,
    /// Converted types.
    pub(super) types: Vec<Option<Type>>,
    /// Unknown dimensions of inputs, by tensor and axis.
    pub(super) unknown: Vec<(SmolStr, usize)>,
    /// Parameters without a known type.
    pub(super) untyped: HashSet<TensorId, RandomState>,
    pub(super) tasks: Vec<EvalTask>,
    pub(super) stack: Vec<Value>,
    pub(super) checks: TypeChecks,
}

impl<'m, 'a> Lowering<'m, 'a> {
    pub(super) fn new(
        module: &'m Module<'a>,
        metadata: Option<&'m Metadata<'a>>,
        text: &str,
        options: &'m ImportOptions<'m>,
    ) -> Lowering<'m, 'a> {
        let lines = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at as u32 + 1).collect();
        let mut lowering = Lowering {
            module,
            metadata,
            options,
            lines,
            folding: Folding::of(module),
            folded: 0,
            budget: 10_000 + text.len(),
            spent: 0,
            unfolded: Cell::new(0),
            graph: Graph::new(),
            activations: vec![Activation { level: 0, parent: ActivationId(0), label: None }],
            closures: Vec::new(),
            calls: HashMap::default(),
            fields: Vec::new(),
            values: Memo::new(module.exprs.len()),
            vars: Memo::new(module.vars.len()),
            constants: HashMap::default(),
            attr_lists: HashMap::default(),
            shapes: ShapeCache::default(),
            types: vec![None; module.types.len()],
            unknown: Vec::new(),
            untyped: HashSet::default(),
            tasks: Vec::new(),
            stack: Vec::new(),
            checks: TypeChecks::default(),
        };
        let calls = module.exprs.iter().filter(|expr| matches!(expr, Expr::Call { .. })).count();
        lowering.graph.reserve(calls, calls + module.vars.len());
        lowering
    }

    /// Evaluates `expr` and everything it needs.
    pub(super) fn eval(&mut self, expr: ExprId, activation: ActivationId) -> Result<Value> {
        self.tasks.push(EvalTask::Eval(expr, activation));
        while let Some(task) = self.tasks.pop() {
            // Evaluation descends to the first operator before the graph grows, so the stack releases its memory.
            if self.tasks.len() < self.tasks.capacity() / 4 * 3 && self.tasks.capacity() > 1 << 10 {
                self.tasks.shrink_to(self.tasks.len() / 8 * 9);
            }
            match task {
                EvalTask::Eval(expr, activation) => self.begin(expr, activation)?,
                EvalTask::Keep(expr, activation) => {
                    let value = self.top(expr)?;
                    let owner = self.owner(self.module.note(expr).level, activation, expr)?;
                    self.values.insert(expr.index(), owner, value);
                    self.check_note(expr, value);
                }
                EvalTask::Bind(var, activation) => {
                    let value = self.pop()?;
                    self.bind(var, activation, value)?;
                }
                EvalTask::Check(ty, expr) => {
                    let value = self.top(expr)?;
                    self.check_annotation(ty, value, self.span(expr))?;
                }
                EvalTask::Tuple(list) => {
                    let value = self.tuple_of_top(list.len as usize)?;
                    self.stack.push(value);
                }
                EvalTask::Project(expr, index) => {
                    let value = self.pop()?;
                    let field = self.project(expr, value, index)?;
                    self.stack.push(field);
                }
                EvalTask::Call(expr, activation) => self.call(expr, activation)?,
                EvalTask::Branch(expr, activation) => self.branch(expr, activation)?,
            }
        }
        self.pop()
    }

    /// Pushes the value of `expr` if it is known or simple, else the tasks that compute it.
    pub(super) fn begin(&mut self, expr: ExprId, activation: ActivationId) -> Result<()> {
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
                self.tasks.push(EvalTask::Keep(expr, owner));
                match other {
                    Expr::Scalar(index) => self.scalar(expr, module.scalars[index as usize]),
                    Expr::Meta(index) => self.constant(expr, module.metas[index as usize])?,
                    Expr::Function(function) => {
                        let home = self.owner(module.functions[function.index()].level - 1, activation, expr)?;
                        self.closure(function, home)
                    }
                    Expr::Tuple(list) => {
                        self.spend(list.len as usize, expr)?;
                        self.tasks.push(EvalTask::Tuple(list));
                        self.eval_all(list, activation);
                        return Ok(());
                    }
                    Expr::Project(tuple, index) => {
                        self.tasks.push(EvalTask::Project(expr, index));
                        self.tasks.push(EvalTask::Eval(tuple, activation));
                        return Ok(());
                    }
                    Expr::Call { callee, args, .. } => {
                        self.tasks.push(EvalTask::Call(expr, activation));
                        self.eval_all(args, activation);
                        if !matches!(module.expr(callee), Expr::Operator(_)) {
                            self.tasks.push(EvalTask::Eval(callee, activation));
                        }
                        return Ok(());
                    }
                    Expr::Let { var, value, body } => {
                        self.tasks.push(EvalTask::Eval(body, activation));
                        self.tasks.push(EvalTask::Bind(var, activation));
                        self.tasks.push(EvalTask::Eval(value, activation));
                        return Ok(());
                    }
                    Expr::If { condition, .. } => {
                        self.tasks.push(EvalTask::Branch(expr, activation));
                        self.tasks.push(EvalTask::Eval(condition, activation));
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
    pub(super) fn eval_all(&mut self, list: List, activation: ActivationId) {
        let exprs = self.module.exprs_of(list);
        self.tasks.extend(exprs.iter().rev().map(|expr| EvalTask::Eval(*expr, activation)));
    }

    /// The activation in which a variable of this level is bound: `activation`, or one that it captures from.
    pub(super) fn owner(&self, level: u32, activation: ActivationId, expr: ExprId) -> Result<ActivationId> {
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

    pub(super) fn var(&self, var: VarId, activation: ActivationId, expr: ExprId) -> Result<Value> {
        let owner = self.owner(self.module.vars[var.index()].level, activation, expr)?;
        self.vars.get(var.index(), owner).ok_or_else(|| self.out_of_scope(expr))
    }

    pub(super) fn bind(&mut self, var: VarId, activation: ActivationId, value: Value) -> Result<()> {
        self.check_var(var, value)?;
        self.vars.insert(var.index(), activation, value);
        Ok(())
    }

    pub(super) fn out_of_scope(&self, expr: ExprId) -> Box<LocatedFault> {
        let name = match self.module.expr(expr) {
            Expr::Var(var) => format!("%{}", self.module.vars[var.index()].name),
            _ => "this expression".to_string(),
        };
        Fault::Undefined { name, hint: "here: it is used before its binding, or outside of its function" }
            .at(self.span(expr))
    }

    pub(super) fn closure(&mut self, function: FunctionId, home: ActivationId) -> Value {
        self.closures.push((function, home));
        Value::Closure(self.closures.len() as u32 - 1)
    }

    pub(super) fn tuple_of_top(&mut self, len: usize) -> Result<Value> {
        let at = self.stack.len().checked_sub(len).ok_or_else(|| self.broken())?;
        let start = self.fields.len() as u32;
        self.fields.extend(self.stack.drain(at..));
        Ok(Value::Tuple(List { start, len: len as u32 }))
    }

    pub(super) fn project(&self, expr: ExprId, tuple: Value, index: u32) -> Result<Value> {
        let len = match tuple {
            Value::Tuple(list) if index < list.len => return Ok(self.fields[list.start as usize + index as usize]),
            Value::Tuple(list) => list.len,
            _ => {
                return Err(Fault::Other("the projected value is not a tuple".to_string()).at(self.span(expr)));
            }
        };
        Err(Fault::Other(format!("index {index} is out of range for a tuple of {len} fields")).at(self.span(expr)))
    }

    /// The tensors of a value, tuples flattened left to right.
    pub(super) fn flatten(&mut self, value: Value, expr: ExprId) -> Result<Vec<TensorId>> {
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

    /// Charges `amount` to the budget.
    pub(super) fn spend(&mut self, amount: usize, expr: ExprId) -> Result<()> {
        self.spent += amount;
        if self.spent <= self.budget {
            return Ok(());
        }
        Err(match self.endless() {
            Some((call, name)) => {
                let reason = format!("{name} calls itself, and the depth of the recursion is not known at import");
                Fault::ControlFlow { construct: "this recursion", reason }.at(self.span(call))
            }
            None => Fault::TooLarge(self.budget).at(self.span(expr)),
        })
    }

    pub(super) fn function_value(&self, expr: ExprId) -> Box<LocatedFault> {
        let reason = "a function is used as a value; only calls of known functions can be inlined".to_string();
        Fault::ControlFlow { construct: "a function value", reason }.at(self.span(expr))
    }

    pub(super) fn top(&self, expr: ExprId) -> Result<Value> {
        self.stack.last().copied().ok_or_else(|| Fault::Other("no value".to_string()).at(self.span(expr)))
    }

    pub(super) fn pop(&mut self) -> Result<Value> {
        self.stack.pop().ok_or_else(|| self.broken())
    }

    /// The stack is balanced by construction; a violation is an error, not a panic.
    pub(super) fn broken(&self) -> Box<LocatedFault> {
        Fault::Other("evaluation lost a value; please report this file".to_string()).nowhere()
    }

    pub(super) fn span(&self, expr: ExprId) -> Span {
        self.module.note(expr).span
    }

    /// The layer that a comment says `expr` is of.
    pub(super) fn layer(&self, expr: ExprId) -> Option<SmolStr> {
        self.module.note(expr).layer.and_then(|layer| self.module.layers.get(layer as usize)).cloned()
    }

    pub(super) fn place(&self, span: Span) -> SourceLocation {
        let line = self.lines.partition_point(|start| *start <= span.start);
        let start = line.checked_sub(1).and_then(|line| self.lines.get(line)).copied().unwrap_or(0);
        SourceLocation { line: line as u32 + 1, column: span.start - start + 1 }
    }

    /// Adds an input of the given type, or one for each tensor of a tuple.
    pub(super) fn add_inputs(&mut self, name: &str, ty: &Type) -> Value {
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

    pub(super) fn add_input(&mut self, name: &str, ty: TensorType) -> TensorId {
        self.graph.add_tensor(name, ty, Origin::Input)
    }

    pub(super) fn external(&self, function: FunctionId) -> bool {
        let attrs = self.module.functions[function.index()].attrs;
        self.options.external == ExternalCalls::Keep && self.module.attr(attrs, "Compiler").is_some()
    }

    pub(super) fn type_of(&mut self, ty: TypeId) -> Option<Type> {
        if self.types[ty.index()].is_none() {
            self.types[ty.index()] = types::convert(self.module, ty);
        }
        self.types[ty.index()].clone()
    }
}
