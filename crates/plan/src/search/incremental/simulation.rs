//! Resuming the event simulation at the first instant that a move affects.

use super::state::{IncrementalSimulator, NEVER, TensorCopy};
use crate::{
    judge::{
        event_loop::{Event, EventLoop, TaskTables},
        timed_event::TimedEvent,
    },
    problem::{DeviceId, GroupId, LinkId, Problem, TensorIndex},
};

impl IncrementalSimulator<'_> {
    /// The makespan after the last changes; `None` as soon as it is certain to exceed `limit`. The times are then
    /// incomplete, and the changes must be undone.
    pub fn simulate(&mut self, limit: f64) -> Option<f64> {
        let (problem, since) = (self.problem, self.undo_log.since);
        self.resume(since);
        let mut events = std::mem::replace(&mut self.events, EventLoop::new(0, 0));
        if since <= 0.0 {
            let inputs = problem.tensor_ids().filter(|tensor| problem.tensor(*tensor).producer.is_none());
            events.start(self, inputs.map(|tensor| (tensor, problem.source)));
        }
        let last = events.run(self, limit);
        self.events = events;
        self.makespan = since.min(self.makespan).max(last?);
        Some(self.makespan)
    }

    /// Restores the state of the simulation at the first affected instant.
    fn resume(&mut self, since: f64) {
        let problem = self.problem;
        self.events.reset();
        self.number += 1;
        for device in 0..problem.devices.len() {
            let sequence = std::mem::take(&mut self.sequences[device]);
            let begun = sequence.partition_point(|group| self.starts[group.0 as usize] < since);
            self.events.next[device] = begun;
            let running =
                begun.checked_sub(1).map(|last| sequence[last]).filter(|group| self.finished(*group) >= since);
            self.events.running[device] = running.map(|group| self.starts[group.0 as usize]);
            self.events.events.extend(running.map(|group| TimedEvent(self.finished(group), Event::Finish(group))));
            for &group in &sequence[begun..] {
                let at = group.0 as usize;
                self.undo_log.times.push((group, self.starts[at], self.finishes[at]));
                (self.starts[at], self.finishes[at]) = (NEVER, NEVER);
            }
            self.sequences[device] = sequence;
        }
        for device in problem.device_ids() {
            for place in self.events.next[device.0 as usize]..self.sequences[device.0 as usize].len() {
                let group = self.sequences[device.0 as usize][place];
                let mut missing = 0;
                for &tensor in &problem.group(group).inputs {
                    missing += u32::from(self.is_missing(tensor, device, since));
                }
                self.events.missing[group.0 as usize] = missing;
            }
        }
        for tensor in problem.tensor_ids().filter(|tensor| problem.tensor(*tensor).is_output) {
            self.is_missing(tensor, problem.sink, since);
        }
    }

    /// Whether a tensor has not arrived on a device at the instant `since`. A transfer that is active or queued is
    /// resumed.
    fn is_missing(&mut self, tensor: TensorIndex, device: DeviceId, since: f64) -> bool {
        let (home, produced) = self.home(tensor);
        if home == device {
            return produced >= since;
        }
        let copies = &self.copies[tensor.0 as usize];
        let Some(at) = copies.iter().position(|copy| copy.device == device) else { return true };
        let TensorCopy { link, birth, arrival, resumed, .. } = copies[at];
        if arrival < since || resumed == self.number {
            return arrival >= since;
        }
        self.save(tensor);
        let copy = &mut self.copies[tensor.0 as usize][at];
        copy.resumed = self.number;
        if birth < since {
            if let Some(link) = link {
                self.events.link_busy[link.0 as usize] = true;
            }
            self.events.events.push(TimedEvent(arrival, Event::Arrive((tensor, device))));
        } else {
            (copy.birth, copy.arrival) = (NEVER, NEVER);
            if produced < since
                && let Some(link) = link
            {
                self.events.queues[link.0 as usize].push(TimedEvent(produced, (tensor, device, (tensor, device))));
            }
        }
        true
    }

    fn copy_mut(&mut self, (tensor, device): (TensorIndex, DeviceId)) -> Option<&mut TensorCopy> {
        let at = self.copies[tensor.0 as usize].iter().position(|copy| copy.device == device)?;
        self.save(tensor);
        self.copies[tensor.0 as usize].get_mut(at)
    }
}

impl TaskTables for IncrementalSimulator<'_> {
    type Task = GroupId;
    type Replica = (TensorIndex, DeviceId);

    fn problem(&self) -> &Problem {
        self.problem
    }

    fn sequence(&self, device: DeviceId) -> &[GroupId] {
        &self.sequences[device.0 as usize]
    }

    fn task(&self, group: GroupId) -> (DeviceId, f64) {
        let device = self.device(group);
        (device, self.problem.cost(group, device).map_or(NEVER, |cost| cost.time.0))
    }

    fn outputs(&self, group: GroupId) -> impl Iterator<Item = Self::Replica> {
        let device = self.device(group);
        self.problem.group(group).outputs.iter().map(move |tensor| (*tensor, device))
    }

    fn replica(&self, (tensor, device): Self::Replica) -> (TensorIndex, [DeviceId; 2]) {
        (tensor, [device, self.home(tensor).0])
    }

    fn readers(&self, (tensor, device): Self::Replica) -> impl Iterator<Item = GroupId> {
        self.readers[tensor.0 as usize].iter().copied().filter(move |reader| self.device(*reader) == device)
    }

    fn copies(
        &self,
        (tensor, device): Self::Replica,
    ) -> impl Iterator<Item = (Self::Replica, DeviceId, Option<LinkId>)> {
        let is_home = self.home(tensor).0 == device;
        let copies = self.copies[tensor.0 as usize].iter().filter(move |_| is_home);
        copies.map(move |copy| ((tensor, copy.device), copy.device, copy.link))
    }

    fn tail(&self, group: GroupId) -> f64 {
        self.tails.group(group, self.device(group))
    }

    fn record_task(&mut self, group: GroupId, start: f64, finish: f64) {
        (self.starts[group.0 as usize], self.finishes[group.0 as usize]) = (start, finish);
    }

    fn record_departure(&mut self, replica: Self::Replica, now: f64) {
        if let Some(copy) = self.copy_mut(replica) {
            copy.birth = now;
        }
    }

    fn record_arrival(&mut self, replica: Self::Replica, now: f64) -> Option<LinkId> {
        let copy = self.copy_mut(replica)?;
        copy.arrival = now;
        if copy.link.is_none() {
            copy.birth = now;
        }
        copy.link
    }
}
