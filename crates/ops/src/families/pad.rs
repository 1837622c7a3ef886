//! Padding with a constant, by edge replication or by reflection, and `nn.dilate`.

use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed, layout::map_dim, split::SplitAxis};
use edgecut_graph::{Attr, Type};

pub(crate) const PAD: &[AttrDef] =
    &[AttrDef::required("pad_width", AttrKind::Ints), AttrDef::new("pad_mode", AttrKind::Str, "\"constant\"")];

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("nn.pad", &["data", "pad_val"], pad_type)
        .attrs("relay.attrs.PadAttrs", PAD)
        .class(FusionClass::Injective)
        .split(pad_axes)
        .wire(kernel!(pad)),
    OpDef::new("nn.mirror_pad", &["data"], pad_type)
        .attrs(
            "relay.attrs.MirrorPadAttrs",
            &[AttrDef::new("mode", AttrKind::Str, "\"SYMMETRIC\""), AttrDef::required("pad_width", AttrKind::Ints)],
        )
        .class(FusionClass::Injective)
        .split(pad_axes)
        .wire(kernel!(mirror_pad)),
    OpDef::new("nn.dilate", &["x"], dilate_type)
        .attrs(
            "relay.attrs.DilateAttrs",
            &[AttrDef::new("strides", AttrKind::Ints, "[1, 1]"), AttrDef::new("dilation_value", AttrKind::Float, "0f")],
        )
        .attrs_in_metadata()
        .class(FusionClass::Injective)
        .wire(kernel!(dilate)),
];

/// The content of the padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Padding {
    /// A constant.
    Value,
    /// The nearest edge element.
    Edge,
    /// Reflection without repetition of the edge elements.
    Reflect,
    /// Reflection with repetition of the edge elements.
    Symmetric,
}

impl Padding {
    /// The index into an axis of length `n` that position `at` (negative before the axis) is copied from; `None` for
    /// the constant.
    fn index(self, at: i64, n: i64) -> Option<usize> {
        let period = match self {
            _ if (0..n).contains(&at) => return usize::try_from(at).ok(),
            Padding::Value => return None,
            Padding::Edge => return usize::try_from(at.clamp(0, n - 1)).ok(),
            Padding::Reflect => (2 * n - 2).max(1),
            Padding::Symmetric => (2 * n).max(1),
        };
        let folded = at.rem_euclid(period);
        usize::try_from(if folded < n { folded } else { period - folded - i64::from(self == Padding::Symmetric) }).ok()
    }
}

impl Call<'_> {
    /// The attribute `key`: a pair of integers per axis, for `rank` axes.
    ///
    /// # Errors
    /// If it is missing or not such a list, or an integer is 2³¹ or more in magnitude.
    pub fn pairs(&self, key: &str, rank: usize) -> Result<Vec<(i64, i64)>, TypeError> {
        let pair = |item: &Attr| match item.list()? {
            [a, b] => Some((a.int()?, b.int()?)),
            _ => None,
        };
        let pairs =
            self.attr(key).and_then(Attr::list).and_then(|list| list.iter().map(pair).collect::<Option<Vec<_>>>());
        let small = |n: i64| n.unsigned_abs() < 1 << 31;
        pairs
            .filter(|pairs| pairs.len() == rank && pairs.iter().all(|(a, b)| small(*a) && small(*b)))
            .ok_or_else(|| self.error(format!("{key} must be a list of {rank} pairs of integers")))
    }
}

fn pad_type(call: &Call<'_>) -> Result<Type, TypeError> {
    padding(call)?;
    let mut out = call.tensor(0)?.clone();
    let widths = call.pairs("pad_width", out.shape.rank())?;
    for (dim, (before, after)) in out.shape.iter_mut().zip(widths) {
        let size = dim.get().map(|n| n as i64 + before + after);
        if size.is_some_and(|n| n < 0) {
            return Err(call.error(format!("padding ({before}, {after}) makes the size of an axis of {dim} negative")));
        }
        *dim = map_dim(*dim, |_| size.unwrap_or(0) as u64);
    }
    Ok(out.into())
}

/// Split axes. Constant padding splits along every axis: only the shards at the ends of the axis are padded. Other
/// modes split along the axes without padding.
fn pad_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let shape = &call.tensor(0)?.shape;
    let widths = call.pairs("pad_width", shape.rank())?;
    let by_value = padding(call)? == Padding::Value;
    let axis = |axis: usize| {
        let ((before, _), n) = (widths[axis], shape[axis].get()? as i64);
        let split = SplitAxis::along(call, axis);
        if widths[axis] == (0, 0) {
            return Some(split.operand(0, axis));
        }
        let widths = widths.clone();
        by_value.then(|| {
            split
                .access(0, axis, move |range| {
                    let at = |position: u64| (position as i64 - before).clamp(0, n) as u64;
                    at(range.start)..at(range.end)
                })
                .attr("pad_width", move |range| {
                    let own = ((before - range.start as i64).max(0), (range.end as i64 - before - n).max(0));
                    let pair = |(i, whole): (usize, &(i64, i64))| {
                        let (a, b) = if i == axis { own } else { *whole };
                        Attr::List([Attr::Int(a), Attr::Int(b)].into())
                    };
                    Attr::List(widths.iter().enumerate().map(pair).collect())
                })
        })
    };
    Ok((0..shape.rank()).filter_map(axis).collect())
}

fn padding(call: &Call<'_>) -> Result<Padding, TypeError> {
    let mode = match call.def.name {
        "nn.mirror_pad" => call.text("mode", "SYMMETRIC")?,
        _ => call.text("pad_mode", "constant")?,
    };
    Ok(match mode {
        "constant" => Padding::Value,
        "edge" => Padding::Edge,
        "reflect" | "REFLECT" => Padding::Reflect,
        "SYMMETRIC" => Padding::Symmetric,
        _ => return Err(call.error(format!("pad_mode is {mode:?}, which is not a padding mode"))),
    })
}

fn dilate_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let mut out = call.tensor(0)?.clone();
    let strides = call.steps("strides", out.shape.rank(), 1)?;
    for (dim, stride) in out.shape.iter_mut().zip(strides) {
        *dim = map_dim(*dim, |n| n.saturating_sub(1).saturating_mul(stride).saturating_add(n.min(1)));
    }
    Ok(out.into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;
    use tract_core::ops::array::{Pad, PadMode};

    use crate::families::cast::kernel::cast_to;
    use crate::kernel::{Wiring, recipe::Recipe, remap::Remap};

    pub(super) fn pad(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let dtype = wiring.fact(inputs[0])?.datum_type;
        let widths = call.pairs("pad_width", call.tensor(0)?.shape.rank())?;
        if let Some(value) = inputs.get(1).and_then(|value| wiring.known(*value))
            && padding(call)? == Padding::Value
            && widths.iter().all(|(before, after)| *before >= 0 && *after >= 0)
        {
            let pads = widths.iter().map(|(before, after)| (*before as usize, *after as usize)).collect();
            let value = value.cast_to_dt(dtype)?.into_owned().into_shape(&[])?.into_arc_tensor();
            return wiring.wire(Pad { pads, mode: PadMode::Constant(value) }, &inputs[..1]);
        }
        let value = inputs.get(1).map(|value| wiring.cast(*value, dtype)).transpose()?;
        padded(wiring, call, inputs[0], value, &widths)
    }

    pub(super) fn mirror_pad(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let widths = call.pairs("pad_width", call.tensor(0)?.shape.rank())?;
        padded(wiring, call, inputs[0], None, &widths)
    }

    fn padded(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        data: OutletId,
        value: Option<OutletId>,
        widths: &[(i64, i64)],
    ) -> TractResult<TVec<OutletId>> {
        let outside = padding(call)?;
        let table = |(n, (before, after)): (&usize, &(i64, i64))| {
            let n = *n as i64;
            (-before..n + after).map(|at| outside.index(at, n)).collect()
        };
        let remap = Remap::new(wiring.concrete(data)?.iter().zip(widths).map(table).collect());
        let dtype = wiring.fact(data)?.datum_type;
        let value = match value {
            Some(value) => cast_to(wiring, dtype, value)?,
            None => wiring.constant(Tensor::zero_scalar_dt(dtype)?)?,
        };
        let recipe = Recipe::Remap { tables: remap.tables().to_vec(), fill: None };
        wiring.with_recipe("Pad", Some(recipe), tvec![dtype.fact(remap.shape())], &[data, value], move |inputs| {
            Ok(tvec![remap.apply(&inputs[0], &inputs[1])?])
        })
    }

    pub(super) fn dilate(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let shape = wiring.concrete(inputs[0])?;
        let strides = call.steps("strides", shape.len(), 1)?;
        let out = call.dims()?;
        let tables = out.iter().zip(&strides).map(|(n, stride)| {
            let stride = *stride as usize;
            (0..*n).map(|at| (at % stride == 0).then_some(at / stride)).collect()
        });
        let remap = Remap::new(tables.collect());
        let fact = wiring.fact(inputs[0])?.datum_type.fact(remap.shape());
        let value = tensor0(call.float("dilation_value", 0.0)?).cast_to_dt(fact.datum_type)?.into_owned();
        let recipe = Recipe::Remap { tables: remap.tables().to_vec(), fill: Some(value.clone()) };
        wiring.with_recipe("Dilate", Some(recipe), tvec![fact], inputs, move |inputs| {
            Ok(tvec![remap.apply(&inputs[0], &value)?])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reflection_with_and_without_the_edge() {
        let show = |padding: Padding, n| (-4..n + 3).map(|at| padding.index(at, n)).collect::<Vec<_>>();
        let some = |all: &[usize]| all.iter().map(|i| Some(*i)).collect::<Vec<_>>();
        assert_eq!(show(Padding::Reflect, 3), some(&[0, 1, 2, 1, 0, 1, 2, 1, 0, 1]));
        assert_eq!(show(Padding::Symmetric, 3), some(&[2, 2, 1, 0, 0, 1, 2, 2, 1, 0]));
        assert_eq!(show(Padding::Edge, 2), some(&[0, 0, 0, 0, 0, 1, 1, 1, 1]));
        assert_eq!(Padding::Value.index(-1, 3), None);
    }
}
