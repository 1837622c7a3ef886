//! Matrix products: einsums of two operands that are equivalent to a batched product.

use tract_core::{axes::Axis, internal::*, ops::einsum::EinSum};

use super::{
    builder::{KernelBuilder, Value, name_of},
    strides::dense_strides,
};
use crate::cuda::{arguments::Product, source::KernelFamily};

pub(super) fn translate(
    builder: &mut KernelBuilder<'_>,
    node: &TypedNode,
    operands: &[Value],
) -> TractResult<Option<TVec<Value>>> {
    let Some(op) = node.op_as::<EinSum>() else { return Ok(None) };
    let [left, right] = operands else { bail!("an einsum of {} operands is not a matrix product", operands.len()) };
    ensure!(op.q_params.is_none(), "quantised products are not supported on a GPU");
    ensure!(left.dtype == right.dtype, "operands of different dtypes");
    let out = builder.output(node)?;
    ensure!(out.dtype == left.dtype, "the result has another dtype than the operands");
    let dtype = name_of(left.dtype).with_context(|| format!("elements of type {:?}", left.dtype))?;
    ensure!(matches!(dtype, "f32" | "f64" | "i32" | "i64"), "no kernel for matrices of {dtype}");
    let axes = Axes::of(op)?;
    axes.reject_partial_broadcast(left, right)?;
    let (left, left_strides) = axes.operand(builder, left, [&axes.batch, &axes.rows, &axes.depth], 0)?;
    let (right, right_strides) = axes.operand(builder, right, [&axes.batch, &axes.depth, &axes.columns], 1)?;
    let size = |chars: &[char]| chars.iter().map(|c| axes.size(*c, &left.1, &right.1)).product::<usize>();
    let (batch, rows) = (size(&axes.batch), size(&axes.rows));
    let (columns, depth) = (size(&axes.columns), size(&axes.depth));
    // The result is written in place if the axes of each kind can be merged, else it is transposed afterwards.
    let order: Vec<char> = [&axes.batch[..], &axes.rows[..], &axes.columns[..]].concat();
    let positions: Vec<usize> = order
        .iter()
        .map(|c| axes.out.iter().position(|o| o == c))
        .collect::<Option<_>>()
        .context("every axis of the result belongs to an operand")?;
    let strides =
        merged_strides(&out.shape, &dense_strides(&out.shape), [&axes.batch, &axes.rows, &axes.columns], &axes.out);
    let shape: TVec<usize> = positions.iter().map(|at| out.shape[*at]).collect();
    let (output, to_strides) = match strides {
        Some(strides) => (out.clone(), strides),
        None => (builder.tensor(&shape, out.dtype)?, [(rows * columns) as i64, columns as i64, 1]),
    };
    let stride = |n: i64| i32::try_from(n).context("a stride exceeds 2^31 elements");
    let number = |n: usize| u32::try_from(n).context("a size exceeds 2^32");
    let product = Product {
        left: 0,
        right: 0,
        to: 0,
        batch: number(batch)?,
        rows: number(rows)?,
        columns: number(columns)?,
        depth: number(depth)?,
        left_batch: stride(left_strides[0])?,
        left_row: stride(left_strides[1])?,
        left_depth: stride(left_strides[2])?,
        right_batch: stride(right_strides[0])?,
        right_depth: stride(right_strides[1])?,
        right_column: stride(right_strides[2])?,
        to_batch: stride(to_strides[0])?,
        to_row: stride(to_strides[1])?,
        to_column: stride(to_strides[2])?,
        _pad: 0,
    };
    builder.multiply(
        KernelFamily::Product.kernel(format!("product_{dtype}")),
        &left.0,
        &right.0,
        &output,
        [0; 3],
        product,
    );
    if strides.is_some() {
        return Ok(Some(tvec![output]));
    }
    let mut back = vec![0; positions.len()];
    positions.iter().enumerate().for_each(|(from, to)| back[*to] = from);
    Ok(Some(tvec![builder.transposed(&output, &back)?]))
}

/// The axes of an einsum by their role in a matrix product, in the order of the result.
struct Axes {
    inputs: [Vec<char>; 2],
    out: Vec<char>,
    batch: Vec<char>,
    rows: Vec<char>,
    columns: Vec<char>,
    depth: Vec<char>,
}

/// A value with the sizes of its axes.
type SizedValue = (Value, Vec<(char, usize)>);

impl Axes {
    fn of(op: &EinSum) -> TractResult<Axes> {
        let order = |io: InOut| -> Vec<char> {
            let mut axes: Vec<(usize, char)> =
                op.axes.iter_all_axes().flat_map(|axis| axis.interface(io).iter().map(|at| (*at, axis.repr))).collect();
            axes.sort_unstable();
            axes.into_iter().map(|(_, c)| c).collect()
        };
        let (inputs, out) = ([order(InOut::In(0)), order(InOut::In(1))], order(InOut::Out(0)));
        let all: Vec<&Axis> = op.axes.iter_all_axes().collect();
        let once = |axis: &&Axis| axis.inputs.iter().chain(&axis.outputs).all(|places| places.len() <= 1);
        ensure!(all.iter().all(once), "an axis occurs twice in one tensor");
        let mut axes =
            Axes { inputs, out, batch: Vec::new(), rows: Vec::new(), columns: Vec::new(), depth: Vec::new() };
        let ordered = axes.out.iter().copied().chain(axes.inputs[0].iter().copied().filter(|c| !axes.out.contains(c)));
        let ordered = ordered
            .chain(axes.inputs[1].iter().copied().filter(|c| !axes.out.contains(c) && !axes.inputs[0].contains(c)));
        for axis in ordered.collect::<Vec<_>>() {
            let kind = match (axes.inputs[0].contains(&axis), axes.inputs[1].contains(&axis), axes.out.contains(&axis))
            {
                (true, true, true) => &mut axes.batch,
                (true, false, true) => &mut axes.rows,
                (false, true, true) => &mut axes.columns,
                (true, true, false) => &mut axes.depth,
                _ => bail!("axis {axis} is reduced in a single operand"),
            };
            kind.push(axis);
        }
        Ok(axes)
    }

    /// Operand number `which` with one stride for each of `kinds`, transposed if the axes of a kind cannot be merged.
    fn operand(
        &self,
        builder: &mut KernelBuilder<'_>,
        value: &Value,
        kinds: [&Vec<char>; 3],
        which: usize,
    ) -> TractResult<(SizedValue, [i64; 3])> {
        let chars = &self.inputs[which];
        let sizes = chars.iter().copied().zip(value.shape.iter().copied()).collect();
        if let Some(strides) = merged_strides(&value.shape, &value.strides(), kinds, chars) {
            return Ok(((value.clone(), sizes), strides));
        }
        let order: Vec<usize> =
            kinds.iter().flat_map(|kind| kind.iter()).filter_map(|c| chars.iter().position(|o| o == c)).collect();
        let output = builder.transposed(value, &order)?;
        let size = |kind: &Vec<char>| {
            kind.iter()
                .filter_map(|c| chars.iter().position(|o| o == c))
                .map(|at| value.shape[at] as i64)
                .product::<i64>()
        };
        Ok(((output, sizes), [size(kinds[1]) * size(kinds[2]), size(kinds[2]), 1]))
    }

    /// Each kind of axes has one stride, so an operand cannot be broadcast along some axes of a kind only.
    fn reject_partial_broadcast(&self, left: &Value, right: &Value) -> TractResult<()> {
        let named = |value: &Value, chars: &[char]| -> Vec<(char, usize)> {
            chars.iter().copied().zip(value.shape.iter().copied()).collect()
        };
        let sizes = [named(left, &self.inputs[0]), named(right, &self.inputs[1])];
        for own in &sizes {
            for kind in [&self.batch, &self.rows, &self.columns, &self.depth] {
                let of =
                    |c: &char| own.iter().find(|(o, _)| o == c).map(|(_, n)| (*n, self.size(*c, &sizes[0], &sizes[1])));
                let repeats = kind.iter().filter_map(of).any(|(own, whole)| own == 1 && whole > 1);
                let moves = kind.iter().filter_map(of).any(|(own, _)| own > 1);
                ensure!(!(repeats && moves), "an operand is broadcast along some axes of a kind");
            }
        }
        Ok(())
    }

    fn size(&self, axis: char, left: &[(char, usize)], right: &[(char, usize)]) -> usize {
        // An operand of size 1 is broadcast.
        left.iter().chain(right).filter(|(c, _)| *c == axis).map(|(_, n)| *n).max().unwrap_or(1)
    }
}

/// One stride for all axes of each kind; `None` if the axes of a kind cannot be merged. 0 if a kind has no axes, or is
/// broadcast.
fn merged_strides(shape: &[usize], strides: &[i64], kinds: [&Vec<char>; 3], chars: &[char]) -> Option<[i64; 3]> {
    let mut all = [0; 3];
    for (stride, kind) in all.iter_mut().zip(kinds) {
        let mut run: Option<i64> = None;
        for c in kind.iter().rev() {
            let at = chars.iter().position(|o| o == c)?;
            if shape[at] == 1 {
                continue;
            }
            match run {
                None => {
                    *stride = strides[at];
                    run = Some(strides[at] * shape[at] as i64);
                }
                Some(next) if next == strides[at] => run = Some(next * shape[at] as i64),
                Some(_) => return None,
            }
        }
    }
    Some(all)
}
