//! `strided_slice` and `slice_like`.

use crate::split::{SplitAxis, off};
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed};
use edgecut_graph::{Dim, Shape, TensorType, Type};

pub(crate) const STRIDED_ATTRS: &[AttrDef] = &[
    AttrDef::required("begin", AttrKind::OptionalInts),
    AttrDef::required("end", AttrKind::OptionalInts),
    AttrDef::required("strides", AttrKind::OptionalInts),
    AttrDef::new("slice_mode", AttrKind::Str, "\"end\""),
    AttrDef::required("axes", AttrKind::OptionalInts),
];

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("strided_slice", &["data"], strided_type)
        .attrs("relay.attrs.StridedSliceAttrs", STRIDED_ATTRS)
        .class(FusionClass::Injective)
        .split(strided_axes)
        .wire(kernel!(strided_slice)),
    OpDef::new("slice_like", &["data", "shape_like"], like_type)
        .attrs("relay.attrs.SliceLikeAttrs", &[AttrDef::required("axes", AttrKind::Ints)])
        .class(FusionClass::Injective)
        .wire(kernel!(slice_like)),
];

/// A slice of one axis: `len` elements from `begin`, every `stride`-th one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub begin: i64,
    pub stride: i64,
    pub len: u64,
}

/// Begin, end and stride of each sliced axis, from attributes or operands.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bounds {
    pub begin: Vec<i64>,
    pub end: Vec<i64>,
    pub strides: Vec<i64>,
    pub axes: Option<Vec<i64>>,
    /// The ends are lengths, where -1 means to the end of the axis; strides are ignored.
    pub end_is_size: bool,
}

impl Bounds {
    fn of_attrs(call: &Call<'_>) -> Result<Bounds, TypeError> {
        Ok(Bounds {
            begin: call.ints("begin")?.unwrap_or_default(),
            end: call.ints("end")?.unwrap_or_default(),
            strides: call.ints("strides")?.unwrap_or_default(),
            axes: call.ints("axes")?,
            end_is_size: call.text("slice_mode", "end")? == "size",
        })
    }

    /// The span of every axis of `shape`; `None` for a sliced axis of unknown length.
    pub fn spans(&self, call: &Call<'_>, shape: &Shape) -> Result<Vec<Option<Span>>, TypeError> {
        let whole = |dim: &Dim| dim.get().map(|len| Span { begin: 0, stride: 1, len });
        let mut spans: Vec<Option<Span>> = shape.iter().map(whole).collect();
        let axes: Vec<i64> = match &self.axes {
            Some(axes) => axes.clone(),
            None => (0..self.begin.len().max(self.end.len()) as i64).collect(),
        };
        for (i, axis) in axes.into_iter().enumerate() {
            let axis = call.axis_in(axis, shape)?;
            spans[axis] = match shape[axis].get() {
                Some(len) => Some(
                    self.span(i, len as i64)
                        .ok_or_else(|| call.error(format!("the slice of axis {axis} is empty or has stride 0")))?,
                ),
                None => None,
            };
        }
        Ok(spans)
    }

    /// The span of entry `i` on an axis of length `len`, by the rule of TVM's `StridedSliceOutputShape`.
    fn span(&self, i: usize, len: i64) -> Option<Span> {
        let stride = if self.end_is_size { 1 } else { self.strides.get(i).copied().unwrap_or(1) };
        let (low, high) = if stride < 0 { (-1, len - 1) } else { (0, len) };
        let clamp = |index: i64| (if index < 0 { index.saturating_add(len) } else { index }).max(low).min(high);
        let begin = clamp(self.begin.get(i).copied().unwrap_or(if stride < 0 { len } else { 0 }));
        let end = match (self.end.get(i).copied(), self.end_is_size) {
            (None, _) => {
                if stride < 0 {
                    -1
                } else {
                    len
                }
            }
            (Some(size), true) if size < 0 => len,
            (Some(size), true) => begin.saturating_add(size).min(len),
            (Some(end), false) => clamp(end),
        };
        let distance = if stride < 0 { begin - end } else { end - begin };
        if stride == 0 || distance < 0 {
            return None;
        }
        Some(Span { begin, stride, len: (distance as u64).div_ceil(stride.unsigned_abs()) })
    }
}

/// The axes that are not sliced.
fn strided_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let shape = &call.tensor(0)?.shape;
    let spans = Bounds::of_attrs(call)?.spans(call, shape)?;
    let all = |(span, dim): (&Option<Span>, &Dim)| {
        dim.get().is_some_and(|len| *span == Some(Span { begin: 0, stride: 1, len }))
    };
    let cut: Vec<usize> = (0..shape.rank()).filter(|a| !all((&spans[*a], &shape[*a]))).collect();
    // Ends beyond the shard are clamped to it, but ends that count from the end of the axis are not.
    let counted = call.ints("end")?.unwrap_or_default().iter().any(|end| *end < 0);
    if counted { Ok(Vec::new()) } else { off(call, &cut) }
}

fn strided_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let spans = Bounds::of_attrs(call)?.spans(call, &data.shape)?;
    Ok(TensorType::new(data.dtype, sliced(&data.shape, &spans)).into())
}

/// The shape of the slice `spans` of a tensor of `shape`.
pub(crate) fn sliced(shape: &Shape, spans: &[Option<Span>]) -> Shape {
    let dims = shape.iter().zip(spans).map(|(dim, span)| match (dim, span) {
        (Dim::Wide(_), Some(span)) => Dim::Wide(span.len),
        (_, span) => span.map(|s| s.len).into(),
    });
    dims.collect()
}

/// The axes that `slice_like` slices: all by default.
fn like_axes(call: &Call<'_>, data: &Shape, like: &Shape) -> Result<Vec<usize>, TypeError> {
    match call.ints("axes")?.filter(|axes| !axes.is_empty()) {
        Some(axes) => axes
            .into_iter()
            .map(|axis| {
                let index = call.axis_in(axis, data)?;
                match index < like.rank() {
                    true => Ok(index),
                    false => Err(call.error(format!("axis {axis} is out of range for shape_like, which is {like}"))),
                }
            })
            .collect(),
        None => Ok((0..data.rank().min(like.rank())).collect()),
    }
}

fn like_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, like) = (call.tensor(0)?, call.tensor(1)?);
    let mut shape = data.shape.clone();
    for axis in like_axes(call, &data.shape, &like.shape)? {
        let cut = like.shape[axis];
        if let (Some(have), Some(want)) = (shape[axis].get(), cut.get())
            && want > have
        {
            return Err(call.error(format!("cannot take {want} of {have} elements along axis {axis}")));
        }
        shape[axis] = cut;
    }
    Ok(TensorType::new(data.dtype, shape).into())
}

#[cfg(feature = "kernels")]
pub(crate) mod kernel {
    use super::*;
    use tract_core::internal::*;
    use tract_core::ops::array::Slice;

    use crate::kernel::Wiring;
    use crate::kernel::indexing::{pick, strides};

    pub(super) fn strided_slice(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let data = call.tensor(0)?;
        let spans = Bounds::of_attrs(call)?.spans(call, &data.shape)?;
        let Some(spans) = spans.into_iter().collect::<Option<Vec<Span>>>() else {
            bail!("the shape of the operand is unknown");
        };
        if spans.iter().any(|span| span.stride != 1) {
            return wiring.host(call, strided_on_host, inputs);
        }
        contiguous(wiring, &data.shape, &spans, inputs[0])
    }

    /// Wires slices of stride 1, axis by axis.
    fn contiguous(
        wiring: &mut Wiring<'_>,
        shape: &Shape,
        spans: &[Span],
        data: OutletId,
    ) -> TractResult<TVec<OutletId>> {
        let mut outlet = data;
        for (axis, span) in spans.iter().enumerate() {
            if shape[axis].get() != Some(span.len) {
                let begin = span.begin as usize;
                outlet = wiring.one(Slice::new(axis, begin, begin + span.len as usize), &[outlet])?;
            }
        }
        Ok(tvec!(outlet))
    }

    fn strided_on_host(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let shape = Shape::of(&inputs[0].shape().iter().map(|d| *d as u64).collect::<Vec<_>>());
        let spans = Bounds::of_attrs(call)?.spans(call, &shape)?;
        Ok(tvec!(take_spans(&inputs[0], &spans.into_iter().flatten().collect::<Vec<_>>())?))
    }

    /// The slice `spans`, one per axis, of `data`.
    pub(crate) fn take_spans(data: &Tensor, spans: &[Span]) -> TractResult<Tensor> {
        let (strides, shape): (_, TVec<usize>) =
            (strides(data.shape()), spans.iter().map(|s| s.len as usize).collect());
        pick(data, &shape, |place| Ok(place_in(spans, &strides, place)))
    }

    /// The row-major index, in a tensor with `strides`, of the multi-index `place` of its slice `spans`.
    pub(crate) fn place_in(spans: &[Span], strides: &[usize], place: &[usize]) -> usize {
        let along =
            |((span, at), stride): ((&Span, &usize), &usize)| (span.begin + *at as i64 * span.stride) as usize * stride;
        spans.iter().zip(place).zip(strides).map(along).sum()
    }

    pub(super) fn slice_like(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let shape = call.result()?.shape.fixed().context("the shape of the result is unknown")?;
        let spans: Vec<Span> = shape.iter().map(|len| Span { begin: 0, stride: 1, len: *len }).collect();
        contiguous(wiring, &call.tensor(0)?.shape, &spans, inputs[0])
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn spans_clamp_as_tvm_does() {
            let bounds = |begin: i64, end: i64, stride: i64| Bounds {
                begin: vec![begin],
                end: vec![end],
                strides: vec![stride],
                ..Bounds::default()
            };
            for (bounds, len, want) in [
                (bounds(1, 100, 1), 4, Some((1, 1, 3))),
                (bounds(-2, 4, 1), 4, Some((2, 1, 2))),
                (bounds(3, 0, -1), 4, Some((3, -1, 3))),
                (bounds(-1, -5, -1), 4, Some((3, -1, 4))),
                (bounds(5, -7, -2), 6, Some((5, -2, 3))),
                (bounds(2, 2, 1), 4, Some((2, 1, 0))),
                (bounds(3, 1, 1), 4, None),
                (bounds(0, 4, 0), 4, None),
                (bounds(0, i64::MAX, 3), 7, Some((0, 3, 3))),
            ] {
                let span = bounds.span(0, len).map(|s| (s.begin, s.stride, s.len));
                assert_eq!(span, want, "{bounds:?} of {len}");
            }
        }
    }
}
