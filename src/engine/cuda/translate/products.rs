//! Matrix products: every einsum of two operands whose axes are those of a batch of products.

use tract_core::{axes::Axis, internal::*, ops::einsum::EinSum};

use super::{Sheet, Value, dense_steps, name_of};
use crate::engine::cuda::{arguments::Product, source::Family};

pub(super) fn translate(
    sheet: &mut Sheet<'_>,
    node: &TypedNode,
    operands: &[Value],
) -> TractResult<Option<TVec<Value>>> {
    let Some(op) = node.op_as::<EinSum>() else { return Ok(None) };
    let [left, right] = operands else { bail!("an einsum of {} operands is not a matrix product", operands.len()) };
    ensure!(op.q_params.is_none(), "products of quantised tensors are not computed on a GPU");
    ensure!(left.dtype == right.dtype, "operands of different types");
    let out = sheet.value(&sheet.made(node, 0)?.clone())?;
    ensure!(out.dtype == left.dtype, "a product in another type than its operands");
    let dtype = name_of(left.dtype).with_context(|| format!("elements of type {:?}", left.dtype))?;
    ensure!(matches!(dtype, "f32" | "f64" | "i32" | "i64"), "no kernel multiplies matrices of {dtype}");
    let axes = Axes::of(op)?;
    axes.refuse_partial_repetition(left, right)?;
    let (left, left_steps) = axes.operand(sheet, left, [&axes.batch, &axes.rows, &axes.depth], 0)?;
    let (right, right_steps) = axes.operand(sheet, right, [&axes.batch, &axes.depth, &axes.columns], 1)?;
    let size = |chars: &[char]| chars.iter().map(|c| axes.size(*c, &left.1, &right.1)).product::<usize>();
    let (batch, rows) = (size(&axes.batch), size(&axes.rows));
    let (columns, depth) = (size(&axes.columns), size(&axes.depth));
    // The result is written where it belongs if its axes of one kind run on, else it is transposed afterwards.
    let order: Vec<char> = [&axes.batch[..], &axes.rows[..], &axes.columns[..]].concat();
    let positions: Vec<usize> = order
        .iter()
        .map(|c| axes.out.iter().position(|o| o == c))
        .collect::<Option<_>>()
        .context("an axis of the result is one of the operands'")?;
    let steps = joined(&out.shape, &dense_steps(&out.shape), [&axes.batch, &axes.rows, &axes.columns], &axes.out);
    let shape: TVec<usize> = positions.iter().map(|at| out.shape[*at]).collect();
    let (made, to_steps) = match steps {
        Some(steps) => (out.clone(), steps),
        None => (sheet.tensor(&shape, out.dtype)?, [(rows * columns) as i64, columns as i64, 1]),
    };
    let step = |n: i64| i32::try_from(n).context("a step is beyond 2^31 elements");
    let number = |n: usize| u32::try_from(n).context("a size is beyond 2^32");
    let product = Product {
        left: 0,
        right: 0,
        to: 0,
        batch: number(batch)?,
        rows: number(rows)?,
        columns: number(columns)?,
        depth: number(depth)?,
        left_batch: step(left_steps[0])?,
        left_row: step(left_steps[1])?,
        left_depth: step(left_steps[2])?,
        right_batch: step(right_steps[0])?,
        right_depth: step(right_steps[1])?,
        right_column: step(right_steps[2])?,
        to_batch: step(to_steps[0])?,
        to_row: step(to_steps[1])?,
        to_column: step(to_steps[2])?,
        _pad: 0,
    };
    sheet.multiply(Family::Product.kernel(format!("product_{dtype}")), &left.0, &right.0, &made, [0; 3], product);
    if steps.is_some() {
        return Ok(Some(tvec![made]));
    }
    let mut back = vec![0; positions.len()];
    positions.iter().enumerate().for_each(|(from, to)| back[*to] = from);
    Ok(Some(tvec![sheet.transposed(&made, &back)?]))
}

/// The axes of an einsum by what they are to a matrix product, in the order of the result.
struct Axes {
    inputs: [Vec<char>; 2],
    out: Vec<char>,
    batch: Vec<char>,
    rows: Vec<char>,
    columns: Vec<char>,
    depth: Vec<char>,
}

/// A value with the sizes of its axes.
type Sized = (Value, Vec<(char, usize)>);

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
        ensure!(all.iter().all(once), "an axis stands twice in one tensor");
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
                _ => bail!("axis {axis} is summed over in one operand alone, or in none"),
            };
            kind.push(axis);
        }
        Ok(axes)
    }

    /// Operand `which` with one step for each of `kinds`, transposed if its axes do not run on.
    fn operand(
        &self,
        sheet: &mut Sheet<'_>,
        value: &Value,
        kinds: [&Vec<char>; 3],
        which: usize,
    ) -> TractResult<(Sized, [i64; 3])> {
        let chars = &self.inputs[which];
        let sizes = chars.iter().copied().zip(value.shape.iter().copied()).collect();
        if let Some(steps) = joined(&value.shape, &value.steps(), kinds, chars) {
            return Ok(((value.clone(), sizes), steps));
        }
        let order: Vec<usize> =
            kinds.iter().flat_map(|kind| kind.iter()).filter_map(|c| chars.iter().position(|o| o == c)).collect();
        let made = sheet.transposed(value, &order)?;
        let size = |kind: &Vec<char>| {
            kind.iter()
                .filter_map(|c| chars.iter().position(|o| o == c))
                .map(|at| value.shape[at] as i64)
                .product::<i64>()
        };
        Ok(((made, sizes), [size(kinds[1]) * size(kinds[2]), size(kinds[2]), 1]))
    }

    /// A kind of axes has one step: it cannot repeat along one axis and move along another.
    fn refuse_partial_repetition(&self, left: &Value, right: &Value) -> TractResult<()> {
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
                ensure!(!(repeats && moves), "an operand repeats along some axes of a batch");
            }
        }
        Ok(())
    }

    fn size(&self, axis: char, left: &[(char, usize)], right: &[(char, usize)]) -> usize {
        // An operand of size 1 repeats along an axis that is longer in the other one.
        left.iter().chain(right).filter(|(c, _)| *c == axis).map(|(_, n)| *n).max().unwrap_or(1)
    }
}

/// One step for all axes of each kind, where they run on; `None` where they do not. 0 where a kind has no axes, or is
/// repeated.
fn joined(shape: &[usize], steps: &[i64], kinds: [&Vec<char>; 3], chars: &[char]) -> Option<[i64; 3]> {
    let mut all = [0; 3];
    for (step, kind) in all.iter_mut().zip(kinds) {
        let mut run: Option<i64> = None;
        for c in kind.iter().rev() {
            let at = chars.iter().position(|o| o == c)?;
            if shape[at] == 1 {
                continue;
            }
            match run {
                None => {
                    *step = steps[at];
                    run = Some(steps[at] * shape[at] as i64);
                }
                Some(next) if next == steps[at] => run = Some(next * shape[at] as i64),
                Some(_) => return None,
            }
        }
    }
    Some(all)
}
