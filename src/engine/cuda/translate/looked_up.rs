//! Elements by tables and by indices: nearest resizing, mirroring, dilating, taking.

use tract_core::internal::*;

use super::{Sheet, Value, bits, size_of_element};
use crate::{
    engine::cuda::{
        arguments::{RANK, Remap, Take},
        card::Threads,
        source::Family,
    },
    ops::{
        kernel,
        recipe::{Recipe, Taking},
    },
};

pub(super) fn translate(
    sheet: &mut Sheet<'_>,
    node: &TypedNode,
    operands: &[Value],
) -> TractResult<Option<TVec<Value>>> {
    match kernel::recipe(node.op.as_ref()) {
        Some(Recipe::Remap { tables, fill }) => {
            let known = operands.get(1).and_then(|value| value.known.clone());
            let fill = fill.as_ref().or(known.as_deref()).context("a fill that is not known beforehand")?;
            Ok(Some(tvec![remapped(sheet, node, operands, &tables, bits(fill))?]))
        }
        Some(Recipe::Take(taking)) => Ok(Some(tvec![taken(sheet, node, operands, taking)?])),
        _ => Ok(None),
    }
}

fn remapped(
    sheet: &mut Sheet<'_>,
    node: &TypedNode,
    operands: &[Value],
    tables: &[Vec<Option<usize>>],
    bits: u64,
) -> TractResult<Value> {
    let data = operands.first().context("a table is for an operand")?;
    let size = size_of_element(data.dtype).context("elements of this type are not moved")?;
    let made = sheet.value(&sheet.made(node, 0)?.clone())?;
    ensure!(tables.len() == data.shape.len() && tables.len() <= RANK, "tables for {} axes", tables.len());
    let entries: Vec<i32> = tables.iter().flatten().map(|at| at.map_or(-1, |at| at as i32)).collect();
    let tables = sheet.table(&entries);
    let (mut shape, mut steps) = ([1; RANK], [0; RANK]);
    for (axis, (n, step)) in made.shape.iter().zip(data.steps()).enumerate() {
        (shape[axis], steps[axis]) = (*n as u32, step as i32);
    }
    let (count, rank) = (made.count(), made.shape.len() as u32);
    let kernel = Family::Move.kernel(format!("remap_{size}"));
    sheet.launch(kernel, &[data, &tables], &made, Threads::Each(count), move |at| Remap {
        from: at[0],
        tables: at[1],
        to: at[2],
        bits,
        count,
        rank,
        shape,
        from_steps: steps,
    });
    Ok(made)
}

fn taken(sheet: &mut Sheet<'_>, node: &TypedNode, operands: &[Value], taking: Taking) -> TractResult<Value> {
    let [data, indices] = operands else { bail!("taking has two operands") };
    let size = size_of_element(data.dtype).context("elements of this type are not moved")?;
    let index = match indices.dtype {
        DatumType::I32 => "i32",
        DatumType::I64 => "i64",
        other => bail!("indices of type {other:?}"),
    };
    let made = sheet.value(&sheet.made(node, 0)?.clone())?;
    let Taking { batch, outer, length, block, wraps } = taking;
    ensure!(length > 0 || made.count() == 0, "the axis to take from is empty");
    let taken = indices.count() / batch.max(1) as u32;
    let count = made.count();
    let kernel = Family::Move.kernel(format!("take_{size}_{index}"));
    sheet.launch(kernel, &[data, indices], &made, Threads::Each(count), move |at| Take {
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
    Ok(made)
}
