//! ONNX's random operators, whose numbers a seed determines: those of ONNX Runtime's CPU kernels with the GNU C++
//! library, so that both engines draw the same. Every run restarts the stream.
//!
//! The generator is `minstd_rand0`, the distributions are those of libstdc++: `generate_canonical`, and the polar method
//! of Marsaglia, which makes two normal numbers at a time.

use crate::rules::per_output;
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError};
use edgecut_graph::{DType, TensorType, Type};

const SHAPE: AttrDef = AttrDef::required("shape", AttrKind::Ints);

const DTYPE: AttrDef = AttrDef::new("dtype", AttrKind::DType, "\"\"");

const SEED: AttrDef = AttrDef::required("seed", AttrKind::Float);

const MEAN: AttrDef = AttrDef::new("mean", AttrKind::Float, "0.0");

const SCALE: AttrDef = AttrDef::new("scale", AttrKind::Float, "1.0");

const LOW: AttrDef = AttrDef::new("low", AttrKind::Float, "0.0");

const HIGH: AttrDef = AttrDef::new("high", AttrKind::Float, "1.0");

pub(crate) static OPS: &[OpDef] = &[
    drawn("random_normal", &[], shape_type).attrs("", &[SHAPE, DTYPE, MEAN, SCALE, SEED]).host(kernel!(normal)),
    drawn("random_normal_like", &["data"], like_type).attrs("", &[DTYPE, MEAN, SCALE, SEED]).host(kernel!(normal)),
    drawn("random_uniform", &[], shape_type).attrs("", &[SHAPE, DTYPE, LOW, HIGH, SEED]).host(kernel!(uniform)),
    drawn("random_uniform_like", &["data"], like_type).attrs("", &[DTYPE, LOW, HIGH, SEED]).host(kernel!(uniform)),
];

/// Drawing a number costs about as much as evaluating a function.
const fn drawn(
    name: &'static str,
    operands: &'static [&'static str],
    infer: fn(&Call<'_>) -> Result<Type, TypeError>,
) -> OpDef {
    OpDef::new(name, operands, infer).random().class(FusionClass::Opaque).flops(per_output::<8>)
}

fn shape_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let shape = call.shape("shape")?.ok_or_else(|| call.error("shape is missing"))?;
    of_floats(call, TensorType::new(call.dtype("dtype")?.unwrap_or(DType::F32), shape))
}

fn like_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    of_floats(call, TensorType::new(call.dtype("dtype")?.unwrap_or(data.dtype), data.shape.clone()))
}

fn of_floats(call: &Call<'_>, ty: TensorType) -> Result<Type, TypeError> {
    match ty.dtype.is_float() {
        true => Ok(ty.into()),
        false => Err(call.error(format!("random numbers of type {} are not defined", ty.dtype))),
    }
}

#[cfg(feature = "kernels")]
mod kernel {
    use tract_core::internal::*;

    use crate::Typed;
    use crate::kernel::datum_type;

    /// The generator `minstd_rand0`.
    struct Generator(u64);

    impl Generator {
        const MODULUS: u64 = (1 << 31) - 1;
        /// How many numbers it draws.
        const RANGE: u64 = Generator::MODULUS - 1;

        fn new(call: &Typed<'_>) -> TractResult<Generator> {
            let seed = call.float("seed", 0.0)? as u32;
            Ok(Generator((u64::from(seed) % Generator::MODULUS).max(1)))
        }

        /// The next number, from 0.
        fn draw(&mut self) -> u64 {
            self.0 = self.0 * 16_807 % Generator::MODULUS;
            self.0 - 1
        }
    }

    /// A type of floats, with the arithmetic of libstdc++ in it.
    trait Real: Datum + Copy {
        fn of(value: f64) -> Self;
        /// A number in [0, 1).
        fn canonical(generator: &mut Generator) -> Self;
        /// `a * b + c`, rounded twice.
        fn scaled(a: Self, b: Self, c: Self) -> Self;
        fn minus(self, other: Self) -> Self;
        /// Two normal numbers, in the order in which they are given out.
        fn normal_pair(generator: &mut Generator) -> [Self; 2];
    }

    macro_rules! real {
        ($real:ty, $canonical:ident) => {
            impl Real for $real {
                fn of(value: f64) -> $real {
                    value as $real
                }

                fn canonical(generator: &mut Generator) -> $real {
                    let canonical: $real = $canonical(generator);
                    if canonical < 1.0 { canonical } else { 1.0 - <$real>::EPSILON / 2.0 }
                }

                fn scaled(a: $real, b: $real, c: $real) -> $real {
                    a * b + c
                }

                fn minus(self, other: $real) -> $real {
                    self - other
                }

                fn normal_pair(generator: &mut Generator) -> [$real; 2] {
                    loop {
                        let x = 2.0 * <$real>::canonical(generator) - 1.0;
                        let y = 2.0 * <$real>::canonical(generator) - 1.0;
                        let square = x * x + y * y;
                        if square <= 1.0 && square != 0.0 {
                            let factor = (-2.0 * square.ln() / square).sqrt();
                            return [y * factor, x * factor];
                        }
                    }
                }
            }
        };
    }

    real!(f32, canonical_f32);

    real!(f64, canonical_f64);

    /// Of one number.
    fn canonical_f32(generator: &mut Generator) -> f32 {
        generator.draw() as f32 / Generator::RANGE as f32
    }

    /// Of two numbers, the lower first.
    fn canonical_f64(generator: &mut Generator) -> f64 {
        let (low, high) = (generator.draw() as f64, generator.draw() as f64);
        (low + high * Generator::RANGE as f64) / (Generator::RANGE as f64 * Generator::RANGE as f64)
    }

    pub(super) fn normal(call: &Typed<'_>, _: &[TValue]) -> TractResult<TVec<Tensor>> {
        fn filled<T: Real>(call: &Typed<'_>, shape: &[usize]) -> TractResult<Tensor> {
            let (mean, scale) = (T::of(call.float("mean", 0.0)?), T::of(call.float("scale", 1.0)?));
            let mut generator = Generator::new(call)?;
            let mut spare = None;
            filled_with(shape, || {
                let number = spare.take().unwrap_or_else(|| {
                    let [first, second] = T::normal_pair(&mut generator);
                    spare = Some(second);
                    first
                });
                T::scaled(number, scale, mean)
            })
        }
        of_type(call, filled::<f64>, filled::<f32>)
    }

    pub(super) fn uniform(call: &Typed<'_>, _: &[TValue]) -> TractResult<TVec<Tensor>> {
        fn filled<T: Real>(call: &Typed<'_>, shape: &[usize]) -> TractResult<Tensor> {
            let (low, high) = (T::of(call.float("low", 0.0)?), T::of(call.float("high", 1.0)?));
            let mut generator = Generator::new(call)?;
            filled_with(shape, || T::scaled(T::canonical(&mut generator), high.minus(low), low))
        }
        of_type(call, filled::<f64>, filled::<f32>)
    }

    fn filled_with<T: Real>(shape: &[usize], mut next: impl FnMut() -> T) -> TractResult<Tensor> {
        let mut numbers: Vec<T> = Vec::new();
        numbers.resize_with(shape.iter().product(), &mut next);
        Tensor::from_shape(shape, &numbers)
    }

    type Filled = fn(&Typed<'_>, &[usize]) -> TractResult<Tensor>;

    /// The result, drawn as doubles or floats; narrower types are rounded from floats.
    fn of_type(call: &Typed<'_>, doubles: Filled, floats: Filled) -> TractResult<TVec<Tensor>> {
        let to = datum_type(call.result()?.dtype).context("the dtype is not supported")?;
        let shape = call.dims()?;
        let numbers = if to == DatumType::F64 { doubles(call, &shape)? } else { floats(call, &shape)? };
        Ok(tvec!(numbers.cast_to_dt(to)?.into_owned()))
    }
}
