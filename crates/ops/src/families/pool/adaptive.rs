//! Adaptive and global pooling.

use super::axes::Pooled;
use crate::{
    AttrDef, Call, FusionClass, OpDef, TypeError, Typed,
    def::AttrKind::Str,
    layout::map_dim,
    split::{SplitAxis, with_entry},
};
use edgecut_graph::{Dim, Type};

/// An adaptive pooling over `RANK` axes.
pub(crate) const fn adaptive<const RANK: usize, const LARGEST: bool>(
    name: &'static str,
    attrs_key: &'static str,
    attrs: &'static [AttrDef],
) -> OpDef {
    OpDef::new(name, &["data"], |call| adapted_type::<RANK>(call, output_size::<RANK>(call)?))
        .attrs(attrs_key, attrs)
        .flops(per_window_element::<RANK>)
        .class(FusionClass::OutFusable)
        .split(adapted_axes::<RANK>)
        .wire(kernel!(|wiring, call, inputs| {
            let size = output_size::<RANK>(call)?;
            kernel::<RANK, LARGEST>(wiring, call, inputs, size)
        }))
}

/// A global pooling over two axes.
pub(crate) const fn global<const LARGEST: bool>(name: &'static str) -> OpDef {
    OpDef::new(name, &["data"], |call| adapted_type::<2>(call, Some([1, 1])))
        .attrs("relay.attrs.GlobalPool2DAttrs", LAYOUTS)
        .flops(per_window_element::<2>)
        .class(FusionClass::OutFusable)
        .split(|call| Ok(Pooled::read::<2>(call, call.tensor(0)?)?.others(call, &[0])))
        .onnx()
        .wire(kernel!(|wiring, call, inputs| kernel::<2, LARGEST>(wiring, call, inputs, Some([1, 1]))))
}

const LAYOUTS: &[AttrDef] = &[AttrDef::new("layout", Str, "\"NCHW\""), AttrDef::new("out_layout", Str, "\"\"")];

/// The output size; `None` keeps the sizes of the data.
fn output_size<const RANK: usize>(call: &Call<'_>) -> Result<Option<[u64; RANK]>, TypeError> {
    match call.ints("output_size")? {
        Some(written) if !written.is_empty() => {
            let sizes = call.steps("output_size", RANK, 1)?;
            Ok(<[u64; RANK]>::try_from(sizes).ok())
        }
        _ => Ok(None),
    }
}

fn adapted_type<const RANK: usize>(call: &Call<'_>, size: Option<[u64; RANK]>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let pooled = Pooled::read::<RANK>(call, data)?;
    let mut sizes = pooled.sizes(data);
    if let Some(wanted) = size {
        for (size, wanted) in sizes.iter_mut().zip(wanted) {
            *size = match *size {
                Dim::Any => Dim::Known(wanted),
                known => map_dim(known, |_| wanted),
            };
        }
    }
    Ok(pooled.with_sizes(data, &sizes).into())
}

/// The axes that are not pooled, and those with disjoint windows of equal size.
fn adapted_axes<const RANK: usize>(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let data = call.tensor(0)?;
    let pooled = Pooled::read::<RANK>(call, data)?;
    let mut axes = pooled.others(call, &[0]);
    let Some(wanted) = output_size::<RANK>(call)? else {
        axes.extend(pooled.at.iter().map(|at| SplitAxis::along(call, *at).operand(0, *at)));
        return Ok(axes);
    };
    let written: Vec<i64> = wanted.iter().map(|n| *n as i64).collect();
    for (index, (at, wanted)) in pooled.at.iter().zip(wanted).enumerate() {
        let Some(n) = data.shape[*at].get().filter(|n| *n > 0 && n % wanted == 0) else { continue };
        let written = written.clone();
        let split = SplitAxis::along(call, *at).scaled(0, *at, n / wanted, 1);
        axes.push(
            split.attr("output_size", move |range| with_entry(&written, index, (range.end - range.start) as i64)),
        );
    }
    Ok(axes)
}

/// One operation per element of each window, with windows of the minimum size ⌈n/m⌉.
fn per_window_element<const RANK: usize>(call: &Typed<'_>) -> u64 {
    let (Ok(data), Ok(out)) = (call.tensor(0), call.result()) else { return 0 };
    let Ok(pooled) = Pooled::read::<RANK>(call, data) else { return 0 };
    let window = pooled
        .sizes(data)
        .iter()
        .zip(pooled.sizes(out))
        .try_fold(1u64, |n, (from, to)| Some(n.saturating_mul(from.get()?.div_ceil(to.get()?.max(1)))));
    out.shape.elements().unwrap_or(0).saturating_mul(window.unwrap_or(0))
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::families::pool::axes::MAX;
    use crate::kernel::{
        Wiring,
        element::{Number, for_dtype},
        recipe::{Pooling, Recipe},
    };
    use std::ops::Range;

    /// The `m` windows over `n` elements: window `i` is `⌊i·n/m⌋ .. ⌈(i+1)·n/m⌉`.
    fn ranges(n: usize, m: usize) -> Vec<Range<usize>> {
        (0..m).map(|i| i * n / m..((i + 1) * n).div_ceil(m)).collect()
    }

    pub(super) fn kernel<const RANK: usize, const LARGEST: bool>(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
        size: Option<[u64; RANK]>,
    ) -> TractResult<TVec<OutletId>> {
        let pooled = Pooled::read::<RANK>(call, call.tensor(0)?)?;
        let (data, moves) = pooled.wire(wiring, inputs[0])?;
        let (shape, given) = (wiring.concrete(data)?, wiring.fact(data)?.datum_type);
        let spatial = moves.first..moves.first + RANK;
        let mut out = shape.clone();
        if let Some(size) = size {
            out[spatial.clone()].iter_mut().zip(size).for_each(|(to, size)| *to = size as usize);
        }
        let dtype = if given == DatumType::F16 { DatumType::F32 } else { given };
        let along: Vec<Vec<Range<usize>>> = spatial.clone().map(|axis| ranges(shape[axis], out[axis])).collect();
        let pixel = shape[spatial.end..].iter().product();
        let recipe = Recipe::Pool(Pooling::ranges(LARGEST == MAX, &shape[spatial.clone()], pixel, &along));
        // As three axes; missing ones are outermost.
        let mut windows = vec![vec![0..1]; 3 - RANK];
        windows.extend(along);
        let cells = Cells {
            windows,
            line: shape[spatial.end - 1],
            plane: shape[spatial.clone()].iter().rev().take(2).product(),
            volume: shape[spatial.clone()].iter().product(),
            pixel,
        };
        let data = wiring.cast(data, dtype)?;
        let is_onnx = call.is_onnx();
        let made = wiring.with_recipe("AdaptivePool", Some(recipe), tvec![dtype.fact(&out)], &[data], move |inputs| {
        for_dtype!(dtype, T in number => match LARGEST == MAX {
            true => {
                let start = if is_onnx { T::LEAST } else { T::LOWEST };
                cells.fold::<T>(&inputs[0], &out, start, T::larger, |value, _| value)
            }
            false => cells.fold::<T>(&inputs[0], &out, T::default(), T::add, |sum, n| sum.div(T::of_i64(n as i64))),
        })
    })?[0];
        let made = wiring.cast(made, given)?;
        Ok(tvec![moves.undo(wiring, made)?])
    }

    /// Windows over three axes of a tensor whose elements are `pixel` numbers each.
    struct Cells {
        windows: Vec<Vec<Range<usize>>>,
        line: usize,
        plane: usize,
        volume: usize,
        pixel: usize,
    }

    impl Cells {
        /// Folds each window from `start`; `finish` gets the result and the number of elements.
        fn fold<T: Number>(
            &self,
            data: &Tensor,
            out: &[usize],
            start: T,
            fold: impl Fn(T, T) -> T,
            finish: impl Fn(T, usize) -> T,
        ) -> TractResult<TVec<Tensor>> {
            let mut result = Tensor::zero_dt(T::datum_type(), out)?;
            if result.len() == 0 {
                return Ok(tvec![result]);
            }
            self.fold_into(data, &mut result, start, fold, finish)?;
            Ok(tvec![result])
        }

        fn fold_into<T: Number>(
            &self,
            data: &Tensor,
            result: &mut Tensor,
            start: T,
            fold: impl Fn(T, T) -> T,
            finish: impl Fn(T, usize) -> T,
        ) -> TractResult<()> {
            let plain = data.try_as_plain_ram()?;
            let pixel = self.pixel;
            let mut made = result.try_as_plain_ram_mut()?;
            let mut cells = made.as_slice_mut::<T>()?.chunks_exact_mut(pixel);
            let mut lanes = vec![start; 16.max(pixel)];
            for volume in plain.as_slice::<T>()?.chunks_exact(self.volume * pixel) {
                for (z, y, x) in self.windows[0].iter().flat_map(|z| {
                    self.windows[1].iter().flat_map(move |y| self.windows[2].iter().map(move |x| (z, y, x)))
                }) {
                    // Sixteen accumulators (or one per number of the element): vectorised, with smaller rounding errors.
                    lanes.fill(start);
                    let width = if pixel == 1 { 16 } else { pixel };
                    for line in z.clone().flat_map(|z| y.clone().map(move |y| z * self.plane + y * self.line)) {
                        let run = &volume[(line + x.start) * pixel..(line + x.end) * pixel];
                        for values in run.chunks(width) {
                            lanes.iter_mut().zip(values).for_each(|(lane, value)| *lane = fold(*lane, *value));
                        }
                    }
                    let Some(cell) = cells.next() else { break };
                    match &mut *cell {
                        [only] => *only = lanes.iter().fold(start, |a, b| fold(a, *b)),
                        several => several.copy_from_slice(&lanes[..pixel]),
                    }
                    let elements = z.len() * y.len() * x.len();
                    cell.iter_mut().for_each(|value| *value = finish(*value, elements));
                }
            }
            Ok(())
        }
    }
}
