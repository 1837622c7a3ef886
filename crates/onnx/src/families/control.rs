//! Branches and loops: decided and unrolled during the import.

use edgecut_graph::{DType, TensorId};

use crate::{
    compose::one,
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[("If", branch), ("Loop", repeat), ("Scan", scan)];

/// Turns of a loop, at most.
const MAX_TURNS: i64 = 100_000;

fn branch(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let condition = call.content_of_run(0, "the condition")?.ok_or("the condition is missing")?;
    let taken = if truth(&condition) { "then_branch" } else { "else_branch" };
    let body = call.graph(taken)?;
    call.lowering.body(body, Vec::new())
}

fn truth(data: &edgecut_graph::TensorData) -> bool {
    data.bytes().first().is_some_and(|byte| *byte != 0)
}

/// Carried values go from turn to turn; every further output of the body is stacked over the turns.
fn repeat(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let count = call.content_ints(0, "the number of turns")?.and_then(|count| count.first().copied());
    let mut goes_on = call.content_of_run(1, "the condition")?.is_none_or(|condition| truth(&condition));
    if count.is_none() && call.inputs.get(1).is_none_or(Option::is_none) {
        return Err("a loop without end".to_string());
    }
    let body = call.graph("body")?;
    let mut carried: Vec<Value> = call.inputs.iter().skip(2).flatten().cloned().collect();
    let mut stacked: Vec<Vec<TensorId>> = vec![Vec::new(); body.output.len().saturating_sub(1 + carried.len())];
    let mut turn = 0;
    while goes_on && count.is_none_or(|count| turn < count) {
        if turn >= MAX_TURNS {
            return Err(format!("more than {MAX_TURNS} turns"));
        }
        let number = call.lowering.scalar(turn as f64, DType::I64)?;
        let going = call.lowering.scalar(1.0, DType::Bool)?;
        let inputs = [number, going].into_iter().map(Value::Tensor).chain(carried.iter().cloned()).collect();
        let mut results = call.lowering.body(body, inputs)?.into_iter();
        let condition = match results.next() {
            Some(Value::Tensor(condition)) => condition,
            _ => return Err("the body has no condition".to_string()),
        };
        carried = results.by_ref().take(carried.len()).collect();
        for (list, value) in stacked.iter_mut().zip(results) {
            let Value::Tensor(tensor) = value else { return Err("a stacked output is a sequence".to_string()) };
            list.push(tensor);
        }
        turn += 1;
        if count.is_none_or(|count| turn < count) {
            goes_on = truth(&call.lowering.content_of_run(condition, "the condition")?);
        }
    }
    for list in stacked {
        let rows = list.iter().map(|tensor| call.expand(*tensor, 0, 1)).collect::<Result<Vec<_>>>()?;
        if rows.is_empty() {
            return Err("a loop of no turns has outputs of unknown shape".to_string());
        }
        carried.push(Value::Tensor(call.concat(&rows, 0)?));
    }
    Ok(carried)
}

/// As a loop over slices of its last `num_scan_inputs` inputs.
fn scan(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    if call.version < 9 {
        return Err("Scan of operator set 8 is not supported".to_string());
    }
    let scanned =
        usize::try_from(call.int("num_scan_inputs", 0)).map_err(|_| "num_scan_inputs is negative".to_string())?;
    let all = call.all()?;
    let states = all.len().checked_sub(scanned).filter(|_| scanned > 0).ok_or("num_scan_inputs is wrong")?;
    let body = call.graph("body")?;
    let option =
        |name: &str, at: usize, default: i64| call.ints(name).and_then(|list| list.get(at).copied()).unwrap_or(default);
    let mut sources = Vec::new();
    for (at, tensor) in all[states..].iter().enumerate() {
        let axis = call.axis(option("scan_input_axes", at, 0), *tensor)?;
        sources.push((*tensor, axis, option("scan_input_directions", at, 0) != 0));
    }
    let outputs = body.output.len().saturating_sub(states);
    let placed: Vec<(i64, bool)> = (0..outputs)
        .map(|at| (option("scan_output_axes", at, 0), option("scan_output_directions", at, 0) != 0))
        .collect();
    let turns = call.dims(sources[0].0)?[sources[0].1];
    let mut carried: Vec<Value> = all[..states].iter().copied().map(Value::Tensor).collect();
    let mut stacked: Vec<Vec<TensorId>> = vec![Vec::new(); outputs];
    for turn in 0..turns {
        let mut inputs = carried.clone();
        for (tensor, axis, backwards) in &sources {
            let at = if *backwards { turns - 1 - turn } else { turn };
            let slice = call.slice(*tensor, *axis, at, at + 1)?;
            inputs.push(Value::Tensor(call.squeeze(slice, &[*axis])?));
        }
        let mut results = call.lowering.body(body, inputs)?.into_iter();
        carried = results.by_ref().take(states).collect();
        for (list, value) in stacked.iter_mut().zip(results) {
            let Value::Tensor(tensor) = value else { return Err("a stacked output is a sequence".to_string()) };
            list.push(tensor);
        }
    }
    for (mut list, (axis, backwards)) in stacked.into_iter().zip(placed) {
        if backwards {
            list.reverse();
        }
        let first = *list.first().ok_or("a scan of no elements")?;
        let axis = crate::call::axis_in(axis, call.rank(first) + 1)?;
        let rows = list.iter().map(|tensor| call.expand(*tensor, axis, 1)).collect::<Result<Vec<_>>>()?;
        carried.extend(one(call.concat(&rows, axis)?)?);
    }
    Ok(carried)
}
