//! Dumps of TVM's debug executor: the compiled graph (`…graph_dump.json`) and the trace of its execution
//! (`…execution_trace.json`), in which every kernel is timed in its place.
//!
//! Timestamps are in microseconds whatever `displayTimeUnit` says. Edges are by name, and names are not unique (every
//! reshape is called `reshape_nop`): the vertices are in post-order, so a consumer of k of one name takes the last k that
//! have not been consumed yet.

use std::collections::HashMap;

use serde::Deserialize;
use smol_str::SmolStr;

use edgecut_graph::{Attr, Attrs, DType, Graph, Operator, OperatorId, Origin, TensorId, TensorType, units::Micros};
use edgecut_ops as ops;
use edgecut_profile::reader::truncated;

/// The graph of a dump, every kernel an operator with the names of Relay's operators that it computes, joined by `+`.
#[derive(Debug, Clone, PartialEq)]
pub struct Dump {
    pub graph: Graph,
    /// By vertex of the dump: its name, and the operator that it is; `None` for inputs and parameters.
    vertices: Vec<(String, Option<OperatorId>)>,
    is_gpu: bool,
}

/// Why a text is not a valid dump, or a trace does not belong to the dump.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DumpError {
    #[error("not a graph dump of TVM's debug executor: {0}")]
    Graph(String),
    #[error("not an execution trace of TVM's debug executor: {0}")]
    Trace(String),
    #[error("entry {index} of `nodes` of the JSON, `{name}`: {what}")]
    Vertex { index: usize, name: String, what: String },
    #[error("event {index} of the trace: {what}")]
    Event { index: usize, what: String },
}

#[derive(Deserialize)]
struct DumpFile {
    nodes: Vec<Vertex>,
    #[serde(default)]
    heads: Vec<Vec<usize>>,
    #[serde(default)]
    node_row_ptr: Vec<usize>,
    #[serde(default)]
    attrs: Lists,
}

/// What the executor knows of each output of each vertex; each list follows the name of its kind.
#[derive(Deserialize, Default)]
struct Lists {
    #[serde(default)]
    shape: Option<(String, Vec<Vec<i64>>)>,
    #[serde(default)]
    dltype: Option<(String, Vec<String>)>,
    #[serde(default)]
    device_index: Option<(String, Vec<i64>)>,
}

/// What DLPack calls the processor; all else accelerates it.
const CPU: i64 = 1;
/// More words between `_` than any operator's name has.
const MOST_WORDS: usize = 16;

#[derive(Deserialize)]
struct Vertex {
    op: String,
    name: String,
    #[serde(default)]
    inputs: Vec<String>,
    #[serde(default)]
    attrs: HashMap<String, String>,
    #[serde(default)]
    shape: Vec<i64>,
}

#[derive(Deserialize)]
struct Trace {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    ts: f64,
    name: String,
    ph: String,
}

impl Dump {
    /// Reads the text of a graph dump.
    ///
    /// # Errors
    /// If it is not JSON of this form, or a vertex reads what no vertex before it makes.
    pub fn read(text: &str) -> Result<Dump, DumpError> {
        let file: DumpFile = serde_json::from_str(text).map_err(|e| DumpError::Graph(e.to_string()))?;
        if file.nodes.is_empty() {
            return Err(DumpError::Graph("its list `nodes` is empty".to_string()));
        }
        let mut reading = DumpReader { graph: Graph::new(), made: HashMap::new() };
        let mut vertices = Vec::with_capacity(file.nodes.len());
        let mut outputs: Vec<Vec<TensorId>> = Vec::with_capacity(file.nodes.len());
        for (index, vertex) in file.nodes.iter().enumerate() {
            let error = |what: String| DumpError::Vertex { index, name: truncated(&vertex.name), what };
            let types = types(&file, index).map_err(error)?;
            let (operator, made) = reading.add(vertex, types).map_err(error)?;
            vertices.push((vertex.name.clone(), operator));
            outputs.push(made);
        }
        for head in &file.heads {
            let (vertex, output) = (head.first().copied().unwrap_or(usize::MAX), head.get(1).copied().unwrap_or(0));
            let tensor = outputs.get(vertex).and_then(|made| made.get(output)).copied();
            let missing = || DumpError::Graph(format!("its result {vertex}.{output} is not an output of a vertex"));
            reading.graph.outputs.push(tensor.ok_or_else(missing)?);
        }
        let is_gpu = file.attrs.device_index.iter().flat_map(|(_, devices)| devices).any(|device| *device != CPU);
        Ok(Dump { graph: reading.graph, vertices, is_gpu })
    }

    /// What the device that it was compiled for is called here.
    pub fn device(&self) -> &'static str {
        if self.is_gpu { "gpu0" } else { "cpu" }
    }

    /// The time of every kernel, by operator, from the text of the trace of the same execution.
    ///
    /// # Errors
    /// If it is not JSON of this form, or its events are not those of the graph's vertices in order.
    pub fn times(&self, trace: &str) -> Result<Vec<Micros>, DumpError> {
        let trace: Trace = serde_json::from_str(trace).map_err(|e| DumpError::Trace(e.to_string()))?;
        let mut times = vec![Micros::ZERO; self.graph.operators().len()];
        let mut vertices = self.vertices.iter();
        let mut begun: Option<&Event> = None;
        for (index, event) in trace.events.iter().enumerate() {
            let error = |what: String| DumpError::Event { index, what };
            match (event.ph.as_str(), begun) {
                ("B", None) => begun = Some(event),
                ("E", Some(begin)) if begin.name == event.name => {
                    begun = None;
                    let next = vertices.next();
                    let (name, operator) = next.ok_or_else(|| error("the graph has fewer vertices".to_string()))?;
                    if *name != event.name {
                        let (found, wanted) = (truncated(&event.name), truncated(name));
                        return Err(error(format!("`{found}` ends where the graph has `{wanted}`")));
                    }
                    let took = event.ts - begin.ts;
                    if !(took.is_finite() && took >= 0.0) {
                        return Err(error(format!("`{}` takes {took} us", truncated(name))));
                    }
                    if let Some(time) = operator.and_then(|id| times.get_mut(id.0 as usize)) {
                        *time = Micros(took);
                    }
                }
                // Names of processes and threads.
                ("M", _) => {}
                (kind, _) => {
                    let (kind, name) = (truncated(kind), truncated(&event.name));
                    return Err(error(format!("`{kind}` of `{name}`, where every `B` is followed by its `E`")));
                }
            }
        }
        match vertices.next() {
            Some((name, _)) => Err(DumpError::Trace(format!("it ends before `{}`", truncated(name)))),
            None => Ok(times),
        }
    }
}

/// The types of the outputs of vertex number `index`.
fn types(file: &DumpFile, index: usize) -> Result<Vec<TensorType>, String> {
    let vertex = &file.nodes[index];
    let named = vertex.attrs.get("T").map(|t| t.trim_start_matches("type:").trim());
    let tensor = |dtype: Option<&str>, shape: &[i64]| -> Result<TensorType, String> {
        let dtype = dtype.ok_or("it has no type")?;
        let dtype: DType = dtype.parse().map_err(|e| format!("`{}`: {e}", truncated(dtype)))?;
        let dims: Result<Vec<u64>, _> = shape.iter().map(|d| u64::try_from(*d)).collect();
        Ok(TensorType::of(dtype, &dims.map_err(|_| format!("shape {shape:?} is not known"))?))
    };
    // The executor's own lists are by output, the vertex' shape is that of another one where any before has several.
    if let (Some((_, shapes)), Some((_, dtypes)), Some(range)) =
        (&file.attrs.shape, &file.attrs.dltype, file.node_row_ptr.get(index..index + 2))
        && let (Some(shapes), Some(dtypes)) = (shapes.get(range[0]..range[1]), dtypes.get(range[0]..range[1]))
        && !shapes.is_empty()
    {
        return shapes.iter().zip(dtypes).map(|(shape, dtype)| tensor(Some(dtype), shape)).collect();
    }
    Ok(vec![tensor(named, &vertex.shape)?])
}

/// A graph while it is read.
struct DumpReader {
    graph: Graph,
    /// By name: what vertices of it made, those that has not been consumed yet, and the last one.
    made: HashMap<String, (Vec<Vec<TensorId>>, Vec<TensorId>)>,
}

impl DumpReader {
    fn add(&mut self, vertex: &Vertex, types: Vec<TensorType>) -> Result<(Option<OperatorId>, Vec<TensorId>), String> {
        let (operator, made) = match vertex.op.as_str() {
            "param" | "null" => {
                let digits = vertex.name.strip_prefix('p').unwrap_or_default();
                // TVM calls the parameters that it was given p0, p1, ….
                let is_bound = !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit());
                let origin = if is_bound { Origin::Parameter } else { Origin::Input };
                let ty = types.into_iter().next().ok_or("it has no type")?;
                (None, vec![self.graph.add_tensor(vertex.name.as_str(), ty, origin)])
            }
            kernel => {
                let args = self.operands(&vertex.inputs)?;
                let mut attrs = Attrs::new();
                for key in ["data_layout", "kernel_layout", "out_layout"] {
                    if let Some(layout) = vertex.attrs.get(key).filter(|layout| !layout.is_empty()) {
                        attrs.set(key, Attr::Str(SmolStr::new(layout)));
                    }
                }
                if let Some(groups) = self.groups(&attrs, &args) {
                    attrs.set("groups", Attr::Int(groups));
                }
                let operator = Operator::new(
                    SmolStr::new(operators(vertex.attrs.get("func_name").map_or(kernel, String::as_str))),
                    args,
                )
                .with_attrs(attrs)
                .with_tuple_result(types.len() > 1);
                let id = self.graph.add_operator(operator, &types);
                (Some(id), self.graph.operator(id).outputs.clone())
            }
        };
        let entry = self.made.entry(vertex.name.clone()).or_default();
        entry.0.push(made.clone());
        entry.1 = made.clone();
        Ok((operator, made))
    }

    /// The groups of a convolution, which dumps do not say: its channels by those that each filter reads.
    fn groups(&self, attrs: &Attrs, args: &[TensorId]) -> Option<i64> {
        let channels = |layout: &str, channel: char, tensor: &TensorId| {
            let at = attrs.get(layout)?.str()?.find(channel)?;
            self.graph.tensor(*tensor).ty.shape.fixed()?.get(at).copied()
        };
        let (all, of_filter) =
            (channels("data_layout", 'C', args.first()?)?, channels("kernel_layout", 'I', args.get(1)?)?);
        let groups = all.checked_div(of_filter).filter(|groups| *groups > 1 && all % of_filter == 0)?;
        i64::try_from(groups).ok()
    }

    /// The tensors that a vertex reads.
    fn operands(&mut self, names: &[String]) -> Result<Vec<TensorId>, String> {
        let mut wanted: HashMap<&str, usize> = HashMap::new();
        names.iter().for_each(|name| *wanted.entry(name.as_str()).or_default() += 1);
        let mut taken: HashMap<&str, std::vec::IntoIter<TensorId>> = HashMap::new();
        let mut operands = Vec::with_capacity(names.len());
        for name in names {
            let missing = || format!("it reads `{}`, which no earlier entry defines", truncated(name));
            let (open, last) = self.made.get_mut(name).ok_or_else(missing)?;
            let queue = taken.entry(name.as_str()).or_insert_with(|| {
                let k = wanted.get(name.as_str()).copied().unwrap_or(1);
                let found: Vec<Vec<TensorId>> = open.drain(open.len().saturating_sub(k)..).collect();
                let first = |made: &Vec<TensorId>| made.first().copied();
                // One vertex may be read several times: each of its outputs, or one of them again.
                let found: Vec<TensorId> = match found.as_slice() {
                    [only] if k > 1 => only.clone(),
                    several => several.iter().filter_map(first).collect(),
                };
                found.into_iter()
            });
            let operand = queue.next().or_else(|| last.first().copied());
            operands.push(operand.ok_or_else(missing)?);
        }
        Ok(operands)
    }
}

/// Relay's operators in the name of a kernel, joined by `+`: `tvmgen_default_fused_nn_conv2d_add_nn_relu_3` is
/// `nn.conv2d+add+nn.relu`. Other names are unchanged.
fn operators(kernel: &str) -> String {
    if kernel == "__nop" {
        return "reshape".to_string();
    }
    let name = kernel.trim_start_matches("tvmgen_default_").trim_start_matches("fused_");
    let mut words: Vec<&str> = name.split('_').filter(|word| !word.is_empty()).collect();
    // The last number tells kernels of the same operators apart; so does the hash that long names end in.
    while words.len() > 1 && words.last().is_some_and(|word| word.bytes().all(|c| c.is_ascii_digit())) {
        words.pop();
    }
    let mut found: Vec<String> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        // The longest name that begins here.
        let known = (at + 1..=words.len().min(at + MOST_WORDS)).rev().find_map(|end| {
            let joined = words[at..end].join("_");
            let dotted = joined.replacen('_', ".", 1);
            let name = [joined, dotted].into_iter().find(|name| ops::lookup(name).is_some())?;
            Some((name, end))
        });
        match known {
            Some((name, end)) => {
                found.push(name);
                at = end;
            }
            None => return name.to_string(),
        }
    }
    found.join("+")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAPH: &str = r#"{"nodes": [
        {"op": "param", "name": "data", "attrs": {"T": "type: float32"}, "shape": [1, 4]},
        {"op": "param", "name": "p0", "attrs": {"T": "type: float32"}, "shape": [2, 4]},
        {"op": "__nop", "name": "reshape_nop", "inputs": ["data"], "attrs": {"T": "type: float32"}, "shape": [1, 4]},
        {"op": "k", "name": "dense", "inputs": ["reshape_nop", "p0"],
         "attrs": {"T": "type: float32", "func_name": "tvmgen_default_fused_nn_dense_nn_relu_1"}, "shape": [1, 2]},
        {"op": "__nop", "name": "reshape_nop", "inputs": ["dense"], "attrs": {"T": "type: float32"}, "shape": [2]}
    ], "heads": [[4, 0, 0]]}"#;

    fn trace(names: &[&str]) -> String {
        let event = |(i, name): (usize, &&str)| {
            format!(
                "{{\"ts\": {i}, \"name\": \"{name}\", \"ph\": \"B\"}}, {{\"ts\": {}, \"name\": \"{name}\", \"ph\": \"E\"}}",
                i as f64 + 0.5
            )
        };
        format!("{{\"traceEvents\": [{}]}}", names.iter().enumerate().map(event).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn kernels_become_operators_with_times() {
        let dump = Dump::read(GRAPH).unwrap();
        let names: Vec<&str> = dump.graph.operators().map(|(_, o)| o.name.as_str()).collect();
        assert_eq!(names, ["reshape", "nn.dense+nn.relu", "reshape"]);
        assert_eq!((dump.graph.inputs().count(), dump.graph.parameters().count()), (1, 1));
        // Each reads what the one before it made, though two are called alike.
        let chain: Vec<_> = dump.graph.operators().map(|(_, o)| o.operands().next().unwrap()).collect();
        let made: Vec<_> = dump.graph.operators().map(|(_, o)| o.outputs[0]).collect();
        assert_eq!((chain[1], chain[2], &dump.graph.outputs[..]), (made[0], made[1], &made[2..]));
        let times = dump.times(&trace(&["data", "p0", "reshape_nop", "dense", "reshape_nop"])).unwrap();
        assert_eq!(times, [Micros(0.5); 3]);
    }

    #[test]
    fn kernels_names_are_taken_apart() {
        for (kernel, name) in [
            ("tvmgen_default_fused_nn_conv2d_add_nn_relu_12", "nn.conv2d+add+nn.relu"),
            ("fused_nn_max_pool2d", "nn.max_pool2d"),
            ("tvmgen_default_fused_nn_conv2d_transpose_1", "nn.conv2d_transpose"),
            ("tvmgen_default_fused_strided_slice_add_3", "strided_slice+add"),
            ("tvmgen_default_somebody_s_kernel", "somebody_s_kernel"),
        ] {
            assert_eq!(operators(kernel), name);
        }
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let dump = Dump::read(GRAPH).unwrap();
        for (names, why) in [
            (&["data", "p0", "dense"][..], "event 5 of the trace: `dense` ends where the graph has `reshape_nop`"),
            (&["data"][..], "it ends before `p0`"),
        ] {
            let error = dump.times(&trace(names)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        for (from, to, why) in [
            ("\"reshape_nop\", \"p0\"", "\"p9\"", "entry 3 of `nodes` of the JSON, `dense`: it reads `p9`"),
            ("type: float32", "type: strange", "`strange`"),
            ("[1, 4]}", "[-1, 4]}", "shape [-1, 4] is not known"),
            ("[[4, 0, 0]]", "[[9, 0, 0]]", "result 9.0"),
            ("\"nodes\"", "\"knots\"", "missing field"),
        ] {
            let error = Dump::read(&GRAPH.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
