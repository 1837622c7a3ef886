//! The simulation of a placement that changes move by move: only what can come out differently is simulated again.
//!
//! A move changes nothing before the first instant at which one of its groups could start, or could have let another
//! start. What was going on then follows from the times of the last simulation, so it goes on from there, with the
//! same rules as [`simulate`](crate::plan::simulate): the times are the same to the last bit. A move that turns out
//! too bad is given up as soon as that is certain, and taken back from a log.

use std::collections::BinaryHeap;

use smallvec::SmallVec;

use super::Whole;
use crate::plan::{DeviceId, GroupId, Problem, TensorIndex, at::At, bound::critical::Tails, problem::LinkId};

const NEVER: f64 = f64::INFINITY;

/// A placement with the times of everything in it.
pub struct Replay<'a> {
    problem: &'a Problem,
    tails: &'a Tails,
    readers: Vec<Vec<GroupId>>,
    /// By group: its device, and a number that grows along the order.
    devices: Vec<DeviceId>,
    ranks: Vec<u64>,
    /// By device: its groups in order.
    sequences: Vec<Vec<GroupId>>,
    starts: Vec<f64>,
    finishes: Vec<f64>,
    /// By tensor: what is sent of it.
    copies: Vec<Copies>,
    loads: Vec<f64>,
    link_loads: Vec<f64>,
    makespan: f64,
    log: Log,
    sim: Simulation,
}

type Copies = SmallVec<[Copy; 2]>;

/// A tensor on a device that did not make it.
#[derive(Debug, Clone, PartialEq)]
struct Copy {
    device: DeviceId,
    link: Option<LinkId>,
    /// Groups there that read it; one more if it is a result that must be there.
    readers: u32,
    /// When it takes hold of its link, and when it is there.
    birth: f64,
    arrival: f64,
    /// The simulation that went on with it last.
    seen: u64,
}

/// What the last change overwrote.
#[derive(Default)]
struct Log {
    /// The instant before which nothing changes.
    since: f64,
    makespan: f64,
    placed: Vec<(GroupId, DeviceId, u64)>,
    times: Vec<(GroupId, f64, f64)>,
    copies: Vec<(TensorIndex, Copies)>,
    /// By tensor: whether it is in `copies`.
    saved: Vec<bool>,
}

/// What is going on at the instant that is simulated.
struct Simulation {
    number: u64,
    events: BinaryHeap<At<Event>>,
    /// By device: how many of its groups have been started, and whether one is running.
    next: Vec<usize>,
    busy: Vec<bool>,
    /// By group: operands that are not there yet.
    missing: Vec<u32>,
    /// By link: transfers that wait, by time of asking, tensor, receiver.
    queues: Vec<BinaryHeap<At<(TensorIndex, DeviceId)>>>,
    link_busy: Vec<bool>,
}

/// As in [`simulate`](crate::plan::simulate); of one instant's events only the kind decides what comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Finish(GroupId),
    Arrive(TensorIndex, DeviceId),
    Serve(LinkId),
}

/// One group's new place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    pub group: GroupId,
    pub device: DeviceId,
    /// Between those of the groups that it reads and those that read it.
    pub rank: u64,
}

impl<'a> Replay<'a> {
    /// Simulates `whole`, whose groups must all be able to run where it has them, in a topological order.
    pub fn new(problem: &'a Problem, tails: &'a Tails, whole: &Whole) -> Replay<'a> {
        let (groups, devices, links) = (problem.groups.len(), problem.devices.len(), problem.links.len());
        let mut ranks = vec![0; groups];
        let mut sequences = vec![Vec::new(); devices];
        for (place, group) in (1u64..).zip(&whole.order) {
            ranks[group.0 as usize] = place << 32;
            sequences[whole.devices[group.0 as usize].0 as usize].push(*group);
        }
        let mut replay = Replay {
            problem,
            tails,
            readers: problem.consumers(),
            devices: whole.devices.clone(),
            ranks,
            sequences,
            starts: vec![NEVER; groups],
            finishes: vec![NEVER; groups],
            copies: vec![Copies::new(); problem.tensors.len()],
            loads: vec![0.0; devices],
            link_loads: vec![0.0; links],
            makespan: 0.0,
            log: Log { saved: vec![false; problem.tensors.len()], ..Log::default() },
            sim: Simulation {
                number: 0,
                events: BinaryHeap::new(),
                next: vec![0; devices],
                busy: vec![false; devices],
                missing: vec![0; groups],
                queues: (0..links).map(|_| BinaryHeap::new()).collect(),
                link_busy: vec![false; links],
            },
        };
        for group in problem.group_ids() {
            replay.load(group, 1.0);
        }
        for tensor in problem.tensor_ids() {
            replay.send(tensor);
        }
        replay.simulate(NEVER);
        replay.log.clear();
        replay
    }

    pub fn makespan(&self) -> f64 {
        self.makespan
    }

    /// The largest load of any device or link; sums that are kept move by move drift by rounding.
    pub fn interval(&self) -> f64 {
        self.loads.iter().chain(&self.link_loads).fold(0.0, |a: f64, b| a.max(*b))
    }

    pub fn device(&self, group: GroupId) -> DeviceId {
        self.devices[group.0 as usize]
    }

    pub fn rank(&self, group: GroupId) -> u64 {
        self.ranks[group.0 as usize]
    }

    /// The groups that must come before `group`, and those that must come after it.
    pub fn around(&self, group: GroupId) -> (impl Iterator<Item = GroupId> + '_, impl Iterator<Item = GroupId> + '_) {
        let row = self.problem.group(group);
        let before = row.inputs.iter().filter_map(|tensor| self.problem.tensor(*tensor).producer);
        (before, row.outputs.iter().flat_map(|tensor| self.readers[tensor.0 as usize].iter().copied()))
    }

    /// The placement as it is now.
    pub fn whole(&self) -> Whole {
        let mut order: Vec<GroupId> = self.problem.group_ids().collect();
        order.sort_by_key(|group| self.key(*group));
        Whole { devices: self.devices.clone(), order }
    }

    /// Groups that each kept the next one waiting, from the last to finish back to the first.
    pub fn critical(&self) -> Vec<GroupId> {
        let mut chain = Vec::new();
        let last = self.problem.group_ids().max_by(|a, b| self.finished(*a).total_cmp(&self.finished(*b)));
        let mut at = last;
        while let Some(group) = at {
            chain.push(group);
            let start = self.starts[group.0 as usize];
            let sequence = &self.sequences[self.device(group).0 as usize];
            let place = sequence.partition_point(|other| self.key(*other) < self.key(group));
            let before = place.checked_sub(1).map(|place| sequence[place]).filter(|g| self.finished(*g) >= start);
            let latest = |t: &&TensorIndex| self.arrival(**t, self.device(group));
            let operand = self.problem.group(group).inputs.iter().max_by(|a, b| latest(a).total_cmp(&latest(b)));
            at = before.or_else(|| operand.and_then(|tensor| self.problem.tensor(*tensor).producer));
        }
        chain
    }

    /// Places the groups anew, without simulating; each change must be possible.
    pub fn apply(&mut self, changes: &[Change]) {
        self.log.clear();
        self.log.makespan = self.makespan;
        self.log.since = changes.iter().map(|change| self.earliest(change)).fold(NEVER, f64::min);
        for change in changes {
            self.log.placed.push((change.group, self.device(change.group), self.rank(change.group)));
            self.place(*change);
        }
    }

    /// The makespan after the changes that were last applied; `None` as soon as it is certain to be above `limit`,
    /// which leaves the times half done: the changes must then be taken back.
    pub fn simulate(&mut self, limit: f64) -> Option<f64> {
        self.resume();
        while let Some(At(now, event)) = self.sim.events.pop() {
            self.makespan = self.makespan.max(now);
            let in_time = now <= limit
                && match event {
                    Event::Finish(group) => self.finish(group, now, limit),
                    Event::Arrive(tensor, device) => self.arrive(tensor, device, now, limit),
                    Event::Serve(link) => {
                        self.serve(link, now);
                        true
                    }
                };
            if !in_time {
                return None;
            }
        }
        Some(self.makespan)
    }

    /// Takes back the changes that were last applied, simulated or not.
    pub fn undo(&mut self) {
        for (group, device, rank) in std::mem::take(&mut self.log.placed).into_iter().rev() {
            self.place(Change { group, device, rank });
        }
        for (group, start, finish) in self.log.times.drain(..) {
            (self.starts[group.0 as usize], self.finishes[group.0 as usize]) = (start, finish);
        }
        for (tensor, copies) in self.log.copies.drain(..) {
            self.copies[tensor.0 as usize] = copies;
            self.log.saved[tensor.0 as usize] = false;
        }
        self.makespan = self.log.makespan;
    }

    fn key(&self, group: GroupId) -> (u64, GroupId) {
        (self.ranks[group.0 as usize], group)
    }

    fn finished(&self, group: GroupId) -> f64 {
        self.finishes[group.0 as usize]
    }

    /// When a tensor is where it is made, and where that is.
    fn home(&self, tensor: TensorIndex) -> (DeviceId, f64) {
        let producer = self.problem.tensor(tensor).producer;
        producer.map_or((self.problem.source, 0.0), |producer| (self.device(producer), self.finished(producer)))
    }

    /// When a tensor can be read on a device.
    fn arrival(&self, tensor: TensorIndex, device: DeviceId) -> f64 {
        let (home, made) = self.home(tensor);
        if home == device {
            return made;
        }
        let copy = self.copies[tensor.0 as usize].iter().find(|copy| copy.device == device);
        copy.map_or(NEVER, |copy| copy.arrival)
    }

    /// The first instant at which a change could make a difference.
    fn earliest(&self, change: &Change) -> f64 {
        let made = self.problem.group(change.group).inputs.iter().map(|tensor| self.home(*tensor).1);
        let before = |device: DeviceId, key: (u64, GroupId)| {
            let sequence = &self.sequences[device.0 as usize];
            let place = sequence.partition_point(|group| self.key(*group) < key);
            place.checked_sub(1).map_or(0.0, |place| self.finished(sequence[place]))
        };
        let leaving = before(self.device(change.group), self.key(change.group));
        made.fold(leaving.min(before(change.device, (change.rank, change.group))), f64::min)
    }

    fn place(&mut self, change: Change) {
        let Change { group, device, rank } = change;
        let (from, key) = (self.device(group), self.key(group));
        let place = self.sequences[from.0 as usize].partition_point(|other| self.key(*other) < key);
        self.sequences[from.0 as usize].remove(place);
        self.load(group, -1.0);
        let problem = self.problem;
        let row = problem.group(group);
        if from != device {
            for &tensor in &row.inputs {
                self.save(tensor);
                self.read(tensor, from, -1);
            }
        }
        self.devices[group.0 as usize] = device;
        self.ranks[group.0 as usize] = rank;
        let key = self.key(group);
        let place = self.sequences[device.0 as usize].partition_point(|other| self.key(*other) < key);
        self.sequences[device.0 as usize].insert(place, group);
        self.load(group, 1.0);
        if from != device {
            row.inputs.iter().for_each(|tensor| self.read(*tensor, device, 1));
            for &tensor in &row.outputs {
                self.save(tensor);
                self.send(tensor);
            }
        }
    }

    fn load(&mut self, group: GroupId, sign: f64) {
        let device = self.device(group);
        let time = self.problem.cost(group, device).map_or(0.0, |cost| cost.time.0);
        self.loads[device.0 as usize] += sign * time;
    }

    fn save(&mut self, tensor: TensorIndex) {
        if !std::mem::replace(&mut self.log.saved[tensor.0 as usize], true) {
            self.log.copies.push((tensor, self.copies[tensor.0 as usize].clone()));
        }
    }

    /// One reader more or less of a tensor on a device.
    fn read(&mut self, tensor: TensorIndex, device: DeviceId, change: i32) {
        let (home, _) = self.home(tensor);
        if home == device {
            return;
        }
        let copies = &mut self.copies[tensor.0 as usize];
        let at = copies.iter().position(|copy| copy.device == device).unwrap_or(copies.len());
        if at == copies.len() {
            let link = self.problem.route(home, device);
            copies.push(Copy { device, link, readers: 0, birth: NEVER, arrival: NEVER, seen: 0 });
            self.charge(tensor, link, 1.0);
        }
        let copy = &mut self.copies[tensor.0 as usize][at];
        copy.readers = copy.readers.saturating_add_signed(change);
        if copy.readers == 0 {
            let link = copy.link;
            self.copies[tensor.0 as usize].remove(at);
            self.charge(tensor, link, -1.0);
        }
    }

    fn charge(&mut self, tensor: TensorIndex, link: Option<LinkId>, sign: f64) {
        if let Some(link) = link {
            let time = self.problem.link(link).time(self.problem.tensor(tensor).bytes).0;
            self.link_loads[link.0 as usize] += sign * time;
        }
    }

    /// Lists anew what is sent of a tensor.
    fn send(&mut self, tensor: TensorIndex) {
        for copy in std::mem::take(&mut self.copies[tensor.0 as usize]) {
            self.charge(tensor, copy.link, -1.0);
        }
        for reader in 0..self.readers[tensor.0 as usize].len() {
            let device = self.device(self.readers[tensor.0 as usize][reader]);
            self.read(tensor, device, 1);
        }
        if self.problem.tensor(tensor).is_output {
            self.read(tensor, self.problem.sink, 1);
        }
    }

    /// Puts the simulation at the instant before which nothing changes.
    fn resume(&mut self) {
        let (problem, since) = (self.problem, self.log.since);
        self.sim.events.clear();
        self.sim.queues.iter_mut().for_each(BinaryHeap::clear);
        self.sim.link_busy.fill(false);
        self.sim.number += 1;
        self.makespan = since.min(self.makespan);
        for device in 0..problem.devices.len() {
            let sequence = std::mem::take(&mut self.sequences[device]);
            let begun = sequence.partition_point(|group| self.starts[group.0 as usize] < since);
            self.sim.next[device] = begun;
            let running =
                begun.checked_sub(1).map(|last| sequence[last]).filter(|group| self.finished(*group) >= since);
            self.sim.busy[device] = running.is_some();
            self.sim.events.extend(running.map(|group| At(self.finished(group), Event::Finish(group))));
            for &group in &sequence[begun..] {
                let at = group.0 as usize;
                self.log.times.push((group, self.starts[at], self.finishes[at]));
                (self.starts[at], self.finishes[at]) = (NEVER, NEVER);
            }
            self.sequences[device] = sequence;
        }
        for device in problem.device_ids() {
            for place in self.sim.next[device.0 as usize]..self.sequences[device.0 as usize].len() {
                let group = self.sequences[device.0 as usize][place];
                let mut missing = 0;
                for &tensor in &problem.group(group).inputs {
                    missing += u32::from(self.awaited(tensor, device, since));
                }
                self.sim.missing[group.0 as usize] = missing;
            }
        }
        for tensor in problem.tensor_ids().filter(|tensor| problem.tensor(*tensor).is_output) {
            self.awaited(tensor, problem.sink, since);
        }
        if since <= 0.0 {
            let inputs = problem.tensor_ids().filter(|tensor| problem.tensor(*tensor).producer.is_none());
            self.sim.events.extend(inputs.map(|tensor| At(0.0, Event::Arrive(tensor, problem.source))));
            for device in 0..problem.devices.len() {
                self.start_next(device, 0.0, NEVER);
            }
        }
    }

    /// Whether a tensor is not on a device at the instant `since`. If it is on its way or waits to be, it goes on so.
    fn awaited(&mut self, tensor: TensorIndex, device: DeviceId, since: f64) -> bool {
        let (home, made) = self.home(tensor);
        if home == device {
            return made >= since;
        }
        let copies = &self.copies[tensor.0 as usize];
        let Some(at) = copies.iter().position(|copy| copy.device == device) else { return true };
        let Copy { link, birth, arrival, seen, .. } = copies[at];
        if arrival < since || seen == self.sim.number {
            return arrival >= since;
        }
        self.save(tensor);
        let copy = &mut self.copies[tensor.0 as usize][at];
        copy.seen = self.sim.number;
        if birth < since {
            if let Some(link) = link {
                self.sim.link_busy[link.0 as usize] = true;
            }
            self.sim.events.push(At(arrival, Event::Arrive(tensor, device)));
        } else {
            (copy.birth, copy.arrival) = (NEVER, NEVER);
            if made < since
                && let Some(link) = link
            {
                self.sim.queues[link.0 as usize].push(At(made, (tensor, device)));
            }
        }
        true
    }

    /// False if what is started cannot be followed by the rest within `limit`.
    fn start_next(&mut self, device: usize, now: f64, limit: f64) -> bool {
        let Some(&group) = self.sequences[device].get(self.sim.next[device]) else { return true };
        if self.sim.busy[device] || self.sim.missing[group.0 as usize] > 0 {
            return true;
        }
        let device = DeviceId(device as u32);
        self.sim.busy[device.0 as usize] = true;
        self.sim.next[device.0 as usize] += 1;
        let finish = now + self.problem.cost(group, device).map_or(NEVER, |cost| cost.time.0);
        self.starts[group.0 as usize] = now;
        self.finishes[group.0 as usize] = finish;
        self.sim.events.push(At(finish, Event::Finish(group)));
        finish + self.tails.after(group, device) <= limit
    }

    fn finish(&mut self, group: GroupId, now: f64, limit: f64) -> bool {
        let (problem, device) = (self.problem, self.device(group));
        self.sim.busy[device.0 as usize] = false;
        let mut in_time = true;
        for &output in &problem.group(group).outputs {
            in_time &= self.arrive(output, device, now, limit);
        }
        self.start_next(device.0 as usize, now, limit) && in_time
    }

    /// A tensor is on a device now: there is where it was made, or was sent to.
    fn arrive(&mut self, tensor: TensorIndex, device: DeviceId, now: f64, limit: f64) -> bool {
        let (home, _) = self.home(tensor);
        if home == device {
            self.ask(tensor, now);
        } else if let Some(at) = self.copies[tensor.0 as usize].iter().position(|copy| copy.device == device) {
            self.save(tensor);
            let copy = &mut self.copies[tensor.0 as usize][at];
            copy.arrival = now;
            match copy.link {
                Some(link) => {
                    self.sim.link_busy[link.0 as usize] = false;
                    self.sim.events.push(At(now, Event::Serve(link)));
                }
                None => copy.birth = now,
            }
        }
        for reader in 0..self.readers[tensor.0 as usize].len() {
            let reader = self.readers[tensor.0 as usize][reader];
            if self.device(reader) == device {
                let missing = &mut self.sim.missing[reader.0 as usize];
                *missing = missing.saturating_sub(1);
            }
        }
        self.start_next(device.0 as usize, now, limit)
    }

    /// Asks for all transfers of a tensor that has been made.
    fn ask(&mut self, tensor: TensorIndex, now: f64) {
        for copy in &self.copies[tensor.0 as usize] {
            match copy.link {
                None => self.sim.events.push(At(now, Event::Arrive(tensor, copy.device))),
                Some(link) => {
                    self.sim.queues[link.0 as usize].push(At(now, (tensor, copy.device)));
                    if !self.sim.link_busy[link.0 as usize] {
                        self.sim.events.push(At(now, Event::Serve(link)));
                    }
                }
            }
        }
    }

    fn serve(&mut self, link: LinkId, now: f64) {
        if self.sim.link_busy[link.0 as usize] {
            return;
        }
        let Some(At(_, (tensor, device))) = self.sim.queues[link.0 as usize].pop() else { return };
        self.sim.link_busy[link.0 as usize] = true;
        self.save(tensor);
        if let Some(copy) = self.copies[tensor.0 as usize].iter_mut().find(|copy| copy.device == device) {
            copy.birth = now;
        }
        let end = now + self.problem.link(link).time(self.problem.tensor(tensor).bytes).0;
        self.sim.events.push(At(end, Event::Arrive(tensor, device)));
    }
}

impl Log {
    fn clear(&mut self) {
        self.since = 0.0;
        self.placed.clear();
        self.times.clear();
        for (tensor, _) in self.copies.drain(..) {
            self.saved[tensor.0 as usize] = false;
        }
    }
}
