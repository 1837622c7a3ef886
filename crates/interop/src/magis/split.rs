//! Batch splitting: the operators that can run on parts of the batch one after the other, and the cost of a part.
//!
//! The batch is the first axis of the inputs other than weights. It is propagated through the operators: an operator that
//! keeps it as first axis works on a part; one that contracts two operands over it (the gradient of a weight) accumulates
//! over the parts, at the cost of one more read of the result. Everything else, and what depends on it, runs after the
//! parts.

use std::{collections::HashMap, ops::Range};

use super::{CostModel, Fission, FissionBody, Op};

/// How an operator's output depends on the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    /// Not at all.
    Whole,
    /// Its first axis is the batch.
    Batch,
    /// It is a sum over the batch.
    Sum,
    /// It needs something that is known only after all parts.
    After,
}

/// The operators that can run on parts, and those around them.
pub struct Region {
    /// Length of the batch.
    pub length: u64,
    labels: HashMap<u64, Label>,
    before: Vec<Op>,
    inside: Vec<Op>,
    after: Vec<Op>,
    shapes: HashMap<u64, Op>,
}

impl Region {
    /// The largest region of a graph; `None` if nothing can be split.
    pub fn of(ops: &[Op]) -> Option<Region> {
        Region::within(ops, 0..ops.len())
    }

    /// The largest region among the operators of a range; what lies before and after it runs whole.
    pub fn within(ops: &[Op], range: Range<usize>) -> Option<Region> {
        let inputs = ops.iter().filter(|op| op.is_placeholder() && !op.is_weight);
        let length = *inputs.max_by_key(|op| op.out_bytes)?.shape.first()?;
        if length < 2 {
            return None;
        }
        let shapes: HashMap<u64, Op> = ops.iter().map(|op| (op.id, op.clone())).collect();
        let mut labels: HashMap<u64, Label> = HashMap::new();
        let (mut before, mut inside, mut after) = (Vec::new(), Vec::new(), Vec::new());
        for (index, op) in ops.iter().enumerate() {
            let label = label(op, length, &labels, &shapes);
            labels.insert(op.id, label);
            let place = match label {
                _ if op.is_placeholder() || index < range.start => &mut before,
                _ if index >= range.end => &mut after,
                Label::Whole => &mut before,
                Label::Batch | Label::Sum => &mut inside,
                Label::After => &mut after,
            };
            place.push(op.clone());
        }
        (!inside.is_empty()).then_some(Region { length, labels, before, inside, after, shapes })
    }

    /// The numbers of parts that divide the batch.
    pub fn divisors(&self) -> Vec<u64> {
        (2..=self.length).filter(|parts| self.length.is_multiple_of(*parts)).collect()
    }

    /// The operators of one part: first what stands for the arguments, then the region's.
    pub fn part(&self, parts: u64, cost: &CostModel) -> Vec<Op> {
        let mut ops = Vec::new();
        for (arg, label) in self.arguments() {
            let mut op = self.shapes[&arg].clone();
            (op.tag, op.args, op.extra_bytes, op.flops) = ("placeholder".into(), Vec::new(), 0, 0.0);
            op.latency_ms = 1e-8;
            match label {
                Label::Batch => {
                    op.shape[0] /= parts;
                    op.out_bytes /= parts;
                }
                // It is there whole, outside.
                _ => op.out_bytes = 0,
            }
            ops.push(op);
        }
        for op in &self.inside {
            let mut part = op.clone();
            part.latency_ms = self.latency(op, parts, cost);
            part.flops /= parts as f64;
            part.extra_bytes = op.extra_bytes.div_ceil(parts);
            match self.labels[&op.id] {
                // Every part adds to the whole result, which is counted outside.
                Label::Sum => part.out_bytes = 0,
                _ => {
                    part.shape[0] /= parts;
                    part.out_bytes /= parts;
                }
            }
            ops.push(part);
        }
        ops
    }

    /// The whole schedule around one part's.
    pub(crate) fn around(&self, part: Vec<Op>, parts: u64, latency_ms: f64, fresh: &mut u64) -> Vec<Op> {
        let outputs = self.outputs();
        let arguments: Vec<u64> = self.arguments().into_iter().map(|a| a.0).collect();
        let Some(template) = self.inside.first() else { return self.before.clone() };
        *fresh += 1;
        let id = *fresh;
        let mut split = template.like(id, "fission", arguments.clone(), latency_ms * parts as f64);
        split.of = None;
        split.out_bytes = outputs.iter().map(|id| self.shapes[id].out_bytes).sum();
        split.flops = self.inside.iter().map(|op| op.flops).sum();
        let factor = self.length / parts;
        split.fission = Some(Box::new(Fission {
            length: self.length,
            factor,
            iters: parts,
            inp_ids: arguments,
            out_ids: outputs.clone(),
            graph: FissionBody { ops: part },
        }));
        let mut ops = self.before.clone();
        // Where each output of the region is found.
        let mut found: HashMap<u64, u64> = HashMap::new();
        if let [output] = outputs[..] {
            split.shape.clone_from(&self.shapes[&output].shape);
            found.insert(output, id);
        }
        ops.push(split);
        let used: Vec<u64> = self.after.iter().flat_map(|op| op.args.iter().copied()).collect();
        let mut take = |output: u64, ops: &mut Vec<Op>| {
            *found.entry(output).or_insert_with(|| {
                *fresh += 1;
                ops.push(self.shapes[&output].like(*fresh, "index_out", vec![id], 1e-8));
                *fresh
            })
        };
        for &output in outputs.iter().filter(|output| !used.contains(output)) {
            take(output, &mut ops);
        }
        for op in &self.after {
            let mut op = op.clone();
            for arg in op.args.iter_mut().filter(|arg| outputs.contains(arg)) {
                *arg = take(*arg, &mut ops);
            }
            ops.push(op);
        }
        ops
    }

    /// What the region reads from outside, in order of first use.
    fn arguments(&self) -> Vec<(u64, Label)> {
        let mut found: Vec<(u64, Label)> = Vec::new();
        let inside: HashMap<u64, ()> = self.inside.iter().map(|op| (op.id, ())).collect();
        for arg in self.inside.iter().flat_map(|op| &op.args) {
            if !inside.contains_key(arg) && !found.iter().any(|f| f.0 == *arg) {
                found.push((*arg, self.labels[arg]));
            }
        }
        found
    }

    /// What the region makes that is needed after it.
    fn outputs(&self) -> Vec<u64> {
        let mut inner: HashMap<u64, ()> = HashMap::new();
        inner.extend(self.inside.iter().flat_map(|op| &op.args).map(|arg| (*arg, ())));
        let mut later: HashMap<u64, ()> = HashMap::new();
        later.extend(self.after.iter().flat_map(|op| &op.args).map(|arg| (*arg, ())));
        let wanted = |id: &u64| later.contains_key(id) || !inner.contains_key(id);
        self.inside.iter().map(|op| op.id).filter(wanted).collect()
    }

    /// Milliseconds of one part, from the file's cost model; where the file's own latency differs from the model,
    /// in the same proportion.
    fn latency(&self, op: &Op, parts: u64, cost: &CostModel) -> f64 {
        let work = op.latency_ms - cost.launch_ms;
        if work <= 0.0 {
            return op.latency_ms;
        }
        let bytes = |of: &Op, split: bool| of.out_bytes as f64 / if split { parts as f64 } else { 1.0 };
        let model = |split: bool| {
            let batch = |id: &u64| split && self.labels[id] == Label::Batch;
            let read: f64 = op.args.iter().map(|arg| bytes(&self.shapes[arg], batch(arg))).sum();
            let mut moved = read + bytes(op, batch(&op.id));
            if split && self.labels[&op.id] == Label::Sum {
                moved += bytes(op, false);
            }
            let flops = if split { op.flops / parts as f64 } else { op.flops };
            1e3 * (flops / (cost.peak_flops * cost.eff_f)).max(moved / (cost.peak_bw * cost.eff_b))
        };
        let whole = model(false);
        if whole <= 0.0 {
            return op.latency_ms;
        }
        cost.launch_ms + model(true) * work / whole
    }
}

fn label(op: &Op, length: u64, labels: &HashMap<u64, Label>, shapes: &HashMap<u64, Op>) -> Label {
    if op.is_placeholder() {
        return if !op.is_weight && op.shape.first() == Some(&length) { Label::Batch } else { Label::Whole };
    }
    let of = |arg: &u64| labels.get(arg).copied().unwrap_or(Label::Whole);
    if op.args.iter().any(|arg| matches!(of(arg), Label::After | Label::Sum)) {
        return Label::After;
    }
    let batched: Vec<&Op> = op.args.iter().filter(|arg| of(arg) == Label::Batch).map(|arg| &shapes[arg]).collect();
    if batched.is_empty() {
        return Label::Whole;
    }
    let contracts = op.tag.contains("matmul") || op.tag.contains("bmm");
    let first = op.shape.first().copied().unwrap_or(0);
    let stays = first.is_multiple_of(length)
        && first > 0
        && (batched.iter().all(|arg| arg.shape.first() == Some(&first)) || is_reshape(&op.tag));
    match op.tag.as_str() {
        tag if tag.contains("bwd_wgt") || tag.contains("bwd_w") => Label::Sum,
        _ if contracts && batched.len() == 2 && contracts_all(op, batched[0], batched[1]) => Label::Sum,
        // Statistics over the batch.
        tag if tag.contains("batch_norm") => Label::After,
        tag if tag.starts_with("ewise") && whole_operand_has_batch(op, first, labels, shapes) => Label::After,
        _ if stays => Label::Batch,
        _ => Label::After,
    }
}

fn is_reshape(tag: &str) -> bool {
    tag.contains("reshape") || tag.contains("view") || tag.contains("flatten")
}

/// Whether two operands of a matrix product have no axis in common that the output keeps.
///
/// For an output of n elements and a contraction over c, the operands have n·c² elements together; with a common
/// batch of b in both and in the output, n·c²·b.
fn contracts_all(op: &Op, a: &Op, b: &Op) -> bool {
    let elements = |op: &Op| op.shape.iter().map(|&d| d as f64).product::<f64>();
    let out = elements(op);
    let contracted = op.flops / (2.0 * out);
    let ratio = elements(a) * elements(b) / out;
    contracted > 0.0 && (ratio / (contracted * contracted) - 1.0).abs() < 1e-6
}

/// An element-wise operand that does not come from the batch but has its length would have to be sliced too.
fn whole_operand_has_batch(op: &Op, first: u64, labels: &HashMap<u64, Label>, shapes: &HashMap<u64, Op>) -> bool {
    op.args.iter().any(|arg| {
        let same_rank = shapes[arg].shape.len() == op.shape.len();
        labels.get(arg) == Some(&Label::Whole) && same_rank && shapes[arg].shape.first() == Some(&first)
    })
}
