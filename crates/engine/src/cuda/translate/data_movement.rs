//! Data movement: reshape, transpose, slice, concatenate, broadcast, pad, select.

use tract_core::{
    internal::*,
    ops::{
        array::{MultiBroadcastTo, Pad, PadMode, Slice, TypedConcat},
        identity::Identity,
        logic::Iff,
    },
};

use super::{
    builder::{KernelBuilder, Value, bits, size_of_element},
    strides::{Walk, broadcast_strides, dense_strides},
};
use crate::cuda::{
    arguments::{Fill, Select, StridedCopy},
    driver::Grid,
    source::KernelFamily,
};

pub(super) fn translate(
    builder: &mut KernelBuilder<'_>,
    node: &TypedNode,
    operands: &[Value],
) -> TractResult<Option<TVec<Value>>> {
    let Some(first) = operands.first() else { return Ok(None) };
    if node.op_is::<Identity>() {
        return Ok(Some(tvec![first.clone()]));
    }
    if let Some(op) = node.op_as::<AxisOp>() {
        let output = builder.output(node)?;
        let AxisOp::Move(from, to) = op else { return Ok(Some(tvec![first.viewed(&output.shape)])) };
        let mut order: Vec<usize> = (0..first.shape.len()).collect();
        let axis = order.remove(*from);
        order.insert(*to, axis);
        return Ok(Some(tvec![builder.transposed(first, &order)?]));
    }
    if let Some(op) = node.op_as::<Slice>() {
        let start = op.start.to_i64()?;
        let output = builder.output(node)?;
        let from = first.strides();
        let offset = start * from[op.axis];
        let shape = output.shape.clone();
        builder.copy(first, &output, &shape, (offset, &from), (0, &dense_strides(&shape)))?;
        return Ok(Some(tvec![output]));
    }
    if let Some(op) = node.op_as::<TypedConcat>() {
        let output = builder.output(node)?;
        let to = output.strides();
        let mut offset = 0;
        for operand in operands {
            builder.copy(operand, &output, &operand.shape, (0, &operand.strides()), (offset, &to))?;
            offset += operand.shape[op.axis] as i64 * to[op.axis];
        }
        return Ok(Some(tvec![output]));
    }
    if node.op_is::<MultiBroadcastTo>() {
        let output = builder.output(node)?;
        let mut from = vec![1; output.shape.len() - first.shape.len()];
        from.extend_from_slice(&first.shape);
        let (shape, strides) = (output.shape.clone(), broadcast_strides(&from, &output.shape));
        builder.copy(first, &output, &shape, (0, &strides), (0, &dense_strides(&shape)))?;
        return Ok(Some(tvec![output]));
    }
    if let Some(Pad { pads, mode: PadMode::Constant(value) }) = node.op_as::<Pad>() {
        let output = builder.output(node)?;
        builder.fill(&output, bits(value))?;
        let to = output.strides();
        let offset = pads.iter().zip(&to).map(|((before, _), stride)| *before as i64 * stride).sum();
        builder.copy(first, &output, &first.shape, (0, &first.strides()), (offset, &to))?;
        return Ok(Some(tvec![output]));
    }
    if node.op_is::<Iff>() {
        return Ok(Some(tvec![select(builder, node, operands)?]));
    }
    Ok(None)
}

impl KernelBuilder<'_> {
    /// Transposes `value`: axis `i` of the result is axis `order[i]`. Nothing is copied if only axes of size 1 move.
    pub(super) fn transposed(&mut self, value: &Value, order: &[usize]) -> TractResult<Value> {
        let shape: TVec<usize> = order.iter().map(|axis| value.shape[*axis]).collect();
        let moved: Vec<usize> = order.iter().copied().filter(|axis| value.shape[*axis] != 1).collect();
        if moved.is_sorted() {
            return Ok(value.viewed(&shape));
        }
        let strides = value.strides();
        let strides: TVec<i64> = order.iter().map(|axis| strides[*axis]).collect();
        let output = self.tensor(&shape, value.dtype)?;
        self.copy(value, &output, &shape, (0, &strides), (0, &dense_strides(&shape)))?;
        Ok(output)
    }

    /// Copies the elements of `shape`; offsets and strides are in elements.
    pub(super) fn copy(
        &mut self,
        from: &Value,
        to: &Value,
        shape: &[usize],
        (from_offset, from_strides): (i64, &[i64]),
        (to_offset, to_strides): (i64, &[i64]),
    ) -> TractResult<()> {
        let size = size_of_element(from.dtype).context("no kernel for elements of this type")?;
        let walk = Walk::new(shape, [from_strides, to_strides])?;
        let count = shape.iter().product::<usize>() as u32;
        let (from_offset, to_offset) = (from_offset as u64 * size as u64, to_offset as u64 * size as u64);
        let kernel = KernelFamily::Move.kernel(format!("copy_{size}"));
        self.launch(kernel, &[from], to, Grid::Threads(count), move |at| StridedCopy {
            from: at[0] + from_offset,
            to: at[1] + to_offset,
            count,
            rank: walk.rank,
            shape: walk.shape,
            from_strides: walk.strides[0],
            to_strides: walk.strides[1],
        });
        Ok(())
    }

    /// Fills a tensor with one value.
    pub(super) fn fill(&mut self, to: &Value, bits: u64) -> TractResult<()> {
        let size = size_of_element(to.dtype).context("no kernel for elements of this type")?;
        let (kernel, count) = (KernelFamily::Move.kernel(format!("fill_{size}")), to.count());
        self.launch(kernel, &[], to, Grid::Threads(count), move |at| Fill { to: at[0], bits, count, _pad: 0 });
        Ok(())
    }
}

fn select(builder: &mut KernelBuilder<'_>, node: &TypedNode, operands: &[Value]) -> TractResult<Value> {
    let [condition, left, right] = operands else { bail!("a select has three operands") };
    ensure!(condition.dtype == DatumType::Bool && left.dtype == right.dtype, "operands of different dtypes");
    let output = builder.output(node)?;
    let size = size_of_element(left.dtype).context("no kernel for elements of this type")?;
    let strides = [condition, left, right].map(|value| broadcast_strides(&value.shape, &output.shape));
    let walk = Walk::new(&output.shape, [&strides[0][..], &strides[1][..], &strides[2][..]])?;
    let (kernel, count) = (KernelFamily::Pointwise.kernel(format!("select_{size}")), output.count());
    builder.launch(kernel, &[condition, left, right], &output, Grid::Threads(count), move |at| Select {
        condition: at[0],
        left: at[1],
        right: at[2],
        to: at[3],
        count,
        rank: walk.rank,
        shape: walk.shape,
        condition_strides: walk.strides[0],
        left_strides: walk.strides[1],
        right_strides: walk.strides[2],
    });
    Ok(output)
}
