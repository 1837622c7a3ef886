//! The event loop of the discrete-event simulation by which all plans are compared.
//!
//! A device runs its tasks one at a time in plan order; a directed link carries one transfer at a time, first come first
//! served; devices and links overlap freely. Inputs start on the source, results must arrive at the sink. A transfer is
//! requested when its tensor is produced. Between servers it takes time of a device that computes meanwhile: the task that
//! runs on the sender when it begins, or on the receiver when it ends, ends later by the device's [`Handling`]. Of transfers
//! requested at the same instant the one of the lower tensor goes first, then the one to the lower device.
//!
//! The loop is generic over the [`TaskTables`] that it reads, so that the simulator and the faster evaluators of searches
//! have these rules, and so the same times to the last bit.

use std::{collections::BinaryHeap, iter};

use super::timed_event::TimedEvent;
use crate::problem::{DeviceId, Handling, HandlingCost, LinkId, Problem, TensorIndex};

/// A placement as tasks and replicas of tensors: what the loop reads, and where it records times.
pub(crate) trait TaskTables {
    type Task: Copy + Ord + Into<usize>;
    /// A tensor on one device.
    type Replica: Copy + Ord;

    fn problem(&self) -> &Problem;
    /// The tasks of a device, in order.
    fn sequence(&self, device: DeviceId) -> &[Self::Task];
    /// The device of a task, and how long it takes.
    fn task(&self, task: Self::Task) -> (DeviceId, f64);
    fn outputs(&self, task: Self::Task) -> impl Iterator<Item = Self::Replica>;
    /// The tensor of a replica, the device that it is on, and the one that it is sent from.
    fn replica(&self, replica: Self::Replica) -> (TensorIndex, [DeviceId; 2]);
    /// Tasks that read the replica, all on its device.
    fn readers(&self, replica: Self::Replica) -> impl Iterator<Item = Self::Task>;
    /// Replicas that are sent from this one, with their devices and links; without a link, the transfer is free.
    fn copies(&self, replica: Self::Replica) -> impl Iterator<Item = (Self::Replica, DeviceId, Option<LinkId>)>;

    /// A lower bound on the time from the end of a task to the end of the run.
    fn tail(&self, _: Self::Task) -> f64 {
        0.0
    }
    /// A task starts, and ends at `finish` unless it is prolonged; then it is recorded again.
    fn record_task(&mut self, _: Self::Task, _start: f64, _finish: f64) {}
    /// A transfer begins to occupy its link.
    fn record_departure(&mut self, _: Self::Replica, _now: f64) {}
    /// An input is there, or a copy arrives: over the link that is returned, if not free.
    fn record_arrival(&mut self, replica: Self::Replica, now: f64) -> Option<LinkId>;
}

/// Events; those of one instant happen in the order of the variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event<Task, Replica> {
    Finish(Task),
    /// Of inputs and copies; outputs of a task arrive as it finishes.
    Arrive(Replica),
    /// A link takes its next transfer.
    Serve(LinkId),
}

/// A transfer is known by its tensor and its receiver; they come before the replica that it creates.
type Transfer<Replica> = (TensorIndex, DeviceId, Replica);

/// The state of the simulation.
pub(crate) struct EventLoop<T: TaskTables> {
    pub events: BinaryHeap<TimedEvent<Event<T::Task, T::Replica>>>,
    /// By task: inputs that have not arrived. Whoever runs the loop fills it.
    pub missing: Vec<u32>,
    /// By device: the position of the next task in its sequence.
    pub next: Vec<usize>,
    /// By device: when its task began, if one is running.
    pub running: Vec<Option<f64>>,
    /// By device: what transfers have taken of the task that is running, which it still has to make up for.
    owed: Vec<f64>,
    /// By link: waiting transfers, by time of request, tensor, receiver.
    pub queues: Vec<BinaryHeap<TimedEvent<Transfer<T::Replica>>>>,
    pub link_busy: Vec<bool>,
}

impl<T: TaskTables> EventLoop<T> {
    pub fn new(devices: usize, links: usize) -> EventLoop<T> {
        EventLoop {
            events: BinaryHeap::new(),
            missing: Vec::new(),
            next: vec![0; devices],
            running: vec![None; devices],
            owed: vec![0.0; devices],
            queues: iter::repeat_with(BinaryHeap::new).take(links).collect(),
            link_busy: vec![false; links],
        }
    }

    /// Back to before anything happens.
    pub fn reset(&mut self) {
        self.events.clear();
        self.next.fill(0);
        self.running.fill(None);
        self.owed.fill(0.0);
        self.queues.iter_mut().for_each(BinaryHeap::clear);
        self.link_busy.fill(false);
    }

    /// The inputs arrive at zero, and devices start tasks that need none.
    pub fn start(&mut self, tables: &mut T, inputs: impl Iterator<Item = T::Replica>) {
        self.events.extend(inputs.map(|input| TimedEvent(0.0, Event::Arrive(input))));
        for device in (0..self.next.len() as u32).map(DeviceId) {
            self.start_next(tables, device, 0.0, f64::INFINITY);
        }
    }

    /// When the last event happens, 0 without any; `None` as soon as it is certain to exceed `limit`. The recorded times are
    /// then incomplete.
    pub fn run(&mut self, tables: &mut T, limit: f64) -> Option<f64> {
        let mut makespan = 0.0;
        while let Some(TimedEvent(now, event)) = self.events.pop() {
            makespan = now;
            let within_limit = now <= limit
                && match event {
                    Event::Finish(task) => self.finish(tables, task, now, limit),
                    Event::Arrive(replica) => self.arrive(tables, replica, now, limit),
                    Event::Serve(link) => {
                        self.serve(tables, link, now);
                        true
                    }
                };
            if !within_limit {
                return None;
            }
        }
        Some(makespan)
    }

    /// Starts the next task of an idle device if its inputs have arrived; false if the run then exceeds `limit`.
    fn start_next(&mut self, tables: &mut T, device: DeviceId, now: f64, limit: f64) -> bool {
        let at = device.0 as usize;
        let Some(&task) = tables.sequence(device).get(self.next[at]) else { return true };
        if self.running[at].is_some() || self.missing[task.into()] > 0 {
            return true;
        }
        self.running[at] = Some(now);
        self.next[at] += 1;
        self.end_at(tables, task, now, now + tables.task(task).1, limit)
    }

    /// Schedules the end of a task; false if the run then exceeds `limit`.
    fn end_at(&mut self, tables: &mut T, task: T::Task, start: f64, finish: f64, limit: f64) -> bool {
        tables.record_task(task, start, finish);
        self.events.push(TimedEvent(finish, Event::Finish(task)));
        finish + tables.tail(task) <= limit
    }

    fn finish(&mut self, tables: &mut T, task: T::Task, now: f64, limit: f64) -> bool {
        let (device, _) = tables.task(task);
        let at = device.0 as usize;
        let owed = std::mem::take(&mut self.owed[at]);
        if let Some(start) = self.running[at].filter(|_| owed > 0.0) {
            // The rounded sum of the start and a time, so that a plan, which states those two, implies this very instant: of
            // `now + owed` that may not be so.
            return self.end_at(tables, task, start, start + ((now - start) + owed), limit);
        }
        self.running[at] = None;
        for output in tables.outputs(task) {
            self.deliver(tables, output, now);
        }
        self.start_next(tables, device, now, limit)
    }

    fn arrive(&mut self, tables: &mut T, replica: T::Replica, now: f64, limit: f64) -> bool {
        let (tensor, ends) = tables.replica(replica);
        if let Some(link) = tables.record_arrival(replica, now) {
            self.owe(tables, ends, (tensor, link), |handling| handling.receiving);
            self.link_busy[link.0 as usize] = false;
            self.events.push(TimedEvent(now, Event::Serve(link)));
        }
        self.deliver(tables, replica, now);
        self.start_next(tables, ends[0], now, limit)
    }

    /// Readers have one input more, and the transfers of copies are requested.
    fn deliver(&mut self, tables: &T, replica: T::Replica, now: f64) {
        for reader in tables.readers(replica) {
            self.missing[reader.into()] -= 1;
        }
        let (tensor, _) = tables.replica(replica);
        for (copy, device, link) in tables.copies(replica) {
            let Some(link) = link else {
                self.events.push(TimedEvent(now, Event::Arrive(copy)));
                continue;
            };
            self.queues[link.0 as usize].push(TimedEvent(now, (tensor, device, copy)));
            if !self.link_busy[link.0 as usize] {
                self.events.push(TimedEvent(now, Event::Serve(link)));
            }
        }
    }

    /// The transfer of a tensor between a device and another one takes time of the first, if that computes.
    fn owe(&mut self, tables: &T, ends: [DeviceId; 2], sent: (TensorIndex, LinkId), end: fn(Handling) -> HandlingCost) {
        let ([device, other], (tensor, link)) = (ends, sent);
        if self.running[device.0 as usize].is_some() {
            let problem = tables.problem();
            let bytes = problem.link(link).carried_bytes(problem.tensor(tensor));
            self.owed[device.0 as usize] += end(problem.handling(device, other)).time(bytes).0;
        }
    }

    /// Starts the next transfer of an idle link.
    fn serve(&mut self, tables: &mut T, link: LinkId, now: f64) {
        if self.link_busy[link.0 as usize] {
            return;
        }
        let Some(TimedEvent(_, (tensor, _, replica))) = self.queues[link.0 as usize].pop() else { return };
        self.link_busy[link.0 as usize] = true;
        let (_, [receiver, sender]) = tables.replica(replica);
        self.owe(tables, [sender, receiver], (tensor, link), |handling| handling.sending);
        tables.record_departure(replica, now);
        let problem = tables.problem();
        let end = now + problem.link(link).time(problem.tensor(tensor)).0;
        self.events.push(TimedEvent(end, Event::Arrive(replica)));
    }
}
