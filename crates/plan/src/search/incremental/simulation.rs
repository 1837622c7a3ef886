//! Resuming the event simulation at the first instant that a move affects.

use std::collections::BinaryHeap;

use super::state::{IncrementalSimulator, NEVER, TensorCopy, TensorEvent};
use crate::{
    DeviceId, GroupId, TensorIndex,
    problem::{Handling, HandlingCost, LinkId},
    simulate::prolonged,
    timed_event::TimedEvent,
};

impl IncrementalSimulator<'_> {
    /// The makespan after the last changes; `None` as soon as it is certain to exceed `limit`. The times are then
    /// incomplete, and the changes must be undone.
    pub fn simulate(&mut self, limit: f64) -> Option<f64> {
        self.resume();
        while let Some(TimedEvent(now, event)) = self.events.queue.pop() {
            self.makespan = self.makespan.max(now);
            let within_limit = now <= limit
                && match event {
                    TensorEvent::Finish(group) => self.finish(group, now, limit),
                    TensorEvent::Arrive(tensor, device) => self.arrive(tensor, device, now, limit),
                    TensorEvent::Serve(link) => {
                        self.serve(link, now);
                        true
                    }
                };
            if !within_limit {
                return None;
            }
        }
        Some(self.makespan)
    }

    /// Restores the state of the simulation at the first affected instant.
    fn resume(&mut self) {
        let (problem, since) = (self.problem, self.undo_log.since);
        self.events.queue.clear();
        self.events.queues.iter_mut().for_each(BinaryHeap::clear);
        self.events.link_busy.fill(false);
        self.events.owed.fill(0.0);
        self.events.number += 1;
        self.makespan = since.min(self.makespan);
        for device in 0..problem.devices.len() {
            let sequence = std::mem::take(&mut self.sequences[device]);
            let begun = sequence.partition_point(|group| self.starts[group.0 as usize] < since);
            self.events.next[device] = begun;
            let running =
                begun.checked_sub(1).map(|last| sequence[last]).filter(|group| self.finished(*group) >= since);
            self.events.busy[device] = running.is_some();
            self.events.queue.extend(running.map(|group| TimedEvent(self.finished(group), TensorEvent::Finish(group))));
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
        if since <= 0.0 {
            let inputs = problem.tensor_ids().filter(|tensor| problem.tensor(*tensor).producer.is_none());
            self.events.queue.extend(inputs.map(|tensor| TimedEvent(0.0, TensorEvent::Arrive(tensor, problem.source))));
            for device in 0..problem.devices.len() {
                self.start_next(device, 0.0, NEVER);
            }
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
        if arrival < since || resumed == self.events.number {
            return arrival >= since;
        }
        self.save(tensor);
        let copy = &mut self.copies[tensor.0 as usize][at];
        copy.resumed = self.events.number;
        if birth < since {
            if let Some(link) = link {
                self.events.link_busy[link.0 as usize] = true;
            }
            self.events.queue.push(TimedEvent(arrival, TensorEvent::Arrive(tensor, device)));
        } else {
            (copy.birth, copy.arrival) = (NEVER, NEVER);
            if produced < since
                && let Some(link) = link
            {
                self.events.queues[link.0 as usize].push(TimedEvent(produced, (tensor, device)));
            }
        }
        true
    }

    /// Starts the next group of an idle device if its operands have arrived; false if its tail then exceeds `limit`.
    fn start_next(&mut self, device: usize, now: f64, limit: f64) -> bool {
        let Some(&group) = self.sequences[device].get(self.events.next[device]) else { return true };
        if self.events.busy[device] || self.events.missing[group.0 as usize] > 0 {
            return true;
        }
        let device = DeviceId(device as u32);
        self.events.busy[device.0 as usize] = true;
        self.events.next[device.0 as usize] += 1;
        let finish = now + self.problem.cost(group, device).map_or(NEVER, |cost| cost.time.0);
        self.starts[group.0 as usize] = now;
        self.finishes[group.0 as usize] = finish;
        self.events.queue.push(TimedEvent(finish, TensorEvent::Finish(group)));
        finish + self.tails.group(group, device) <= limit
    }

    fn finish(&mut self, group: GroupId, now: f64, limit: f64) -> bool {
        let (problem, device) = (self.problem, self.device(group));
        let owed = std::mem::take(&mut self.events.owed[device.0 as usize]);
        if owed > 0.0 {
            let later = prolonged(self.starts[group.0 as usize], now, owed);
            self.finishes[group.0 as usize] = later;
            self.events.queue.push(TimedEvent(later, TensorEvent::Finish(group)));
            return later + self.tails.group(group, device) <= limit;
        }
        self.events.busy[device.0 as usize] = false;
        let mut within_limit = true;
        for &output in &problem.group(group).outputs {
            within_limit &= self.arrive(output, device, now, limit);
        }
        self.start_next(device.0 as usize, now, limit) && within_limit
    }

    /// A tensor becomes available on a device, by production or by transfer.
    fn arrive(&mut self, tensor: TensorIndex, device: DeviceId, now: f64, limit: f64) -> bool {
        let (home, _) = self.home(tensor);
        if home == device {
            self.request_transfers(tensor, now);
        } else if let Some(at) = self.copies[tensor.0 as usize].iter().position(|copy| copy.device == device) {
            self.save(tensor);
            let copy = &mut self.copies[tensor.0 as usize][at];
            copy.arrival = now;
            match copy.link {
                Some(link) => {
                    self.owe([device, home], tensor, link, |handling| handling.receiving);
                    self.events.link_busy[link.0 as usize] = false;
                    self.events.queue.push(TimedEvent(now, TensorEvent::Serve(link)));
                }
                None => copy.birth = now,
            }
        }
        for reader in 0..self.readers[tensor.0 as usize].len() {
            let reader = self.readers[tensor.0 as usize][reader];
            if self.device(reader) == device {
                let missing = &mut self.events.missing[reader.0 as usize];
                *missing = missing.saturating_sub(1);
            }
        }
        self.start_next(device.0 as usize, now, limit)
    }

    /// Requests all transfers of a tensor that has been produced.
    fn request_transfers(&mut self, tensor: TensorIndex, now: f64) {
        for copy in &self.copies[tensor.0 as usize] {
            match copy.link {
                None => self.events.queue.push(TimedEvent(now, TensorEvent::Arrive(tensor, copy.device))),
                Some(link) => {
                    self.events.queues[link.0 as usize].push(TimedEvent(now, (tensor, copy.device)));
                    if !self.events.link_busy[link.0 as usize] {
                        self.events.queue.push(TimedEvent(now, TensorEvent::Serve(link)));
                    }
                }
            }
        }
    }

    /// The transfer of a tensor between a device and another one takes time of the first, if that computes.
    fn owe(
        &mut self,
        [device, other]: [DeviceId; 2],
        tensor: TensorIndex,
        link: LinkId,
        end: impl Fn(Handling) -> HandlingCost,
    ) {
        if self.events.busy[device.0 as usize] {
            let bytes = self.problem.link(link).carried_bytes(self.problem.tensor(tensor));
            self.events.owed[device.0 as usize] += end(self.problem.handling(device, other)).time(bytes).0;
        }
    }

    fn serve(&mut self, link: LinkId, now: f64) {
        if self.events.link_busy[link.0 as usize] {
            return;
        }
        let Some(TimedEvent(_, (tensor, device))) = self.events.queues[link.0 as usize].pop() else { return };
        self.events.link_busy[link.0 as usize] = true;
        self.owe([self.home(tensor).0, device], tensor, link, |handling| handling.sending);
        self.save(tensor);
        if let Some(copy) = self.copies[tensor.0 as usize].iter_mut().find(|copy| copy.device == device) {
            copy.birth = now;
        }
        let end = now + self.problem.link(link).time(self.problem.tensor(tensor)).0;
        self.events.queue.push(TimedEvent(end, TensorEvent::Arrive(tensor, device)));
    }
}
