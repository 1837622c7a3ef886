//! The entry function and its parameters.

use super::{
    lowering::Lowering,
    value::{Activation, ActivationId, Value},
};
use crate::{
    Fault, Span,
    ast::{Expr, ExprId, FunctionId, TypeExpr, VarId},
    error::{Result, shown},
};
use edgecut_graph::{DType, TensorId, TensorType};
use edgecut_ops::passes::retype::{BindDim, bind, unknown_dims};

impl Lowering<'_, '_> {
    /// Evaluates the model and returns its outputs.
    pub(super) fn entry(&mut self) -> Result<Vec<TensorId>> {
        let root = ActivationId(0);
        let module = self.module;
        let mut result = None;
        let mut function = |this: &mut Self, function: FunctionId| {
            result = module.functions[function.index()].result;
            this.enter(function)
        };
        let (body, activation) = match module.entry {
            Some(expr) => {
                for var in &module.free_vars {
                    self.declare(*var, root)?;
                }
                match module.expr(expr) {
                    Expr::Function(literal) => function(self, literal)?,
                    Expr::Operator(operator) => {
                        let name = shown(module.operators[operator.index()].name);
                        let what = format!(
                            "the file contains only `{name}`; expected Relay text, as `mod.astext()` prints it"
                        );
                        return Err(Fault::Other(what).at(self.span(expr)));
                    }
                    _ => (expr, root),
                }
            }
            None => {
                let main = self.main()?;
                function(self, main)?
            }
        };
        self.check_binds()?;
        let value = self.eval(body, activation)?;
        if let Some(result) = result {
            self.check_annotation(result, value, self.span(body))?;
        }
        self.flatten(value, body)
    }

    /// Rejects sizes for dimensions that are not unknown.
    fn check_binds(&self) -> Result<()> {
        for bind in &self.options.bind_dims {
            let place = match bind {
                BindDim::All(_) => continue,
                BindDim::One { tensor, axis, .. } => format!("{}:{axis}", shown(tensor)),
                BindDim::Symbol { name, .. } => shown(name).to_string(),
            };
            if let BindDim::One { tensor, axis, .. } = bind
                && self.unknown.iter().any(|(name, unknown)| name == tensor && unknown == axis)
            {
                continue;
            }
            let some: Vec<String> = self.unknown.iter().take(8).map(|(name, axis)| format!("{name}:{axis}")).collect();
            let there = match (some.len(), self.unknown.len()) {
                (0, _) => "it has no unknown dimension".to_string(),
                (shown, all) if shown < all => format!("its {all} unknown dimensions are {}, …", some.join(", ")),
                _ => format!("its unknown dimensions are {}", some.join(", ")),
            };
            let what = format!("there is no unknown dimension `{place}` to bind to a size: {there}");
            return Err(Fault::Other(what).nowhere());
        }
        Ok(())
    }

    /// `@main`, or the only function.
    fn main(&self) -> Result<FunctionId> {
        let mut defined = self.module.globals.iter().filter(|global| global.function.is_some());
        let main = defined.clone().find(|global| global.name == "main");
        let only = defined.next().filter(|_| defined.next().is_none());
        main.or(only).and_then(|global| global.function).ok_or_else(|| {
            let expected = "a function `@main`".to_string();
            Fault::Syntax { expected, found: "none in this module".to_string() }.at(Span::default())
        })
    }

    fn enter(&mut self, function: FunctionId) -> Result<(ExprId, ActivationId)> {
        let function = self.module.functions[function.index()];
        let activation = ActivationId(self.activations.len() as u32);
        self.activations.push(Activation { level: function.level, parent: ActivationId(0), label: None });
        for param in self.module.vars_of(function.params) {
            self.declare(*param, activation)?;
        }
        Ok((function.body, activation))
    }

    /// Adds a parameter of the model to the graph.
    fn declare(&mut self, var: VarId, activation: ActivationId) -> Result<()> {
        let binding = self.module.vars[var.index()];
        if let Some(TypeExpr::Named(name, _)) = binding.ty.map(|ty| self.module.types[ty.index()])
            && !self.module.adts.iter().any(|adt| adt.name == name)
            && !self.module.name_pool.contains(&name)
        {
            let what =
                format!("`{}` is not a type: expected, for example, `Tensor[(1, 3), float32]` or `int64`", shown(name));
            return Err(Fault::Other(what).at(binding.span));
        }
        let said = binding.ty.filter(|ty| self.type_of(*ty).is_some()).or(binding.commented);
        let value = match said.and_then(|ty| self.type_of(ty)) {
            Some(ty) => {
                unknown_dims(binding.name, &ty, &mut self.unknown);
                let ty = bind(&self.options.bind_dims, binding.name, &ty);
                self.add_inputs(binding.name, &ty)
            }
            None if said.is_some() => {
                let what = format!("`%{}` is neither a tensor nor a tuple of tensors", binding.name);
                return Err(Fault::Other(what).at(binding.span));
            }
            None => {
                let tensor = self.add_input(binding.name, TensorType::of(DType::F32, &[]));
                self.untyped.insert(tensor);
                Value::Tensor(tensor)
            }
        };
        self.bind(var, activation, value)
    }
}
