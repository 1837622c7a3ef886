//! Comparison of stated types with inferred ones.

use super::{
    lowering::Lowering,
    types::{convert_dim, unify},
    value::Value,
};
use crate::{
    Fault, ParseMode, Span, TypeMismatch,
    ast::{DimExpr, ExprId, TypeExpr, TypeId, VarId},
    error::Result,
};
use edgecut_graph::{Dim, Type};

impl Lowering<'_, '_> {
    /// Compares a value with the `ty=` comment of its expression.
    pub(super) fn check_note(&mut self, expr: ExprId, value: Value) {
        let note = self.module.note(expr);
        if let Some(ty) = note.ty {
            self.check(ty, value, note.span);
        }
    }

    /// Compares what a variable is bound to with its annotation and its comment.
    ///
    /// # Errors
    /// As [`Lowering::check_annotation`].
    pub(super) fn check_var(&mut self, var: VarId, value: Value) -> Result<()> {
        let var = self.module.vars[var.index()];
        if let Some(ty) = var.ty {
            self.refuse_contradiction(ty, value, var.span)?;
        }
        if let Some(ty) = var.commented.or(var.ty) {
            self.check(ty, value, var.span);
        }
        Ok(())
    }

    /// Compares a value with the type that its function or variable is annotated with.
    ///
    /// # Errors
    /// In strict mode, if the two differ: TVM lets comments say anything, annotations not.
    pub(super) fn check_annotation(&mut self, ty: TypeId, value: Value, span: Span) -> Result<()> {
        self.refuse_contradiction(ty, value, span)?;
        self.check(ty, value, span);
        Ok(())
    }

    fn refuse_contradiction(&mut self, ty: TypeId, value: Value, span: Span) -> Result<()> {
        if self.options.mode == ParseMode::Tolerant {
            return Ok(());
        }
        let (Some(annotated), Some(found)) = (self.type_of(ty), self.value_type(value)) else { return Ok(()) };
        if unify(&annotated, &found) {
            return Ok(());
        }
        Err(Fault::Other(format!("the annotation says {annotated}, the value is {found}")).at(span))
    }

    fn check(&mut self, ty: TypeId, value: Value, span: Span) {
        let Some(agrees) = self.agrees(ty, value) else { return };
        self.checks.checked += 1;
        if !agrees {
            let theirs = self.type_of(ty).map_or_else(String::new, |ty| ty.to_string());
            let ours = self.value_type(value).map_or_else(String::new, |ty| ty.to_string());
            let place = self.place(span);
            self.checks.mismatches.push(TypeMismatch { place, stated: theirs, inferred: ours });
        }
    }

    /// Whether a value has the type that the text says; `None` if the text's type is none of a tensor or tuple.
    fn agrees(&self, ty: TypeId, value: Value) -> Option<bool> {
        match (self.module.types[ty.index()], value) {
            (TypeExpr::Tensor(dims, dtype), Value::Tensor(tensor)) => {
                let ours = &self.graph.tensor(tensor).ty;
                let theirs = self.module.dims_of(dims);
                let bound = !self.options.bind_dims.is_empty();
                let dim = |(theirs, ours): (&DimExpr<'_>, &Dim)| match convert_dim(*theirs) {
                    Dim::Any => bound || *ours == Dim::Any,
                    theirs => theirs == *ours,
                };
                Some(
                    ours.dtype == dtype
                        && theirs.len() == ours.shape.rank()
                        && theirs.iter().zip(&*ours.shape).all(dim),
                )
            }
            (TypeExpr::Tuple(types), Value::Tuple(fields)) => {
                let types = self.module.types_of(types);
                let fields = self.fields.get(fields.range())?;
                if types.len() != fields.len() {
                    return Some(false);
                }
                let all = types.iter().zip(fields).map(|(ty, field)| self.agrees(*ty, *field));
                all.collect::<Option<Vec<bool>>>().map(|all| all.into_iter().all(|agrees| agrees))
            }
            (TypeExpr::Tensor(..), Value::Tuple(_)) | (TypeExpr::Tuple(_), Value::Tensor(_)) => Some(false),
            _ => None,
        }
    }

    /// The type of a value without functions in it, unless it is a tuple nested absurdly deep or wide.
    pub(super) fn value_type(&self, value: Value) -> Option<Type> {
        self.nested_value_type(value, 0, &mut 10_000)
    }

    fn nested_value_type(&self, value: Value, depth: usize, left: &mut usize) -> Option<Type> {
        *left = left.checked_sub(1)?;
        match value {
            Value::Tensor(tensor) => Some(Type::Tensor(self.graph.tensor(tensor).ty.clone())),
            Value::Tuple(list) if depth < 8 => {
                let fields = self.fields.get(list.range())?;
                fields
                    .iter()
                    .map(|field| self.nested_value_type(*field, depth + 1, left))
                    .collect::<Option<_>>()
                    .map(Type::Tuple)
            }
            _ => None,
        }
    }
}
