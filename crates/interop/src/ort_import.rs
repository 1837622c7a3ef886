//! What ONNX Runtime measured of a model, as profile rows: times of kernels and memory of kernels, by groups of operators.
//!
//! Rows are of fused groups, since ONNX Runtime's kernels compute several operators: a convolution with the activation after it
//! is one kernel of the convolution's name. A group's time in a run is the sum of its kernels'. What ONNX Runtime inserts counts
//! for what it serves, as in profiles by the engine: a reorder into a blocked layout for the next kernel, others for the one
//! before them.

use std::collections::{BTreeMap, HashMap};

use edgecut_engine::{EngineId, statistics::Statistics};
use edgecut_graph::{
    Granularity, Graph, OperatorId,
    units::{Bytes, Micros},
};
use edgecut_profile::{Conditions, Cost, Item, MeasurementMode, ProfileRow, ProfiledDevice, items, reader::truncated};

use crate::{
    ort_memory::KernelMemory,
    ort_names::{Named, OrtNames},
    ort_profile::{KernelRun, OrtProfile},
    profile_import::Imported,
};

/// The measurements are of another model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrtImportError {
    #[error(
        "none of its {kernels} kernels, such as `{first}`, is in the model: give the file that the session read, or the one that it \
         saved as `optimized_model_filepath`"
    )]
    OtherModel { kernels: usize, first: String },
}

/// What begins the name of a kernel that brings a tensor into a blocked layout.
const REORDER_INPUT: &str = "ReorderInput";

/// Execution providers of GPUs, without the ending that all have.
const OF_GPUS: [&str; 7] = ["CUDA", "Tensorrt", "NvTensorRTRTX", "ROCM", "MIGraphX", "Dml", "WebGpu"];

/// The name here of the device that an execution provider computes on.
pub fn device(provider: &str) -> String {
    match provider.trim_end_matches("ExecutionProvider") {
        "" => "cpu".to_string(),
        name if OF_GPUS.contains(&name) => "gpu0".to_string(),
        name => name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-"),
    }
}

/// The device that a session ran on, which `provider` stands for.
pub fn place(server: &str, device: &str, provider: &str, threads: usize) -> ProfiledDevice {
    let engine = EngineId { name: "onnxruntime".to_string(), version: String::new() };
    let (server, device) = (server.to_string(), device.to_string());
    ProfiledDevice { server, device, hardware: provider.to_string(), engine, threads }
}

/// The times of a session's kernels by groups of `graph`, whose operators have the names `names`. They are those of the
/// provider with the most time, on the device that `place` gives for it; a group that another provider computed has none. A
/// group without a kernel takes no time of its own.
///
/// # Errors
/// If no kernel is one of the graph's.
pub fn times(
    profile: &OrtProfile,
    graph: &Graph,
    names: &OrtNames,
    place: &dyn Fn(&str) -> ProfiledDevice,
) -> Result<Imported, OrtImportError> {
    let found: Vec<Named<'_>> = profile.names.iter().map(|name| names.find(name)).collect();
    check(&profile.names, &found)?;
    let (items, served) = (items(graph, Granularity::Fused), served(profile, &found));
    let (of_item, main) = (items_by_operator(&items), main_provider(profile));
    let mut samples: Vec<BTreeMap<usize, Micros>> = vec![BTreeMap::new(); items.len()];
    let mut elsewhere: HashMap<usize, usize> = HashMap::new();
    for (kernel, operator) in profile.kernels.iter().zip(&served) {
        let Some(item) = operator.and_then(|operator| of_item.get(&operator)) else { continue };
        match kernel.provider == main {
            true => *samples[*item].entry(kernel.run).or_default() += kernel.time,
            false => _ = elsewhere.insert(*item, kernel.provider),
        }
    }
    let provider = profile.providers.get(main).map_or("", String::as_str);
    let device = place(provider);
    let row = |(id, item): (usize, &Item)| {
        let cost = match (samples[id].is_empty(), elsewhere.get(&id)) {
            (true, Some(other)) => Err(format!("it ran on {}", profile.providers[*other])),
            (true, None) => Ok(vec![Micros::ZERO; 1]),
            (false, _) => Ok(samples[id].values().copied().collect()),
        };
        timed_row(&device, id, item, cost)
    };
    let mut imported = Imported { rows: items.iter().enumerate().map(row).collect(), ..Imported::default() };
    count(&mut imported, profile, graph, &found, main);
    Ok(imported)
}

fn check(names: &[String], found: &[Named<'_>]) -> Result<(), OrtImportError> {
    match found.iter().all(|found| found.operator().is_none()) {
        true => {
            let first = names.first().map(|name| truncated(name)).unwrap_or_default();
            Err(OrtImportError::OtherModel { kernels: names.len(), first })
        }
        false => Ok(()),
    }
}

fn items_by_operator(items: &[Item]) -> HashMap<OperatorId, usize> {
    items.iter().enumerate().flat_map(|(at, item)| item.operators.iter().map(move |id| (*id, at))).collect()
}

/// By kernel run: the operator that it counts for.
fn served(profile: &OrtProfile, found: &[Named<'_>]) -> Vec<Option<OperatorId>> {
    let kernels = &profile.kernels;
    let mut served: Vec<Option<OperatorId>> = kernels.iter().map(|kernel| found[kernel.name].operator()).collect();
    let is_new = |kernel: &KernelRun| found[kernel.name] == Named::New;
    for at in (0..kernels.len().saturating_sub(1)).rev() {
        let is_of_run = kernels[at].run == kernels[at + 1].run;
        if is_of_run && is_new(&kernels[at]) && profile.names[kernels[at].name].starts_with(REORDER_INPUT) {
            served[at] = served[at + 1];
        }
    }
    for at in 1..kernels.len() {
        if served[at].is_none() && is_new(&kernels[at]) && kernels[at].run == kernels[at - 1].run {
            served[at] = served[at - 1];
        }
    }
    served
}

/// The provider whose kernels take the most time.
fn main_provider(profile: &OrtProfile) -> usize {
    let mut times = vec![0.0; profile.providers.len()];
    profile.kernels.iter().for_each(|kernel| times[kernel.provider] += kernel.time.0);
    let longest = times.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b));
    longest.map_or(0, |(provider, _)| provider)
}

/// A row with the times of all runs, or the reason why it has none.
fn timed_row(place: &ProfiledDevice, id: usize, item: &Item, times: Result<Vec<Micros>, String>) -> ProfileRow {
    let is_one = times.as_ref().is_ok_and(|times| times.len() == 1);
    let time = times.map(|times| Statistics::of(&times).unwrap_or(NO_TIME));
    let cost = time.map(|time| cost(time, Bytes::ZERO, item));
    let row = ProfileRow::new(place, MeasurementMode::InSitu, Granularity::Fused, id, item, &cost);
    let row = ProfileRow { cpu_us_median: None, workspace_bytes: None, held_bytes: None, ..row };
    // One run has no spread.
    if is_one { ProfileRow { time_us_mad: None, time_us_min: None, time_us_p95: None, ..row } } else { row }
}

/// Why rows of statistics of memory have no times.
const NO_TIMES: &str = "statistics of memory have no times";

const NO_TIME: Statistics =
    Statistics { n: 0, median: Micros::ZERO, mad: Micros::ZERO, min: Micros::ZERO, p95: Micros::ZERO };

fn cost(time: Statistics, workspace: Bytes, item: &Item) -> Cost {
    Cost {
        time,
        cpu: Micros::ZERO,
        kernels: None,
        workspace,
        held: item.parameter_bytes,
        disturbed: 0.0,
        energy: None,
        conditions: Conditions::default(),
    }
}

/// Counts what was not joined one to one, and says it.
fn count(imported: &mut Imported, profile: &OrtProfile, graph: &Graph, found: &[Named<'_>], main: usize) {
    let OrtProfile { names, providers, kernels, runs, inner, .. } = profile;
    let is = |kind: fn(&Named<'_>) -> bool| -> Vec<&str> {
        let all = names.iter().zip(found).filter(|(_, found)| kind(found));
        all.map(|(name, _)| name.as_str()).collect()
    };
    let (derived, new) = (is(|found| matches!(found, Named::Derived(_))), is(|found| *found == Named::New));
    let of_new = kernels.iter().filter(|kernel| found[kernel.name] == Named::New);
    imported.unused = new.len();
    imported.unused_time = Micros(of_new.map(|kernel| kernel.time.0).sum::<f64>() / *runs as f64);
    imported.missing = without_kernel(graph, found);
    let mut other: Vec<&str> = kernels
        .iter()
        .filter(|kernel| kernel.provider != main)
        .map(|kernel| providers[kernel.provider].as_str())
        .collect();
    let elsewhere = other.len().div_ceil(*runs);
    other.sort_unstable();
    other.dedup();
    let total = names.len();
    let notes = &mut imported.notes;
    if let Some(first) = derived.first() {
        let (count, first) = (derived.len(), truncated(first));
        notes.push(format!(
            "{count} of {total} kernels have names that ONNX Runtime derived, such as `{first}`: they count for the operators whose \
             names these begin with"
        ));
    }
    if let Some(first) = new.first() {
        let (count, first, time) = (new.len(), truncated(first), imported.unused_time);
        notes.push(format!(
            "{count} of {total} kernels are not in the model, such as `{first}` ({time} of a run): they count for the kernels \
             next to them, which they serve"
        ));
    }
    if imported.missing > 0 {
        let (count, all) = (imported.missing, graph.operators().len());
        notes.push(format!(
            "{count} of {all} operators have no kernel: ONNX Runtime fused them with others or removed them, so that they take \
             no time of their own"
        ));
    }
    if let Some(first) = other.first() {
        let ran = &providers[main];
        notes.push(format!(
            "{elsewhere} kernels of a run were computed by {first}, not by {ran}: groups of these alone have no time"
        ));
    }
    if *inner > 0 {
        notes.push(format!(
            "{inner} runs of kernels in bodies of loops and branches count for the operator around them"
        ));
    }
}

/// Number of operators that no kernel is named after.
fn without_kernel(graph: &Graph, found: &[Named<'_>]) -> usize {
    let mut has_kernel = vec![false; graph.operators().len()];
    for found in found {
        if let Named::Same(operators) | Named::Derived(operators) = found {
            operators.iter().for_each(|id| has_kernel[id.0 as usize] = true);
        }
    }
    has_kernel.iter().filter(|has_kernel| !**has_kernel).count()
}

/// The memory of a session's kernels by groups of `graph`, as workspaces: the most that one kernel of the group allocates beyond
/// its results, and of several kernels, the results beyond the group's. The rows have no times.
///
/// # Errors
/// If no kernel is one of the graph's.
pub fn memory(
    kernels: &[KernelMemory],
    graph: &Graph,
    names: &OrtNames,
    place: &ProfiledDevice,
) -> Result<Imported, OrtImportError> {
    let found: Vec<Named<'_>> = kernels.iter().map(|kernel| names.find_hashed(&kernel.name)).collect();
    let texts: Vec<String> = kernels.iter().map(|kernel| kernel.name.clone()).collect();
    check(&texts, &found)?;
    let items = items(graph, Granularity::Fused);
    let of_item = items_by_operator(&items);
    let mut groups: BTreeMap<usize, Vec<&KernelMemory>> = BTreeMap::new();
    for (kernel, found) in kernels.iter().zip(&found) {
        if let Some(item) = found.operator().and_then(|operator| of_item.get(&operator)) {
            groups.entry(*item).or_default().push(kernel);
        }
    }
    let rows = groups.iter().map(|(id, kernels)| {
        let item = &items[*id];
        let row = timed_row(place, *id, item, Err(NO_TIMES.to_string()));
        ProfileRow { workspace_bytes: Some(workspace(kernels, item)), ..row }
    });
    let mut imported = Imported { rows: rows.collect(), is_memory: true, ..Imported::default() };
    imported.missing = without_kernel(graph, &found);
    let new: Vec<&str> =
        texts.iter().zip(&found).filter(|(_, found)| **found == Named::New).map(|(text, _)| text.as_str()).collect();
    imported.unused = new.len();
    if let Some(first) = new.first() {
        let (count, all, first) = (new.len(), texts.len(), truncated(first));
        let what =
            format!("{count} of {all} kernels are not in the model, such as `{first}`: their memory is in no row");
        imported.notes.push(what);
    }
    Ok(imported)
}

/// What `kernels`, which compute `item`, allocate beyond its results.
fn workspace(kernels: &[&KernelMemory], item: &Item) -> Bytes {
    let temporary = kernels.iter().map(|kernel| kernel.temporary).max().unwrap_or(Bytes::ZERO);
    let results: Bytes = kernels.iter().map(|kernel| kernel.dynamic).sum();
    // One kernel has no other results: what it allocates for the group's is rounded up.
    if kernels.len() > 1 { temporary + (results - item.output_bytes) } else { temporary }
}

/// Fills the workspaces of `rows`, which have times, from those of `memory`, for the same groups of one device. Groups that have
/// only memory are left out: they have no time to plan with.
pub fn add_memory(rows: &mut [ProfileRow], memory: &[ProfileRow]) {
    let by_group: HashMap<(usize, &str), &ProfileRow> =
        memory.iter().map(|row| ((row.id, row.operators.as_str()), row)).collect();
    for row in rows {
        if let Some(found) = by_group.get(&(row.id, row.operators.as_str())) {
            row.workspace_bytes = found.workspace_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ort_memory, ort_profile};
    use edgecut_graph::{DType, Operator, Origin, TensorType};

    /// x → conv (a group with the activation after it) → pool, by names as a file has them.
    fn model() -> (Graph, OrtNames) {
        let (mut graph, mut names) = (Graph::new(), OrtNames::default());
        let image = TensorType::of(DType::F32, &[1, 4, 8, 8]);
        let x = graph.add_tensor("x", image.clone(), Origin::Input);
        let w = graph.add_tensor("w", TensorType::of(DType::F32, &[4, 4, 1, 1]), Origin::Parameter);
        let mut last = x;
        let pooled = TensorType::of(DType::F32, &[1, 4, 1, 1]);
        for (name, args, ty) in
            [("nn.conv2d", vec![x, w], &image), ("nn.relu", vec![], &image), ("nn.global_avg_pool2d", vec![], &pooled)]
        {
            let args = if args.is_empty() { vec![last] } else { args };
            let id = graph.add_operator(Operator::new(name, args), std::slice::from_ref(ty));
            names.extend(["conv", "relu", "pool"][id.0 as usize], id);
            last = graph.operator(id).outputs[0];
        }
        graph.outputs = vec![last];
        (graph, names)
    }

    fn profile(events: &[(&str, f64, f64, &str)]) -> OrtProfile {
        let event = |(name, ts, dur, provider): &(&str, f64, f64, &str)| {
            let cat = if *name == "model_run" { "Session" } else { "Node" };
            let name = if *name == "model_run" { "model_run".to_string() } else { format!("{name}_kernel_time") };
            format!(r#"{{"cat":"{cat}","name":"{name}","ts":{ts},"dur":{dur},"args":{{"provider":"{provider}"}}}}"#)
        };
        let events: Vec<String> = events.iter().map(event).collect();
        ort_profile::read(&format!("[{}]", events.join(","))).unwrap()
    }

    fn at(provider: &str) -> ProfiledDevice {
        place("ort", &device(provider), provider, 1)
    }

    #[test]
    fn kernels_of_several_runs_become_medians_of_groups() {
        let (graph, names) = model();
        let cpu = "CPUExecutionProvider";
        let mut events = Vec::new();
        for (run, conv) in [(0.0, 40.0), (100.0, 20.0), (200.0, 30.0)] {
            events.extend([("model_run", run, 90.0, ""), ("ReorderInput_token_1", run, 2.0, cpu)]);
            events.extend([("conv_nchwc", run + 2.0, conv, cpu), ("ReorderOutput", run + 50.0, 3.0, cpu)]);
            events.push(("pool", run + 60.0, 7.0, cpu));
        }
        let imported = times(&profile(&events), &graph, &names, &at).unwrap();
        let found: Vec<_> =
            imported.rows.iter().map(|row| (row.operator.as_str(), row.n, row.time_us_median)).collect();
        assert_eq!(
            found,
            [("nn.conv2d+nn.relu", 3, Some(Micros(35.0))), ("nn.global_avg_pool2d", 3, Some(Micros(7.0)))]
        );
        assert_eq!((imported.rows[0].time_us_min, imported.rows[0].device.as_str()), (Some(Micros(25.0)), "cpu"));
        assert_eq!((imported.unused, imported.unused_time, imported.missing), (2, Micros(5.0), 1));
        assert_eq!(imported.notes.len(), 3, "{:?}", imported.notes);
    }

    #[test]
    fn groups_of_another_provider_have_no_time() {
        let (graph, names) = model();
        let events = [("conv", 0.0, 9.0, "CUDAExecutionProvider"), ("pool", 9.0, 1.0, "CPUExecutionProvider")];
        let imported = times(&profile(&events), &graph, &names, &at).unwrap();
        assert_eq!(imported.rows[0].device, "gpu0");
        assert_eq!((imported.rows[0].time_us_median, imported.rows[0].time_us_mad), (Some(Micros(9.0)), None));
        assert_eq!(
            (imported.rows[1].time_us_median, imported.rows[1].note.as_str()),
            (None, "it ran on CPUExecutionProvider")
        );
        let other = times(&profile(&[("gemm", 0.0, 1.0, "")]), &graph, &names, &at).unwrap_err();
        assert!(other.to_string().contains("such as `gemm`"), "{other}");
    }

    #[test]
    fn memory_is_joined_and_added_to_times() {
        let (graph, names) = model();
        let kernel = |name: &str, dynamic: u64, temporary: u64| format!("{name}_123,1,1,{dynamic},{temporary}\n");
        let read = |lines: &[String]| {
            let header = "#name,input_sizes,initializers_sizes,total_dynamic_sizes,total_temp_allocations\n";
            let kernels = ort_memory::read(&format!("{header}{}", lines.concat())).unwrap();
            memory(&kernels, &graph, &names, &at("")).unwrap()
        };
        // Fused; alone, with an activation that is not computed in place; with what is not in the model.
        for (lines, workspace, unused) in [
            (vec![kernel("conv", 1024, 64), kernel("pool", 256, 0)], 64, 0),
            (vec![kernel("conv", 1024, 64), kernel("relu", 1024, 0), kernel("pool", 256, 0)], 64 + 1024, 0),
            (vec![kernel("conv_nchwc", 1024, 64), kernel("pool", 256, 0), kernel("ReorderOutput", 1024, 0)], 64, 1),
        ] {
            let imported = read(&lines);
            let found: Vec<_> = imported.rows.iter().map(|row| row.workspace_bytes).collect();
            assert_eq!(found, [Some(Bytes(workspace)), Some(Bytes::ZERO)]);
            assert_eq!((imported.unused, imported.is_memory, imported.rows[0].cost()), (unused, true, None));
        }
        let events = [("conv", 0.0, 9.0, "CPUExecutionProvider"), ("pool", 9.0, 1.0, "CPUExecutionProvider")];
        let mut timed = times(&profile(&events), &graph, &names, &at).unwrap().rows;
        add_memory(&mut timed, &read(&[kernel("conv", 1024, 64)]).rows);
        let found: Vec<_> = timed.iter().map(|row| row.workspace_bytes).collect();
        assert_eq!(found, [Some(Bytes(64)), None]);
    }

    #[test]
    fn devices_are_named_after_providers() {
        for (provider, name) in [
            ("CPUExecutionProvider", "cpu"),
            ("CUDAExecutionProvider", "gpu0"),
            ("QNNExecutionProvider", "qnn"),
            ("", "cpu"),
        ] {
            assert_eq!(device(provider), name);
        }
    }
}
