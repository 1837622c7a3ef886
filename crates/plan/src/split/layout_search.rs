//! The plan that the search for splits starts from: dynamic programming over the groups in program order.
//!
//! A state is where the tensors that later groups read are: whole on some devices, in shards along an axis, or as partial
//! sums (what Alpa and FlexFlow call layouts). For each group every option to split it is tried, and every device as a
//! whole. A transition advances the clocks of devices and links as the simulation does: what a shard reads and its device
//! lacks is sent when it is computed. Of states alike in their layouts the one that is done first is kept, and of all of
//! them the [`WIDTH`] that are done first.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    rc::Rc,
};

use super::placed::Assignment;
use crate::{
    problem::{
        DeviceId,
        activation::{Activation, activations},
    },
    request::{
        PlanRequest,
        choice::{Choice, Choices, Halo},
        costs::Shard,
        instance::Instance,
        split_option::{Read, ResultLayout},
    },
};
use edgecut_graph::{StateTensors, TensorId, units::Bytes};
use edgecut_ops::{is_view, split::ShardedAxis};

/// Most states that are kept between two groups.
const WIDTH: usize = 48;

/// The plan over `devices` that is done first, of those in which a split group is shared by the devices in the ratio of
/// their numbers in `devices`. `None` if some group runs on none of them, or the request is to stop.
pub(super) fn layout_search(request: &PlanRequest<'_>, devices: &[(DeviceId, f64)]) -> Option<Assignment> {
    let instance = &*request.instance;
    let table = Table::of(instance, devices);
    let mut states = vec![State::initial(&table)];
    for group in 0..instance.split_options.groups.len() {
        if request.goal.search.stop.is_requested() {
            return None;
        }
        if instance.split_options.is_constant_group(group) {
            states.iter_mut().for_each(|state| state.skip(&table));
            continue;
        }
        let schemes = table.schemes(group);
        let mut next: HashMap<Vec<(TensorId, Layout)>, State> = HashMap::new();
        for (state, scheme) in states.iter().flat_map(|state| schemes.iter().map(move |scheme| (state, scheme))) {
            let Some(found) = state.after(&table, group, scheme) else { continue };
            let key: Vec<(TensorId, Layout)> =
                found.tensors.iter().map(|(t, held)| (*t, held.layout.clone())).collect();
            match next.get(&key) {
                Some(known) if known.rank() <= found.rank() => {}
                _ => drop(next.insert(key, found)),
            }
        }
        let mut kept: Vec<_> = next.into_iter().collect();
        kept.sort_by(|(a_key, a), (b_key, b)| a.rank().total_cmp(&b.rank()).then_with(|| a_key.cmp(b_key)));
        kept.truncate(WIDTH);
        states = kept.into_iter().map(|(_, state)| state).collect();
    }
    let best = states.into_iter().next()?;
    Some(best.assignment(instance))
}

/// What does not change during the search.
struct Table<'r, 'a> {
    instance: &'r Instance<'a>,
    devices: &'r [(DeviceId, f64)],
    /// Inputs and outputs that stay with the only group that reads and computes them.
    of_states: HashSet<TensorId>,
    /// By tensor: the number of the last group that reads it.
    last_read: HashMap<TensorId, usize>,
    /// By tensor: its size, if links may carry it in another format.
    activations: Vec<Option<Activation>>,
    source: usize,
    sink: usize,
}

/// One way to compute a group.
struct Scheme {
    choice: Option<Choice>,
    /// By device, as an index into those of the table: how long it computes; `None` if it does not.
    times: Vec<Option<f64>>,
    /// What devices read of tensors that are no weights.
    reads: Vec<(TensorId, Vec<Option<Read>>)>,
    outputs: Vec<(TensorId, Layout)>,
}

/// Where a tensor is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Layout {
    /// The set of devices that have all of it, a bit each.
    whole: u64,
    parts: Parts,
}

/// What other devices have of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Parts {
    Nothing,
    /// A range of an axis each.
    Ranges {
        side: ShardedAxis,
        ranges: Rc<[(u64, u64)]>,
    },
    /// Partial sums, on the devices of this set.
    Sums(u64),
}

/// A tensor in a state.
#[derive(Debug, Clone)]
struct Held {
    layout: Layout,
    /// By device: when it has it, or its part.
    ready: Vec<f64>,
}

#[derive(Debug, Clone)]
struct State {
    /// Those that are read later.
    tensors: BTreeMap<TensorId, Held>,
    /// By device: when it is done.
    clocks: Vec<f64>,
    /// By pair of devices: when the link is free.
    links: Vec<f64>,
    /// When the results computed so far are at the sink.
    results: f64,
    /// The groups so far, the last one first.
    chosen: Option<Rc<Chosen>>,
}

#[derive(Debug)]
struct Chosen {
    choice: Option<Choice>,
    device: DeviceId,
    before: Option<Rc<Chosen>>,
}

impl Drop for Chosen {
    /// One after the other: the list is as long as the model.
    fn drop(&mut self) {
        let mut next = self.before.take();
        while let Some(mut chosen) = next.and_then(Rc::into_inner) {
            next = chosen.before.take();
        }
    }
}

impl<'r, 'a> Table<'r, 'a> {
    fn of(instance: &'r Instance<'a>, devices: &'r [(DeviceId, f64)]) -> Table<'r, 'a> {
        let (options, mut last_read) = (&instance.split_options, HashMap::new());
        for (group, operators) in options.groups.iter().enumerate() {
            let operands = operators.iter().flat_map(|id| options.graph.operator(*id).operands());
            last_read.extend(operands.map(|tensor| (tensor, group)));
        }
        // Inputs and results of another device than those that compute pass through the first one.
        let place = |device: DeviceId| devices.iter().position(|(d, _)| *d == device).unwrap_or_default();
        let (source, sink) = (place(instance.network.source), place(instance.network.sink));
        let activations = activations(options.graph, is_view);
        let states = instance.model.states.iter().filter_map(|pair| options.graph.state(pair).ok());
        let consumers = options.graph.consumers();
        let is_local = |state: &StateTensors| state.is_local(options.graph, &consumers, |id| options.group_of(id));
        let of_states = states.filter(is_local).flat_map(|state| [state.input, state.output]).collect();
        Table { instance, devices, of_states, last_read, activations, source, sink }
    }

    /// The ways to compute a group: whole on each device, and split over as many devices as possible along each axis.
    fn schemes(&self, group: usize) -> Vec<Scheme> {
        let options = &self.instance.split_options;
        let whole = (0..self.devices.len()).filter_map(|place| self.whole(group, place));
        let split = options
            .searched(group)
            .filter_map(|option| (2..=self.devices.len()).rev().find_map(|count| self.split(group, option, count)));
        whole.chain(split).collect()
    }

    fn whole(&self, group: usize, place: usize) -> Option<Scheme> {
        let options = &self.instance.split_options;
        let (device, _) = self.devices[place];
        let cost = (*self.instance.costs[group].get(device.0 as usize)?)?;
        let mut times = vec![None; self.devices.len()];
        times[place] = Some(cost.time.0);
        let operands = options.groups[group].iter().flat_map(|id| options.graph.operator(*id).operands());
        let mut read: Vec<TensorId> = operands.filter(|t| self.is_external(group, *t)).collect();
        read.sort_unstable();
        read.dedup();
        let reads = read.into_iter().map(|tensor| {
            let mut reads = vec![None; self.devices.len()];
            reads[place] = Some(Read::Whole);
            (tensor, reads)
        });
        let reads = reads.collect();
        let layout = Layout { whole: 1 << place, parts: Parts::Nothing };
        let outputs = self.outputs(group).map(|tensor| (tensor, layout.clone())).collect();
        Some(Scheme { choice: None, times, reads, outputs })
    }

    /// Option number `option` of a group over the first `count` devices; `None` if it has no such shards.
    fn split(&self, group: usize, option: usize, count: usize) -> Option<Scheme> {
        let instance = self.instance;
        let able =
            |(device, _): &&(DeviceId, f64)| instance.costs[group].get(device.0 as usize).is_some_and(Option::is_some);
        let devices: Vec<&(DeviceId, f64)> = self.devices.iter().filter(able).take(count).collect();
        if devices.len() < count {
            return None;
        }
        let fractions = devices.iter().map(|(_, fraction)| *fraction).collect();
        let devices = devices.iter().map(|(device, _)| *device).collect();
        let choice = Choice { option, fractions, devices, halo: Halo::Exchanged };
        let (divisions, mut homes) = instance.divided(&Choices::from([(group, choice.clone())]));
        let (axis, homes) = homes.remove(&group)?;
        let places: Vec<usize> =
            homes.iter().filter_map(|(device, _)| self.devices.iter().position(|(d, _)| d == device)).collect();
        let mut times = vec![None; self.devices.len()];
        for (place, (device, share)) in places.iter().zip(&homes) {
            let shard = Shard { share: *share, axis, group: Some(group), ..Shard::default() };
            let costs = instance.shards.costs(instance.split_options.graph, &shard, &instance.costs[group]);
            times[*place] = Some(costs.get(device.0 as usize).copied().flatten()?.time.0);
        }
        let spread = |by_shard: Vec<Read>| {
            let mut reads = vec![None; self.devices.len()];
            let read = places.iter().zip(by_shard).filter(|(_, read)| *read != Read::Nothing);
            read.for_each(|(place, read)| reads[*place] = Some(read));
            reads
        };
        let reads = instance.split_options.reads_of_shards(&instance.split_options.groups[group], &divisions);
        let reads = reads.into_iter().map(|(tensor, by_shard)| (tensor, spread(by_shard))).collect();
        let all = places.iter().fold(0, |set, place| set | 1 << place);
        let (whole, parts) = match &instance.split_option(group, option)?.layout {
            ResultLayout::Replicated => (all, Parts::Nothing),
            ResultLayout::Partial => (0, Parts::Sums(all)),
            ResultLayout::Split(side) => {
                let mut ranges = vec![(0, 0); self.devices.len()];
                let last = divisions.get(instance.split_options.groups[group].last()?)?;
                places.iter().zip(last.ranges()).for_each(|(place, range)| ranges[*place] = (range.start, range.end));
                (0, Parts::Ranges { side: side.clone(), ranges: ranges.into() })
            }
        };
        let layout = Layout { whole, parts };
        let outputs = self.outputs(group).map(|tensor| (tensor, layout.clone())).collect();
        Some(Scheme { choice: Some(choice), times, reads, outputs })
    }

    fn is_external(&self, group: usize, tensor: TensorId) -> bool {
        let options = &self.instance.split_options;
        let inside = options.graph.producer(tensor).is_some_and(|by| options.group_of(by) == Some(group));
        !inside && !options.is_weight(tensor)
    }

    /// The results of a group that later groups or the caller read.
    fn outputs(&self, group: usize) -> impl Iterator<Item = TensorId> {
        let options = &self.instance.split_options;
        let all = options.groups[group].iter().flat_map(|id| options.graph.operator(*id).outputs.iter().copied());
        all.filter(move |tensor| {
            let later = self.last_read.get(tensor).is_some_and(|last| *last > group);
            !options.is_weight(*tensor) && (later || options.graph.outputs.contains(tensor))
        })
    }

    fn bytes(&self, tensor: TensorId) -> f64 {
        self.instance.split_options.graph.tensor(tensor).ty.bytes().map_or(0.0, |bytes| bytes.0 as f64)
    }

    /// Which part of a tensor `length` positions of an axis are.
    fn part(&self, tensor: TensorId, axis: usize, length: u64) -> f64 {
        let shape = &self.instance.split_options.graph.tensor(tensor).ty.shape;
        shape.get(axis).and_then(|d| d.get()).map_or(1.0, |size| length as f64 / size.max(1) as f64)
    }

    /// When `bytes` of a tensor that device `from` has at `ready` are on device `to`; `None` if it cannot send there.
    fn send(&self, links: &mut [f64], tensor: TensorId, [from, to]: [usize; 2], ready: f64, bytes: f64) -> Option<f64> {
        let network = &self.instance.network;
        let index = |place: usize| self.devices[place].0.0 as usize;
        if from == to || bytes <= 0.0 {
            return Some(ready);
        }
        let Some(link) = network.routes.get(index(from) * network.devices.len() + index(to)).copied().flatten() else {
            return (network.devices[index(from)].server == network.devices[index(to)].server).then_some(ready);
        };
        let link = network.links.get(link.0 as usize)?;
        let busy = &mut links[from * self.devices.len() + to];
        let time = match self.activations[tensor.0 as usize] {
            Some(Activation { elements, blocks }) => {
                let share = bytes / self.bytes(tensor).max(1.0);
                let of = |count: u64| (count as f64 * share).ceil() as u64;
                let part = Activation { elements: of(elements), blocks: of(blocks) };
                (link.cost.time(link.coding.format.bytes(part)) + link.coding.time(part)).0
            }
            None => link.cost.time(Bytes(bytes as u64)).0,
        };
        *busy = ready.max(*busy) + time;
        Some(*busy)
    }
}

impl State {
    fn initial(table: &Table<'_, '_>) -> State {
        let count = table.devices.len();
        let layout = Layout { whole: 1 << table.source, parts: Parts::Nothing };
        let held = Held { layout, ready: vec![0.0; count] };
        let read = |tensor: &TensorId| table.last_read.contains_key(tensor) && !table.of_states.contains(tensor);
        State {
            tensors: table.instance.split_options.graph.inputs().filter(read).map(|t| (t, held.clone())).collect(),
            clocks: vec![0.0; count],
            links: vec![0.0; count * count],
            results: 0.0,
            chosen: None,
        }
    }

    /// Leaves out a group that depends on parameters alone: the readers of its results compute them.
    fn skip(&mut self, table: &Table<'_, '_>) {
        let device = table.devices.first().map_or(table.instance.network.source, |(device, _)| *device);
        self.chosen = Some(Rc::new(Chosen { choice: None, device, before: self.chosen.take() }));
    }

    /// When everything so far is done, and a little of when each device is.
    fn rank(&self) -> f64 {
        let latest = self.clocks.iter().fold(self.results, |a, b| a.max(*b));
        latest + 1e-3 * self.clocks.iter().sum::<f64>() / self.clocks.len().max(1) as f64
    }

    /// The state once `group` is computed as `scheme` says; `None` if a device cannot get what it reads.
    fn after(&self, table: &Table<'_, '_>, group: usize, scheme: &Scheme) -> Option<State> {
        let mut next = self.clone();
        let mut starts = next.clocks.clone();
        let mut copied = vec![0.0; starts.len()];
        for (tensor, reads) in &scheme.reads {
            let Some(held) = self.tensors.get(tensor) else { continue };
            let mut gathered = held.clone();
            for (place, read) in reads.iter().enumerate() {
                let Some(read) = read else { continue };
                let (arrival, copies) = next.fetch(table, *tensor, held, place, read)?;
                starts[place] = starts[place].max(arrival);
                copied[place] += copies;
                if *read == Read::Whole {
                    gathered.layout.whole |= 1 << place;
                    gathered.ready[place] = arrival;
                }
            }
            next.tensors.insert(*tensor, gathered);
        }
        let per_byte = table.instance.shards.rule.per_byte;
        for (place, time) in scheme.times.iter().enumerate() {
            if let Some(time) = time {
                next.clocks[place] = starts[place] + copied[place] * per_byte + time;
            }
        }
        next.tensors.retain(|tensor, _| table.last_read.get(tensor).is_some_and(|last| *last > group));
        for (tensor, layout) in &scheme.outputs {
            let held = Held { layout: layout.clone(), ready: next.clocks.clone() };
            if table.instance.split_options.graph.outputs.contains(tensor) && !table.of_states.contains(tensor) {
                let (arrival, _) = next.fetch(table, *tensor, &held, table.sink, &Read::Whole)?;
                next.results = next.results.max(arrival);
            }
            if table.last_read.get(tensor).is_some_and(|last| *last > group) {
                next.tensors.insert(*tensor, held);
            }
        }
        let place = scheme.times.iter().position(Option::is_some)?;
        let (device, before) = (table.devices[place].0, next.chosen.take());
        next.chosen = Some(Rc::new(Chosen { choice: scheme.choice.clone(), device, before }));
        Some(next)
    }

    /// When the device number `place` has what it reads of a tensor, and the bytes that it copies to join its parts.
    fn fetch(
        &mut self,
        table: &Table<'_, '_>,
        tensor: TensorId,
        held: &Held,
        place: usize,
        read: &Read,
    ) -> Option<(f64, f64)> {
        if held.layout.whole & 1 << place != 0 {
            return Some((held.ready[place], 0.0));
        }
        let bytes = table.bytes(tensor);
        let wanted = match read {
            Read::Nothing => 0.0,
            Read::Whole => bytes,
            Read::Range(side, range) => bytes * table.part(tensor, side.axis, range.end - range.start),
        };
        let (mut arrival, mut copied) = (0.0f64, 0.0);
        let mut get = |from: usize, bytes: f64| {
            arrival = arrival.max(table.send(&mut self.links, tensor, [from, place], held.ready[from], bytes)?);
            Some(())
        };
        match &held.layout.parts {
            Parts::Nothing => get(held.layout.whole.trailing_zeros() as usize, wanted)?,
            Parts::Sums(of) => {
                for from in (0..table.devices.len()).filter(|from| of & 1 << from != 0) {
                    get(from, wanted)?;
                    copied += wanted;
                }
            }
            Parts::Ranges { side, ranges } => {
                let mut pieces = 0;
                for (from, (start, end)) in ranges.iter().enumerate() {
                    let piece = match read {
                        Read::Range(along, range) if along == side => {
                            bytes
                                * table.part(
                                    tensor,
                                    side.axis,
                                    range.end.min(*end).saturating_sub(range.start.max(*start)),
                                )
                        }
                        _ => wanted * table.part(tensor, side.axis, end - start),
                    };
                    if piece > 0.0 {
                        pieces += 1;
                        get(from, piece)?;
                    }
                }
                copied = if pieces > 1 { wanted } else { 0.0 };
            }
        }
        Some((arrival, copied))
    }

    fn assignment(self, instance: &Instance<'_>) -> Assignment {
        let groups = instance.split_options.groups.len();
        let mut found = Assignment { choices: Choices::new(), whole: vec![instance.network.source; groups] };
        let mut chosen = self.chosen.as_deref();
        for group in (0..groups).rev() {
            let Some(of) = chosen else { break };
            found.whole[group] = of.device;
            found.choices.extend(of.choice.clone().map(|choice| (group, choice)));
            chosen = of.before.as_deref();
        }
        found
    }
}
