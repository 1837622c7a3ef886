//! bfloat16, which tract does not have: it travels as its bits in `u16`, and is computed in single precision
//! and rounded, as TVM's legalisation does.

use half::bf16;
use tract_core::internal::*;

use super::pointwise::{convert, each_into};
use super::{Alias, Call, Typed, kernel::Wiring};
use crate::graph::{DType, Type};

/// Whether `call` must be widened to single precision before its kernel sees it: views are the same bits.
pub(super) fn concerns(call: &Typed<'_>) -> bool {
    let half = |ty: &Type| ty.tensors().iter().any(|t| t.dtype == DType::Bf16);
    call.def.alias != Alias::View && (call.args.iter().any(half) || half(call.out))
}

/// Wires `call` with every bfloat16 operand and result in single precision, and conversions around it.
pub(super) fn widened(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
    let operands = call.args.iter().flat_map(|arg| arg.tensors());
    let mut wide_inputs: TVec<OutletId> = inputs.into();
    for (outlet, ty) in wide_inputs.iter_mut().zip(operands) {
        if ty.dtype == DType::Bf16 {
            *outlet = wiring.one(convert("bfloat16 to float32", DatumType::F32, widen), &[*outlet])?;
        }
    }
    let args: Vec<Type> = call.args.iter().map(wide_type).collect();
    let out = wide_type(call.out);
    let wide = Typed { call: Call { args: &args, ..call.call }, out: &out };
    let mut outlets = wiring.kernel(&wide, &wide_inputs)?;
    for (outlet, ty) in outlets.iter_mut().zip(call.out.tensors()) {
        if ty.dtype == DType::Bf16 {
            *outlet = wiring.one(convert("float32 to bfloat16", DatumType::U16, round), &[*outlet])?;
        }
    }
    Ok(outlets)
}

fn wide_type(ty: &Type) -> Type {
    match ty {
        Type::Tensor(tensor) => {
            let mut tensor = tensor.clone();
            if tensor.dtype == DType::Bf16 {
                tensor.dtype = DType::F32;
            }
            tensor.into()
        }
        // A result nests as deep as its type rule made it, never as deep as a file says.
        Type::Tuple(fields) => Type::Tuple(fields.iter().map(wide_type).collect()),
    }
}

fn widen(tensor: &Tensor, _to: DatumType) -> TractResult<Tensor> {
    each_into(tensor, |bits: u16| bf16::from_bits(bits).to_f32())
}

fn round(tensor: &Tensor, _to: DatumType) -> TractResult<Tensor> {
    each_into(tensor, |x: f32| bf16::from_f32(x).to_bits())
}
