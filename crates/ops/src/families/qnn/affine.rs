//! Conversions with the semantics of ONNX's QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear: zero points are
//! optional, ties round to even, scales and results may be in half precision.
//!
//! Source: <https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html> and the pages of the other two.

use crate::{
    Call, OpDef, TypeError,
    rules::{FUNCTION_COST, per_input},
};
use edgecut_graph::{DType, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[OpDef::new("qnn.dynamic_quantize", &["data"], dynamic_type)
    .flops(per_input::<FUNCTION_COST>)
    .host(kernel!(dynamic))];

/// uint8 data, a scale and a zero point.
fn dynamic_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    if data.dtype != DType::F32 {
        return Err(call.error(format!("the data is {data}, expected float32")));
    }
    let quantised = TensorType::new(DType::U8, data.shape.clone());
    let fields = [quantised, TensorType::of(DType::F32, &[]), TensorType::of(DType::U8, &[])];
    Ok(Type::Tuple(fields.map(Type::from).to_vec()))
}

#[cfg(feature = "kernels")]
pub(super) mod kernel {
    use multiversion::multiversion;
    use tract_core::internal::*;

    use crate::families::qnn::params::{bounds, singles};
    use crate::{
        Typed,
        kernel::{datum_type, indexing::integers},
    };

    /// Scales and zero points of consecutive runs of elements.
    struct Runs {
        scales: Vec<f32>,
        zeros: Vec<i32>,
        /// Elements that share an index along the axis.
        length: usize,
        channels: usize,
    }

    impl Runs {
        /// Those in operands 1 and 2, for data of `shape`; the attribute `axis` is that of several.
        fn of(call: &Typed<'_>, inputs: &[TValue], shape: &[usize]) -> TractResult<Runs> {
            let scales = singles(&inputs[1])?;
            let zeros = match inputs.get(2) {
                Some(zero) => integers(zero)?.into_iter().map(|zero| zero as i32).collect(),
                None => vec![0],
            };
            let count = scales.len().max(zeros.len());
            let (length, channels) = match count {
                1 => (shape.iter().product(), 1),
                _ => {
                    let (axis, rank) = (call.int("axis", -1)?, shape.len() as i64);
                    let at = if axis < 0 { axis + rank } else { axis };
                    ensure!((0..rank).contains(&at), "axis={axis} is out of range for rank {rank}");
                    (shape[at as usize + 1..].iter().product(), shape[at as usize])
                }
            };
            for count in [scales.len(), zeros.len()] {
                ensure!(count == 1 || count == channels, "{count} scales or zero points for {channels} channels");
            }
            Ok(Runs { scales, zeros, length: usize::max(length, 1), channels: usize::max(channels, 1) })
        }

        /// Calls `convert` with each run of `from` and `to`, its scale and its zero point.
        fn each<A, B>(&self, from: &[A], to: &mut [B], convert: impl Fn(&[A], &mut [B], f32, i32)) {
            for (run, (from, to)) in from.chunks(self.length).zip(to.chunks_mut(self.length)).enumerate() {
                let channel = run % self.channels;
                let scale = self.scales[if self.scales.len() == 1 { 0 } else { channel }];
                convert(from, to, scale, self.zeros[if self.zeros.len() == 1 { 0 } else { channel }]);
            }
        }
    }

    /// Evaluates `$body` with `$T` bound to the type of quantised elements of this datum type.
    macro_rules! for_quantised {
    ($dt:expr, $T:ident => $body:expr; $($Dt:ident $t:ident),*) => {
        match $dt {
            $(DatumType::$Dt => { type $T = $t; $body })*
            other => bail!("elements of type {other:?} are not quantised"),
        }
    };
}

    /// (q − zero point) · scale.
    pub(crate) fn dequantize(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let shape = inputs[0].shape();
        let runs = Runs::of(call, inputs, shape)?;
        let mut out = Tensor::zero::<f32>(shape)?;
        let (from, mut plain) = (inputs[0].try_as_plain_ram()?, out.try_as_plain_ram_mut()?);
        let to = plain.as_slice_mut::<f32>()?;
        for_quantised!(inputs[0].datum_type(), T => runs.each(from.as_slice::<T>()?, to, to_reals::<T>);
        U8 u8, I8 i8, U16 u16, I16 i16, I32 i32);
        let dtype = datum_type(call.result()?.dtype).context("the dtype is not supported")?;
        Ok(tvec!(if dtype == DatumType::F32 { out } else { out.cast_to_dt(dtype)?.into_owned() }))
    }

    #[multiversion(targets("x86_64+avx2"))]
    fn to_reals<T: Copy + Into<i32>>(from: &[T], to: &mut [f32], scale: f32, zero: i32) {
        for (q, x) in from.iter().zip(to) {
            *x = (*q).into().wrapping_sub(zero) as f32 * scale;
        }
    }

    /// saturate(round(x / scale) + zero point), the quotient in single precision as in ONNX Runtime.
    pub(crate) fn quantize(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let shape = inputs[0].shape();
        let runs = Runs::of(call, inputs, shape)?;
        let dtype = call.result()?.dtype;
        let (low, high) = bounds(dtype)?;
        let (low, high) = (low as i32, high as i32);
        let mut out = Tensor::zero_dt(datum_type(dtype).context("the dtype is not supported")?, shape)?;
        let real = inputs[0].cast_to::<f32>()?;
        let (from, to) = (real.try_as_plain_ram()?, out.datum_type());
        let (from, mut plain) = (from.as_slice::<f32>()?, out.try_as_plain_ram_mut()?);
        for_quantised!(to, T => runs.each(from, plain.as_slice_mut::<T>()?, |from, to, scale, zero| {
            to_integers::<T>(from, to, scale, [zero, low, high]);
        });
        U8 u8, I8 i8, U16 u16, I16 i16);
        Ok(tvec!(out))
    }

    /// An element type of quantised tensors.
    trait Quantised: Copy {
        /// Converts an integer that is in the range of the type.
        fn truncated(whole: i32) -> Self;
    }

    macro_rules! quantised {
    ($($t:ident),*) => { $(impl Quantised for $t {
        fn truncated(whole: i32) -> $t {
            whole as $t
        }
    })* };
}

    quantised!(u8, i8, u16, i16);

    /// Adding it to a number of up to 22 bits rounds that to an integer, ties to even, in the lowest bits of the sum; every
    /// instruction set vectorises this.
    const ROUNDING: f32 = 12_582_912.0;

    #[multiversion(targets("x86_64+avx2"))]
    fn to_integers<T: Quantised>(from: &[f32], to: &mut [T], scale: f32, limits: [i32; 3]) {
        let [zero, low, high] = limits;
        let (least, most) = ((low - zero) as f32, (high - zero) as f32);
        for (x, q) in from.iter().zip(to) {
            let scaled = x / scale;
            // Unlike `clamp`, each comparison is one instruction; NaN becomes the lower bound.
            let within = if scaled > least { scaled } else { least };
            let within = if within < most { within } else { most };
            let whole = (within + ROUNDING).to_bits().wrapping_sub(ROUNDING.to_bits()) as i32;
            *q = T::truncated(whole + zero);
        }
    }

    /// To uint8 by the range of the data, extended to contain 0; all zeros get the scale 1, as in ONNX Runtime.
    pub(super) fn dynamic(_call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let from = inputs[0].try_as_plain_ram()?;
        let from = from.as_slice::<f32>()?;
        let (least, most) = range(from);
        let (least, most) = (least.min(0.0), most.max(0.0));
        let scale = if most == least { 1.0 } else { (most - least) / 255.0 };
        let zero = (-least / scale).clamp(0.0, 255.0).round_ties_even() as u8;
        let mut out = Tensor::zero::<u8>(inputs[0].shape())?;
        let limits = [i32::from(zero), 0, 255];
        to_integers(from, out.try_as_plain_ram_mut()?.as_slice_mut::<u8>()?, scale, limits);
        Ok(tvec!(out, tensor0(scale), tensor0(zero)))
    }

    /// The minimum and maximum of a list; NaN is ignored.
    #[multiversion(targets("x86_64+avx2"))]
    fn range(list: &[f32]) -> (f32, f32) {
        const LANES: usize = 16;
        let (mut least, mut most) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
        for chunk in list.chunks(LANES) {
            for (at, x) in chunk.iter().enumerate() {
                least[at] = if *x < least[at] { *x } else { least[at] };
                most[at] = if *x > most[at] { *x } else { most[at] };
            }
        }
        (least.into_iter().fold(f32::INFINITY, f32::min), most.into_iter().fold(f32::NEG_INFINITY, f32::max))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn ties_go_to_even_numbers_and_values_saturate() {
            let from = [0.5, 1.5, 2.5, -0.5, -1.5, 1e9, -1e9, f32::INFINITY, 300.4];
            let mut to = [0u8; 9];
            to_integers(&from, &mut to, 1.0, [3, 0, 255]);
            assert_eq!(to, [3, 5, 5, 3, 1, 255, 0, 255, 255]);
            let mut to = [0i16; 3];
            to_integers(&[65534.5, -70000.0, 0.25], &mut to, 2.0, [0, -32768, 32767]);
            assert_eq!(to, [32767, -32768, 0]);
        }

        #[test]
        fn runs_have_their_own_parameters() {
            let runs = Runs { scales: vec![1.0, 2.0], zeros: vec![1], length: 2, channels: 2 };
            let mut to = [0.0; 6];
            runs.each(&[1i8, 2, 3, -4, 5, 6], &mut to, to_reals::<i8>);
            assert_eq!(to, [0.0, 1.0, 4.0, -10.0, 4.0, 5.0]);
        }

        #[test]
        fn ranges_are_those_of_all_elements() {
            let list: Vec<f32> = (0..37).map(|x| (x as f32 - 30.0) * if x % 2 == 0 { 1.0 } else { 0.5 }).collect();
            assert_eq!(range(&list), (-30.0, 6.0));
            assert_eq!(range(&[]), (f32::INFINITY, f32::NEG_INFINITY));
        }
    }
}
