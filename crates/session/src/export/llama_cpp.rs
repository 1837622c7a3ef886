//! A plan of a decoder as a command of llama.cpp: which of its RPC servers holds which layers.
//!
//! llama.cpp gives each device a contiguous range of layers, in the order of its devices, in proportion to `--tensor-split`; the output
//! counts as one more layer (`llama_model::load_tensors`). With `--split-mode tensor` each device has that share of every layer.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use edgecut_graph::{OperatorId, check_name};
use edgecut_plan::{DeviceId, Plan, file::DevicePlan, planned_graph};

use super::{
    file::{Content, Export, ExportedFile},
    options::ExportOptions,
    placement::whole_placement,
};
use crate::{Error, Model};

/// The default port of llama.cpp's RPC server.
const PORT: u16 = 50052;

/// Most devices that llama.cpp uses (`llama_max_devices`).
const MAX_DEVICES: usize = 16;

/// The script of `plan` for its `model`, whose graph has no splits and schedules.
pub(super) fn export(plan: &Plan, model: &Model, options: &ExportOptions) -> Result<Export, Error> {
    let bad = |what: String| Error::BadInput(what.into());
    let graph = model.graph();
    // Checks the splits and states of the file.
    planned_graph(graph, plan).map_err(Error::bad_input)?;
    let layers = layers(plan, model)?;
    if layers.is_empty() {
        let what = "llama.cpp runs decoders, and the plan has no state with the number of a layer, such as past_key_values.0.key";
        return Err(bad(what.to_string()));
    }
    let placed = whole_placement(plan, graph).map_err(Error::bad_input)?;
    let output = graph.outputs.first().and_then(|output| graph.producer(*output));
    let output = placed.device(&output.into_iter().collect::<Vec<OperatorId>>(), plan);
    let split = TensorSplit::of(&layers, output).map_err(bad)?;
    let text = script(plan, &split).map_err(bad)?;
    let summary = vec![split.summary(plan)];
    Ok(match &options.output {
        Some(path) => Export { files: vec![ExportedFile::new(path, Content::Text(text))], text: None, summary },
        None => Export { files: Vec::new(), text: Some(text), summary: Vec::new() },
    })
}

/// The share of a layer that each device has: of its KV cache.
type Shares = BTreeMap<DeviceId, f64>;

/// By layer: the shares of its caches by device. A layer has the number in the names of its caches.
///
/// # Errors
/// If whole caches of one layer are on different devices.
fn layers(plan: &Plan, model: &Model) -> Result<Vec<Shares>, Error> {
    let graph = model.graph();
    let placed = whole_placement(plan, graph).map_err(Error::bad_input)?;
    let states = graph.states(&plan.model.states).map_err(Error::bad_input)?;
    let mut layers: BTreeMap<u64, Shares> = BTreeMap::new();
    let mut whole: BTreeMap<u64, DeviceId> = BTreeMap::new();
    for state in states {
        let (Some(layer), Some(operator)) = (number_in(&graph.tensor(state.input).name), graph.producer(state.output))
        else {
            continue;
        };
        let shares = layers.entry(layer).or_default();
        match plan.splits.iter().find(|split| split.operator == operator) {
            Some(split) => {
                let size = split.cuts.last().copied().unwrap_or_default().max(1);
                for (cut, device) in split.cuts.windows(2).zip(&split.devices) {
                    *shares.entry(*device).or_default() += cut[1].saturating_sub(cut[0]) as f64 / size as f64;
                }
            }
            None => {
                let device = placed.device(&[operator], plan);
                *shares.entry(device).or_default() += 1.0;
                if *whole.entry(layer).or_insert(device) != device {
                    let what = "llama.cpp keeps the caches of a layer together, and the plan has them on two devices";
                    return Err(Error::BadInput(what.into()));
                }
            }
        }
    }
    Ok(layers.into_values().collect())
}

/// The first number in a name.
fn number_in(name: &str) -> Option<u64> {
    let digits = name.split(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty())?;
    digits.parse().ok()
}

/// How layers are distributed.
#[derive(Debug, Clone, PartialEq)]
enum TensorSplit {
    /// Numbers of layers, the output included, in the order of the layers.
    Layers(Vec<(DeviceId, usize)>),
    /// The share of each layer.
    Tensors(Vec<(DeviceId, f64)>),
}

impl TensorSplit {
    /// The distribution of `layers`, with the output on the device `output`.
    ///
    /// # Errors
    /// If llama.cpp has none like it.
    fn of(layers: &[Shares], output: DeviceId) -> Result<TensorSplit, String> {
        let devices: BTreeSet<DeviceId> = layers.iter().flat_map(BTreeMap::keys).copied().collect();
        if layers.iter().all(|shares| shares.len() == 1) {
            let mut found: Vec<(DeviceId, usize)> = Vec::new();
            for device in layers.iter().flat_map(BTreeMap::keys) {
                match found.last_mut().filter(|(last, _)| last == device) {
                    Some((_, count)) => *count += 1,
                    None => found.push((*device, 1)),
                }
            }
            if found.len() > devices.len() {
                let what = "llama.cpp gives each device one range of layers, and the plan gives a device several";
                return Err(format!("{what}: plan again with another objective, or pin layers"));
            }
            match found.last_mut().filter(|(last, _)| *last == output) {
                Some((_, count)) => *count += 1,
                // A device without layers can have the output: it comes last, with a share of 1.
                None if !devices.contains(&output) => found.push((output, 1)),
                None => {
                    let what = "llama.cpp computes the output where the last layer is, and the plan does not";
                    return Err(format!("{what}: pin the output there"));
                }
            }
            return Ok(TensorSplit::Layers(found));
        }
        // Where layers differ, their mean.
        let mut shares = Shares::new();
        for layer in layers {
            let total: f64 = layer.values().sum();
            for (device, share) in layer {
                *shares.entry(*device).or_default() += share / total / layers.len() as f64;
            }
        }
        Ok(TensorSplit::Tensors(shares.into_iter().collect()))
    }

    fn devices(&self) -> Vec<DeviceId> {
        match self {
            TensorSplit::Layers(layers) => layers.iter().map(|(device, _)| *device).collect(),
            TensorSplit::Tensors(shares) => shares.iter().map(|(device, _)| *device).collect(),
        }
    }

    /// The values of `--split-mode` and `--tensor-split`.
    fn arguments(&self) -> (&'static str, String) {
        let joined = |values: Vec<String>| values.join(",");
        match self {
            TensorSplit::Layers(layers) => {
                ("layer", joined(layers.iter().map(|(_, count)| count.to_string()).collect()))
            }
            TensorSplit::Tensors(shares) => {
                ("tensor", joined(shares.iter().map(|(_, share)| format!("{share:.3}")).collect()))
            }
        }
    }

    fn summary(&self, plan: &Plan) -> String {
        let of = |device: DeviceId, what: String| {
            plan.device_name(device).map_or_else(|| what.clone(), |name| format!("{name} {what}"))
        };
        let parts: Vec<String> = match self {
            TensorSplit::Layers(layers) => {
                let last = layers.len().saturating_sub(1);
                let layer = |(at, (device, count)): (usize, &(DeviceId, usize))| {
                    let what = match (at == last, count - usize::from(at == last)) {
                        (true, 0) => "the output".to_string(),
                        (true, 1) => "1 layer and the output".to_string(),
                        (true, count) => format!("{count} layers and the output"),
                        (false, 1) => "1 layer".to_string(),
                        (false, count) => format!("{count} layers"),
                    };
                    of(*device, what)
                };
                layers.iter().enumerate().map(layer).collect()
            }
            TensorSplit::Tensors(shares) => {
                let share =
                    |(device, share): &(DeviceId, f64)| of(*device, format!("{:.1} % of each layer", share * 100.0));
                shares.iter().map(share).collect()
            }
        };
        parts.join(", ")
    }
}

/// A shell script that runs a GGUF file of the model with this distribution.
///
/// # Errors
/// If llama.cpp cannot reach a device, or a name or an address cannot stand in a script.
fn script(plan: &Plan, split: &TensorSplit) -> Result<String, String> {
    let unknown = |device: DeviceId| format!("the plan has no device {}", device.0);
    let found = |device: DeviceId| plan.devices.get(device.0 as usize).ok_or_else(|| unknown(device));
    let devices: Vec<&DevicePlan> = split.devices().into_iter().map(found).collect::<Result<_, _>>()?;
    if devices.len() > MAX_DEVICES {
        return Err(format!("llama.cpp uses at most {MAX_DEVICES} devices, and the plan has {}", devices.len()));
    }
    for name in devices.iter().flat_map(|device| [&device.server, &device.device]) {
        check_name(name).map_err(|error| format!("a server or device of the plan {error}"))?;
    }
    let is_one_server = devices.iter().all(|device| device.server == devices[0].server);
    let hosts: Vec<&str> = devices
        .iter()
        .map(|device| host(&device.server, device.address.as_deref(), is_one_server))
        .collect::<Result<_, _>>()?;
    let mut text = "#!/bin/sh\n# llama.cpp, built with -DGGML_RPC=ON, runs a GGUF file of the model: script MODEL.gguf [ARGUMENT...]\n".to_string();
    let _ = writeln!(text, "# {}.", split.summary(plan));
    text += "# First start on each server, in a network that you trust (rpc-server is ggml-rpc-server in newer versions):\n";
    for (device, port) in devices.iter().zip(PORT..) {
        let (name, threads) = match (device.device.as_str(), device.threads) {
            ("cpu", Some(threads)) => ("CPU".to_string(), format!(" --threads {threads}")),
            ("cpu", None) => ("CPU".to_string(), String::new()),
            (gpu, _) => (gpu.replace("gpu", "CUDA"), String::new()),
        };
        let server = &device.server;
        let _ = writeln!(text, "#   {server}: rpc-server --host 0.0.0.0 --port {port} --device {name}{threads}");
    }
    if devices.iter().any(|device| device.address.is_none()) && !is_one_server {
        text += "# The plan has no addresses: replace the names of servers.\n";
    }
    let rpc: Vec<String> = hosts.iter().zip(PORT..).map(|(host, port)| format!("{host}:{port}")).collect();
    let names: Vec<String> = (0..devices.len()).map(|at| format!("RPC{at}")).collect();
    let (mode, shares) = split.arguments();
    text += "model=${1:?usage: $0 MODEL.gguf [ARGUMENT...]}\nshift\n";
    let _ = writeln!(text, "exec llama-cli --model \"$model\" --rpc {} --device {} \\", rpc.join(","), names.join(","));
    let more = if mode == "tensor" { " --fit off" } else { "" };
    let _ = writeln!(text, "    --split-mode {mode} --tensor-split {shares} --gpu-layers 999{more} \"$@\"");
    Ok(text)
}

/// Where llama.cpp finds the device's RPC server.
fn host<'a>(server: &'a str, address: Option<&'a str>, is_one_server: bool) -> Result<&'a str, String> {
    let Some(address) = address else {
        return Ok(if is_one_server { "127.0.0.1" } else { server });
    };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if host.is_empty() || host.starts_with('-') || !host.chars().all(is_plain) {
        let shown = address.escape_debug();
        return Err(format!("{server}: llama.cpp takes host names and IPv4 addresses, not {shown}"));
    }
    Ok(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(shares: &[(u32, f64)]) -> Shares {
        shares.iter().map(|(device, share)| (DeviceId(*device), *share)).collect()
    }

    #[test]
    fn layers_are_ranges_and_the_output_is_one_more() {
        let on = |devices: &[u32]| devices.iter().map(|device| layer(&[(*device, 2.0)])).collect::<Vec<_>>();
        let of = |devices: &[u32], output: u32| TensorSplit::of(&on(devices), DeviceId(output));
        let ranges = |list: &[(u32, usize)]| {
            Ok(TensorSplit::Layers(list.iter().map(|(device, count)| (DeviceId(*device), *count)).collect()))
        };
        assert_eq!(of(&[1, 1, 0], 0), ranges(&[(1, 2), (0, 2)]));
        assert_eq!(of(&[0, 0], 0), ranges(&[(0, 3)]));
        assert_eq!(of(&[0, 0], 2), ranges(&[(0, 2), (2, 1)]));
        assert!(of(&[0, 1, 0], 0).unwrap_err().contains("one range of layers"));
        assert!(of(&[0, 1], 0).unwrap_err().contains("where the last layer is"));
    }

    #[test]
    fn shares_of_split_layers_are_their_mean() {
        let layers = [layer(&[(0, 3.0), (1, 1.0)]), layer(&[(0, 1.0), (1, 1.0)]), layer(&[(0, 5.0)])];
        let split = TensorSplit::of(&layers, DeviceId(0)).unwrap();
        assert_eq!(split, TensorSplit::Tensors(vec![(DeviceId(0), 0.75), (DeviceId(1), 0.25)]));
        assert_eq!(split.arguments(), ("tensor", "0.750,0.250".to_string()));
    }

    #[test]
    fn the_number_of_a_layer_is_in_its_name() {
        assert_eq!(number_in("past_key_values.11.key"), Some(11));
        assert_eq!(number_in("past_key_3"), Some(3));
        assert_eq!(number_in("state"), None);
    }

    #[test]
    fn only_plain_addresses_stand_in_the_script() {
        assert_eq!(host("s1", Some("10.0.0.1:7600"), false), Ok("10.0.0.1"));
        assert_eq!(host("s1", None, false), Ok("s1"));
        assert_eq!(host("s1", None, true), Ok("127.0.0.1"));
        for address in ["$(id):7000", "a;id;:1", "[::1]:7000", "a b:1", ":7000", "-x:1", "a,b:1", "a\n:1"] {
            assert!(host("s1", Some(address), false).is_err(), "{address:?}");
        }
    }
}
