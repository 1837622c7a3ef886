//! Types of the text as types of the graph.

use crate::ast::{DimExpr, IntWidth, Module, TypeExpr, TypeId};
use edgecut_graph::{Dim, TensorType, Type};

/// Converts a type; `None` for types of functions, references and algebraic data types.
///
/// Recursion is bounded by the parser's limit on the nesting of types.
pub(super) fn convert(module: &Module<'_>, ty: TypeId) -> Option<Type> {
    match module.types[ty.index()] {
        TypeExpr::Tensor(dims, dtype) => {
            let shape = module.dims_of(dims).iter().map(|dim| convert_dim(*dim)).collect();
            Some(Type::Tensor(TensorType::new(dtype, shape)))
        }
        TypeExpr::Tuple(fields) => {
            module.types_of(fields).iter().map(|field| convert(module, *field)).collect::<Option<_>>().map(Type::Tuple)
        }
        _ => None,
    }
}

/// Whether TVM's type inference unifies the types: an unknown dimension unifies with any other.
///
/// Recursion is bounded as that of [`convert`].
pub(super) fn unify(a: &Type, b: &Type) -> bool {
    let same = |(a, b): (&Dim, &Dim)| *a == Dim::Any || *b == Dim::Any || a.same(*b);
    match (a, b) {
        (Type::Tensor(a), Type::Tensor(b)) => {
            a.dtype == b.dtype && a.shape.rank() == b.shape.rank() && a.shape.iter().zip(&*b.shape).all(same)
        }
        (Type::Tuple(a), Type::Tuple(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| unify(a, b)),
        _ => false,
    }
}

pub(super) fn convert_dim(dim: DimExpr<'_>) -> Dim {
    match dim {
        DimExpr::Known(n, IntWidth::I64) => Dim::Wide(n),
        DimExpr::Known(n, _) => Dim::Known(n),
        DimExpr::Any | DimExpr::Meta(_) => Dim::Any,
    }
}
