//! The state of incremental simulation: a placement, its times, and the log of the last move.

use std::ops::Range;

use smallvec::SmallVec;

use crate::{
    judge::{bound::critical_path::Tails, event_loop::EventLoop},
    problem::{DeviceId, GroupId, Handling, LinkId, Objective, Problem, TensorIndex, placement::Placement},
};

use edgecut_graph::units::Joules;

/// The time of what has not happened.
pub(super) const NEVER: f64 = f64::INFINITY;
/// Initial ranks are positions shifted left by this, which leaves room between them.
const RANK_SHIFT: u32 = 32;

/// A placement with its simulated times, updated move by move.
pub struct IncrementalSimulator<'a> {
    pub(super) problem: &'a Problem,
    pub(super) tails: &'a Tails,
    pub(super) readers: Vec<Vec<GroupId>>,
    /// By group: its device, and its rank, which increases along the order.
    pub(super) devices: Vec<DeviceId>,
    pub(super) ranks: Vec<u64>,
    /// By device: its groups in order.
    pub(super) sequences: Vec<Vec<GroupId>>,
    pub(super) starts: Vec<f64>,
    pub(super) finishes: Vec<f64>,
    /// By tensor: its copies on other devices.
    pub(super) copies: Vec<Copies>,
    pub(super) loads: Vec<f64>,
    pub(super) link_loads: Vec<f64>,
    pub(super) makespan: f64,
    /// Energy of all groups above idle; zero where energy is not the objective.
    pub(super) above_idle: Joules,
    pub(super) by_energy: bool,
    /// Whether transfers take time of devices that compute.
    pub(super) has_handling: bool,
    pub(super) undo_log: UndoLog,
    /// The number of the last simulation.
    pub(super) number: u64,
    pub(super) events: EventLoop<Self>,
}

pub(super) type Copies = SmallVec<[TensorCopy; 2]>;

/// A copy of a tensor on a device that did not produce it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TensorCopy {
    pub(super) device: DeviceId,
    /// Where it is sent from.
    pub(super) from: DeviceId,
    pub(super) link: Option<LinkId>,
    /// The groups that read it there, plus one for a result on the sink.
    pub(super) readers: u32,
    /// When its transfer begins to occupy the link, and when it ends.
    pub(super) birth: f64,
    pub(super) arrival: f64,
    /// The last simulation that resumed with it.
    pub(super) resumed: u64,
}

/// What the last move overwrote.
#[derive(Default)]
pub(super) struct UndoLog {
    /// The instant before which no time changes.
    pub(super) since: f64,
    pub(super) makespan: f64,
    pub(super) places: Vec<(GroupId, DeviceId, u64)>,
    pub(super) times: Vec<(GroupId, f64, f64)>,
    pub(super) copies: Vec<(TensorIndex, Copies)>,
    /// By tensor: whether it is in `copies`.
    pub(super) saved: Vec<bool>,
}

/// The new device and rank of a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    pub group: GroupId,
    pub device: DeviceId,
    /// Between the ranks of its producers and those of its consumers.
    pub rank: u64,
}

impl<'a> IncrementalSimulator<'a> {
    /// Simulates `placement`, which must be possible.
    pub fn new(problem: &'a Problem, tails: &'a Tails, placement: &Placement) -> IncrementalSimulator<'a> {
        let (groups, devices, links) = (problem.groups.len(), problem.devices.len(), problem.links.len());
        let mut ranks = vec![0; groups];
        let mut sequences = vec![Vec::new(); devices];
        for (position, group) in (1u64..).zip(&placement.order) {
            ranks[group.0 as usize] = position << RANK_SHIFT;
            sequences[placement.devices[group.0 as usize].0 as usize].push(*group);
        }
        let mut simulator = IncrementalSimulator {
            problem,
            tails,
            readers: problem.consumers(),
            devices: placement.devices.clone(),
            ranks,
            sequences,
            starts: vec![NEVER; groups],
            finishes: vec![NEVER; groups],
            copies: vec![Copies::new(); problem.tensors.len()],
            loads: vec![0.0; devices],
            link_loads: vec![0.0; links],
            makespan: 0.0,
            above_idle: Joules::ZERO,
            by_energy: problem.objective == Objective::Energy,
            has_handling: problem.devices.iter().any(|device| device.handling != Handling::default()),
            undo_log: UndoLog { saved: vec![false; problem.tensors.len()], ..UndoLog::default() },
            number: 0,
            events: EventLoop::new(devices, links),
        };
        simulator.events.missing.resize(groups, 0);
        for group in problem.group_ids() {
            simulator.add_load(group, 1.0);
        }
        for tensor in problem.tensor_ids() {
            simulator.rebuild_copies(tensor);
        }
        simulator.simulate(NEVER);
        simulator.undo_log.clear();
        simulator
    }

    /// The makespan in microseconds.
    pub fn makespan(&self) -> f64 {
        self.makespan
    }

    /// The largest load of any device or link in microseconds; updates accumulate rounding.
    pub fn interval(&self) -> f64 {
        self.loads.iter().chain(&self.link_loads).fold(0.0, |a: f64, b| a.max(*b))
    }

    /// The energy of all groups above idle; updates accumulate rounding.
    pub fn above_idle(&self) -> Joules {
        self.above_idle
    }

    pub fn device(&self, group: GroupId) -> DeviceId {
        self.devices[group.0 as usize]
    }

    pub fn rank(&self, group: GroupId) -> u64 {
        self.ranks[group.0 as usize]
    }

    /// The producers and the consumers of `group`.
    pub fn neighbours(
        &self,
        group: GroupId,
    ) -> (impl Iterator<Item = GroupId> + '_, impl Iterator<Item = GroupId> + '_) {
        let row = self.problem.group(group);
        let before = row.inputs.iter().filter_map(|tensor| self.problem.tensor(*tensor).producer);
        (before, row.outputs.iter().flat_map(|tensor| self.readers[tensor.0 as usize].iter().copied()))
    }

    /// The ranks that `group` can take: between its producers and its consumers.
    pub(crate) fn rank_range(&self, group: GroupId) -> Range<u64> {
        let (producers, consumers) = self.neighbours(group);
        let first = producers.map(|other| self.rank(other)).max().unwrap_or(0) + 1;
        let last_rank = (self.problem.groups.len() as u64 + 2) << RANK_SHIFT;
        first..consumers.map(|other| self.rank(other)).min().unwrap_or(last_rank)
    }

    /// The current placement.
    pub fn placement(&self) -> Placement {
        let mut order: Vec<GroupId> = self.problem.group_ids().collect();
        order.sort_by_key(|group| self.key(*group));
        Placement { devices: self.devices.clone(), order }
    }

    /// The critical path: groups of which each delays the next, from the last to finish back to the first.
    pub fn critical_path(&self) -> Vec<GroupId> {
        let mut path = Vec::new();
        let last = self.problem.group_ids().max_by(|a, b| self.finished(*a).total_cmp(&self.finished(*b)));
        let mut at = last;
        while let Some(group) = at {
            path.push(group);
            let start = self.starts[group.0 as usize];
            let sequence = &self.sequences[self.device(group).0 as usize];
            let place = sequence.partition_point(|other| self.key(*other) < self.key(group));
            let before = place.checked_sub(1).map(|place| sequence[place]).filter(|g| self.finished(*g) >= start);
            let latest = |t: &&TensorIndex| self.arrival(**t, self.device(group));
            let operand = self.problem.group(group).inputs.iter().max_by(|a, b| latest(a).total_cmp(&latest(b)));
            at = before.or_else(|| operand.and_then(|tensor| self.problem.tensor(*tensor).producer));
        }
        path
    }

    pub(super) fn key(&self, group: GroupId) -> (u64, GroupId) {
        (self.ranks[group.0 as usize], group)
    }

    pub(super) fn finished(&self, group: GroupId) -> f64 {
        self.finishes[group.0 as usize]
    }

    /// The device that produces a tensor (the source for inputs), and when.
    pub(super) fn home(&self, tensor: TensorIndex) -> (DeviceId, f64) {
        let producer = self.problem.tensor(tensor).producer;
        producer.map_or((self.problem.source, 0.0), |producer| (self.device(producer), self.finished(producer)))
    }

    /// When a tensor can be read on a device.
    pub(super) fn arrival(&self, tensor: TensorIndex, device: DeviceId) -> f64 {
        let (home, produced) = self.home(tensor);
        if home == device {
            return produced;
        }
        let copy = self.copies[tensor.0 as usize].iter().find(|copy| copy.device == device);
        copy.map_or(NEVER, |copy| copy.arrival)
    }
}

impl UndoLog {
    pub(super) fn clear(&mut self) {
        self.since = 0.0;
        self.places.clear();
        self.times.clear();
        for (tensor, _) in self.copies.drain(..) {
            self.saved[tensor.0 as usize] = false;
        }
    }
}
