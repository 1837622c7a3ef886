//! Overwrites elements by position: `trilu`, `matrix_set_diag`, `sequence_mask`.

use crate::rules::same_type;
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError};
use edgecut_graph::Type;

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("trilu", &["data", "k"], trilu_type)
        .attrs("relay.attrs.TriluAttrs", &[AttrDef::new("upper", AttrKind::Bool, "True")])
        .attrs_in_metadata()
        .class(FusionClass::Elementwise)
        .host(kernel!(trilu)),
    OpDef::new("matrix_set_diag", &["input", "diagonal"], diagonal_type)
        .attrs(
            "relay.attrs.MatrixSetDiagAttrs",
            &[
                AttrDef::new("k1", AttrKind::Int, "0"),
                AttrDef::new("k2", AttrKind::Int, "0"),
                AttrDef::new("super_diag_right_align", AttrKind::Bool, "True"),
                AttrDef::new("sub_diag_right_align", AttrKind::Bool, "False"),
            ],
        )
        .class(FusionClass::Injective)
        .host(kernel!(set_diagonal)),
    OpDef::new("sequence_mask", &["data", "valid_length"], mask_type)
        .attrs(
            "relay.attrs.SequenceMaskAttrs",
            &[AttrDef::new("mask_value", AttrKind::Float, "0f"), AttrDef::new("axis", AttrKind::Int, "0")],
        )
        .class(FusionClass::Injective)
        .host(kernel!(sequence_mask)),
];

fn trilu_type(call: &Call<'_>) -> Result<Type, TypeError> {
    match call.tensor(0)?.shape.rank() >= 2 {
        true => same_type(call),
        false => Err(call.error("expected a matrix or a batch of matrices")),
    }
}

fn diagonal_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (input, diagonal) = (call.tensor(0)?, call.tensor(1)?);
    call.same_dtype(input, diagonal)?;
    let (k1, k2) = (call.int("k1", 0)?, call.int("k2", 0)?);
    let lost = if k1 == k2 { 1 } else { 0 };
    match input.shape.rank() >= 2 && k1 <= k2 && diagonal.shape.rank() + lost == input.shape.rank() {
        true => Ok(input.clone().into()),
        false => Err(call.error(format!("diagonals {k1} to {k2} of {input} cannot be set from {diagonal}"))),
    }
}

fn mask_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, axis) = (call.tensor(0)?, call.int("axis", 0)?);
    match data.shape.rank() >= 2 && (axis == 0 || axis == 1) {
        true => same_type(call),
        false => Err(call.error(format!("axis {axis} of {data}: expected axis 0 or 1 of a tensor of rank 2 or more"))),
    }
}

#[cfg(feature = "kernels")]
mod kernel {
    use tract_core::internal::*;

    use crate::Typed;
    use crate::kernel::indexing::{each_place, flat, integers, strides};

    /// Overwrites each element of `tensor` for whose multi-index `new` returns bytes.
    fn overwrite<'a>(
        tensor: &mut Tensor,
        mut new: impl FnMut(&[usize]) -> TractResult<Option<&'a [u8]>>,
    ) -> TractResult<()> {
        let (shape, size): (TVec<usize>, usize) = (tensor.shape().into(), tensor.datum_type().size_of());
        let mut elements = tensor.as_bytes_mut().chunks_exact_mut(size);
        let mut result = Ok(());
        each_place(&shape, |place| match (elements.next(), new(place)) {
            (Some(element), Ok(Some(value))) => element.copy_from_slice(value),
            (_, Err(e)) => result = Err(e),
            _ => {}
        });
        result
    }

    /// Keeps the elements on and above (or below) the diagonal `k`.
    pub(super) fn trilu(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (upper, k) = (call.flag("upper", true)?, integers(&inputs[1])?);
        let k = *k.first().context("k is empty")?;
        let mut tensor = inputs[0].clone().into_tensor();
        let zero = Tensor::zero_scalar_dt(tensor.datum_type())?;
        overwrite(&mut tensor, |place| {
            let (row, column) = (place[place.len() - 2] as i64, place[place.len() - 1] as i64);
            let keep = if upper { column >= row + k } else { column <= row + k };
            Ok((!keep).then(|| zero.as_bytes()))
        })?;
        Ok(tvec!(tensor))
    }

    /// Diagonal k, from k1 to k2, is row k2 − k of the diagonals, left- or right-aligned.
    pub(super) fn set_diagonal(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (k1, k2) = (call.int("k1", 0)?, call.int("k2", 0)?);
        let super_right = call.flag("super_diag_right_align", true)?;
        let sub_right = call.flag("sub_diag_right_align", false)?;
        let (input, diagonal) = (&inputs[0], &inputs[1]);
        let rank = input.rank();
        let (rows, columns) = (input.shape()[rank - 2] as i64, input.shape()[rank - 1] as i64);
        let longest = diagonal.shape().last().copied().unwrap_or(0) as i64;
        let strides = strides(diagonal.shape());
        let mut tensor = input.clone().into_tensor();
        let size = tensor.datum_type().size_of();
        overwrite(&mut tensor, |place| {
            let (row, column) = (place[rank - 2] as i64, place[rank - 1] as i64);
            let k = column - row;
            if !(k1..=k2).contains(&k) {
                return Ok(None);
            }
            let mut along = if k >= 0 { row } else { column };
            if k1 != k2 && (if k >= 0 { super_right } else { sub_right }) {
                along += longest - if k >= 0 { (columns - k).min(rows) } else { columns.min(rows + k) };
            }
            let mut at = flat(&strides[..rank - 2], &place[..rank - 2]) as i64 + along;
            if k1 != k2 {
                at += (k2 - k) * longest;
            }
            let at =
                usize::try_from(at).ok().filter(|at| *at < diagonal.len()).context("the diagonals are too short")?;
            Ok(Some(&diagonal.as_bytes()[at * size..][..size]))
        })?;
        Ok(tvec!(tensor))
    }

    /// Elements at or beyond the length of their sequence along `axis` become the mask value; the other one of the first two
    /// axes is the batch.
    pub(super) fn sequence_mask(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (axis, value) = (call.axis("axis", 0, &call.tensor(0)?.shape)?, call.float("mask_value", 0.0)?);
        let lengths = integers(&inputs[1])?;
        let mut tensor = inputs[0].clone().into_tensor();
        ensure!(lengths.len() == tensor.shape()[1 - axis], "expected one length per sequence");
        let value = tensor0(value).cast_to_dt(tensor.datum_type())?.into_owned();
        overwrite(&mut tensor, |place| Ok((place[axis] as i64 >= lengths[place[1 - axis]]).then(|| value.as_bytes())))?;
        Ok(tvec!(tensor))
    }
}
