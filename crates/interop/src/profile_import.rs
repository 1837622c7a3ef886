//! Profiles of other tools as profile rows: EOP's CSV of a Relay module, and traces of TVM's debug executor.
//!
//! Neither has CPU time, workspace, engine memory or the dispersion of times: those columns stay empty.

use std::collections::BTreeMap;

use crate::eop::{EopProfile, EopRow};
use edgecut_engine::{EngineId, statistics::Statistics};
use edgecut_graph::{
    Granularity, Graph, Operator, OperatorId, Origin, TensorId, TensorType,
    units::{Bytes, Micros},
};
use edgecut_profile::{Conditions, Cost, Item, MeasurementMode, ProfileRow, ProfiledDevice, items};

/// Rows for the operators of a graph.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Imported {
    pub rows: Vec<ProfileRow>,
    /// Number and total time of profile entries without an operator in the graph (tuples, constants folded at import).
    pub unused: usize,
    pub unused_time: Micros,
    /// Operators that the profile does not have.
    pub missing: usize,
    /// Whether the rows have memory alone, and no times.
    pub is_memory: bool,
    /// What was not joined one to one, in sentences.
    pub notes: Vec<String>,
}

/// The profile belongs to another module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error(
        "line {line}: the profile has `{profiled}-{number}`, number {number} of the module is {found}: is it the module that was profiled?"
    )]
    OtherModule { line: usize, number: usize, profiled: String, found: String },
    #[error("it has no time for any operator of the module")]
    Nothing,
}

/// A call of a module as EOP numbers it: its name, and the operator that it became; `None` of what is none.
pub type Numbered = BTreeMap<usize, (String, Option<OperatorId>)>;

/// EOP's `measured` times of the module that `graph` is of, whose vertices are `numbered`.
///
/// # Errors
/// If the profile names a number that the module does not have, or has by another name.
pub fn eop(
    measured: &EopProfile,
    graph: &Graph,
    numbered: &Numbered,
    place: &ProfiledDevice,
) -> Result<Imported, ImportError> {
    let mut times: BTreeMap<OperatorId, Micros> = BTreeMap::new();
    let (mut unused, mut unused_time) = (0, Micros::ZERO);
    for (number, EopRow { name, time, line }) in &measured.rows {
        let other =
            |found: String| ImportError::OtherModule { line: *line, number: *number, profiled: name.clone(), found };
        match numbered.get(number) {
            None => return Err(other("neither a call nor a tuple".to_string())),
            Some((found, _)) if found != name => return Err(other(format!("`{found}`"))),
            Some((_, Some(operator))) => {
                times.insert(*operator, *time);
            }
            Some((_, None)) => (unused, unused_time) = (unused + 1, unused_time + *time),
        }
    }
    if times.is_empty() {
        return Err(ImportError::Nothing);
    }
    let items = items(graph, Granularity::Op);
    let missing = items.iter().filter(|item| item.operators.iter().all(|id| !times.contains_key(id))).count();
    let row = |(id, item): (usize, &Item)| {
        let time = item.operators.first().and_then(|operator| times.get(operator))?;
        Some(row(place, MeasurementMode::Isolated, id, item, *time))
    };
    let rows = items.iter().enumerate().filter_map(row).collect();
    Ok(Imported { rows, unused, unused_time, missing, ..Imported::default() })
}

/// The `times` of a dump's kernels, each an operator of `graph`.
pub fn tvm(graph: &Graph, times: &[Micros], place: &ProfiledDevice) -> Imported {
    let mut items = items(graph, Granularity::Op);
    items.iter_mut().for_each(|item| item.flops = item.flops.max(fused_flops(graph, item)));
    let timed = items.iter().enumerate().zip(times);
    let rows = timed.map(|((id, item), time)| row(place, MeasurementMode::InSitu, id, item, *time));
    Imported { rows: rows.collect(), ..Imported::default() }
}

/// Operations of a kernel that computes several operators: of the first one on the first operands, and one an element
/// of the result for each of the others. 0 of a kernel of one operator.
fn fused_flops(graph: &Graph, item: &Item) -> u64 {
    let Some(kernel) = item.operators.first().map(|id| graph.operator(*id)) else { return 0 };
    let Some((first, others)) = kernel.name.split_once('+') else { return 0 };
    let mut alone = Graph::new();
    let ty = |id: &TensorId| graph.tensor(*id).ty.clone();
    let operands = kernel.operands().take(2).map(|id| alone.add_tensor("", ty(&id), Origin::Input));
    let args: Vec<TensorId> = operands.collect();
    let types: Vec<TensorType> = kernel.outputs.iter().map(ty).collect();
    let operator = Operator::new(first, args).with_attrs(kernel.attrs.clone()).with_tuple_result(kernel.tuple_result);
    let id = alone.add_operator(operator, &types);
    let elements: u64 = types.iter().filter_map(|ty| ty.shape.elements()).fold(0, u64::saturating_add);
    let others = elements.saturating_mul(others.split('+').count() as u64);
    Item::new(&alone, vec![id]).flops.saturating_add(others)
}

/// The device that others measured on.
pub fn place(server: &str, device: &str, hardware: &str) -> ProfiledDevice {
    let engine = EngineId { name: "tvm".to_string(), version: String::new() };
    let (server, device) = (server.to_string(), device.to_string());
    ProfiledDevice { server, device, hardware: hardware.to_string(), engine, threads: 1 }
}

fn row(place: &ProfiledDevice, mode: MeasurementMode, id: usize, item: &Item, time: Micros) -> ProfileRow {
    let cost = Cost {
        time: Statistics { n: 1, median: time, mad: Micros::ZERO, min: time, p95: time },
        cpu: Micros::ZERO,
        kernels: None,
        workspace: Bytes::ZERO,
        held: item.parameter_bytes,
        disturbed: 0.0,
        energy: None,
        conditions: Conditions::default(),
    };
    ProfileRow {
        time_us_mad: None,
        time_us_min: None,
        time_us_p95: None,
        cpu_us_median: None,
        gpu_us_median: None,
        workspace_bytes: None,
        held_bytes: None,
        ..ProfileRow::new(place, mode, Granularity::Op, id, item, &Ok(cost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tvm_debug::Dump;

    #[test]
    fn a_fused_kernel_counts_all_its_operators() {
        let json = r#"{"nodes": [
            {"op": "param", "name": "data", "attrs": {"T": "type: float32"}, "shape": [1, 32, 8, 8]},
            {"op": "param", "name": "p0", "attrs": {"T": "type: float32"}, "shape": [32, 1, 3, 3]},
            {"op": "k", "name": "k", "inputs": ["data", "p0"], "shape": [1, 32, 8, 8], "attrs": {
                "T": "type: float32", "func_name": "tvmgen_default_fused_nn_conv2d_nn_relu",
                "data_layout": "NCHW", "kernel_layout": "OIHW"}}
        ], "heads": [[2, 0, 0]]}"#;
        let dump = Dump::read(json).unwrap();
        let rows = tvm(&dump.graph, &[Micros(5.0)], &place("tvm", "cpu", "h")).rows;
        // Every channel has a filter of its own.
        let elements = 32 * 8 * 8;
        assert_eq!((rows.len(), rows[0].flops), (1, elements * 9 * 2 + elements));
        assert_eq!((rows[0].operator.as_str(), rows[0].time_us_median), ("nn.conv2d+nn.relu", Some(Micros(5.0))));
        assert_eq!((rows[0].cpu_us_median, rows[0].cost().unwrap().time.median), (None, Micros(5.0)));
    }
}
