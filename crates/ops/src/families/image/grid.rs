//! `image.grid_sample`: samples an image or a volume at the points of a grid; `image.affine_grid`: the grid of an affine
//! map.
//!
//! After `topi/image/grid_sample.py` of TVM 0.14.

use super::{AXES, interpolate::cubic};
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, rules::per_output, split::batch};
use edgecut_graph::{Shape, TensorType, Type};
use smallvec::SmallVec;

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("image.grid_sample", &["data", "grid"], sampled_type)
        .attrs(
            "relay.attrs.GridSampleAttrs",
            &[
                AttrDef::new("method", AttrKind::Str, "\"bilinear\""),
                AttrDef::new("layout", AttrKind::Str, "\"NCHW\""),
                AttrDef::new("padding_mode", AttrKind::Str, "\"zeros\""),
                AttrDef::new("align_corners", AttrKind::Bool, "True"),
            ],
        )
        .class(FusionClass::Injective)
        .flops(per_output::<8>)
        .split(|call| Ok(batch(call, &[0, 1])))
        .wire(kernel!(grid_sample)),
    OpDef::new("image.affine_grid", &["data"], affine_type)
        .attrs("relay.attrs.AffineGridAttrs", &[AttrDef::required("target_shape", AttrKind::Ints)])
        .class(FusionClass::Injective)
        .flops(per_output::<4>)
        .split(|call| Ok(batch(call, &[0])))
        .wire(kernel!(affine_grid)),
];

/// The interpolation method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Nearest,
    Linear,
    Cubic,
}

/// The extension of the data beyond its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outside {
    Zeros,
    Border,
    Reflection,
}

#[derive(Debug, Clone, Copy)]
struct Sampling {
    method: Method,
    outside: Outside,
    align_corners: bool,
}

/// Elements of one axis with their weights; elements out of bounds are omitted.
type Taps = SmallVec<[(usize, f64); 4]>;

impl Sampling {
    fn read(call: &Call<'_>) -> Result<Sampling, TypeError> {
        Ok(Sampling {
            method: match call.text("method", "bilinear")? {
                "nearest" => Method::Nearest,
                "bilinear" | "trilinear" => Method::Linear,
                "bicubic" => Method::Cubic,
                other => return Err(call.error(format!("method is {other:?}, which is not a sampling method"))),
            },
            outside: match call.text("padding_mode", "zeros")? {
                "zeros" => Outside::Zeros,
                "border" => Outside::Border,
                "reflection" => Outside::Reflection,
                other => return Err(call.error(format!("padding_mode is {other:?}, which is not a padding mode"))),
            },
            align_corners: call.flag("align_corners", true)?,
        })
    }

    /// The taps of the coordinate `at`, in [−1, 1], on an axis of length `n`.
    fn taps(&self, at: f32, n: usize) -> Taps {
        let size = n as f32;
        let position = match self.align_corners {
            true => (at + 1.0) * (size - 1.0) / 2.0,
            false => -0.5 + (at + 1.0) * size / 2.0,
        };
        let inside = |index: f32| (0.0..size).contains(&index).then_some(index as usize);
        match self.method {
            Method::Nearest => {
                inside(self.map_into(position, n).round_ties_even()).map(|i| (i, 1.0)).into_iter().collect()
            }
            Method::Linear => {
                let position = self.map_into(position, n);
                let (low, part) = (position.floor(), f64::from(position - position.floor()));
                let pair: [(f32, f64); 2] = [(low, 1.0 - part), (low + 1.0, part)];
                pair.into_iter().filter_map(|(index, weight)| Some((inside(index)?, weight))).collect()
            }
            Method::Cubic => {
                // The coefficient −0.75 is PyTorch's. Each tap is mapped into bounds, not the point.
                let (low, weights) = (position.floor(), cubic(position - position.floor(), -0.75));
                let tap = |i: usize| (self.map_into(low - 1.0 + i as f32, n).trunc(), f64::from(weights[i]));
                (0..4).map(tap).filter_map(|(index, weight)| Some((inside(index)?, weight))).collect()
            }
        }
    }

    /// The position mapped into the bounds of an axis of length `n`; unchanged with zero padding.
    fn map_into(&self, position: f32, n: usize) -> f32 {
        let size = n as f32;
        let reflected = match (self.outside, self.align_corners) {
            (Outside::Zeros, _) => return position,
            (Outside::Border, _) => position,
            (Outside::Reflection, true) => reflect(position, size - 1.0, 0.0),
            (Outside::Reflection, false) => reflect(position, size, -0.5),
        };
        reflected.max(0.0).min(size - 1.0)
    }
}

/// Reflects `position` into the interval from `start` to `start + size`.
fn reflect(position: f32, size: f32, start: f32) -> f32 {
    if (start..=size + start).contains(&position) || size <= 0.0 {
        return position;
    }
    let distance = (start - position).abs();
    let times = (distance.trunc() / size).trunc();
    let extra = distance - times * size;
    if times % 2.0 == 0.0 { extra + start } else { size - extra + start }
}

fn sampled_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, grid) = (call.tensor(0)?, call.tensor(1)?);
    Sampling::read(call)?;
    let rank = data.shape.rank();
    if !(4..=5).contains(&rank) || grid.shape.rank() != rank {
        return Err(call.error(format!("cannot sample {data} at {grid}, expected rank 4 or 5 for both")));
    }
    let axes = AXES[rank - 2];
    let layout = call.layout("layout", if rank == 4 { AXES[2] } else { AXES[3] }, axes)?;
    let mut sizes = call.sizes_in(&layout, data, axes)?;
    sizes[2..].copy_from_slice(&grid.shape[2..]);
    let shape = layout.shape(axes, &sizes).ok_or_else(|| call.error("the layout has other axes"))?;
    Ok(TensorType::new(data.dtype, shape).into())
}

fn affine_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    if data.shape.rank() != 3 || !data.shape[1].same(2.into()) || !data.shape[2].same(3.into()) {
        return Err(call.error(format!("the data is {data}, expected matrices of 2 by 3")));
    }
    let target = call.steps("target_shape", 2, 1)?;
    let shape: Shape = [data.shape[0], 2.into(), target[0].into(), target[1].into()].into_iter().collect();
    Ok(TensorType::new(data.dtype, shape).into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::{
        Typed,
        kernel::{
            Wiring,
            custom::{numbers, tensor_of},
        },
    };
    use smallvec::smallvec;

    pub(super) fn grid_sample(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let sampling = Sampling::read(call)?;
        let axes = AXES[wiring.fact(inputs[0])?.rank() - 2];
        let layout = call.layout("layout", axes, axes)?;
        let plain = crate::layout::Layout::parse(axes).map_err(TractError::msg)?;
        let data = layout.wire(&plain, wiring, inputs[0])?;
        let (shape, grid, dtype) = (wiring.concrete(data)?, wiring.concrete(inputs[1])?, wiring.fact(data)?.datum_type);
        ensure!(grid[1] == shape.len() - 2, "the grid has {} coordinates for {} axes", grid[1], shape.len() - 2);
        ensure!(grid[0] == shape[0], "the grid has batch size {}, the data {}", grid[0], shape[0]);
        let mut out = grid.clone();
        out[1] = shape[1];
        let made = wiring.custom("GridSample", tvec![dtype.fact(&out)], &[data, inputs[1]], move |inputs| {
            let (data, points) = (numbers(&inputs[0])?, numbers(&inputs[1])?);
            let count: usize = grid[2..].iter().product();
            let plane: usize = shape[2..].iter().product();
            let mut made = vec![0.0; out.iter().product()];
            for (image, at) in (0..shape[0]).flat_map(|image| (0..count).map(move |at| (image, at))) {
                // Coordinates are in reverse order of the axes.
                let coordinate = |axis: usize| points[(image * grid[1] + grid[1] - 1 - axis) * count + at] as f32;
                let mut taps: SmallVec<[(usize, f64); 16]> = smallvec![(0, 1.0)];
                for (axis, n) in shape[2..].iter().enumerate() {
                    let along = sampling.taps(coordinate(axis), *n);
                    taps = taps.iter().flat_map(|(i, w)| along.iter().map(move |(j, v)| (i * n + j, w * v))).collect();
                }
                for channel in 0..shape[1] {
                    let from = &data[(image * shape[1] + channel) * plane..][..plane];
                    made[(image * shape[1] + channel) * count + at] = taps.iter().map(|(i, w)| from[*i] * w).sum();
                }
            }
            Ok(tvec![tensor_of(&made, &out, dtype)?])
        })?[0];
        Ok(tvec![plain.wire(&layout, wiring, made)?])
    }

    /// Element (n, k, i, j) is `a·x + b·y + c` with row (a, b, c) = k of matrix n; x and y run from −1 to just below 1.
    pub(super) fn affine_grid(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let (shape, dtype) = (call.dims()?, wiring.fact(inputs[0])?.datum_type);
        wiring.custom("AffineGrid", tvec![dtype.fact(&*shape)], inputs, move |inputs| {
            let step = |n: usize| (2.0 - 1e-7) / n.saturating_sub(1).max(1) as f64;
            let (down, right) = (step(shape[2]), step(shape[3]));
            let mut made = Vec::with_capacity(shape.iter().product());
            for row in numbers(&inputs[0])?.chunks_exact(3) {
                for (i, j) in (0..shape[2]).flat_map(|i| (0..shape[3]).map(move |j| (i, j))) {
                    made.push(row[0] * (-1.0 + j as f64 * right) + row[1] * (-1.0 + i as f64 * down) + row[2]);
                }
            }
            Ok(tvec![tensor_of(&made, &shape, dtype)?])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reflection_folds_back_and_forth() {
        for (position, want) in [(-1.0, 1.0), (4.0, 2.0), (7.0, 1.0), (1.5, 1.5)] {
            assert_eq!(reflect(position, 3.0, 0.0), want, "{position}");
        }
    }

    #[test]
    fn points_outside_have_no_taps_in_zeros() {
        let sampling = Sampling { method: Method::Linear, outside: Outside::Zeros, align_corners: true };
        assert!(sampling.taps(3.0, 4).is_empty());
        assert_eq!(sampling.taps(-1.0, 4).as_slice(), [(0, 1.0), (1, 0.0)]);
        let border = Sampling { outside: Outside::Border, ..sampling };
        assert_eq!(border.taps(3.0, 4).as_slice(), [(3, 1.0)]);
    }
}
