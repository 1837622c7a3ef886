//! Calls: operators become operators of the graph, functions are inlined.

use smallvec::SmallVec;
use smol_str::{SmolStr, format_smolstr};

use super::{
    fold::{self, Folding},
    lowering::Lowering,
    value::{Activation, ActivationId, EvalTask, Value},
};
use crate::{
    ExternalCalls, Fault, ParseMode, TypeMismatch,
    ast::{AttrValue, Expr, ExprId, FunctionId, GlobalId, List, OpRef},
    error::Result,
};
use edgecut_graph::{Arg, Attr, Attrs, Operator, Origin, Shape, TensorData, TensorId, TensorType, Type};
use edgecut_ops as ops;
use edgecut_ops::{Call, OpDef, TypeError};

/// Until v0.11, TVM had a separate operator for each reduction of `scatter_elements`.
fn renamed(operator: OpRef<'_>) -> (OpRef<'_>, Option<&'static str>) {
    let reduction = match operator.name {
        "scatter" => "update",
        "scatter_add" => "add",
        _ => return (operator, None),
    };
    let name = "scatter_elements";
    (OpRef { name, def: ops::lookup(name) }, Some(reduction))
}

impl Lowering<'_, '_> {
    /// Performs a call; its operands, and its callee unless that is an operator, are on the stack.
    pub(super) fn call(&mut self, expr: ExprId, activation: ActivationId) -> Result<()> {
        let module = self.module;
        let Expr::Call { callee, args, attrs } = module.expr(expr) else { return Err(self.broken()) };
        let operands = self.stack.len().checked_sub(args.len as usize).ok_or_else(|| self.broken())?;
        let operands = self.stack.split_off(operands);
        let callee = match module.expr(callee) {
            Expr::Operator(operator) => Value::Operator(operator),
            _ => self.pop()?,
        };
        match callee {
            Value::Operator(operator) => {
                let value =
                    self.call_operator(expr, module.operators[operator.index()], &operands, attrs, activation)?;
                self.stack.push(value);
                Ok(())
            }
            Value::Closure(closure) => {
                let (function, home) = self.closures[closure as usize];
                self.call_function(expr, function, home, &operands, activation)
            }
            Value::Tensor(_) | Value::Tuple(_) => {
                Err(Fault::Other("only operators and functions can be called".to_string()).at(self.span(expr)))
            }
        }
    }

    fn call_operator(
        &mut self,
        expr: ExprId,
        operator: OpRef<'_>,
        operands: &[Value],
        attrs: List,
        activation: ActivationId,
    ) -> Result<Value> {
        let (operator, reduction) = match operator.def {
            None if self.options.mode == ParseMode::Tolerant => renamed(operator),
            _ => (operator, None),
        };
        let mut attrs = self.attrs(attrs, operator.def, expr)?;
        if let Some(reduction) = reduction {
            attrs.set("reduction", Attr::Str(SmolStr::new_static(reduction)));
        }
        let args = self.args(expr, operands)?;
        if let Some(def) = operator.def
            && !self.untyped.is_empty()
        {
            self.infer_operands(expr, def, &attrs, &args)?;
        }
        let ty = self.result_type(expr, operator, &attrs, &args)?;
        if self.folding != Folding::Nothing
            && let Some(value) = self.folded(operator.name, &args, &ty)
        {
            return Ok(value);
        }
        self.add_operator(expr, SmolStr::new(operator.name), attrs, args, &ty, activation)
    }

    /// The result of an operator on known operands as a constant, if it can be computed now.
    fn folded(&mut self, name: &str, args: &[Arg], ty: &Type) -> Option<Value> {
        let operands: Vec<&TensorData> = args.iter().map(|arg| self.known(arg)).collect::<Option<_>>()?;
        let data = self.folding.evaluate(name, &operands, ty.tensor()?)?;
        self.folded += data.bytes().len();
        if self.folded > fold::MAX_FOLDED_BYTES {
            return None;
        }
        let label = format_smolstr!("{name}_{}", self.graph.tensors().len());
        Some(Value::Tensor(self.graph.add_tensor(label, data.ty(), Origin::Constant(data))))
    }

    /// The operands of an operator, with flattened tuples: no operator distinguishes nested ones.
    fn args(&mut self, expr: ExprId, operands: &[Value]) -> Result<Vec<Arg>> {
        let mut args = Vec::with_capacity(operands.len());
        for operand in operands {
            args.push(match operand {
                Value::Tensor(tensor) => Arg::Tensor(*tensor),
                tuple => Arg::Tuple(self.flatten(*tuple, expr)?),
            });
        }
        Ok(args)
    }

    fn arg_type(&self, arg: &Arg) -> Type {
        let ty = |tensor: &TensorId| Type::Tensor(self.graph.tensor(*tensor).ty.clone());
        match arg {
            Arg::Tensor(tensor) => ty(tensor),
            Arg::Tuple(tensors) => Type::Tuple(tensors.iter().map(ty).collect()),
        }
    }

    fn result_type(&mut self, expr: ExprId, operator: OpRef<'_>, attrs: &Attrs, args: &[Arg]) -> Result<Type> {
        let noted = self.module.note(expr).ty;
        let Some(def) = operator.def else {
            return noted
                .and_then(|ty| self.type_of(ty))
                .ok_or_else(|| Fault::unknown_operator(operator.name).at(self.span(expr)));
        };
        if let Some(untyped) = args.iter().flat_map(Arg::tensors).find(|tensor| self.untyped.contains(tensor)) {
            let name = format!("%{}", self.graph.tensor(*untyped).name);
            return Err(Fault::Untyped { name }.at(self.span(expr)));
        }
        match self.infer(def, attrs, args) {
            Ok(ty) => Ok(ty),
            Err(error) => match noted.and_then(|ty| self.type_of(ty)) {
                Some(ty) if self.options.mode == super::super::ParseMode::Tolerant => {
                    let place = self.place(self.span(expr));
                    self.checks.mismatches.push(TypeMismatch {
                        place,
                        stated: ty.to_string(),
                        inferred: error.to_string(),
                    });
                    Ok(ty)
                }
                _ => Err(Fault::Type(error).at(self.span(expr))),
            },
        }
    }

    fn infer(&self, def: &'static OpDef, attrs: &Attrs, args: &[Arg]) -> std::result::Result<Type, TypeError> {
        if args.len() > def.operands.len() {
            let what = format!("it takes {} operands, {} are given", def.operands.len(), args.len());
            return Err(TypeError { op: def.name.into(), what });
        }
        let types: SmallVec<[Type; 3]> = args.iter().map(|arg| self.arg_type(arg)).collect();
        let values: SmallVec<[Option<&TensorData>; 8]> = args.iter().map(|arg| self.known(arg)).collect();
        (def.infer)(&Call { def, attrs, args: &types, values: &values })
    }

    /// The value of an operand that is a constant.
    fn known(&self, arg: &Arg) -> Option<&TensorData> {
        let Arg::Tensor(tensor) = arg else { return None };
        match &self.graph.tensor(*tensor).origin {
            Origin::Constant(data) => Some(data),
            _ => None,
        }
    }

    /// Infers the types of untyped parameters among `args`, if the operator determines them.
    fn infer_operands(&mut self, expr: ExprId, def: &'static OpDef, attrs: &Attrs, args: &[Arg]) -> Result<()> {
        let Some(infer_operands) = def.infer_operands else { return Ok(()) };
        let open = |arg: &Arg| matches!(arg, Arg::Tensor(tensor) if self.untyped.contains(tensor));
        if !args.iter().any(open) {
            return Ok(());
        }
        let mut known: Vec<Option<Type>> =
            args.iter().map(|arg| if open(arg) { None } else { Some(self.arg_type(arg)) }).collect();
        let call = Call { def, attrs, args: &[], values: &[] };
        infer_operands(&call, &mut known).map_err(|error| Fault::Type(error).at(self.span(expr)))?;
        for (arg, ty) in args.iter().zip(known) {
            if let (Arg::Tensor(tensor), Some(Type::Tensor(ty))) = (arg, ty)
                && self.untyped.remove(tensor)
            {
                self.graph.tensor_mut(*tensor).ty = ty;
            }
        }
        Ok(())
    }

    fn add_operator(
        &mut self,
        expr: ExprId,
        name: SmolStr,
        attrs: Attrs,
        args: Vec<Arg>,
        ty: &Type,
        activation: ActivationId,
    ) -> Result<Value> {
        let mut types: SmallVec<[TensorType; 3]> = match ty {
            Type::Tensor(tensor) => std::iter::once(tensor.clone()).collect(),
            tuple => tuple.tensors().into_iter().cloned().collect(),
        };
        for ty in &mut types {
            if ty.shape.rank() > Shape::MAX_DIMS {
                let what = format!("a result of {} dimensions; at most {} are read", ty.shape.rank(), Shape::MAX_DIMS);
                return Err(Fault::Other(what).at(self.span(expr)));
            }
            self.shapes.share(ty);
        }
        self.spend(1 + types.len(), expr)?;
        let operator = Operator::new(name, args)
            .with_attrs(attrs)
            .with_tuple_result(matches!(ty, Type::Tuple(_)))
            .with_label(self.activations[activation.0 as usize].label.clone())
            .with_location(Some(self.place(self.span(expr))))
            .with_layer(self.layer(expr));
        let id = self.graph.add_operator(operator, &types);
        let mut outputs = self.graph.operator(id).outputs.clone().into_iter();
        self.value_of(ty, &mut outputs).ok_or_else(|| self.broken())
    }

    /// A value of type `ty` from the tensors of `outputs`.
    fn value_of(&mut self, ty: &Type, outputs: &mut impl Iterator<Item = TensorId>) -> Option<Value> {
        match ty {
            Type::Tensor(_) => outputs.next().map(Value::Tensor),
            Type::Tuple(types) => {
                let fields: Vec<Value> = types.iter().map(|ty| self.value_of(ty, outputs)).collect::<Option<_>>()?;
                let start = self.fields.len() as u32;
                self.fields.extend(&fields);
                Some(Value::Tuple(List { start, len: fields.len() as u32 }))
            }
        }
    }

    pub(super) fn global(&mut self, global: GlobalId, expr: ExprId) -> Result<Value> {
        let global = self.module.globals[global.index()];
        match global.function {
            Some(function) => Ok(self.closure(function, ActivationId(0))),
            None => {
                let name = format!("@{}", global.name);
                Err(Fault::Undefined { name, hint: "in this file" }.at(self.span(expr)))
            }
        }
    }

    fn call_function(
        &mut self,
        expr: ExprId,
        function: FunctionId,
        home: ActivationId,
        operands: &[Value],
        caller: ActivationId,
    ) -> Result<()> {
        let module = self.module;
        let body = module.functions[function.index()];
        if self.options.external == ExternalCalls::Keep && self.external(function) {
            let value = self.call_external(expr, function, operands, caller)?;
            self.stack.push(value);
            return Ok(());
        }
        let params = module.vars_of(body.params);
        if params.len() != operands.len() {
            let what = format!("the function takes {} operands, {} are given", params.len(), operands.len());
            return Err(Fault::Other(what).at(self.span(expr)));
        }
        let (count, last) = self.calls.entry(function).or_insert((0, expr));
        (*count, *last) = (*count + 1, expr);
        self.spend(1 + params.len(), expr)?;
        let label = self.label(body.attrs).or_else(|| self.activations[caller.0 as usize].label.clone());
        let activation = ActivationId(self.activations.len() as u32);
        self.activations.push(Activation { level: body.level, parent: home, label });
        for (param, operand) in params.iter().zip(operands) {
            self.bind(*param, activation, *operand)?;
        }
        if let Some(result) = body.result {
            self.tasks.push(EvalTask::Check(result, body.body));
        }
        self.tasks.push(EvalTask::Eval(body.body, activation));
        Ok(())
    }

    /// A unique label for a call of a fused, composite or external function.
    fn label(&self, attrs: List) -> Option<SmolStr> {
        let serial = self.activations.len();
        ["Compiler", "Composite", "Primitive"].into_iter().find_map(|key| match self.module.attr(attrs, key)? {
            AttrValue::Str(name) => Some(format_smolstr!("{key}={name}#{serial}")),
            _ => Some(format_smolstr!("{key}#{serial}")),
        })
    }

    /// A call of an external function, as an opaque operator with the name of the function.
    fn call_external(
        &mut self,
        expr: ExprId,
        function: FunctionId,
        operands: &[Value],
        activation: ActivationId,
    ) -> Result<Value> {
        let module = self.module;
        let body = module.functions[function.index()];
        let noted = module.note(expr).ty.or(body.result).and_then(|ty| self.type_of(ty));
        let named = module.globals.iter().find(|global| global.function == Some(function));
        let name = named.map_or("external", |global| global.name);
        let ty = noted.ok_or_else(|| Fault::unknown_operator(name).at(self.span(expr)))?;
        let args = self.args(expr, operands)?;
        self.add_operator(expr, name.into(), Attrs::new(), args, &ty, activation)
    }
}
