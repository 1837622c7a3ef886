//! Element types of ONNX Runtime's CPU kernels, and the wider type in which others are computed.
//!
//! ONNX allows more types than runtimes have kernels for. The table lists what ONNX Runtime has had since 1.17
//! (`docs/OperatorKernels.md` there); an operator that is not listed takes every type.

use edgecut_graph::DType;
use edgecut_graph::DType::{Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};

use crate::error::Result;

const FLOATS: &[DType] = &[F32, F64];
const F32_ONLY: &[DType] = &[F32];
const NUMBERS: &[DType] = &[F32, F64, I32, I64];
/// With the type that no other holds: where a runtime lacks the kernel it says so, and a wrong order would not be seen.
const ORDERED: &[DType] = &[F32, F64, I32, I64, U64];
/// Operators of set 18 that are not defined on half floats at all.
const WITHOUT_HALF: &[&str] = &["IsInf", "Range"];
const BITS: &[DType] = &[I32, I64, U32, U64];

/// The kernels of one operator.
pub(super) struct Kernels {
    op: &'static str,
    /// The first input whose type the kernels restrict; inputs before it have types of their own.
    pub data: usize,
    types: &'static [DType],
    /// Whether its result is bool whatever its operands are.
    pub predicate: bool,
}

const fn kernels(op: &'static str, types: &'static [DType]) -> Kernels {
    Kernels { op, data: 0, types, predicate: false }
}

const fn predicate(op: &'static str, types: &'static [DType]) -> Kernels {
    Kernels { op, data: 0, types, predicate: true }
}

const TABLE: &[Kernels] = &[
    kernels("Abs", NUMBERS),
    kernels("Acos", F32_ONLY),
    kernels("Acosh", F32_ONLY),
    kernels("Add", NUMBERS),
    kernels("ArgMax", &[F32, F64, I32, U8, I8]),
    kernels("ArgMin", &[F32, F64, I32, U8, I8]),
    kernels("Asin", F32_ONLY),
    kernels("Asinh", F32_ONLY),
    kernels("Atan", F32_ONLY),
    kernels("Atanh", F32_ONLY),
    kernels("AveragePool", F32_ONLY),
    kernels("BatchNormalization", FLOATS),
    kernels("BitShift", &[U32, U64, U8]),
    kernels("BitwiseAnd", BITS),
    kernels("BitwiseNot", BITS),
    kernels("BitwiseOr", BITS),
    kernels("BitwiseXor", BITS),
    kernels("Ceil", FLOATS),
    kernels("Clip", &[F32, F64, I8, U8, I32, I64, U32, U64]),
    kernels("Conv", F32_ONLY),
    kernels("ConvTranspose", F32_ONLY),
    kernels("Cos", FLOATS),
    kernels("Cosh", F32_ONLY),
    kernels("CumSum", NUMBERS),
    kernels("DepthToSpace", FLOATS),
    kernels("Div", ORDERED),
    kernels("Einsum", NUMBERS),
    kernels("Einsum", NUMBERS),
    kernels("Elu", F32_ONLY),
    predicate("Equal", &[Bool, F32, F64, I32, I64]),
    kernels("Erf", F32_ONLY),
    kernels("Exp", FLOATS),
    kernels("Expand", &[Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64]),
    kernels("Floor", FLOATS),
    kernels("GRU", F32_ONLY),
    kernels("Gemm", FLOATS),
    kernels("GlobalAveragePool", F32_ONLY),
    kernels("GlobalMaxPool", F32_ONLY),
    predicate("Greater", ORDERED),
    predicate("GreaterOrEqual", ORDERED),
    kernels("GridSample", F32_ONLY),
    kernels("HardSigmoid", F32_ONLY),
    kernels("InstanceNormalization", F32_ONLY),
    predicate("IsInf", FLOATS),
    predicate("IsNaN", FLOATS),
    kernels("LRN", F32_ONLY),
    kernels("LSTM", F32_ONLY),
    kernels("LayerNormalization", FLOATS),
    kernels("LeakyRelu", F32_ONLY),
    predicate("Less", ORDERED),
    predicate("LessOrEqual", ORDERED),
    kernels("Log", FLOATS),
    kernels("LogSoftmax", FLOATS),
    kernels("MatMul", &[F32, F64, I32, I64, U32, U64]),
    kernels("Max", ORDERED),
    kernels("MaxPool", &[F32, F64, I8, U8]),
    kernels("Min", ORDERED),
    kernels("Mod", &[F32, F64, I8, I16, I32, I64, U8, U16, U32, U64]),
    kernels("Mul", NUMBERS),
    kernels("Neg", &[F32, F64, I8, I32, I64]),
    kernels("NonZero", &[Bool, F32, I32, I64, U8]),
    kernels("PRelu", F32_ONLY),
    kernels("Pad", &[Bool, F32, F64, I8, I32, I64, U8, U32, U64]),
    kernels("Pow", NUMBERS),
    kernels("RNN", F32_ONLY),
    kernels("Range", NUMBERS),
    kernels("Reciprocal", FLOATS),
    kernels("ReduceMax", &[F32, F64, I8, I32, I64, U8]),
    kernels("ReduceMean", &[F32, F64, I32]),
    kernels("ReduceMin", &[F32, F64, I8, I32, I64, U8]),
    kernels("ReduceProd", &[F32, I32, I64]),
    kernels("ReduceSum", NUMBERS),
    kernels("Relu", FLOATS),
    kernels("Resize", F32_ONLY),
    kernels("RoiAlign", FLOATS),
    kernels("Round", FLOATS),
    kernels("Sigmoid", FLOATS),
    kernels("Sign", &[F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64]),
    kernels("Sin", FLOATS),
    kernels("Sinh", F32_ONLY),
    kernels("Softmax", FLOATS),
    kernels("Softplus", F32_ONLY),
    kernels("SpaceToDepth", FLOATS),
    kernels("Sqrt", FLOATS),
    kernels("Sub", NUMBERS),
    kernels("Tan", F32_ONLY),
    kernels("Tanh", FLOATS),
    kernels("Tile", &[Bool, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64]),
    kernels("ThresholdedRelu", F32_ONLY),
    kernels("TopK", NUMBERS),
    kernels("Trilu", &[F32, F64, I64]),
    Kernels { op: "Where", data: 1, types: &[F32, F64, I32, I64, U8], predicate: false },
];

/// The restrictions of an operator; `None` if it takes every type.
pub(super) fn restrictions(op: &str) -> Option<&'static Kernels> {
    TABLE.iter().find(|kernels| kernels.op == op)
}

impl Kernels {
    /// The type in which elements of `dtype` are computed: itself, or the narrowest that holds all its values. Results of
    /// integers wrap when they are converted back, as TVM's do.
    ///
    /// # Errors
    /// If no type holds all values.
    pub fn computed_in(&self, dtype: DType) -> Result<DType> {
        // ONNX Runtime itself inserts casts around nodes without a half-precision kernel, and none between two such
        // nodes.
        let converts = dtype == F16 && self.types.contains(&F32) && !WITHOUT_HALF.contains(&self.op);
        if self.types.contains(&dtype) || converts {
            return Ok(dtype);
        }
        let wider: &[DType] = match dtype {
            Bool => &[U8, I32, I64, F32],
            I8 | U8 | I16 | U16 => &[I32, I64, F32],
            U32 => &[I64, F64],
            U64 => &[I64],
            I32 => &[I64, F64],
            F16 | DType::Bf16 => &[F32, F64],
            F32 => &[F64],
            I64 | F64 | DType::Exotic(_) => &[],
        };
        let found = wider.iter().find(|wide| self.types.contains(wide));
        found.copied().ok_or_else(|| format!("ONNX Runtime has no kernel of {} for {dtype}", self.op))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_without_a_kernel_are_computed_in_a_wider_one() {
        let wide = |op, dtype| restrictions(op).unwrap().computed_in(dtype);
        assert_eq!(wide("Add", I8), Ok(I32));
        assert_eq!(wide("Add", F32), Ok(F32));
        assert_eq!((wide("Conv", F16), wide("Conv", DType::Bf16)), (Ok(F16), Ok(F32)));
        assert_eq!(wide("IsInf", F16), Ok(F32));
        assert_eq!(wide("Where", Bool), Ok(U8));
        assert!(wide("Erf", F64).is_err());
        assert!(restrictions("Gather").is_none());
    }
}
