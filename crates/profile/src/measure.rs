//! Measurements: each signature in isolation, every item in place while the model runs, the model as a whole.

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
    time::{Duration, Instant},
};

use crate::{
    CacheFlush, Conditions, Cost, Item, Measurement, MeteredDevice, Sampling, Signature, machine_load::MachineLoad,
    metering::ItemEnergy, sampling::Samples, warm_up_copy::WarmUpCopy,
};
use edgecut_engine::{Engine, EngineError, Executable, GeneratedContents, ParameterSource};
use edgecut_graph::{Graph, OperatorId, Part, Parts, TensorData, TensorId, units::Bytes};
use edgecut_values as values;

/// What is measured: items of a graph, by an engine, on given contents.
pub struct ProfileTarget<'a> {
    pub engine: &'a dyn Engine,
    pub graph: &'a Graph,
    pub items: &'a [Item],
    /// In the order of [`Graph::inputs`].
    pub inputs: &'a [TensorData],
    pub parameter: &'a ParameterSource<'a>,
    /// Limit on operands, parameters and results of an item; one that exceeds it is not computed.
    pub memory: Option<Bytes>,
    /// The device's meter, if it has one: then energy is measured too, but for items in place.
    pub energy: Option<&'a MeteredDevice>,
    /// Whether to take no more samples, such as when the client has gone.
    pub is_cancelled: &'a dyn Fn() -> bool,
}

impl ProfileTarget<'_> {
    /// Fails if `need` exceeds the memory limit.
    fn check_memory(&self, need: Bytes) -> Result<(), EngineError> {
        match self.memory.map_or(Bytes::ZERO, |limit| limit.shortfall(need)) {
            Bytes::ZERO => Ok(()),
            shortfall => {
                Err(EngineError::Other(format!("needs {need}, {shortfall} over the memory limit of the device")))
            }
        }
    }

    /// A copy of `graph`, whose `parameter`s these are, if there is room for both: each takes `need`.
    fn warm_up_copy<'i>(
        &self,
        graph: &Graph,
        parameter: &ParameterSource<'_>,
        inputs: &'i [TensorData],
        need: Bytes,
    ) -> Option<WarmUpCopy<'i>> {
        self.check_memory(need + need).ok()?;
        WarmUpCopy::of(self.engine, graph, parameter, inputs)
    }

    /// The least memory that an item takes: its operands, parameters and results, or the largest tensor within it.
    fn item_bytes(&self, item: &Item) -> Bytes {
        item.bytes.max(self.graph.largest_result(item.operators.iter().copied()))
    }

    /// The least memory that the whole graph takes: its parameters, or its largest tensor.
    fn graph_bytes(&self) -> Bytes {
        self.parameter_bytes().max(self.graph.largest_result(self.graph.operators().map(|(id, _)| id)))
    }

    /// Size of all parameters.
    fn parameter_bytes(&self) -> Bytes {
        self.graph.parameters().filter_map(|id| self.graph.tensor(id).ty.bytes()).sum()
    }
}

/// Receives each result when it is available; `Break` ends the measurement.
pub type OnMeasurement<'a> = dyn FnMut(Measurement) -> ControlFlow<()> + 'a;

/// Measures every distinct signature that is not in `known`, in isolation, in the order of the items.
///
/// The model is computed item by item, so that each item is measured on its real operands, with the caches flushed
/// and a second copy run before each sample. An item that cannot be computed is reported, and its consumers get generated values.
///
/// # Errors
/// None that an item causes: those are part of its result.
pub fn isolated(
    target: &ProfileTarget<'_>,
    sampling: &Sampling,
    known: &HashSet<Signature>,
    each: &mut OnMeasurement<'_>,
) -> Result<(), EngineError> {
    let ProfileTarget { graph, items, .. } = target;
    let mut seen = known.clone();
    let first: Vec<bool> = items.iter().map(|item| seen.insert(item.signature.clone())).collect();
    let Some(last) = first.iter().rposition(|first| *first) else { return Ok(()) };
    let mut left = first.iter().filter(|first| **first).count() as u32;
    let energy = ItemEnergy::begin(target.energy);
    let budget = Budget::new(sampling);
    let (cache_flush, load) = (CacheFlush::of(graph), MachineLoad::start());
    let mut table: HashMap<TensorId, TensorData> = graph.inputs().zip(target.inputs.iter().cloned()).collect();
    let (last_use, parts) = (last_uses(graph, items), Parts::of(graph));
    for (index, item) in items.iter().enumerate().take(last + 1) {
        if (target.is_cancelled)() {
            return Ok(());
        }
        let part = parts.cut(&item.operators);
        let need = target.item_bytes(item);
        let computed = target.check_memory(need).and_then(|()| operands(&part, &table)).and_then(|inputs| {
            let whole = |t: TensorId| part.whole_tensor[t.0 as usize];
            let parameter = |t: TensorId| (target.parameter)(whole(t));
            let mut loaded = target.engine.load(&part.graph, &parameter)?;
            if !first[index] {
                return Ok((loaded.run(&inputs)?, None));
            }
            let copy = target.warm_up_copy(&part.graph, &parameter, &inputs, need);
            let until = budget.deadline(left);
            let preparation = Some(CachePreparation { flush: &cache_flush, copy });
            let (outputs, cost) =
                target.sample(&mut *loaded, &inputs, sampling, until, preparation, energy.as_ref())?;
            Ok((outputs, cost.map(|cost| Cost { conditions: Conditions::now(&load), ..cost })))
        });
        let (outputs, cost) = match computed {
            Ok((outputs, cost)) => (outputs, cost.map(Ok)),
            // What follows would fail too, which says nothing of its items.
            Err(error @ EngineError::DeviceLost(_)) => return Err(error),
            Err(error) => {
                let fits = target.check_memory(need).is_ok();
                let outputs = if fits { generated(&part) } else { Vec::new() };
                (outputs, first[index].then(|| Err(error.to_string())))
            }
        };
        if let Some(cost) = cost {
            left -= 1;
            if each(Measurement { item: index, cost }).is_break() {
                return Ok(());
            }
        }
        let made = part.graph.outputs.iter().map(|t| part.whole_tensor[t.0 as usize]);
        table.extend(made.zip(outputs));
        table.retain(|id, _| last_use.get(id).is_some_and(|use_| *use_ > index));
    }
    Ok(())
}

/// Measures every item in context, while the whole model runs; each is reported once it has enough samples.
///
/// # Errors
/// If any item cannot be computed.
pub fn in_situ(
    target: &ProfileTarget<'_>,
    sampling: &Sampling,
    each: &mut OnMeasurement<'_>,
) -> Result<(), EngineError> {
    target.check_memory(target.graph_bytes())?;
    let groups: Vec<Vec<OperatorId>> = target.items.iter().map(|item| item.operators.clone()).collect();
    let mut model = target.engine.load_steps(target.graph, &groups, target.parameter)?;
    let threads = target.engine.threads();
    let mut samples: Vec<Samples> = groups.iter().map(|_| Samples::new(threads, target.engine.quota())).collect();
    while model.learn() {}
    let mut outputs = model.run_in_steps(target.inputs.to_vec(), &mut |_, _| {})?;
    let (until, load) = (Budget::new(sampling).deadline(1), MachineLoad::start());
    let mut left: Vec<usize> = (0..groups.len()).collect();
    while !left.is_empty() && !(target.is_cancelled)() {
        outputs = model.run_in_steps(model.next_inputs(target.inputs, outputs), &mut |index, sample| {
            if let Some(samples) = samples.get_mut(index) {
                samples.add(sample, threads);
            }
        })?;
        // Items whose results are unused have no step and get no sample.
        let is_done = |index: &mut usize| samples[*index].is_empty() || samples[*index].enough(sampling, until);
        for index in left.extract_if(.., is_done) {
            let cost = samples[index].cost(target.items[index].parameter_bytes);
            let cost = cost.map(|cost| Cost { conditions: Conditions::now(&load), ..cost });
            let cost = cost.ok_or_else(|| "its result is unused".to_string());
            if each(Measurement { item: index, cost }).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Measures the model as a whole, as `run` executes it. If the graph is a part of a larger model, `flush` is the size of
/// that model's working set, which is flushed from the caches before every sample.
///
/// # Errors
/// If the model cannot be computed.
pub fn whole_model(target: &ProfileTarget<'_>, sampling: &Sampling, flush: Option<Bytes>) -> Result<Cost, EngineError> {
    target.check_memory(target.graph_bytes())?;
    let mut model = target.engine.load(target.graph, target.parameter)?;
    let cache_flush = flush.map(CacheFlush::new);
    let preparation = cache_flush.as_ref().map(|flush| {
        let copy = target.warm_up_copy(target.graph, target.parameter, target.inputs, target.graph_bytes());
        CachePreparation { flush, copy }
    });
    let energy = ItemEnergy::begin(target.energy);
    let (until, load) = (Budget::new(sampling).deadline(1), MachineLoad::start());
    let (_, cost) = target.sample(&mut *model, target.inputs, sampling, until, preparation, energy.as_ref())?;
    cost.map(|cost| Cost { conditions: Conditions::now(&load), ..cost })
        .ok_or_else(|| EngineError::Other("no sample was taken".to_string()))
}

/// Brings the caches into the state of a running model before each sample.
struct CachePreparation<'a> {
    flush: &'a CacheFlush,
    copy: Option<WarmUpCopy<'a>>,
}

impl CachePreparation<'_> {
    /// Flushes the caches and runs the copy. A copy that fails is dropped: the item itself may not.
    fn run(&mut self) -> Result<(), EngineError> {
        self.flush.flush();
        match self.copy.as_mut().map(WarmUpCopy::run) {
            Some(Err(error @ EngineError::DeviceLost(_))) => Err(error),
            Some(Err(_)) => {
                self.copy = None;
                Ok(())
            }
            Some(Ok(())) | None => Ok(()),
        }
    }
}

impl ProfileTarget<'_> {
    /// Warms up, takes samples until there are enough, then measures the energy. Returns the outputs of the last sample and the
    /// cost.
    fn sample(
        &self,
        model: &mut dyn Executable,
        inputs: &[TensorData],
        sampling: &Sampling,
        until: Instant,
        mut preparation: Option<CachePreparation<'_>>,
        energy: Option<&ItemEnergy<'_>>,
    ) -> Result<(Vec<TensorData>, Option<Cost>), EngineError> {
        let share = until.saturating_duration_since(Instant::now());
        let sampled_until = until - energy.map_or(Duration::ZERO, |energy| energy.time(share));
        let (mut outputs, _) = model.run_measured(inputs.to_vec())?;
        if Instant::now() < sampled_until {
            (outputs, _) = model.run_measured(model.next_inputs(inputs, outputs))?;
        }
        let threads = self.engine.threads();
        let mut samples = Samples::new(threads, self.engine.quota());
        while !samples.enough(sampling, sampled_until) && !(self.is_cancelled)() {
            if let Some(preparation) = &mut preparation {
                preparation.run()?;
            }
            let (made, sample) = model.run_measured(model.next_inputs(inputs, outputs))?;
            outputs = made;
            samples.add(sample, threads);
        }
        let mut cost = samples.cost(model.parameter_bytes());
        if let (Some(cost), Some(energy)) = (&mut cost, energy) {
            cost.energy = energy.measure(model, inputs, cost.time.median, until, self.is_cancelled)?;
        }
        Ok((outputs, cost))
    }
}

/// The remaining time, divided equally among the remaining items.
struct Budget {
    end: Instant,
}

impl Budget {
    fn new(sampling: &Sampling) -> Budget {
        Budget { end: Instant::now() + sampling.duration() }
    }

    /// When to stop measuring the next of `left` items.
    fn deadline(&self, left: u32) -> Instant {
        let now = Instant::now();
        now + self.end.saturating_duration_since(now) / left.max(1)
    }
}

/// The operands of a part: computed values, else generated ones.
fn operands(part: &Part, table: &HashMap<TensorId, TensorData>) -> Result<Vec<TensorData>, EngineError> {
    let known = |id: TensorId| table.get(&part.whole_tensor[id.0 as usize]).cloned();
    if let Some(all) = part.graph.inputs().map(known).collect() {
        return Ok(all);
    }
    let generated = GeneratedContents::of(&part.graph);
    let content = |id: TensorId| known(id).map_or_else(|| generated.get(id), Ok);
    part.graph.inputs().map(content).collect()
}

/// Generated contents for the outputs of a part that cannot be computed; stops at the first that cannot be generated.
fn generated(part: &Part) -> Vec<TensorData> {
    let made = part.graph.outputs.iter().map(|id| part.graph.tensor(*id));
    made.map_while(|tensor| values::seeded(&tensor.name, &tensor.ty).ok()).collect()
}

/// For every tensor the last item that uses it.
fn last_uses(graph: &Graph, items: &[Item]) -> HashMap<TensorId, usize> {
    let mut found = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        for operator in &item.operators {
            found.extend(graph.operator(*operator).operands().map(|tensor| (tensor, index)));
        }
    }
    found
}
