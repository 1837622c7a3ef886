//! Pooling with sliding windows.

use super::axes::Pooled;
use crate::{AttrDef, Call, FusionClass, OpDef, TypeError, Typed, split::SplitAxis, window::Rounding};
use edgecut_graph::Type;

/// A pooling over `RANK` axes.
pub(crate) const fn sliding<const RANK: usize, const LARGEST: bool>(
    name: &'static str,
    attrs_key: &'static str,
    attrs: &'static [AttrDef],
) -> OpDef {
    OpDef::new(name, &["data"], sliding_type::<RANK>)
        .attrs(attrs_key, attrs)
        .flops(|call| {
            let size = window(call, RANK).map_or(0, |sizes| sizes.iter().fold(1, |n: u64, s| n.saturating_mul(*s)));
            call.out.tensors().iter().filter_map(|t| t.shape.elements()).fold(0, |n, e| n + e.saturating_mul(size))
        })
        .class(FusionClass::OutFusable)
        .split(sliding_axes::<RANK>)
        .onnx()
        .wire(kernel!(sliding_kernel::<RANK, LARGEST>))
}

fn window(call: &Call<'_>, rank: usize) -> Result<Vec<u64>, TypeError> {
    if call.attr("pool_size").is_none() {
        return Err(call.error("pool_size is missing"));
    }
    call.steps("pool_size", rank, 1)
}

fn rounding(call: &Call<'_>) -> Result<Rounding, TypeError> {
    Ok(match call.flag("ceil_mode", false)? {
        true if call.is_onnx() => Rounding::CeilInside,
        true => Rounding::Ceil,
        false => Rounding::Floor,
    })
}

fn sliding_type<const RANK: usize>(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let pooled = Pooled::read::<RANK>(call, data)?;
    let windows = call.windows(&window(call, RANK)?)?;
    let rounding = rounding(call)?;
    let sizes = pooled.sizes(data);
    let sizes =
        sizes.iter().zip(&windows).map(|(n, w)| call.windowed(*n, w, rounding)).collect::<Result<Vec<_>, _>>()?;
    Ok(pooled.with_sizes(data, &sizes).into())
}

/// All axes; along a spatial one a shard reads the range under its windows.
fn sliding_axes<const RANK: usize>(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let data = call.tensor(0)?;
    let pooled = Pooled::read::<RANK>(call, data)?;
    let windows = call.windows(&window(call, RANK)?)?;
    let mut axes = pooled.others(call, &[0]);
    for (index, at) in pooled.at.iter().enumerate() {
        axes.push(SplitAxis::along(call, *at).under(0, *at, data.shape[*at], &windows, index));
    }
    Ok(axes)
}

#[cfg(feature = "kernels")]
pub(crate) mod kernel {
    use super::*;
    use tract_core::internal::*;
    use tract_linalg::multithread::par_chunks_mut;

    use crate::families::pool::axes::MAX;
    use crate::{
        kernel::{
            Wiring,
            element::{Number, for_dtype},
            phases::{LANES, Phases},
            recipe::{Pooling, Recipe},
            window_loops::Rows,
        },
        window::Window,
    };

    /// The divisor of each window's sum, in row-major order of the windows: its number of elements, with `padded` including
    /// explicit padding, else at least one.
    pub(crate) fn divisors(windows: &[Window], sizes: &[usize], counts: &[usize], padded: bool) -> Vec<i64> {
        let mut all = vec![1];
        for ((window, n), count) in windows.iter().zip(sizes).zip(counts) {
            let inside = |at| match padded {
                true => window.padded_len(at, *n as u64),
                false => window.inside(at, *n as u64).count() as i64,
            };
            let along: Vec<i64> = (0..*count as u64).map(inside).collect();
            all = all.iter().flat_map(|a| along.iter().map(move |b| a * b)).collect();
        }
        if !padded {
            all.iter_mut().for_each(|n| *n = (*n).max(1));
        }
        all
    }

    /// Padding of an axis beyond which the file is taken for a damaged one: tables and copies of planes have its size.
    const MAX_PADDING: u64 = 1 << 20;

    pub(super) fn sliding_kernel<const RANK: usize, const LARGEST: bool>(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let pooled = Pooled::read::<RANK>(call, call.tensor(0)?)?;
        let windows = call.windows(&window(call, RANK)?)?;
        let padding = windows.iter().map(|window| window.before.max(window.after)).max().unwrap_or(0);
        ensure!(padding <= MAX_PADDING, "padding of more than {MAX_PADDING} elements");
        let (data, moves) = pooled.wire(wiring, inputs[0])?;
        let (shape, given) = (wiring.concrete(data)?, wiring.fact(data)?.datum_type);
        let spatial = moves.first..moves.first + RANK;
        let sizes = &shape[spatial.clone()];
        let rounding = rounding(call)?;
        let count = |(n, w): (&usize, &Window)| {
            Ok(w.count(*n as u64, rounding).context("the window is larger than the padded axis")? as usize)
        };
        let counts = sizes.iter().zip(&windows).map(count).collect::<TractResult<Vec<usize>>>()?;
        let mut out = shape.clone();
        out[spatial.clone()].copy_from_slice(&counts);
        let pixel = shape[spatial.end..].iter().product();
        let walk = Walk::new(&windows, sizes, &counts, pixel);
        let is_onnx = call.is_onnx();
        let made = if LARGEST == MAX {
            wiring.with_recipe(
                "MaxPool",
                Some(Recipe::Pool(Pooling::sliding(true, &windows, sizes, &counts, pixel, false))),
                tvec![given.fact(&out)],
                &[data],
                move |inputs| {
                    for_dtype!(given, T in number => {
                        let start = if is_onnx { T::LEAST } else { T::LOWEST };
                        Ok(tvec![walk.fold(&inputs[0], &out, start, T::larger)?])
                    })
                },
            )?[0]
        } else {
            let padded = call.flag("count_include_pad", false)?;
            // Sums of windows are averages with one divisor for all.
            let same = call.optional_int("divisor_override")?;
            let divisors = match same {
                Some(divisor) => vec![divisor; counts.iter().product()],
                None => divisors(&windows, sizes, &counts, padded),
            };
            let pooling = Pooling::sliding(false, &windows, sizes, &counts, pixel, padded);
            let pooling = same.map_or(pooling.clone(), |divisor| pooling.divided_by(divisor));
            let dtype = if given == DatumType::F16 { DatumType::F32 } else { given };
            let data = wiring.cast(data, dtype)?;
            let made = wiring.with_recipe(
                "AvgPool",
                Some(Recipe::Pool(pooling)),
                tvec![dtype.fact(&out)],
                &[data],
                move |inputs| for_dtype!(dtype, T in number => mean::<T>(&walk, &inputs[0], &out, &divisors)),
            )?[0];
            wiring.cast(made, given)?
        };
        Ok(tvec![moves.undo(wiring, made)?])
    }

    /// The loop structure: planes in phases, or rows of elements of several numbers.
    enum Walk {
        Planes(Phases),
        Rows { rows: Rows, pixel: usize },
    }

    impl Walk {
        fn new(windows: &[Window], sizes: &[usize], counts: &[usize], pixel: usize) -> Walk {
            match Phases::new(windows, sizes, counts).filter(|_| pixel == 1) {
                Some(phases) => Walk::Planes(phases),
                None => Walk::Rows { rows: Rows::new(windows, counts, sizes), pixel },
            }
        }

        /// Folds every window from `start`, which is also the value of the padding.
        fn fold<T: Number>(
            &self,
            data: &Tensor,
            out: &[usize],
            start: T,
            fold: impl Fn(T, T) -> T + Copy + Send + Sync,
        ) -> TractResult<Tensor> {
            let mut result = Tensor::zero_dt(T::datum_type(), out)?;
            if result.len() == 0 || data.len() == 0 {
                return Ok(result);
            }
            {
                let (data, mut made) = (data.try_as_plain_ram()?, result.try_as_plain_ram_mut()?);
                let (data, made) = (data.as_slice::<T>()?, made.as_slice_mut::<T>()?);
                match self {
                    Walk::Rows { rows, pixel } => {
                        made.fill(start);
                        rows.pool(*pixel, data, made, fold);
                    }
                    Walk::Planes(phases) => {
                        let plane = phases.results();
                        let from = data.len() / (made.len() / plane);
                        let elements = data.len();
                        par_chunks_mut(made, plane, elements, |first, planes| {
                            let (mut buffer, mut run) = (phases.buffer(start), phases.run(start));
                            for (at, made) in (first..).zip(planes.chunks_exact_mut(plane)) {
                                phases.fill(&data[at * from..][..from], &mut buffer);
                                folded(&buffer, phases.offsets(), &mut run, start, fold);
                                phases.take(&run, made);
                            }
                            Ok(())
                        })?;
                    }
                }
            }
            Ok(result)
        }
    }

    /// Folds all taps of a run, `LANES` results at a time to stay in registers.
    fn folded<T: Number>(buffer: &[T], offsets: &[usize], run: &mut [T], start: T, fold: impl Fn(T, T) -> T) {
        for (at, run) in run.chunks_exact_mut(LANES).enumerate() {
            let mut lanes = [start; LANES];
            for offset in offsets {
                let taps = &buffer[offset + at * LANES..][..LANES];
                lanes.iter_mut().zip(taps).for_each(|(lane, x)| *lane = fold(*lane, *x));
            }
            run.copy_from_slice(&lanes);
        }
    }

    fn mean<T: Number>(walk: &Walk, data: &Tensor, out: &[usize], divisors: &[i64]) -> TractResult<TVec<Tensor>> {
        let mut result = walk.fold(data, out, T::default(), T::add)?;
        let pixel = if let Walk::Rows { pixel, .. } = walk { *pixel } else { 1 };
        {
            let mut made = result.try_as_plain_ram_mut()?;
            let divisors: Vec<T> = divisors.iter().map(|n| T::of_i64(*n)).collect();
            for plane in made.as_slice_mut::<T>()?.chunks_exact_mut((divisors.len() * pixel).max(1)) {
                for (sums, divisor) in plane.chunks_exact_mut(pixel.max(1)).zip(&divisors) {
                    sums.iter_mut().for_each(|sum| *sum = sum.div(*divisor));
                }
            }
        }
        Ok(tvec![result])
    }
}
