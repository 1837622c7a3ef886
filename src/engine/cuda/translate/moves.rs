//! What moves elements: other shapes, transposing, slicing, joining, repeating, padding, choosing.

use tract_core::{
    internal::*,
    ops::{
        array::{MultiBroadcastTo, Pad, PadMode, Slice, TypedConcat},
        identity::Identity,
        logic::Iff,
    },
};

use super::{Sheet, Value, Walk, bits, dense_steps, repeated_steps, size_of_element};
use crate::engine::cuda::{
    arguments::{Choose, Copied, Fill},
    card::Threads,
    source::Family,
};

pub(super) fn translate(
    sheet: &mut Sheet<'_>,
    node: &TypedNode,
    operands: &[Value],
) -> TractResult<Option<TVec<Value>>> {
    let Some(first) = operands.first() else { return Ok(None) };
    if node.op_is::<Identity>() {
        return Ok(Some(tvec![first.clone()]));
    }
    if let Some(op) = node.op_as::<AxisOp>() {
        let made = sheet.value(&sheet.made(node, 0)?.clone())?;
        let AxisOp::Move(from, to) = op else { return Ok(Some(tvec![first.viewed(&made.shape)])) };
        let mut order: Vec<usize> = (0..first.shape.len()).collect();
        let axis = order.remove(*from);
        order.insert(*to, axis);
        return Ok(Some(tvec![sheet.transposed(first, &order)?]));
    }
    if let Some(op) = node.op_as::<Slice>() {
        let start = op.start.to_i64()?;
        let made = sheet.value(&sheet.made(node, 0)?.clone())?;
        let from = first.steps();
        let offset = start * from[op.axis];
        let shape = made.shape.clone();
        sheet.copy(first, &made, &shape, (offset, &from), (0, &dense_steps(&shape)))?;
        return Ok(Some(tvec![made]));
    }
    if let Some(op) = node.op_as::<TypedConcat>() {
        let made = sheet.value(&sheet.made(node, 0)?.clone())?;
        let to = made.steps();
        let mut offset = 0;
        for operand in operands {
            sheet.copy(operand, &made, &operand.shape, (0, &operand.steps()), (offset, &to))?;
            offset += operand.shape[op.axis] as i64 * to[op.axis];
        }
        return Ok(Some(tvec![made]));
    }
    if node.op_is::<MultiBroadcastTo>() {
        let made = sheet.value(&sheet.made(node, 0)?.clone())?;
        let mut from = vec![1; made.shape.len() - first.shape.len()];
        from.extend_from_slice(&first.shape);
        let (shape, steps) = (made.shape.clone(), repeated_steps(&from, &made.shape));
        sheet.copy(first, &made, &shape, (0, &steps), (0, &dense_steps(&shape)))?;
        return Ok(Some(tvec![made]));
    }
    if let Some(Pad { pads, mode: PadMode::Constant(value) }) = node.op_as::<Pad>() {
        let made = sheet.value(&sheet.made(node, 0)?.clone())?;
        sheet.fill(&made, bits(value))?;
        let to = made.steps();
        let offset = pads.iter().zip(&to).map(|((before, _), step)| *before as i64 * step).sum();
        sheet.copy(first, &made, &first.shape, (0, &first.steps()), (offset, &to))?;
        return Ok(Some(tvec![made]));
    }
    if node.op_is::<Iff>() {
        return Ok(Some(tvec![choose(sheet, node, operands)?]));
    }
    Ok(None)
}

impl Sheet<'_> {
    /// Axis `i` of the result is axis `order[i]` of `value`; nothing moves if only axes of 1 do.
    pub(super) fn transposed(&mut self, value: &Value, order: &[usize]) -> TractResult<Value> {
        let shape: TVec<usize> = order.iter().map(|axis| value.shape[*axis]).collect();
        let long: Vec<usize> = order.iter().copied().filter(|axis| value.shape[*axis] != 1).collect();
        if long.is_sorted() {
            return Ok(value.viewed(&shape));
        }
        let steps = value.steps();
        let steps: TVec<i64> = order.iter().map(|axis| steps[*axis]).collect();
        let made = self.tensor(&shape, value.dtype)?;
        self.copy(value, &made, &shape, (0, &steps), (0, &dense_steps(&shape)))?;
        Ok(made)
    }

    /// Copies `shape` elements; where they lie is an offset and steps, in elements.
    pub(super) fn copy(
        &mut self,
        from: &Value,
        to: &Value,
        shape: &[usize],
        (from_offset, from_steps): (i64, &[i64]),
        (to_offset, to_steps): (i64, &[i64]),
    ) -> TractResult<()> {
        let size = size_of_element(from.dtype).context("elements of this type are not moved")?;
        let walk = Walk::new(shape, [from_steps, to_steps])?;
        let count = shape.iter().product::<usize>() as u32;
        let (from_offset, to_offset) = (from_offset as u64 * size as u64, to_offset as u64 * size as u64);
        let kernel = Family::Move.kernel(format!("copy_{size}"));
        self.launch(kernel, &[from], to, Threads::Each(count), move |at| Copied {
            from: at[0] + from_offset,
            to: at[1] + to_offset,
            count,
            rank: walk.rank,
            shape: walk.shape,
            from_steps: walk.steps[0],
            to_steps: walk.steps[1],
        });
        Ok(())
    }

    /// Fills a whole tensor with one element.
    pub(super) fn fill(&mut self, to: &Value, bits: u64) -> TractResult<()> {
        let size = size_of_element(to.dtype).context("elements of this type are not moved")?;
        let (kernel, count) = (Family::Move.kernel(format!("fill_{size}")), to.count());
        self.launch(kernel, &[], to, Threads::Each(count), move |at| Fill { to: at[0], bits, count, _pad: 0 });
        Ok(())
    }
}

fn choose(sheet: &mut Sheet<'_>, node: &TypedNode, operands: &[Value]) -> TractResult<Value> {
    let [condition, left, right] = operands else { bail!("a choice has three operands") };
    ensure!(condition.dtype == DatumType::Bool && left.dtype == right.dtype, "a choice between different types");
    let made = sheet.value(&sheet.made(node, 0)?.clone())?;
    let size = size_of_element(left.dtype).context("elements of this type are not moved")?;
    let steps = [condition, left, right].map(|value| repeated_steps(&value.shape, &made.shape));
    let walk = Walk::new(&made.shape, [&steps[0][..], &steps[1][..], &steps[2][..]])?;
    let (kernel, count) = (Family::Pointwise.kernel(format!("choose_{size}")), made.count());
    sheet.launch(kernel, &[condition, left, right], &made, Threads::Each(count), move |at| Choose {
        condition: at[0],
        left: at[1],
        right: at[2],
        to: at[3],
        count,
        rank: walk.rank,
        shape: walk.shape,
        condition_steps: walk.steps[0],
        left_steps: walk.steps[1],
        right_steps: walk.steps[2],
    });
    Ok(made)
}
