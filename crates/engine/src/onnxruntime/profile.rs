//! Per-operator times from ONNX Runtime's own profile of a session.
//!
//! The profile lists every kernel's run under the name of its operator in the model. ONNX Runtime fuses operators and
//! inserts reorders of layouts, so that a kernel's name is one that we wrote, one derived from it, or a new one. A kernel
//! is attributed to the operators of the longest name that it starts with. A reorder into a blocked layout serves the
//! next kernel that is attributed, every other one the kernel before it.

use std::collections::HashMap;

use edgecut_graph::OperatorId;
use serde::Deserialize;

/// The times of a session's operators.
#[derive(Debug, Default, PartialEq)]
pub(super) struct OperatorTimes {
    /// Mean microseconds by operator.
    pub by_operator: HashMap<OperatorId, f64>,
    /// Mean microseconds of kernels that serve no operator.
    pub unattributed: f64,
}

/// An entry of the profile, in the format of Chrome's traces.
#[derive(Debug, Deserialize)]
struct Event {
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
}

/// What the name of a kernel's run ends with.
const KERNEL: &str = "_kernel_time";

/// What the name of an operator of the session ends with that brings a tensor into a blocked layout.
const REORDER_INPUT: &str = "ReorderInput";

/// Reads a profile. `operators` maps names in the model to the operators that they compute. The first `warm_up` runs are
/// left out.
///
/// # Errors
/// If it is not a profile of ONNX Runtime, or has no run beyond the first ones.
pub(super) fn operator_times(
    text: &str,
    operators: &HashMap<String, Vec<OperatorId>>,
    warm_up: usize,
) -> Result<OperatorTimes, String> {
    let mut events: Vec<Event> =
        serde_json::from_str(text).map_err(|error| format!("ONNX Runtime's profile: {error}"))?;
    events.retain(|event| event.name.ends_with(KERNEL) && (event.cat == "Node" || event.cat.is_empty()));
    events.sort_by(|a, b| a.ts.total_cmp(&b.ts));
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let mut runs = 0;
    let mut kept = Vec::new();
    for event in &events {
        let name = event.name.trim_end_matches(KERNEL);
        let run = seen.entry(name).or_default();
        *run += 1;
        runs = runs.max(*run);
        if *run > warm_up {
            kept.push((name, event.dur));
        }
    }
    if runs <= warm_up && !events.is_empty() {
        return Err(format!("ONNX Runtime's profile has {runs} runs"));
    }
    Ok(attribute(&kept, operators, (runs - warm_up.min(runs)).max(1)))
}

/// Attributes kernels, in the order in which they ran, to operators.
fn attribute(kernels: &[(&str, f64)], operators: &HashMap<String, Vec<OperatorId>>, runs: usize) -> OperatorTimes {
    let mut times = OperatorTimes::default();
    let mut known: HashMap<&str, Option<&Vec<OperatorId>>> = HashMap::new();
    let mut served: Vec<Option<&Vec<OperatorId>>> =
        kernels.iter().map(|(name, _)| *known.entry(name).or_insert_with(|| named(name, operators))).collect();
    for at in (0..kernels.len()).rev() {
        if served[at].is_none() && kernels[at].0.contains(REORDER_INPUT) {
            served[at] = served.get(at + 1).copied().flatten();
        }
    }
    for at in 1..kernels.len() {
        if served[at].is_none() {
            served[at] = served[at - 1];
        }
    }
    for ((_, duration), served) in kernels.iter().zip(served) {
        let mean = duration / runs as f64;
        match served.filter(|served| !served.is_empty()) {
            // A kernel that computes several operators counts for the first: they belong to one group.
            Some(served) => *times.by_operator.entry(served[0]).or_default() += mean,
            None => times.unattributed += mean,
        }
    }
    times
}

/// The operators of the longest name that `kernel` starts with, up to a separator.
fn named<'o>(kernel: &str, operators: &'o HashMap<String, Vec<OperatorId>>) -> Option<&'o Vec<OperatorId>> {
    let ends = kernel.char_indices().rev().filter(|(_, c)| !c.is_alphanumeric()).map(|(at, _)| at);
    std::iter::once(kernel.len()).chain(ends).find_map(|end| operators.get(&kernel[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_attributed_by_name_and_reorders_to_what_they_serve() {
        let operators: HashMap<String, Vec<OperatorId>> = [("conv_0", 0u32), ("add_1", 1), ("softmax_2", 2)]
            .map(|(n, id)| (n.to_string(), vec![OperatorId(id)]))
            .into();
        let kernel = |name: &str, ts: u32, dur: u32| {
            format!(r#"{{"cat":"Node","name":"{name}_kernel_time","ts":{ts},"dur":{dur}}}"#)
        };
        let mut events = vec![r#"{"cat":"Session","name":"model_run","ts":0,"dur":99}"#.to_string()];
        for run in 0..3 {
            let (at, slow) = (100 * run, if run == 0 { 1000 } else { 0 });
            events.push(kernel("ReorderInput_7", at, 5 + slow));
            events.push(kernel("conv_0_nchwc", at + 10, 40 + slow));
            events.push(kernel("ReorderOutput", at + 20, 3));
            events.push(kernel("softmax_2", at + 30, 7));
        }
        let times = operator_times(&format!("[{}]", events.join(",")), &operators, 1).unwrap();
        assert_eq!(times.by_operator.get(&OperatorId(0)), Some(&48.0));
        assert_eq!(times.by_operator.get(&OperatorId(2)), Some(&7.0));
        assert_eq!((times.by_operator.len(), times.unattributed), (2, 0.0));
        assert!(operator_times("[]", &operators, 1).unwrap().by_operator.is_empty());
        assert!(operator_times("{", &operators, 1).is_err());
    }
}
