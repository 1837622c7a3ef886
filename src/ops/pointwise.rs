//! Our own element-wise functions as tract operators, so that tract computes them in place, moves axes and
//! slices through them and folds them on constants just as it does with its own.

use tract_core::internal::*;
use tract_core::ops::binary::{BinMiniOp, TypedBinOp};
use tract_core::ops::element_wise::{ElementWiseMiniOp, ElementWiseOp};

/// A function of one tensor that keeps its shape and dtype.
pub(super) type MapFn = fn(&mut Tensor) -> TractResult<()>;

/// A function of one tensor that keeps its shape.
pub(super) type ConvertFn = fn(&Tensor, to: DatumType) -> TractResult<Tensor>;

/// A function of two elements, run over two tensors that broadcast to the shape of the output.
pub(super) type ZipFn = fn(out: &mut Tensor, lhs: &Tensor, rhs: &Tensor) -> TractResult<()>;

/// `map` as a tract operator; two maps of one name are taken for equal.
pub(super) fn map(name: &'static str, map: MapFn) -> ElementWiseOp {
    ElementWiseOp(Box::new(Map { name, map }), None)
}

/// `convert` as a tract operator with results of type `to`.
pub(super) fn convert(name: &'static str, to: DatumType, convert: ConvertFn) -> ElementWiseOp {
    ElementWiseOp(Box::new(Convert { name, to, convert }), None)
}

/// `zip` as a tract operator with results of the operands' dtype.
pub(super) fn zip(name: &'static str, zip: ZipFn) -> TypedBinOp {
    TypedBinOp(Box::new(Zip { name, to_bool: false, zip }), None)
}

/// `zip` as a tract operator with bool results.
pub(super) fn zip_to_bool(name: &'static str, zip: ZipFn) -> TypedBinOp {
    TypedBinOp(Box::new(Zip { name, to_bool: true, zip }), None)
}

/// Applies `function` to every element of a tensor of `T`.
pub(super) fn each<T: Datum + Copy>(tensor: &mut Tensor, function: impl Fn(T) -> T) -> TractResult<()> {
    tensor.try_as_plain_ram_mut()?.as_slice_mut::<T>()?.iter_mut().for_each(|x| *x = function(*x));
    Ok(())
}

/// A tensor of `U` made from every element of a tensor of `T`.
pub(super) fn each_into<T: Datum + Copy, U: Datum + Copy>(
    tensor: &Tensor,
    function: impl Fn(T) -> U,
) -> TractResult<Tensor> {
    let out: Vec<U> = tensor.try_as_plain_ram()?.as_slice::<T>()?.iter().map(|x| function(*x)).collect();
    Tensor::from_shape(tensor.shape(), &out)
}

/// Applies `function` to every pair of elements of two tensors of `T` that broadcast to the shape of `out`.
pub(super) fn pairs<T: Datum + Copy, U: Datum + Copy>(
    out: &mut Tensor,
    lhs: &Tensor,
    rhs: &Tensor,
    function: impl Fn(T, T) -> U,
) -> TractResult<()> {
    let same = lhs.shape() == rhs.shape();
    let (a, b) = (lhs.to_plain_array_view::<T>()?, rhs.to_plain_array_view::<T>()?);
    let mut out = out.try_as_plain_ram_mut()?;
    match (a.as_slice(), b.as_slice()) {
        (Some(a), Some(b)) if same => {
            for ((out, a), b) in out.as_slice_mut::<U>()?.iter_mut().zip(a).zip(b) {
                *out = function(*a, *b);
            }
        }
        (Some(a), Some(&[b])) => {
            for (out, a) in out.as_slice_mut::<U>()?.iter_mut().zip(a) {
                *out = function(*a, b);
            }
        }
        _ => tract_core::ndarray::Zip::from(out.to_array_view_mut::<U>()?)
            .and_broadcast(&a)
            .and_broadcast(&b)
            .for_each(|out, a, b| *out = function(*a, *b)),
    }
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
