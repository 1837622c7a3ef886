//! Elementwise functions as tract operators, which tract computes in place, moves axes and slices through, and
//! constant-folds like its own.

use half::slice::HalfFloatSliceExt;
use tract_core::internal::*;
use tract_core::ops::binary::{BinMiniOp, TypedBinOp};
use tract_core::ops::element_wise::{ElementWiseMiniOp, ElementWiseOp};

use crate::kernel::element::{Number, for_dtype};
use crate::kernel::indexing::broadcast_strides;

/// Names of the operators of [`maximum`] and [`minimum`], by which engines recognise them.
pub const MAXIMUM: &str = "maximum_or_nan";
pub const MINIMUM: &str = "minimum_or_nan";

/// A function of one tensor that keeps its shape and dtype.
pub(crate) type MapFn = fn(&mut Tensor) -> TractResult<()>;

/// A function of one tensor that keeps its shape.
pub(crate) type ConvertFn = fn(&Tensor, to: DatumType) -> TractResult<Tensor>;

/// A function of two elements, run over two tensors that broadcast to the shape of the output.
pub(crate) type ZipFn = fn(out: &mut Tensor, lhs: &Tensor, rhs: &Tensor) -> TractResult<()>;

/// `map` as a tract operator; maps of the same name are considered equal.
pub(crate) fn map(name: &'static str, map: MapFn) -> ElementWiseOp {
    ElementWiseOp(Box::new(Map { name, map }), None)
}

/// `convert` as a tract operator with results of type `to`.
pub(crate) fn convert(name: &'static str, to: DatumType, convert: ConvertFn) -> ElementWiseOp {
    ElementWiseOp(Box::new(Convert { name, to, convert }), None)
}

/// `zip` as a tract operator with results of the operands' dtype.
pub(crate) fn zip(name: &'static str, zip: ZipFn) -> TypedBinOp {
    TypedBinOp(Box::new(Zip { name, to_bool: false, zip }), None)
}

/// `zip` as a tract operator with bool results.
pub(crate) fn zip_to_bool(name: &'static str, zip: ZipFn) -> TypedBinOp {
    TypedBinOp(Box::new(Zip { name, to_bool: true, zip }), None)
}

/// The maximum with ONNX's NaN: NaN if either operand is.
pub fn maximum() -> TypedBinOp {
    zip(MAXIMUM, |out, a, b| for_dtype!(a.datum_type(), T in number => pairs(out, a, b, <T as Number>::max_or_nan)))
}

/// The minimum with ONNX's NaN.
pub fn minimum() -> TypedBinOp {
    zip(MINIMUM, |out, a, b| for_dtype!(a.datum_type(), T in number => pairs(out, a, b, <T as Number>::min_or_nan)))
}

/// The conversion of half to single precision or back, by the processor's instructions where it has them; `None` for other types.
pub fn half_conversion(from: DatumType, to: DatumType) -> Option<ElementWiseOp> {
    match (from, to) {
        (DatumType::F16, DatumType::F32) => Some(convert("half_to_single", to, |half, to| {
            let mut single = Tensor::zero_dt(to, half.shape())?;
            let from = half.try_as_plain_ram()?;
            let mut plain = single.try_as_plain_ram_mut()?;
            from.as_slice::<f16>()?.convert_to_f32_slice(plain.as_slice_mut::<f32>()?);
            Ok(single)
        })),
        (DatumType::F32, DatumType::F16) => Some(convert("single_to_half", to, |single, to| {
            let mut half = Tensor::zero_dt(to, single.shape())?;
            let from = single.try_as_plain_ram()?;
            let mut plain = half.try_as_plain_ram_mut()?;
            plain.as_slice_mut::<f16>()?.convert_from_f32_slice(from.as_slice::<f32>()?);
            Ok(half)
        })),
        _ => None,
    }
}

/// Name of [`exact_integers`], by which engines recognise it.
pub const EXACT_INTEGERS: &str = "exact_integers";

/// A cast to int32 of single-precision numbers that are integers of at most 24 bits, so that casting back is the identity.
pub fn exact_integers() -> ElementWiseOp {
    convert(EXACT_INTEGERS, DatumType::I32, |single, _| each_into(single, |x: f32| x as i32))
}

/// Applies `function` to every element of a tensor of `T`.
pub(crate) fn each<T: Datum + Copy>(tensor: &mut Tensor, function: impl Fn(T) -> T) -> TractResult<()> {
    tensor.try_as_plain_ram_mut()?.as_slice_mut::<T>()?.iter_mut().for_each(|x| *x = function(*x));
    Ok(())
}

/// A tensor of `U` made from every element of a tensor of `T`.
pub(crate) fn each_into<T: Datum + Copy, U: Datum + Copy>(
    tensor: &Tensor,
    function: impl Fn(T) -> U,
) -> TractResult<Tensor> {
    let out: Vec<U> = tensor.try_as_plain_ram()?.as_slice::<T>()?.iter().map(|x| function(*x)).collect();
    Tensor::from_shape(tensor.shape(), &out)
}

/// A run of elements along which both operands have a constant stride.
struct Row {
    length: usize,
    out: usize,
    a: usize,
    a_step: usize,
    b: usize,
    b_step: usize,
}

/// Visits a dense output of `shape` in rows as long as the operands' strides allow. Not generic, so that it is compiled
/// once for all functions.
fn rows(shape: &[usize], a_strides: &[usize], b_strides: &[usize], each: &mut dyn FnMut(Row)) {
    if shape.contains(&0) {
        return;
    }
    let mut outer = shape.iter().rposition(|n| *n != 1).unwrap_or(0);
    let (mut length, a_step, b_step) = match shape.get(outer) {
        Some(length) => (*length, a_strides[outer], b_strides[outer]),
        None => (1, 0, 0),
    };
    let is_contiguous = |axis: usize, length: usize| {
        shape[axis] == 1 || (a_strides[axis] == a_step * length && b_strides[axis] == b_step * length)
    };
    while outer > 0 && is_contiguous(outer - 1, length) {
        outer -= 1;
        length *= shape[outer];
    }
    let mut index: TVec<usize> = tvec![0; outer];
    let (mut out, mut a, mut b) = (0, 0, 0);
    loop {
        each(Row { length, out, a, a_step, b, b_step });
        out += length;
        let mut axis = outer;
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            a += a_strides[axis];
            b += b_strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            a -= a_strides[axis] * shape[axis];
            b -= b_strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
}

/// Applies `function` to every pair of elements of two tensors of `T` that broadcast to the shape of `out`.
pub(crate) fn pairs<T: Datum + Copy, U: Datum + Copy>(
    out: &mut Tensor,
    lhs: &Tensor,
    rhs: &Tensor,
    function: impl Fn(T, T) -> U,
) -> TractResult<()> {
    let shape: TVec<usize> = out.shape().into();
    let (a_strides, b_strides) = (broadcast_strides(lhs.shape(), &shape), broadcast_strides(rhs.shape(), &shape));
    let (a, b) = (lhs.try_as_plain_ram()?.as_slice::<T>()?, rhs.try_as_plain_ram()?.as_slice::<T>()?);
    let mut out = out.try_as_plain_ram_mut()?;
    let out = out.as_slice_mut::<U>()?;
    rows(&shape, &a_strides, &b_strides, &mut |row| {
        let out = &mut out[row.out..row.out + row.length];
        match (row.a_step, row.b_step) {
            (1, 1) => {
                let (a, b) = (&a[row.a..row.a + row.length], &b[row.b..row.b + row.length]);
                out.iter_mut().zip(a).zip(b).for_each(|((out, a), b)| *out = function(*a, *b));
            }
            (a_step, b_step) => out.iter_mut().enumerate().for_each(|(i, out)| {
                *out = function(a[row.a + i * a_step], b[row.b + i * b_step]);
            }),
        }
    });
    Ok(())
}

#[derive(Clone)]
struct Map {
    name: &'static str,
    map: MapFn,
}

impl ElementWiseMiniOp for Map {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn eval_in_place(&self, tensor: &mut Tensor, _to: Option<DatumType>) -> TractResult<()> {
        (self.map)(tensor)
    }
}

#[derive(Clone)]
struct Convert {
    name: &'static str,
    to: DatumType,
    convert: ConvertFn,
}

impl ElementWiseMiniOp for Convert {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn output_type(&self, _from: DatumType) -> Option<DatumType> {
        Some(self.to)
    }

    fn eval_out_of_place(&self, tensor: &Tensor, _to: Option<DatumType>) -> TractResult<Tensor> {
        (self.convert)(tensor, self.to)
    }
}

#[derive(Clone)]
struct Zip {
    name: &'static str,
    to_bool: bool,
    zip: ZipFn,
}

impl BinMiniOp for Zip {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_commutative(&self) -> bool {
        false
    }

    fn result_datum_type(&self, lhs: DatumType, _rhs: DatumType) -> TractResult<DatumType> {
        Ok(if self.to_bool { DatumType::Bool } else { lhs })
    }

    fn eval_in_a(&self, lhs: &mut Tensor, rhs: &Tensor) -> TractResult<()> {
        let mut out = Tensor::zero_dt(lhs.datum_type(), lhs.shape())?;
        (self.zip)(&mut out, lhs, rhs)?;
        *lhs = out;
        Ok(())
    }

    fn eval_out_of_place(&self, out: &mut Tensor, lhs: &Tensor, rhs: &Tensor) -> TractResult<()> {
        (self.zip)(out, lhs, rhs)
    }

    fn eval(&self, lhs: TValue, rhs: TValue, to: DatumType) -> TractResult<Tensor> {
        let shape = tract_core::broadcast::multi_broadcast(&[lhs.shape(), rhs.shape()])?;
        let mut out = Tensor::zero_dt(to, &shape)?;
        (self.zip)(&mut out, &lhs, &rhs)?;
        Ok(out)
    }
}

macro_rules! known_by_name {
    ($($Op:ident [$($field:ident),*])*) => {$(
        impl std::fmt::Debug for $Op {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name)
            }
        }

        impl PartialEq for $Op {
            fn eq(&self, other: &$Op) -> bool {
                self.name == other.name $(&& self.$field == other.$field)*
            }
        }

        impl Eq for $Op {}
    )*};
}

known_by_name! { Map [] Convert [to] Zip [to_bool] }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_broadcast_as_in_ndarray() {
        let shapes: &[(&[usize], &[usize])] = &[
            (&[], &[]),
            (&[4], &[1]),
            (&[2, 3], &[2, 3]),
            (&[2, 3, 1], &[1, 3, 4]),
            (&[2, 1, 4, 1], &[2, 3, 1, 1]),
            (&[1, 5, 1, 1], &[2, 5, 3, 3]),
            (&[0, 3], &[1, 3]),
            (&[3, 1, 1], &[1, 1, 1]),
            (&[4], &[2, 3, 4]),
            (&[2, 3, 4], &[3, 1]),
        ];
        for (a, b) in shapes {
            let to = tract_core::broadcast::multi_broadcast(&[*a, *b]).unwrap();
            let range = |shape: &[usize], from: i64| {
                let values: Vec<i64> = (from..).take(shape.iter().product()).collect();
                Tensor::from_shape(shape, &values).unwrap()
            };
            let (lhs, rhs, mut out) = (range(a, 1), range(b, 100), range(&to, 0));
            pairs::<i64, i64>(&mut out, &lhs, &rhs, |x, y| 1000 * x + y).unwrap();
            let mut want = range(&to, 0);
            tract_core::ndarray::Zip::from(want.to_plain_array_view_mut::<i64>().unwrap())
                .and_broadcast(lhs.to_plain_array_view::<i64>().unwrap())
                .and_broadcast(rhs.to_plain_array_view::<i64>().unwrap())
                .for_each(|out, x, y| *out = 1000 * x + y);
            assert_eq!(out, want, "{a:?} with {b:?}");
        }
    }
}
