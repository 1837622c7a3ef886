//! The device-placement JSON: operators with their times on a CPU and on an accelerator, edges with the cost of
//! moving the source's output between an accelerator and host memory.

use std::collections::HashMap;

use edgecut_graph::topological_order;
use serde::{Deserialize, Deserializer};

/// A workload whose edges have been resolved to indices.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacementWorkload {
    pub operators: Vec<Operator>,
    /// Pairs of indices, source first, without repetitions or loops.
    pub edges: Vec<(usize, usize)>,
    pub accelerators: u32,
    pub cpus: u32,
    /// Bytes that fit on one accelerator.
    pub memory: f64,
}

/// One operator of a workload, which may be a whole layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Operator {
    pub id: i64,
    pub on_accelerator: bool,
    pub cpu_time: f64,
    pub accelerator_time: f64,
    /// Bytes that it takes on an accelerator.
    pub size: f64,
    pub is_backward: bool,
    /// Operators of one colour must share a device.
    pub colour: Option<i64>,
    /// Time to move its output between an accelerator and host memory.
    pub transfer: f64,
}

/// Why a text is not a valid workload.
#[derive(Debug, thiserror::Error)]
pub enum PlacementWorkloadError {
    #[error("not a device-placement workload: {0}")]
    Json(#[from] serde_json::Error),
    #[error("edge {edge} names operator {id}, which does not exist")]
    UnknownOperator { edge: usize, id: i64 },
    #[error("operator {id} is defined twice")]
    Twice { id: i64 },
    #[error("the edges from operator {id} have different costs, {first} and {second}")]
    Costs { id: i64, first: f64, second: f64 },
    #[error("{what} of operator {id} is {value}: expected a number that is not negative")]
    Negative { what: &'static str, id: i64, value: f64 },
    #[error("the operators {ids} form a cycle")]
    Cycle { ids: String },
    #[error("there is neither an accelerator nor a CPU")]
    NoDevices,
    #[error("{given} accelerators and CPUs: expected at most {most}")]
    Devices { given: u64, most: u32 },
}

/// More devices than this are a mistake in the file.
const MAX_DEVICES: u32 = 4096;

#[derive(Deserialize)]
struct Raw {
    #[serde(rename = "maxSizePerFPGA")]
    memory: f64,
    #[serde(rename = "maxFPGAs")]
    accelerators: f64,
    #[serde(rename = "maxCPUs")]
    cpus: f64,
    #[serde(rename = "nodes")]
    operators: Vec<RawOperator>,
    edges: Vec<RawEdge>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawOperator {
    id: i64,
    #[serde(deserialize_with = "flag")]
    supported_on_fpga: bool,
    cpu_latency: f64,
    fpga_latency: f64,
    #[serde(default)]
    size: f64,
    #[serde(default, deserialize_with = "flag", rename = "isBackwardNode")]
    is_backward: bool,
    color_class: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEdge {
    source_id: i64,
    dest_id: i64,
    cost: f64,
}

/// A flag written as `true`, `false`, `0` or `1`.
fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Flag {
        Bool(bool),
        Number(f64),
    }
    Ok(match Flag::deserialize(deserializer)? {
        Flag::Bool(flag) => flag,
        Flag::Number(number) => number != 0.0,
    })
}

impl PlacementWorkload {
    /// Reads the JSON.
    ///
    /// # Errors
    /// If it is not of that form, an edge leads nowhere, a number is negative, costs of one source differ, or the
    /// operators form a cycle.
    pub fn from_json(text: &[u8]) -> Result<PlacementWorkload, PlacementWorkloadError> {
        let raw: Raw = serde_json::from_slice(text)?;
        let mut index = HashMap::with_capacity(raw.operators.len());
        let mut operators = Vec::with_capacity(raw.operators.len());
        for (at, op) in raw.operators.into_iter().enumerate() {
            if index.insert(op.id, at).is_some() {
                return Err(PlacementWorkloadError::Twice { id: op.id });
            }
            for (what, value) in [("cpuLatency", op.cpu_latency), ("fpgaLatency", op.fpga_latency), ("size", op.size)] {
                if !(value >= 0.0 && value.is_finite()) {
                    return Err(PlacementWorkloadError::Negative { what, id: op.id, value });
                }
            }
            operators.push(Operator {
                id: op.id,
                on_accelerator: op.supported_on_fpga,
                cpu_time: op.cpu_latency,
                accelerator_time: op.fpga_latency,
                size: op.size,
                is_backward: op.is_backward,
                colour: op.color_class,
                transfer: 0.0,
            });
        }
        let mut edges = Vec::with_capacity(raw.edges.len());
        let mut known = vec![false; operators.len()];
        for (edge, raw) in raw.edges.iter().enumerate() {
            let find = |id: i64| index.get(&id).copied().ok_or(PlacementWorkloadError::UnknownOperator { edge, id });
            let (from, to) = (find(raw.source_id)?, find(raw.dest_id)?);
            if !(raw.cost >= 0.0 && raw.cost.is_finite()) {
                return Err(PlacementWorkloadError::Negative {
                    what: "an edge's cost",
                    id: raw.source_id,
                    value: raw.cost,
                });
            }
            let before = operators[from].transfer;
            if known[from] && (before - raw.cost).abs() > 1e-6 * before.abs().max(1.0) {
                return Err(PlacementWorkloadError::Costs { id: raw.source_id, first: before, second: raw.cost });
            }
            known[from] = true;
            operators[from].transfer = before.max(raw.cost);
            edges.push((from, to));
        }
        edges.sort_unstable();
        edges.dedup();
        let devices = raw.accelerators.max(0.0) + raw.cpus.max(0.0);
        if devices < 1.0 {
            return Err(PlacementWorkloadError::NoDevices);
        }
        if devices > f64::from(MAX_DEVICES) {
            return Err(PlacementWorkloadError::Devices { given: devices as u64, most: MAX_DEVICES });
        }
        let (accelerators, cpus) = (raw.accelerators.max(0.0) as u32, raw.cpus.max(0.0) as u32);
        let workload = PlacementWorkload { operators, edges, accelerators, cpus, memory: raw.memory };
        match workload.order() {
            Ok(_) => Ok(workload),
            Err(cycle) => Err(PlacementWorkloadError::Cycle { ids: workload.ids(&cycle) }),
        }
    }

    /// A topological order of the operators, the earlier of the file first where there is a choice.
    ///
    /// # Errors
    /// With the operators on cycles or reachable from one.
    pub fn order(&self) -> Result<Vec<usize>, Vec<usize>> {
        let mut readers = vec![Vec::new(); self.operators.len()];
        for &(from, to) in &self.edges {
            readers[from].push(to);
        }
        topological_order(readers.len(), |operator| readers[operator].iter().copied(), |_| ())
    }

    /// The ids of some operators, for messages.
    pub fn ids(&self, operators: &[usize]) -> String {
        let shown: Vec<String> = operators.iter().take(8).map(|i| self.operators[*i].id.to_string()).collect();
        shown.join(", ") + if operators.len() > 8 { ", …" } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(operators: &str, edges: &str) -> Result<PlacementWorkload, PlacementWorkloadError> {
        let text = format!(
            r#"{{"maxSizePerFPGA": 1e9, "maxFPGAs": 2, "maxCPUs": 1, "nodes": [{operators}], "edges": [{edges}]}}"#
        );
        PlacementWorkload::from_json(text.as_bytes())
    }

    const A: &str = r#"{"id": 7, "supportedOnFpga": 1, "cpuLatency": 2, "fpgaLatency": 1.5, "size": 3, "isBackwardNode": false, "colorClass": 4, "name": "json"}"#;
    const B: &str = r#"{"id": 9, "supportedOnFpga": false, "cpuLatency": 0, "fpgaLatency": 0, "isBackwardNode": 0}"#;

    #[test]
    fn both_spellings_of_flags_are_read() {
        let edge = r#"{"sourceId": 7, "destId": 9, "cost": 0.25, "size": 1}"#;
        let workload = parse(&format!("{A},{B}"), &format!("{edge},{edge}")).unwrap();
        assert_eq!(workload.edges, [(0, 1)]);
        let [a, b] = &workload.operators[..] else { panic!("two operators") };
        assert!(a.on_accelerator && !b.on_accelerator);
        assert_eq!((a.transfer, a.colour, b.colour, b.size), (0.25, Some(4), None, 0.0));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let edge = |from: i64, to: i64, cost: f64| format!(r#"{{"sourceId": {from}, "destId": {to}, "cost": {cost}}}"#);
        let both = format!("{A},{B}");
        let cases = [
            (format!("{A},{A}"), String::new(), "defined twice"),
            (both.clone(), edge(7, 8, 1.0), "operator 8"),
            (both.clone(), edge(7, 9, -1.0), "not negative"),
            (both.clone(), format!("{},{}", edge(7, 9, 1.0), edge(7, 9, 2.0)), "different costs"),
            (both.clone(), format!("{},{}", edge(7, 9, 1.0), edge(9, 7, 2.0)), "cycle"),
            (both, "3".into(), "not a device-placement workload"),
        ];
        for (operators, edges, want) in cases {
            let error = parse(&operators, &edges).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    }
}
