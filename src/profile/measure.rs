//! The measuring itself: each signature alone, the model in order, the model as a whole.

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{Item, Sampling, Signature, sampling::Samples, surroundings::Surroundings};
use crate::{
    engine::{Engine, EngineError, Executable, ParameterSource},
    graph::{Graph, OperatorId, Part, TensorData, TensorId},
    statistics::Statistics,
    units::{Bytes, Micros},
    values,
};

/// What one item costs on one device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Wall clock.
    pub time: Statistics,
    /// Median of the processor time of all threads.
    pub cpu: Micros,
    /// On a GPU, the median of what passed on the card.
    #[serde(default)]
    pub kernels: Option<Micros>,
    /// The most that any sample needed.
    pub workspace: Bytes,
    /// What the engine holds for it: packed weights and constants.
    pub held: Bytes,
    /// Share of the samples during which another process took the processor. They are left out
    /// of the statistics where enough others are there.
    pub disturbed: f64,
}

/// One result: the index of the item and what it costs, or why it cannot be computed here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub item: usize,
    pub cost: Result<Cost, String>,
}

/// What is to be measured, with what, and on what contents.
pub struct Subject<'a> {
    pub engine: &'a dyn Engine,
    pub graph: &'a Graph,
    pub items: &'a [Item],
    /// In the order of [`Graph::inputs`].
    pub inputs: &'a [TensorData],
    pub parameter: &'a ParameterSource<'a>,
    /// What operands, parameters and results may take together; an item that needs more is not computed.
    pub memory: Option<Bytes>,
}

impl Subject<'_> {
    /// Refuses what needs more memory than there is.
    fn admit(&self, need: Bytes) -> Result<(), EngineError> {
        match self.memory.map_or(Bytes::ZERO, |limit| limit.shortfall(need)) {
            Bytes::ZERO => Ok(()),
            shortfall => Err(EngineError::Other(format!("it needs {need}, {shortfall} more than the device may take"))),
        }
    }

    /// What all parameters take.
    fn parameter_bytes(&self) -> Bytes {
        self.graph.parameters().filter_map(|id| self.graph.tensor(id).ty.bytes()).sum()
    }
}

/// Who is told each result as it comes, and may end the measuring.
pub type Listener<'a> = dyn FnMut(Measured) -> ControlFlow<()> + 'a;

/// Measures every distinct signature that is not `known` once, alone, in the order of the items.
///
/// The model is computed item by item, so that each is measured on the values that really reach it, after
/// reading as much other memory as the rest of the model has. An item that cannot be computed is reported,
/// and what follows it gets generated values.
pub fn isolated(
    subject: &Subject<'_>,
    sampling: &Sampling,
    known: &HashSet<Signature>,
    each: &mut Listener<'_>,
) -> Result<(), EngineError> {
    let Subject { graph, items, .. } = subject;
    let mut seen = known.clone();
    let first: Vec<bool> = items.iter().map(|item| seen.insert(item.signature.clone())).collect();
    let Some(last) = first.iter().rposition(|first| *first) else { return Ok(()) };
    let mut left = first.iter().filter(|first| **first).count() as u32;
    let mut budget = Budget::new(sampling);
    let surroundings = Surroundings::of(graph);
    let mut table: HashMap<TensorId, TensorData> = graph.inputs().zip(subject.inputs.iter().cloned()).collect();
    let last_use = last_uses(graph, items);
    for (index, item) in items.iter().enumerate().take(last + 1) {
        let part = Part::cut(graph, &item.operators);
        let computed = contents(&part, &table).and_then(|inputs| {
            subject.admit(item.bytes)?;
            let whole = |t: TensorId| part.whole_tensor[t.0 as usize];
            let mut alone = subject.engine.load(&part.graph, &|t| (subject.parameter)(whole(t)))?;
            if !first[index] {
                return Ok((alone.run(&inputs)?, None));
            }
            let until = budget.share(left);
            let (outputs, cost) = sample(&mut *alone, &inputs, subject.engine, sampling, until, Some(&surroundings))?;
            Ok((outputs, cost))
        });
        let (outputs, cost) = match computed {
            Ok((outputs, cost)) => (outputs, cost.map(Ok)),
            Err(error) => (generated(&part), first[index].then(|| Err(error.to_string()))),
        };
        if let Some(cost) = cost {
            left -= 1;
            if each(Measured { item: index, cost }).is_break() {
                return Ok(());
            }
        }
        let made = part.graph.outputs.iter().map(|t| part.whole_tensor[t.0 as usize]);
        table.extend(made.zip(outputs));
        table.retain(|id, _| last_use.get(id).is_some_and(|use_| *use_ > index));
    }
    Ok(())
}

/// Measures every item in its place while the whole model runs, item after item.
///
/// # Errors
/// If any item cannot be computed.
pub fn in_situ(subject: &Subject<'_>, sampling: &Sampling, each: &mut Listener<'_>) -> Result<(), EngineError> {
    subject.admit(subject.parameter_bytes())?;
    let groups: Vec<Vec<OperatorId>> = subject.items.iter().map(|item| item.operators.clone()).collect();
    let mut model = subject.engine.load_steps(subject.graph, &groups, subject.parameter)?;
    let threads = subject.engine.threads();
    let mut samples: Vec<Samples> = groups.iter().map(|_| Samples::new(threads, subject.engine.quota())).collect();
    model.run_in_steps(subject.inputs.to_vec(), &mut |_, _| {})?;
    let until = Budget::new(sampling).share(1);
    loop {
        model.run_in_steps(subject.inputs.to_vec(), &mut |index, sample| {
            if let Some(samples) = samples.get_mut(index) {
                samples.add(sample, threads);
            }
        })?;
        // What nobody needs has no step, and no sample ever.
        if samples.iter().filter(|s| !s.is_empty()).all(|s| s.enough(sampling, until)) {
            break;
        }
    }
    for (index, (item, samples)) in subject.items.iter().zip(&samples).enumerate() {
        let cost = samples.cost(item.parameter_bytes).ok_or_else(|| "nobody needs its result".to_string());
        if each(Measured { item: index, cost }).is_break() {
            break;
        }
    }
    Ok(())
}

/// Measures the model as a whole, as `run` computes it. What is only a part of another model `displaces` as many bytes
/// from the caches before every sample as that model touches.
///
/// # Errors
/// If the model cannot be computed.
pub fn whole(subject: &Subject<'_>, sampling: &Sampling, displaces: Option<Bytes>) -> Result<Cost, EngineError> {
    subject.admit(subject.parameter_bytes())?;
    let mut model = subject.engine.load(subject.graph, subject.parameter)?;
    let surroundings = displaces.map(Surroundings::new);
    let until = Budget::new(sampling).share(1);
    let (_, cost) = sample(&mut *model, subject.inputs, subject.engine, sampling, until, surroundings.as_ref())?;
    cost.ok_or_else(|| EngineError::Other("no sample was taken".to_string()))
}

/// Warms up, then takes samples until there are enough. Returns the last run's outputs too.
fn sample(
    model: &mut dyn Executable,
    inputs: &[TensorData],
    engine: &dyn Engine,
    sampling: &Sampling,
    until: Instant,
    surroundings: Option<&Surroundings>,
) -> Result<(Vec<TensorData>, Option<Cost>), EngineError> {
    let mut outputs = model.run(inputs)?;
    if Instant::now() < until {
        outputs = model.run(inputs)?;
    }
    let threads = engine.threads();
    let mut samples = Samples::new(threads, engine.quota());
    while !samples.enough(sampling, until) {
        if let Some(surroundings) = surroundings {
            surroundings.visit();
        }
        let (made, sample) = model.run_measured(inputs)?;
        outputs = made;
        samples.add(sample, threads);
    }
    Ok((outputs, samples.cost(model.parameter_bytes())))
}

/// Time that is left, shared among what is left to measure.
struct Budget {
    end: Instant,
}

impl Budget {
    fn new(sampling: &Sampling) -> Budget {
        let budget = Duration::try_from_secs_f64(sampling.budget.0 / 1e6).unwrap_or(Duration::from_secs(86_400));
        Budget { end: Instant::now() + budget.min(Duration::from_secs(86_400)) }
    }

    /// The end of an equal share for the first of `left` items.
    fn share(&mut self, left: u32) -> Instant {
        let now = Instant::now();
        now + self.end.saturating_duration_since(now) / left.max(1)
    }
}

/// The operands that reach a part.
fn contents(part: &Part, table: &HashMap<TensorId, TensorData>) -> Result<Vec<TensorData>, EngineError> {
    let content = |id: TensorId| {
        let tensor = part.graph.tensor(id);
        if let Some(data) = table.get(&part.whole_tensor[id.0 as usize]) {
            return Ok(data.clone());
        }
        let error = |e: values::SeedError| EngineError::Tensor { name: tensor.name.to_string(), what: e.to_string() };
        values::seeded(&tensor.name, &tensor.ty).map_err(error)
    };
    part.graph.inputs().map(content).collect()
}

/// Contents for the outputs of a part that cannot be computed; what cannot be generated is left out.
fn generated(part: &Part) -> Vec<TensorData> {
    let made = part.graph.outputs.iter().map(|id| part.graph.tensor(*id));
    made.map_while(|tensor| values::seeded(&tensor.name, &tensor.ty).ok()).collect()
}

/// For every tensor the last item that reads it.
fn last_uses(graph: &Graph, items: &[Item]) -> HashMap<TensorId, usize> {
    let mut found = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        for operator in &item.operators {
            found.extend(graph.operator(*operator).operands().map(|tensor| (tensor, index)));
        }
    }
    found
}
