//! `einsum`: sums of products over named axes.

use crate::split::SplitAxis;
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed};
use edgecut_graph::{Dim, Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[OpDef::new("einsum", &["data"], einsum_type)
    .attrs("relay.attrs.EinsumAttrs", &[AttrDef::required("equation", AttrKind::Str)])
    .class(FusionClass::Injective)
    .flops(products)
    .split(term_axes)
    .host(kernel!(einsum))];

/// Every axis of the result, and partial sums over the others. Excludes axes that an operand names twice: a diagonal is
/// not a slice.
fn term_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let equation = Equation::of(call)?;
    let fields = call.tuple(0)?;
    let shapes: Vec<&Shape> = fields.iter().map(|f| &f.shape).collect();
    let twice = |axis: Axis| equation.operands.iter().any(|axes| axes.iter().filter(|a| **a == axis).count() > 1);
    let cut = |split: SplitAxis, axis: Axis| {
        let size = split.size;
        equation.operands.iter().enumerate().fold(split, |split, (index, axes)| {
            match axes.iter().position(|a| *a == axis) {
                Some(at) if shapes[index][at].get() == Some(size) => split.operand(index, at),
                _ => split,
            }
        })
    };
    let result = equation.result.iter().enumerate().filter(|(_, axis)| !twice(**axis));
    let mut axes: Vec<SplitAxis> = result.map(|(at, axis)| cut(SplitAxis::along(call, at), *axis)).collect();
    for axis in equation.summed().into_iter().filter(|axis| !twice(*axis)) {
        axes.push(cut(SplitAxis::summed(call, equation.dim(&shapes, axis).unwrap_or(Dim::Any)), axis));
    }
    Ok(axes)
}

/// An axis of an operand: a letter, or the n-th from the right of the axes that `...` covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Axis {
    Spread(usize),
    Named(char),
}

/// The axes of each operand and of the result.
struct Equation {
    operands: Vec<Vec<Axis>>,
    result: Vec<Axis>,
}

impl Equation {
    fn of(call: &Call<'_>) -> Result<Equation, TypeError> {
        let text: String = call.text("equation", "")?.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = text.split_once("->").map_or((&*text, None), |(l, r)| (l, Some(r)));
        let fields = call.tuple(0)?;
        let terms: Vec<&str> = left.split(',').collect();
        if terms.len() != fields.len() {
            return Err(call.error(format!("the equation {text} has {} operands, not {}", terms.len(), fields.len())));
        }
        let operands = terms
            .iter()
            .zip(&fields)
            .map(|(term, field)| axes(call, term, Some(field.shape.rank())))
            .collect::<Result<Vec<_>, _>>()?;
        let spread = operands.iter().flatten().filter(|a| matches!(a, Axis::Spread(_))).max();
        let spread = spread.map_or(0, |a| if let Axis::Spread(n) = a { n + 1 } else { 0 });
        let result = match right {
            Some(term) => axes(call, term, Some(term.chars().filter(|c| *c != '.').count() + spread))?,
            None => implied(&operands, spread),
        };
        if let Some(axis) = result.iter().find(|a| !operands.iter().flatten().any(|b| b == *a)) {
            return Err(call.error(format!("{axis:?} of the result is not an axis of any operand")));
        }
        Ok(Equation { operands, result })
    }

    /// The contracted axes, without duplicates.
    fn summed(&self) -> Vec<Axis> {
        let mut axes: Vec<Axis> =
            self.operands.iter().flatten().copied().filter(|a| !self.result.contains(a)).collect();
        axes.sort_unstable();
        axes.dedup();
        axes
    }

    /// The dimension of `axis` in operands of `shapes`, with broadcasting of length 1.
    fn dim(&self, shapes: &[&Shape], axis: Axis) -> Option<Dim> {
        let places = self.operands.iter().zip(shapes).flat_map(|(axes, shape)| axes.iter().zip(shape.iter()));
        let dims = places.filter(|(a, _)| **a == axis).map(|(_, dim)| *dim);
        dims.into_iter().try_fold(Dim::Known(1), |joined, dim| match (joined.get(), dim.get()) {
            (Some(1), _) => Some(dim),
            (_, Some(1)) => Some(joined),
            _ => crate::rules::unify(joined, dim),
        })
    }
}

/// The axes of one term of the equation, for a tensor of rank `rank`.
fn axes(call: &Call<'_>, term: &str, rank: Option<usize>) -> Result<Vec<Axis>, TypeError> {
    let letters = |text: &str| -> Result<Vec<Axis>, TypeError> {
        match text.chars().all(|c| c.is_ascii_alphabetic()) {
            true => Ok(text.chars().map(Axis::Named).collect()),
            false => Err(call.error(format!("`{term}` is not a list of axes"))),
        }
    };
    let (before, after) = match term.split_once("...") {
        Some((before, after)) => (letters(before)?, Some(letters(after)?)),
        None => (letters(term)?, None),
    };
    let rank = rank.unwrap_or(before.len());
    let named = before.len() + after.as_ref().map_or(0, Vec::len);
    match (rank.checked_sub(named), after) {
        (Some(0), None) => Ok(before),
        (Some(spread), Some(after)) => {
            Ok(before.into_iter().chain((0..spread).rev().map(Axis::Spread)).chain(after).collect())
        }
        _ => Err(call.error(format!("`{term}` does not name the axes of a tensor of rank {rank}"))),
    }
}

/// The result's axes without `->`: those of `...`, then the letters that occur once, in alphabetical order.
fn implied(operands: &[Vec<Axis>], spread: usize) -> Vec<Axis> {
    let mut names: Vec<Axis> = operands.iter().flatten().copied().filter(|a| matches!(a, Axis::Named(_))).collect();
    names.sort_unstable();
    let once = names.chunk_by(|a, b| a == b).filter(|same| same.len() == 1).map(|same| same[0]);
    (0..spread).rev().map(Axis::Spread).chain(once).collect()
}

fn einsum_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (equation, fields) = (Equation::of(call)?, call.tuple(0)?);
    let shapes: Vec<&Shape> = fields.iter().map(|f| &f.shape).collect();
    for field in &fields {
        call.same_dtype(fields[0], field)?;
    }
    let dim = |axis: &Axis| {
        equation.dim(&shapes, *axis).ok_or_else(|| call.error(format!("the operands differ in {axis:?}")))
    };
    equation.summed().iter().try_for_each(|axis| dim(axis).map(|_| ()))?;
    Ok(TensorType::new(fields[0].dtype, equation.result.iter().map(dim).collect::<Result<_, _>>()?).into())
}

fn products(call: &Typed<'_>) -> u64 {
    let (Ok(equation), Ok(fields)) = (Equation::of(call), call.tuple(0)) else { return 0 };
    let shapes: Vec<&Shape> = fields.iter().map(|f| &f.shape).collect();
    let all = equation.result.iter().chain(&equation.summed()).copied().collect::<Vec<_>>();
    let places = all.iter().try_fold(1u64, |n, a| n.checked_mul(equation.dim(&shapes, *a)?.get()?));
    places.unwrap_or(0).saturating_mul(fields.len() as u64)
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::{Axis, *};
    use tract_core::internal::*;

    use crate::kernel::element::{Number, for_dtype};
    use crate::kernel::indexing::{each_place, flat, strides};

    pub(super) fn einsum(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (equation, fields) = (Equation::of(call)?, call.tuple(0)?);
        let shapes: Vec<&Shape> = fields.iter().map(|f| &f.shape).collect();
        let summed = equation.summed();
        let size = |axis: &Axis| equation.dim(&shapes, *axis).and_then(Dim::get).map(|d| d as usize);
        let inner: TVec<usize> = summed.iter().map(size).collect::<Option<_>>().context("the shapes are unknown")?;
        let dims = call.dims()?;
        // By operand: the offsets of the elements of the result, and of the terms of the sum.
        let offsets = |axes: &[Axis], dims: &[usize]| -> Vec<Vec<usize>> {
            let operands = equation.operands.iter().zip(inputs);
            operands.map(|(own, input)| offsets(own, input.shape(), axes, dims)).collect()
        };
        let (outer, within) = (offsets(&equation.result, &dims), offsets(&summed, &inner));
        for_dtype!(inputs[0].datum_type(), T in number => {
            let plain = inputs.iter().map(|t| t.try_as_plain_ram()).collect::<TractResult<Vec<_>>>()?;
            let operands = plain.iter().map(|p| p.as_slice::<T>()).collect::<TractResult<Vec<_>>>()?;
            let places = dims.iter().product::<usize>();
            let terms = inner.iter().product::<usize>();
            let mut out = Vec::with_capacity(places);
            for place in 0..places {
                let mut total = T::default();
                for term in 0..terms {
                    let mut product = T::ONE;
                    for (i, data) in operands.iter().enumerate() {
                        product = product.mul(data[outer[i][place] + within[i][term]]);
                    }
                    total = total.add(product);
                }
                out.push(total);
            }
            Ok(tvec!(Tensor::from_shape(&dims, &out)?))
        })
    }

    /// For every multi-index over `dims`, along `axes`, its offset in an operand of `shape` with the axes `own`.
    fn offsets(own: &[Axis], shape: &[usize], axes: &[Axis], dims: &[usize]) -> Vec<usize> {
        let strides = strides(shape);
        let step = |axis: &Axis| -> usize {
            let places = own.iter().zip(&strides).zip(shape);
            places.filter(|((a, _), dim)| *a == axis && **dim != 1).map(|((_, stride), _)| *stride).sum()
        };
        let steps: TVec<usize> = axes.iter().map(step).collect();
        let mut found = Vec::new();
        each_place(dims, |place| found.push(flat(&steps, place)));
        found
    }
}
