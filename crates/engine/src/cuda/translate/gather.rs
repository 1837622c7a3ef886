//! Elements selected by tables and by indices: nearest-neighbour resizing, mirror padding, dilation, gather.

use tract_core::internal::*;

use super::builder::{KernelBuilder, Value, bits, size_of_element};
use crate::cuda::{
    arguments::{Gather, RANK, Remap},
    driver::Grid,
    source::KernelFamily,
};
use edgecut_ops::kernel::{
    self,
    recipe::{Recipe, TakeDims},
};

pub(super) fn translate(
    builder: &mut KernelBuilder<'_>,
    node: &TypedNode,
    operands: &[Value],
) -> TractResult<Option<TVec<Value>>> {
    match kernel::recipe(node.op.as_ref()) {
        Some(Recipe::Remap { tables, fill }) => {
            let known = operands.get(1).and_then(|value| value.known.clone());
            let fill = fill.as_ref().or(known.as_deref()).context("the fill value is not constant")?;
            Ok(Some(tvec![remapped(builder, node, operands, &tables, bits(fill))?]))
        }
        Some(Recipe::Take(taking)) => Ok(Some(tvec![gathered(builder, node, operands, taking)?])),
        _ => Ok(None),
    }
}

fn remapped(
    builder: &mut KernelBuilder<'_>,
    node: &TypedNode,
    operands: &[Value],
    tables: &[Vec<Option<usize>>],
    bits: u64,
) -> TractResult<Value> {
    let data = operands.first().context("a remap has an operand")?;
    let size = size_of_element(data.dtype).context("no kernel for elements of this type")?;
    let output = builder.output(node)?;
    ensure!(tables.len() == data.shape.len() && tables.len() <= RANK, "tables for {} axes", tables.len());
    let entries: Vec<i32> = tables.iter().flatten().map(|at| at.map_or(-1, |at| at as i32)).collect();
    let tables = builder.table(&entries);
    let (mut shape, mut strides) = ([1; RANK], [0; RANK]);
    for (axis, (n, stride)) in output.shape.iter().zip(data.strides()).enumerate() {
        (shape[axis], strides[axis]) = (*n as u32, stride as i32);
    }
    let (count, rank) = (output.count(), output.shape.len() as u32);
    let kernel = KernelFamily::Move.kernel(format!("remap_{size}"));
    builder.launch(kernel, &[data, &tables], &output, Grid::Threads(count), move |at| Remap {
        from: at[0],
        tables: at[1],
        to: at[2],
        bits,
        count,
        rank,
        shape,
        from_strides: strides,
    });
    Ok(output)
}

fn gathered(
    builder: &mut KernelBuilder<'_>,
    node: &TypedNode,
    operands: &[Value],
    taking: TakeDims,
) -> TractResult<Value> {
    let [data, indices] = operands else { bail!("a gather has two operands") };
    let size = size_of_element(data.dtype).context("no kernel for elements of this type")?;
    let index = match indices.dtype {
        DatumType::I32 => "i32",
        DatumType::I64 => "i64",
        other => bail!("indices of type {other:?}"),
    };
    let output = builder.output(node)?;
    let TakeDims { batch, outer, length, block, wraps } = taking;
    ensure!(length > 0 || output.count() == 0, "the gathered axis is empty");
    let taken = indices.count() / batch.max(1) as u32;
    let count = output.count();
    let kernel = KernelFamily::Move.kernel(format!("gather_{size}_{index}"));
    builder.launch(kernel, &[data, indices], &output, Grid::Threads(count), move |at| Gather {
        data: at[0],
        indices: at[1],
        to: at[2],
        count,
        outer: outer as u32,
        length: length as u32,
        block: block as u32,
        taken,
        wraps: u32::from(wraps),
    });
    Ok(output)
}
