//! Types as Relay text.

use super::printer::Printer;
use crate::ast::{DimExpr, IntWidth, TypeExpr, TypeId};

impl Printer<'_, '_> {
    /// Whether the type is printed: `_` is omitted.
    pub(super) fn has_text(&self, ty: TypeId) -> bool {
        self.module.types[ty.index()] != TypeExpr::Incomplete
    }

    /// Recursion is bounded by the parser's limit on the nesting of types.
    pub(super) fn type_text(&self, ty: TypeId) -> String {
        let list = |types: crate::ast::List| -> Vec<String> {
            self.module.types_of(types).iter().map(|ty| self.type_text(*ty)).collect()
        };
        match self.module.types[ty.index()] {
            TypeExpr::Tensor(dims, dtype) if dims.len == 0 => dtype.to_string(),
            TypeExpr::Tensor(dims, dtype) => {
                let dims: Vec<String> = self.module.dims_of(dims).iter().map(dim).collect();
                format!("Tensor[({}), {dtype}]", dims.join(", "))
            }
            TypeExpr::Tuple(fields) => match list(fields).as_slice() {
                [one] => format!("({one},)"),
                fields => format!("({})", fields.join(", ")),
            },
            TypeExpr::Function { type_params, args, result } => {
                format!("fn {}({}) -> {}", self.type_params(type_params), list(args).join(", "), self.type_text(result))
            }
            TypeExpr::Ref(inner) => format!("ref({})", self.type_text(inner)),
            TypeExpr::Named(name, args) if self.is_type_param(name) && args.len == 0 => name.to_string(),
            TypeExpr::Named(name, args) => format!("{name}[{}]", list(args).join(", ")),
            TypeExpr::Incomplete => "_".to_string(),
        }
    }

    fn is_type_param(&self, name: &str) -> bool {
        self.module.name_pool.contains(&name) && !self.module.adts.iter().any(|adt| adt.name == name)
    }
}

fn dim(dim: &DimExpr<'_>) -> String {
    match dim {
        DimExpr::Known(n, IntWidth::I64) => format!("{n}i64"),
        DimExpr::Known(n, IntWidth::I16) => format!("{n}i16"),
        DimExpr::Known(n, IntWidth::I32) => n.to_string(),
        DimExpr::Any => "?".to_string(),
        DimExpr::Meta(meta) => format!("meta[{}][{}]", meta.key, meta.index),
    }
}
