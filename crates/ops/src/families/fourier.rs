//! Discrete Fourier transforms: `dft` of rows, `stft` of windows of a signal.

use crate::{AttrDef, AttrKind, Call, OpDef, TypeError};
use edgecut_graph::{Dim, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("dft", &["re_data", "im_data"], dft_type)
        .attrs("relay.attrs.DFTAttrs", &[AttrDef::new("inverse", AttrKind::Bool, "False")])
        .attrs_in_metadata()
        .flops(|call| call.tensor(0).map_or(0, |t| butterflies(t, t.shape.last().copied())))
        .host(kernel!(dft)),
    OpDef::new("stft", &["data", "window"], stft_type)
        .attrs(
            "relay.attrs.StftAttrs",
            &[
                AttrDef::new("n_fft", AttrKind::Int, "-1"),
                AttrDef::new("hop_length", AttrKind::Int, "-1"),
                AttrDef::new("win_length", AttrKind::Int, "-1"),
                AttrDef::new("normalized", AttrKind::Bool, "False"),
                AttrDef::new("onesided", AttrKind::Bool, "True"),
            ],
        )
        .attrs_in_metadata()
        .flops(|call| call.result().map_or(0, |t| butterflies(t, t.shape.get(1).copied())))
        .host(kernel!(stft)),
];

/// 5·n·log₂(n) operations per transform of length n, the conventional FFT count.
fn butterflies(ty: &TensorType, length: Option<Dim>) -> u64 {
    let length = length.and_then(Dim::get).unwrap_or(1).max(2);
    ty.shape.elements().unwrap_or(0).saturating_mul(5 * u64::from(length.ilog2()))
}

fn dft_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (re, im) = (call.tensor(0)?, call.tensor(1)?);
    call.same_dtype(re, im)?;
    match re.shape.rank() == im.shape.rank() && re.shape.rank() > 0 {
        true => Ok(Type::Tuple(vec![re.clone().into(), im.clone().into()])),
        false => Err(call.error(format!("{re} and {im}: expected one shape of rank 1 or more"))),
    }
}

/// Lengths of the transform, the hop and the window: `n_fft`, `hop_length`, `win_length`.
fn lengths(call: &Call<'_>) -> Result<(u64, u64, u64), TypeError> {
    let positive = |key: &str, default: u64| -> Result<u64, TypeError> {
        match call.int(key, -1)? {
            -1 if default > 0 => Ok(default),
            n => u64::try_from(n)
                .ok()
                .filter(|n| *n > 0)
                .ok_or_else(|| call.error(format!("{key}={n} is not a positive length"))),
        }
    };
    let n_fft = positive("n_fft", 0)?;
    Ok((n_fft, positive("hop_length", (n_fft / 4).max(1))?, positive("win_length", n_fft)?))
}

/// (batch, frequencies, frames, 2); the last axis is the real and the imaginary part.
fn stft_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let (n_fft, hop, _) = lengths(call)?;
    if data.shape.rank() != 2 {
        return Err(call.error(format!("data is {data}, expected a batch of signals")));
    }
    let frames = match data.shape[1].get() {
        Some(n) if n < n_fft => return Err(call.error(format!("a signal of {n} is shorter than n_fft={n_fft}"))),
        Some(n) => Dim::Known((n - n_fft) / hop + 1),
        None => Dim::Any,
    };
    let rows = if call.flag("onesided", true)? { n_fft / 2 + 1 } else { n_fft };
    let shape = [data.shape[0], Dim::Known(rows), frames, Dim::Known(2)].into_iter().collect();
    Ok(TensorType::new(data.dtype, shape).into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;
    use tract_core::ops::fft::Fft;

    use crate::Typed;
    use crate::kernel::indexing::each_place;

    /// Transforms rows of `length` interleaved complex numbers.
    fn transform(numbers: Vec<f64>, length: usize, inverse: bool) -> TractResult<Vec<f64>> {
        if numbers.is_empty() {
            return Ok(numbers);
        }
        let rows = Tensor::from_shape(&[numbers.len() / length / 2, length, 2], &numbers)?;
        let done = Fft { axis: 1, inverse }.eval(&EvalContext::out_of_plan(), tvec!(rows.into_tvalue()))?;
        Ok(done[0].try_as_plain_ram()?.as_slice::<f64>()?.to_vec())
    }

    /// Transforms along the last axis; the inverse divides by the length.
    pub(super) fn dft(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let inverse = call.flag("inverse", false)?;
        let length = *inputs[0].shape().last().context("a scalar has no axis")?;
        let (re, im) = (inputs[0].cast_to::<f64>()?, inputs[1].cast_to::<f64>()?);
        let (re, im) = (re.try_as_plain_ram()?, im.try_as_plain_ram()?);
        let pairs = re.as_slice::<f64>()?.iter().zip(im.as_slice::<f64>()?);
        let numbers = transform(pairs.flat_map(|(re, im)| [*re, *im]).collect(), length, inverse)?;
        let scale = if inverse { 1.0 / length as f64 } else { 1.0 };
        let field = |part: usize| -> TractResult<Tensor> {
            let values: Vec<f64> = numbers.chunks_exact(2).map(|z| z[part] * scale).collect();
            let tensor = Tensor::from_shape(inputs[0].shape(), &values)?;
            Ok(tensor.cast_to_dt(inputs[0].datum_type())?.into_owned())
        };
        Ok(tvec!(field(0)?, field(1)?))
    }

    /// Transforms each frame, weighted by the window, with the window's length as the period.
    pub(super) fn stft(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (n_fft, hop, period) = lengths(call)?;
        let (hop, period) = (hop as usize, period as usize);
        let dims = call.dims()?;
        let (batch, rows, frames) = (dims[0], dims[1], dims[2]);
        let signal_length = inputs[0].shape()[1];
        let (data, window) = (inputs[0].cast_to::<f64>()?, inputs[1].cast_to::<f64>()?);
        let (data, window) = (data.try_as_plain_ram()?, window.try_as_plain_ram()?);
        let (data, window) = (data.as_slice::<f64>()?, window.as_slice::<f64>()?);
        ensure!(window.len() >= period, "the window has {} elements, expected {period}", window.len());
        ensure!(period <= n_fft as usize, "the window is longer than the transform");
        let scale = if call.flag("normalized", false)? { 1.0 / (n_fft as f64).sqrt() } else { 1.0 };
        let mut signals = Vec::with_capacity(batch * frames * period * 2);
        for b in 0..batch {
            for frame in 0..frames {
                let signal = &data[b * signal_length + frame * hop..][..period];
                signals.extend(signal.iter().zip(window).flat_map(|(x, w)| [x * w, 0.0]));
            }
        }
        let numbers = transform(signals, period, false)?;
        let mut out = Vec::with_capacity(batch * rows * frames * 2);
        each_place(&[batch, rows, frames, 2], |at| {
            out.push(numbers[((at[0] * frames + at[2]) * period + at[1] % period) * 2 + at[3]] * scale);
        });
        Ok(tvec!(Tensor::from_shape(&dims, &out)?.cast_to_dt(inputs[0].datum_type())?.into_owned()))
    }
}
