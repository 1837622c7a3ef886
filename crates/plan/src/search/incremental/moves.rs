//! Changes of a placement under incremental simulation, and undoing them.

use super::state::{Change, IncrementalSimulator, NEVER, TensorCopy};
use crate::problem::{DeviceId, GroupId, LinkId, TensorIndex};
use edgecut_graph::units::Joules;

impl IncrementalSimulator<'_> {
    /// Applies changes, each of which must be possible, without simulating.
    pub fn apply(&mut self, changes: &[Change]) {
        self.undo_log.clear();
        self.undo_log.makespan = self.makespan;
        // When a running group ends also depends on transfers that come after, so all is simulated.
        self.undo_log.since = match self.has_handling {
            true => 0.0,
            false => changes.iter().map(|change| self.earliest(change)).fold(NEVER, f64::min),
        };
        for change in changes {
            self.undo_log.places.push((change.group, self.device(change.group), self.rank(change.group)));
            self.place(*change);
        }
    }

    /// Undoes the last changes, simulated or not.
    pub fn undo(&mut self) {
        for (group, device, rank) in std::mem::take(&mut self.undo_log.places).into_iter().rev() {
            self.place(Change { group, device, rank });
        }
        for (group, start, finish) in self.undo_log.times.drain(..) {
            (self.starts[group.0 as usize], self.finishes[group.0 as usize]) = (start, finish);
        }
        for (tensor, copies) in self.undo_log.copies.drain(..) {
            self.copies[tensor.0 as usize] = copies;
            self.undo_log.saved[tensor.0 as usize] = false;
        }
        self.makespan = self.undo_log.makespan;
    }

    /// The first instant that a change can affect.
    pub(super) fn earliest(&self, change: &Change) -> f64 {
        let produced = self.problem.group(change.group).inputs.iter().map(|tensor| self.home(*tensor).1);
        let before = |device: DeviceId, key: (u64, GroupId)| {
            let sequence = &self.sequences[device.0 as usize];
            let place = sequence.partition_point(|group| self.key(*group) < key);
            place.checked_sub(1).map_or(0.0, |place| self.finished(sequence[place]))
        };
        let leaving = before(self.device(change.group), self.key(change.group));
        produced.fold(leaving.min(before(change.device, (change.rank, change.group))), f64::min)
    }

    pub(super) fn place(&mut self, change: Change) {
        let Change { group, device, rank } = change;
        let (from, key) = (self.device(group), self.key(group));
        let place = self.sequences[from.0 as usize].partition_point(|other| self.key(*other) < key);
        self.sequences[from.0 as usize].remove(place);
        self.add_load(group, -1.0);
        let problem = self.problem;
        let row = problem.group(group);
        if from != device {
            for &tensor in &row.inputs {
                self.save(tensor);
                self.change_readers(tensor, from, -1);
            }
        }
        self.devices[group.0 as usize] = device;
        self.ranks[group.0 as usize] = rank;
        let key = self.key(group);
        let place = self.sequences[device.0 as usize].partition_point(|other| self.key(*other) < key);
        self.sequences[device.0 as usize].insert(place, group);
        self.add_load(group, 1.0);
        if from != device {
            row.inputs.iter().for_each(|tensor| self.change_readers(*tensor, device, 1));
            for &tensor in &row.outputs {
                self.save(tensor);
                self.rebuild_copies(tensor);
            }
        }
    }

    pub(super) fn add_load(&mut self, group: GroupId, sign: f64) {
        let device = self.device(group);
        let cost = self.problem.cost(group, device).unwrap_or_default();
        self.loads[device.0 as usize] += sign * cost.time.0;
        if self.by_energy {
            self.above_idle = self.above_idle + Joules(sign * cost.energy_above_idle().0);
        }
    }

    pub(super) fn save(&mut self, tensor: TensorIndex) {
        if !std::mem::replace(&mut self.undo_log.saved[tensor.0 as usize], true) {
            self.undo_log.copies.push((tensor, self.copies[tensor.0 as usize].clone()));
        }
    }

    /// Adds or removes a reader of a tensor on a device.
    pub(super) fn change_readers(&mut self, tensor: TensorIndex, device: DeviceId, change: i32) {
        let (home, _) = self.home(tensor);
        if home == device {
            return;
        }
        let copies = &mut self.copies[tensor.0 as usize];
        let at = copies.iter().position(|copy| copy.device == device).unwrap_or(copies.len());
        if at == copies.len() {
            let link = self.problem.route(home, device);
            copies.push(TensorCopy { device, from: home, link, readers: 0, birth: NEVER, arrival: NEVER, resumed: 0 });
            self.add_link_load(tensor, link, home, device, 1.0);
        }
        let copy = &mut self.copies[tensor.0 as usize][at];
        copy.readers = copy.readers.saturating_add_signed(change);
        if copy.readers == 0 {
            let link = copy.link;
            self.copies[tensor.0 as usize].remove(at);
            self.add_link_load(tensor, link, home, device, -1.0);
        }
    }

    /// Adds a transfer of a tensor to the loads of its link and of the devices at its ends, or removes it.
    pub(super) fn add_link_load(
        &mut self,
        tensor: TensorIndex,
        link: Option<LinkId>,
        from: DeviceId,
        to: DeviceId,
        sign: f64,
    ) {
        let problem = self.problem;
        if let Some(link) = link {
            let (sent, carrier) = (problem.tensor(tensor), problem.link(link));
            let bytes = carrier.carried_bytes(sent);
            self.link_loads[link.0 as usize] += sign * carrier.time(sent).0;
            self.loads[from.0 as usize] += sign * problem.handling(from, to).sending.time(bytes).0;
            self.loads[to.0 as usize] += sign * problem.handling(to, from).receiving.time(bytes).0;
        }
    }

    /// Rebuilds the copies of a tensor.
    pub(super) fn rebuild_copies(&mut self, tensor: TensorIndex) {
        for copy in std::mem::take(&mut self.copies[tensor.0 as usize]) {
            self.add_link_load(tensor, copy.link, copy.from, copy.device, -1.0);
        }
        for reader in 0..self.readers[tensor.0 as usize].len() {
            let device = self.device(self.readers[tensor.0 as usize][reader]);
            self.change_readers(tensor, device, 1);
        }
        if self.problem.tensor(tensor).is_output {
            self.change_readers(tensor, self.problem.sink, 1);
        }
    }
}
