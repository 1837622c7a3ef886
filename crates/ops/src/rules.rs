//! Type rules and costs that several families share: identity, numpy broadcasting, operations per element.

use edgecut_graph::{DType, Dim, Shape, TensorType, Type};

use crate::{
    attr::dims_of,
    def::{Call, TypeError, Typed},
};

/// FLOPs of a division, square root, logarithm or other function.
///
/// TVM counts none of these. A vectorised exponential, logistic function or error function takes about ten instructions,
/// and a division about as many cycles; all are counted as eight.
pub(crate) const FUNCTION_COST: u64 = 8;

/// The result has the type of the first operand.
pub(crate) fn same_type(call: &Call<'_>) -> Result<Type, TypeError> {
    Ok(call.tensor(0)?.clone().into())
}

/// Two operands of the same dtype, broadcast against each other.
pub(crate) fn broadcast_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (lhs, rhs) = (call.tensor(0)?, call.tensor(1)?);
    call.same_dtype(lhs, rhs)?;
    Ok(TensorType::new(lhs.dtype, call.broadcast(&lhs.shape, &rhs.shape)?).into())
}

/// As [`broadcast_type`], with a bool result.
pub(crate) fn compare_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (lhs, rhs) = (call.tensor(0)?, call.tensor(1)?);
    call.same_dtype(lhs, rhs)?;
    Ok(TensorType::new(DType::Bool, call.broadcast(&lhs.shape, &rhs.shape)?).into())
}

/// `N` operations per element of the results.
pub(crate) fn per_output<const N: u64>(call: &Typed<'_>) -> u64 {
    let elements: u64 = call.out.tensors().iter().filter_map(|t| t.shape.elements()).sum();
    N.saturating_mul(elements)
}

/// `N` operations per element of the first operand.
pub(crate) fn per_input<const N: u64>(call: &Typed<'_>) -> u64 {
    let elements = call.args.first().map_or(0, |arg| arg.tensors().iter().filter_map(|t| t.shape.elements()).sum());
    N.saturating_mul(elements)
}

/// Unifies two dimensions, which must be equal or unknown; `None` if they differ.
pub(crate) fn unify(a: Dim, b: Dim) -> Option<Dim> {
    match (a.get(), b.get()) {
        (_, None) => Some(a),
        (None, _) => Some(b),
        (Some(x), Some(y)) => (x == y).then_some(a),
    }
}

/// Numpy broadcasting of two right-aligned shapes; `?` with 1 is `?`, `?` with k > 1 is k.
fn broadcast_shapes(a: &[Dim], b: &[Dim]) -> Option<Shape> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let lead = long.len() - short.len();
    let joined = long[lead..].iter().zip(short).map(|(&x, &y)| match (x.get(), y.get()) {
        (Some(1), _) => Some(y),
        (_, Some(1)) => Some(x),
        _ => unify(x, y),
    });
    long[..lead].iter().copied().map(Some).chain(joined).collect()
}

impl Call<'_> {
    /// # Errors
    /// If the shapes cannot be broadcast against each other.
    pub(crate) fn broadcast(&self, a: &Shape, b: &Shape) -> Result<Shape, TypeError> {
        broadcast_shapes(a, b).ok_or_else(|| self.error(format!("shapes {a} and {b} cannot be broadcast")))
    }

    /// # Errors
    /// If the operands have different dtypes.
    pub(crate) fn same_dtype(&self, a: &TensorType, b: &TensorType) -> Result<(), TypeError> {
        match a.dtype == b.dtype {
            true => Ok(()),
            false => Err(self.error(format!("operands are {} and {}, expected equal dtypes", a.dtype, b.dtype))),
        }
    }

    /// A shape of unknown dimensions with the rank that operand `index`, a vector of dimensions, implies.
    pub(crate) fn unknown_shape(&self, index: usize) -> Result<Shape, TypeError> {
        let operand = self.tensor(index)?;
        match (operand.shape.rank(), operand.shape.first().and_then(|d| d.get())) {
            (1, Some(rank)) if rank <= 64 => Ok((0..rank).map(|_| Dim::Any).collect()),
            _ => Err(self.error(format!("operand {index} is {operand}, expected a vector of known length"))),
        }
    }

    /// The shape that operand `index` holds if its value is known; else unknown dimensions of the implied rank.
    pub(crate) fn shape_operand(&self, index: usize) -> Result<Shape, TypeError> {
        match self.value(index) {
            Some(value) => dims_of(value).ok_or_else(|| self.error(format!("operand {index} is not a shape"))),
            None => self.unknown_shape(index),
        }
    }

    /// The index of the attribute `key`, a possibly negative axis of `shape`.
    pub(crate) fn axis(&self, key: &str, default: i64, shape: &Shape) -> Result<usize, TypeError> {
        self.axis_in(self.int(key, default)?, shape)
    }

    /// The index of a possibly negative axis of `shape`.
    pub(crate) fn axis_in(&self, axis: i64, shape: &Shape) -> Result<usize, TypeError> {
        shape.axis(axis).ok_or_else(|| self.error(format!("axis {axis} is out of range for rank {}", shape.rank())))
    }
}

impl Typed<'_> {
    /// The only result as a tensor type.
    pub(crate) fn result(&self) -> Result<&TensorType, TypeError> {
        self.out.tensor().ok_or_else(|| self.error("the result is a tuple, expected one tensor"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_unify_if_equal_or_unknown() {
        let (any, two, three) = (Dim::Any, Dim::Known(2), Dim::Known(3));
        for (a, b, unified) in [
            (two, two, Some(two)),
            (two, three, None),
            (any, two, Some(two)),
            (two, any, Some(two)),
            (any, any, Some(any)),
            (Dim::Wide(2), two, Some(Dim::Wide(2))),
        ] {
            assert_eq!(unify(a, b), unified, "{a:?} {b:?}");
        }
    }

    #[test]
    fn shapes_broadcast_right_aligned() {
        let shape =
            |dims: &[i64]| -> Shape { dims.iter().map(|&d| u64::try_from(d).map_or(Dim::Any, Dim::Known)).collect() };
        for (a, b, joined) in [
            (&[2, 3][..], &[3][..], Some(&[2, 3][..])),
            (&[2, 1, 4], &[3, 1], Some(&[2, 3, 4])),
            (&[], &[5], Some(&[5])),
            (&[0], &[1], Some(&[0])),
            (&[-1], &[1], Some(&[-1])),
            (&[-1], &[7], Some(&[7])),
            (&[2], &[3], None),
        ] {
            let want = joined.map(shape);
            assert_eq!(broadcast_shapes(&shape(a), &shape(b)), want, "{a:?} {b:?}");
            assert_eq!(broadcast_shapes(&shape(b), &shape(a)), want, "{b:?} {a:?}");
        }
    }
}
