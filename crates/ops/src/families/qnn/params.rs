//! Quantisation parameters: scales and zero points, and conversions between quantised values, reals and other parameters.

use tract_core::internal::*;

use super::fixed_point::{FixedPoint, Ties};
use crate::kernel::datum_type;
use crate::kernel::indexing::integers;
use edgecut_graph::DType;

/// Quantisation parameters of a tensor, per tensor or per index along an axis.
pub(crate) struct Params {
    scales: Vec<f32>,
    zero_points: Vec<i64>,
    /// Number of consecutive elements that share an index along the axis, and number of indices.
    inner: usize,
    channels: usize,
}

/// The arithmetic of requantisation (`compute_dtype`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComputeType {
    Integer,
    Single,
    Double,
}

impl Params {
    /// # Errors
    /// If there are several scales or zero points, but not one per index along `axis` of `shape`.
    pub fn new(scale: &Tensor, zero_point: &Tensor, shape: &[usize], axis: Option<usize>) -> TractResult<Params> {
        let scales = scale.cast_to::<f32>()?.try_as_plain_ram()?.as_slice::<f32>()?.to_vec();
        let zero_points = integers(zero_point)?;
        let (inner, channels) = match axis {
            Some(axis) => (shape[axis + 1..].iter().product::<usize>().max(1), shape[axis]),
            None => (1, 1),
        };
        for count in [scales.len(), zero_points.len()] {
            ensure!(count == 1 || count == channels, "{count} scales or zero points for {channels} channels");
        }
        Ok(Params { scales, zero_points, inner, channels })
    }

    /// Per-tensor parameters.
    pub fn single(scale: f32, zero_point: i64) -> Params {
        Params { scales: vec![scale], zero_points: vec![zero_point], inner: 1, channels: 1 }
    }

    pub fn scale(&self, element: usize) -> f32 {
        self.of(&self.scales, element)
    }

    /// Takes out the per-tensor scale, which becomes 1; `None` if scales are per channel.
    pub fn take_scale(&mut self) -> Option<f32> {
        match self.scales.as_mut_slice() {
            [only] => Some(std::mem::replace(only, 1.0)),
            _ => None,
        }
    }

    pub fn zero_point(&self, element: usize) -> i64 {
        self.of(&self.zero_points, element)
    }

    fn of<T: Copy>(&self, list: &[T], element: usize) -> T {
        match list {
            [only] => *only,
            list => list[element / self.inner % self.channels.max(1)],
        }
    }

    /// round(x / scale) + zero point, ties away from zero; not saturated.
    pub fn quantize(&self, values: &[f32]) -> Vec<f64> {
        let quantized = |(i, x): (usize, &f32)| f64::from((x / self.scale(i)).round() + self.zero_point(i) as f32);
        values.iter().enumerate().map(quantized).collect()
    }

    /// (q - zero point) · scale.
    pub fn dequantize(&self, values: &[i64]) -> Vec<f32> {
        let real = |(i, q): (usize, &i64)| (q - self.zero_point(i)) as f32 * self.scale(i);
        values.iter().enumerate().map(real).collect()
    }

    /// Values requantised to `to`; not saturated. Integers wrap to 32 bits after each step, as in TVM.
    pub fn requantize(&self, values: &[i64], to: &Params, arithmetic: ComputeType, ties: Ties) -> Vec<i64> {
        let mut known: Option<(f32, f32, f64, FixedPoint)> = None;
        let requantized = |(i, q): (usize, &i64)| {
            let (from, into) = (self.scale(i), to.scale(i));
            let (ratio, fixed) = match known {
                Some((a, b, ratio, fixed)) if (a, b) == (from, into) => (ratio, fixed),
                _ => {
                    let ratio = f64::from(from) / f64::from(into);
                    let fixed = FixedPoint::of(ratio);
                    known = Some((from, into, ratio, fixed));
                    (ratio, fixed)
                }
            };
            let (shifted, zero_point) = (wrapped(q - self.zero_point(i)), to.zero_point(i));
            match arithmetic {
                ComputeType::Integer => wrapped(wrapped(fixed.times(shifted, ties)) + zero_point),
                ComputeType::Single => rounded(f64::from(shifted as f32 * ratio as f32 + zero_point as f32), ties),
                ComputeType::Double => rounded(shifted as f64 * ratio + zero_point as f64, ties),
            }
        };
        values.iter().enumerate().map(requantized).collect()
    }
}

/// The elements of a tensor in single precision.
pub(crate) fn singles(tensor: &Tensor) -> TractResult<Vec<f32>> {
    Ok(tensor.cast_to::<f32>()?.try_as_plain_ram()?.as_slice::<f32>()?.to_vec())
}

fn rounded(x: f64, ties: Ties) -> i64 {
    match ties {
        Ties::Up => (x + 0.5).floor() as i64,
        Ties::AwayFromZero => x.round() as i64,
    }
}

/// Wraps to 32 bits.
pub(crate) fn wrapped(x: i64) -> i64 {
    i64::from(x as i32)
}

/// Values saturated to `dtype`.
pub(crate) fn saturated(values: &[i64], shape: &[usize], dtype: DType) -> TractResult<Tensor> {
    let (low, high) = bounds(dtype)?;
    let values: Vec<i64> = values.iter().map(|x| (*x).clamp(low, high)).collect();
    let to = datum_type(dtype).context("the dtype is not supported")?;
    Ok(Tensor::from_shape(shape, &values)?.cast_to_dt(to)?.into_owned())
}

/// The minimum and maximum of an integer dtype of up to 32 bits.
pub(crate) fn bounds(dtype: DType) -> TractResult<(i64, i64)> {
    let bits = dtype.size() * 8;
    ensure!(dtype.is_integer() && bits <= 32, "{dtype} is not a dtype of quantised values");
    Ok(match dtype.is_signed() {
        true => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        false => (0, (1 << bits) - 1),
    })
}
