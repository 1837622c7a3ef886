//! bfloat16, which tract lacks: stored as its bits in `u16`, computed in float32 and rounded, as TVM's legalisation does.

use edgecut_graph::{Alias, DType, Type};
use half::bf16;
use tract_core::internal::*;

use crate::{
    def::{Call, Typed},
    kernel::{
        pointwise::{convert, each_into},
        wiring::Wiring,
    },
};

/// Whether `call` must be converted to float32 for its kernel. Views need no conversion: they copy bits.
pub(crate) fn uses_bfloat16(call: &Typed<'_>) -> bool {
    let bfloat = |ty: &Type| ty.tensors().iter().any(|t| t.dtype == DType::Bf16);
    call.def.alias != Alias::View && (call.args.iter().any(bfloat) || bfloat(call.out))
}

/// Wires `call` by `kernel` with every bfloat16 operand and result in float32, and the conversions around it.
pub(crate) fn in_float32(
    wiring: &mut Wiring<'_>,
    call: &Typed<'_>,
    inputs: &[OutletId],
    kernel: impl FnOnce(&mut Wiring<'_>, &Typed<'_>, &[OutletId]) -> TractResult<TVec<OutletId>>,
) -> TractResult<TVec<OutletId>> {
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
    let mut outlets = kernel(wiring, &wide, &wide_inputs)?;
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
        // The nesting depth is that of the type rule, not of a file.
        Type::Tuple(fields) => Type::Tuple(fields.iter().map(wide_type).collect()),
    }
}

fn widen(tensor: &Tensor, _to: DatumType) -> TractResult<Tensor> {
    each_into(tensor, |bits: u16| bf16::from_bits(bits).to_f32())
}

fn round(tensor: &Tensor, _to: DatumType) -> TractResult<Tensor> {
    each_into(tensor, |x: f32| bf16::from_f32(x).to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_to_nearest_even() {
        for (x, bits) in [(1.0f32, 0x3f80), (1.003_906_2, 0x3f80), (1.011_718_8, 0x3f82), (-2.5, 0xc020)] {
            let rounded = round(&tensor1(&[x]), DatumType::U16).unwrap();
            assert_eq!(rounded, tensor1(&[bits as u16]), "{x}");
        }
    }

    #[test]
    fn widening_is_exact() {
        assert_eq!(widen(&tensor1(&[0x4049u16]), DatumType::F32).unwrap(), tensor1(&[3.140_625f32]));
    }
}
