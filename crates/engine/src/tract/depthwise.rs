//! Depthwise convolutions in single precision: plane by plane, split into phases, with bounds (ReLU, ReLU6 and similar)
//! applied while a plane is in the cache.

use tract_core::{
    internal::*,
    ops::{binary::TypedBinOp, cnn::Conv, math},
};
use tract_linalg::{multithread::par_chunks_mut, routines::depthwise_w_f32};

use super::plain_conv::is_plain_conv;
use edgecut_ops::{
    kernel::{
        phases::{LANES, Phases},
        pointwise::{MAXIMUM, MINIMUM},
    },
    window::Window,
};

/// Data (N, C, spatial…) or (C, spatial…), weight (C, 1, window…) and bias, one or C.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Depthwise {
    phases: Phases,
    out: TVec<usize>,
    channels: usize,
    /// Applied in this order.
    bounds: Vec<Bound>,
}

// Bounds are never NaN: `bounded` rejects it.
impl Eq for Depthwise {}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    Low(f32),
    High(f32),
    /// As these, but NaN stays NaN.
    LowOrNan(f32),
    HighOrNan(f32),
}

impl Depthwise {
    /// The convolution `conv` of `data`, if it is depthwise over one or two axes.
    pub(super) fn of(conv: &Conv, data: &TypedFact) -> Option<Depthwise> {
        let spec = &conv.pool_spec;
        let depthwise = conv.group > 1 && conv.group == spec.input_channels && conv.group == spec.output_channels;
        let shape = data.shape.as_concrete().filter(|_| depthwise && is_plain_conv(conv, data))?;
        let out = spec.output_shape(shape).ok()?;
        let size = spec.data_format.shape(shape).ok()?;
        let paddings = spec.computed_padding(size.hw_dims());
        let windows = paddings.iter().enumerate().map(|(axis, padding)| Window {
            size: spec.kernel_shape[axis] as u64,
            stride: spec.stride(axis) as u64,
            dilation: spec.dilation(axis) as u64,
            before: padding.pad_before as u64,
            after: padding.pad_after as u64,
        });
        let phases = Phases::new(&windows.collect::<Vec<_>>(), size.hw_dims(), out.hw_dims())?;
        Some(Depthwise { phases, out: out.shape, channels: spec.output_channels, bounds: Vec::new() })
    }

    /// This convolution followed by the operator `next`, if that is a minimum or maximum with a scalar.
    pub(super) fn bounded(&self, next: &TypedBinOp, other: &Tensor) -> Option<Depthwise> {
        let bound = *other.cast_to::<f32>().ok()?.try_as_plain_ram().ok()?.as_slice::<f32>().ok()?.first()?;
        let bound = if other.len() != 1 || bound.is_nan() {
            return None;
        } else if next.0.is::<math::Max>() {
            Bound::Low(bound)
        } else if next.0.is::<math::Min>() {
            Bound::High(bound)
        } else if next.0.name() == MAXIMUM {
            Bound::LowOrNan(bound)
        } else if next.0.name() == MINIMUM {
            Bound::HighOrNan(bound)
        } else {
            return None;
        };
        let mut bounded = self.clone();
        bounded.bounds.push(bound);
        Some(bounded)
    }

    /// Without `data`, the planes of the data lie where those of the result go.
    fn compute(&self, data: Option<&[f32]>, weight: &[f32], bias: &[f32], output: &mut [f32]) -> TractResult<()> {
        let (plane, taps) = (self.phases.results(), self.phases.offsets().len());
        let elements = data.map_or(output.len(), <[f32]>::len);
        let from = elements / (output.len() / plane);
        let offsets: Vec<isize> = self.phases.offsets().iter().map(|o| *o as isize).collect();
        par_chunks_mut(output, plane, elements, |first, planes| {
            let (mut buffer, mut run) = (self.phases.buffer(0f32), self.phases.run(0f32));
            for (at, output) in (first..).zip(planes.chunks_exact_mut(plane)) {
                let channel = at % self.channels;
                let (weight, bias) = (&weight[channel * taps..][..taps], bias[channel % bias.len()]);
                self.phases.fill(data.map_or(&*output, |data| &data[at * from..][..from]), &mut buffer);
                if self.phases.is_contiguous() {
                    filter(&buffer, &offsets, weight, bias, output);
                } else {
                    filter(&buffer, &offsets, weight, bias, &mut run);
                    self.phases.take(&run, output);
                }
                for bound in &self.bounds {
                    // Not `f32::max`: NaN becomes the bound.
                    match *bound {
                        Bound::Low(low) => output.iter_mut().for_each(|x| *x = if *x > low { *x } else { low }),
                        Bound::High(high) => output.iter_mut().for_each(|x| *x = if *x < high { *x } else { high }),
                        Bound::LowOrNan(low) => output.iter_mut().for_each(|x| *x = if *x < low { low } else { *x }),
                        Bound::HighOrNan(high) => {
                            output.iter_mut().for_each(|x| *x = if *x > high { high } else { *x })
                        }
                    }
                }
            }
            Ok(())
        })
    }
}

/// Weighted sums of taps, starting from the bias.
fn filter(buffer: &[f32], offsets: &[isize], weight: &[f32], bias: f32, run: &mut [f32]) {
    let reach = offsets.iter().max().map_or(0, |o| *o as usize + run.len());
    if let Some(routine) = depthwise_w_f32().filter(|_| reach <= buffer.len() && weight.len() == offsets.len()) {
        // SAFETY: offsets are not negative, and every offset plus the length of the run is within the buffer (checked
        // above), which is read with stride 1; `run` is written up to its length.
        unsafe { routine(buffer.as_ptr(), run.as_mut_ptr(), weight, offsets, bias, run.len(), 1) };
        return;
    }
    for (at, sums) in run.chunks_mut(LANES).enumerate() {
        sums.fill(bias);
        for (offset, weight) in offsets.iter().zip(weight) {
            let taps = &buffer[*offset as usize + at * LANES..];
            sums.iter_mut().zip(taps).for_each(|(sum, x)| *sum += x * weight);
        }
    }
}

impl Op for Depthwise {
    fn name(&self) -> StaticName {
        "Depthwise".into()
    }

    op_as_typed_op!();
}

impl EvalOp for Depthwise {
    op_out_of_plan!();

    fn eval(&self, _ctx: &EvalContext, mut inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        // Data that nothing else uses is overwritten: its elements are in a cache, those of a new tensor are not.
        let overwrites = inputs[0].is_exclusive() && *inputs[0].shape() == *self.out;
        let mut output = match overwrites {
            true => std::mem::replace(&mut inputs[0], Tensor::zero::<f32>(&[0])?.into_tvalue()).into_tensor(),
            false => Tensor::zero::<f32>(&self.out)?,
        };
        if output.len() > 0 {
            let plain = inputs.iter().map(|t| t.try_as_plain_ram()).collect::<TractResult<TVec<_>>>()?;
            let slices = plain.iter().map(|t| t.as_slice::<f32>()).collect::<TractResult<TVec<_>>>()?;
            let [data, weight, bias] = slices[..] else { bail!("a convolution has three inputs") };
            let data = (!overwrites).then_some(data);
            self.compute(data, weight, bias, output.try_as_plain_ram_mut()?.as_slice_mut::<f32>()?)?;
        }
        Ok(tvec![output.into_tvalue()])
    }
}

impl TypedOp for Depthwise {
    fn output_facts(&self, _inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        Ok(tvec![f32::fact(&*self.out)])
    }

    as_op!();
}
