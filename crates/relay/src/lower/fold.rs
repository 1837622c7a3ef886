//! Constant folding during the import, so that conditions and loop counters are known.
//!
//! Conditions and counters are scalars, so in programs with branches operators on constant scalars are folded. TVM compiles
//! programs that call function literals in place after partial evaluation, which folds `zeros` and `ones` too, unless they are
//! in A-normal form. In all other programs every operator of the text is one of the graph, in functions bound by `let` too.

use crate::ast::{Expr, ExprId, Module};
use edgecut_graph::{DType, TensorData, TensorType, units::Bytes};

/// Largest folded tensor of zeros or ones.
const LIMIT: Bytes = Bytes(1 << 20);

/// Limit on the size of all folded results: a loop in a small file could produce any number of them.
pub(super) const MAX_FOLDED_BYTES: usize = 64 << 20;

/// What is folded in a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Folding {
    Nothing,
    /// Operators on constant scalars.
    Scalars,
    /// Those, and `zeros` and `ones` of any shape.
    Filled,
}

impl Folding {
    /// What the program needs.
    pub(super) fn of(module: &Module<'_>) -> Folding {
        let in_place = |expr: &Expr| match expr {
            Expr::Call { callee, .. } => match module.expr(*callee) {
                Expr::Function(function) => {
                    let attrs = module.functions[function.index()].attrs;
                    ["Primitive", "Composite", "Compiler"].iter().all(|key| module.attr(attrs, key).is_none())
                }
                _ => false,
            },
            _ => false,
        };
        if module.exprs.iter().any(in_place) && !is_in_a_normal_form(module) {
            Folding::Filled
        } else if module.exprs.iter().any(|expr| matches!(expr, Expr::If { .. })) {
            Folding::Scalars
        } else {
            Folding::Nothing
        }
    }

    /// The result of the operator `name` with type `ty`; `None` if it is not folded.
    pub(super) fn evaluate(self, name: &str, operands: &[&TensorData], ty: &TensorType) -> Option<TensorData> {
        if operands.is_empty() {
            let is_folded = self == Folding::Filled || self == Folding::Scalars && ty.shape.rank() == 0;
            return is_folded.then(|| filled(name, ty)).flatten();
        }
        if self == Folding::Nothing || ty.shape.rank() > 0 || operands.iter().any(|o| !o.shape().is_empty()) {
            return None;
        }
        let float = operands.iter().any(|operand| operand.dtype().is_float());
        let bytes = if float {
            let values: Vec<f64> = operands.iter().map(|o| o.to_f64s()?.first().copied()).collect::<Option<_>>()?;
            encode_float(float_result(name, &values)?, ty.dtype)?
        } else {
            let values: Vec<i64> = operands.iter().map(|o| o.to_i64s()?.first().copied()).collect::<Option<_>>()?;
            encode_integer(integer_result(name, &values)?, ty.dtype)?
        };
        TensorData::new(ty.dtype, [], bytes).ok()
    }
}

/// Whether all operands are variables or constants (Flanagan et al., The essence of compiling with continuations, 1993).
fn is_in_a_normal_form(module: &Module<'_>) -> bool {
    let is_atomic =
        |id: &ExprId| matches!(module.expr(*id), Expr::Var(_) | Expr::Global(_) | Expr::Scalar(_) | Expr::Meta(_));
    module.exprs.iter().all(|expr| match expr {
        Expr::Call { args, .. } => module.exprs_of(*args).iter().all(is_atomic),
        Expr::Tuple(fields) => module.exprs_of(*fields).iter().all(is_atomic),
        Expr::Project(tuple, _) => is_atomic(tuple),
        _ => true,
    })
}

fn filled(name: &str, ty: &TensorType) -> Option<TensorData> {
    let element = match name {
        "zeros" => encode_integer(0, ty.dtype)?,
        "ones" => encode_integer(1, ty.dtype)?,
        _ => return None,
    };
    let shape = ty.shape.fixed()?.to_vec();
    let count = ty.shape.elements()?;
    ty.bytes().filter(|bytes| *bytes <= LIMIT)?;
    TensorData::new(ty.dtype, shape, element.repeat(usize::try_from(count).ok()?)).ok()
}

fn float_result(name: &str, values: &[f64]) -> Option<f64> {
    let truth = |value: bool| Some(f64::from(u8::from(value)));
    match (name, values) {
        ("add", [a, b]) => Some(a + b),
        ("subtract", [a, b]) => Some(a - b),
        ("multiply", [a, b]) => Some(a * b),
        ("cast", [a]) => Some(*a),
        ("less", [a, b]) => truth(a < b),
        ("less_equal", [a, b]) => truth(a <= b),
        ("greater", [a, b]) => truth(a > b),
        ("greater_equal", [a, b]) => truth(a >= b),
        ("equal", [a, b]) => truth(a == b),
        ("not_equal", [a, b]) => truth(a != b),
        _ => None,
    }
}

fn integer_result(name: &str, values: &[i64]) -> Option<i64> {
    let truth = |value: bool| Some(i64::from(value));
    match (name, values) {
        ("add", [a, b]) => Some(a.wrapping_add(*b)),
        ("subtract", [a, b]) => Some(a.wrapping_sub(*b)),
        ("multiply", [a, b]) => Some(a.wrapping_mul(*b)),
        ("cast", [a]) => Some(*a),
        ("less", [a, b]) => truth(a < b),
        ("less_equal", [a, b]) => truth(a <= b),
        ("greater", [a, b]) => truth(a > b),
        ("greater_equal", [a, b]) => truth(a >= b),
        ("equal", [a, b]) => truth(a == b),
        ("not_equal", [a, b]) => truth(a != b),
        ("logical_and", [a, b]) => truth(*a != 0 && *b != 0),
        ("logical_or", [a, b]) => truth(*a != 0 || *b != 0),
        ("logical_not", [a]) => truth(*a == 0),
        _ => None,
    }
}

/// One element from an integer, wrapped to the dtype's width.
pub(super) fn encode_integer(value: i64, dtype: DType) -> Option<Vec<u8>> {
    match dtype {
        DType::Bool => Some(vec![u8::from(value != 0)]),
        DType::Exotic(_) => None,
        _ if dtype.is_float() => encode_float(value as f64, dtype),
        _ => value.to_le_bytes().get(..dtype.size() as usize).map(<[u8]>::to_vec),
    }
}

/// One element from a float, rounded to the dtype, or truncated if it is an integer's.
pub(super) fn encode_float(value: f64, dtype: DType) -> Option<Vec<u8>> {
    match dtype {
        DType::F16 => Some(half::f16::from_f64(value).to_le_bytes().to_vec()),
        DType::Bf16 => Some(half::bf16::from_f64(value).to_le_bytes().to_vec()),
        DType::F32 => Some((value as f32).to_le_bytes().to_vec()),
        DType::F64 => Some(value.to_le_bytes().to_vec()),
        DType::Bool => Some(vec![u8::from(value != 0.0)]),
        _ => encode_integer(value as i64, dtype),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(dtype: DType, value: f64) -> TensorData {
        TensorData::new(dtype, [], encode_float(value, dtype).unwrap()).unwrap()
    }

    #[test]
    fn scalars_are_computed_in_their_own_width() {
        let ty = |dtype| TensorType::of(dtype, &[]);
        let two = |name, dtype, a, b, out| {
            let (a, b) = (scalar(dtype, a), scalar(dtype, b));
            Folding::Scalars.evaluate(name, &[&a, &b], &ty(out)).unwrap().to_f64s().unwrap()[0]
        };
        assert_eq!(two("less", DType::I32, 0.0, 4.0, DType::Bool), 1.0);
        assert_eq!(two("add", DType::I8, 127.0, 1.0, DType::I8), -128.0);
        assert_eq!(two("multiply", DType::F32, 0.5, 3.0, DType::F32), 1.5);
        assert!(Folding::Scalars.evaluate("tanh", &[&scalar(DType::F32, 1.0)], &ty(DType::F32)).is_none());
    }

    #[test]
    fn zeros_and_ones_up_to_a_size() {
        let two = TensorType::of(DType::F16, &[2]);
        let ones = Folding::Filled.evaluate("ones", &[], &two).unwrap();
        assert_eq!(ones.to_f64s(), Some(vec![1.0, 1.0]));
        assert!(Folding::Filled.evaluate("zeros", &[], &TensorType::of(DType::F32, &[1 << 40])).is_none());
        assert!(Folding::Scalars.evaluate("ones", &[], &two).is_none());
        assert!(Folding::Scalars.evaluate("ones", &[], &TensorType::of(DType::F16, &[])).is_some());
    }
}
