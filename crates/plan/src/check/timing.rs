//! Times: transfers, starts, link queues, latency and loads.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    checker::{Arrivals, Checker},
    violation::{Violation, close, figure},
};
use crate::{
    plan_file::file::Transfer,
    problem::{
        DeviceId, GroupId, Handling, HandlingCost, Link, activation::Activation, transfer_format::TransferFormat,
    },
};

/// What a transfer takes of its link.
struct Carried {
    bytes: f64,
    coding_us: f64,
}

impl Checker<'_> {
    /// There is one transfer for each need, with the right ends, size and duration.
    pub(super) fn transfers(&self) -> Result<Arrivals, Violation> {
        let by_id: HashMap<_, usize> = self.problem.tensors.iter().enumerate().map(|(i, t)| (t.graph, i)).collect();
        let mut needed = HashSet::new();
        for (tensor, readers) in self.readers.iter().enumerate() {
            let mut receivers: HashSet<usize> = readers.iter().map(|g| self.homes[*g]).collect();
            if self.problem.tensors[tensor].is_output {
                receivers.insert(self.problem.sink.0 as usize);
            }
            receivers.remove(&self.home(tensor));
            needed.extend(receivers.into_iter().map(|device| (tensor, device)));
        }
        let mut arrivals = Arrivals::new();
        for transfer in &self.plan.transfers {
            let wrong = || Violation::Transfer(transfer.name.clone());
            let tensor = *by_id.get(&transfer.tensor).ok_or_else(wrong)?;
            let to = transfer.to.0 as usize;
            if !needed.remove(&(tensor, to)) || transfer.from.0 as usize != self.home(tensor) {
                return Err(wrong());
            }
            let figure = |what, stated: f64, real: f64| match close(stated, real) {
                true => Ok(()),
                false => Err(Violation::TransferFigure { name: transfer.name.clone(), what, stated, real }),
            };
            let bytes = self.problem.tensors[tensor].bytes;
            figure("size", transfer.bytes.0 as f64, bytes.0 as f64)?;
            let link = self.link(transfer).map(|link| &self.problem.links[link]);
            let carried = self.carried(transfer, tensor, link)?;
            figure("sent size", transfer.sent().0 as f64, carried.bytes)?;
            let time = link.map_or(0.0, |l| l.cost.latency.0 + carried.bytes / l.cost.rate.0 + carried.coding_us);
            figure("time", transfer.time_us.0, time)?;
            arrivals.insert((tensor, to), (transfer.start_us.0, transfer.start_us.0 + transfer.time_us.0));
        }
        match needed.into_iter().next() {
            Some((tensor, _)) => {
                let tensor = &self.problem.tensors[tensor];
                Err(Violation::Absent { group: "the sink or a reader".into(), tensor: tensor.name.clone() })
            }
            None => Ok(arrivals),
        }
    }

    /// What crosses `link` for a tensor: activations in the format of the link, all else as it is.
    fn carried(&self, transfer: &Transfer, tensor: usize, link: Option<&Link>) -> Result<Carried, Violation> {
        let tensor = &self.problem.tensors[tensor];
        let (format, activation) = match (link, tensor.activation) {
            (Some(link), Some(activation)) => (link.coding.format, activation),
            _ => (TransferFormat::Exact, Activation { elements: 0, blocks: 0 }),
        };
        if transfer.format != format {
            return Err(Violation::Transfer(transfer.name.clone()));
        }
        let (elements, blocks) = (activation.elements as f64, activation.blocks as f64);
        let bytes = match format {
            TransferFormat::Exact => tensor.bytes.0 as f64,
            TransferFormat::F16 => 2.0 * elements,
            TransferFormat::Int8 => elements + 4.0 * blocks,
        };
        Ok(Carried { bytes, coding_us: link.map_or(0.0, |link| link.coding.per_element * elements) })
    }

    /// Every group starts as soon as its device is idle and its operands are available.
    pub(super) fn starts(&self, arrivals: &Arrivals) -> Result<(), Violation> {
        for (device, entry) in self.plan.devices.iter().enumerate() {
            let mut free = 0.0;
            for id in &entry.order {
                let group = &self.plan.groups[id.0 as usize];
                let mut real: f64 = free;
                for input in &self.problem.groups[id.0 as usize].inputs {
                    let tensor = input.0 as usize;
                    let there = if self.home(tensor) == device {
                        Some(self.produced(tensor))
                    } else {
                        arrivals.get(&(tensor, device)).map(|a| a.1)
                    };
                    let name = || self.problem.tensors[tensor].name.clone();
                    real =
                        real.max(there.ok_or_else(|| Violation::Absent { group: group.name.clone(), tensor: name() })?);
                }
                if !close(group.start_us.0, real) {
                    return Err(Violation::Start { group: group.name.clone(), stated: group.start_us.0, real });
                }
                self.time(device, *id)?;
                free = group.start_us.0 + group.time_us.0;
            }
        }
        Ok(())
    }

    /// A group takes its cost, and what the transfers take that begin on its device or arrive there meanwhile. Whether one at
    /// the very instant of its start or end counts depends on what came first.
    fn time(&self, device: usize, id: GroupId) -> Result<(), Violation> {
        let group = &self.plan.groups[id.0 as usize];
        let cost = self.problem.groups[id.0 as usize].costs[device].unwrap_or_default().time.0;
        let (start, end) = (group.start_us.0, group.start_us.0 + group.time_us.0);
        let (mut surely, mut at_most) = (cost, cost);
        let has_handling = self.problem.devices[device].handling != Handling::default();
        for transfer in self.plan.transfers.iter().filter(|transfer| has_handling && self.link(transfer).is_some()) {
            let instants = [transfer.start_us.0, transfer.start_us.0 + transfer.time_us.0];
            let ends = self.work(transfer).into_iter().zip(instants);
            for ((_, work), at) in ends.filter(|((of, _), _)| of.0 as usize == device) {
                let time = work.time(transfer.sent()).0;
                let is_at_edge = close(at, start) || close(at, end);
                at_most += if is_at_edge || (start < at && at < end) { time } else { 0.0 };
                surely += if !is_at_edge && start < at && at < end { time } else { 0.0 };
            }
        }
        let stated = group.time_us.0;
        match close(stated, surely) || close(stated, at_most) || (surely < stated && stated < at_most) {
            true => Ok(()),
            false => figure(format!("the time of {}", group.name), stated, surely),
        }
    }

    /// What a transfer takes of the devices at its ends, that it comes from and that it goes to.
    fn work(&self, transfer: &Transfer) -> [(DeviceId, HandlingCost); 2] {
        let Transfer { from, to, .. } = *transfer;
        let [sender, receiver] = [from, to].map(|id| &self.problem.devices[id.0 as usize]);
        match sender.server == receiver.server {
            true => [from, to].map(|device| (device, HandlingCost::default())),
            false => [(from, sender.handling.sending), (to, receiver.handling.receiving)],
        }
    }

    /// Every link serves its requests first come first served, one at a time, without idling.
    pub(super) fn links(&self) -> Result<(), Violation> {
        let by_id: HashMap<_, usize> = self.problem.tensors.iter().enumerate().map(|(i, t)| (t.graph, i)).collect();
        let mut served: BTreeMap<usize, Vec<(f64, &Transfer)>> = BTreeMap::new();
        for transfer in &self.plan.transfers {
            let requested = by_id.get(&transfer.tensor).map_or(0.0, |t| self.produced(*t));
            match self.link(transfer) {
                Some(link) => served.entry(link).or_default().push((requested, transfer)),
                None => {
                    figure(format!("the start of the transfer of {}", transfer.name), transfer.start_us.0, requested)?
                }
            }
        }
        for (link, mut queue) in served {
            queue.sort_by(|a, b| {
                a.1.start_us.0.total_cmp(&b.1.start_us.0).then(a.1.time_us.0.total_cmp(&b.1.time_us.0))
            });
            let (mut free, mut before): (f64, Option<(f64, &Transfer)>) = (0.0, None);
            for (requested, transfer) in queue {
                if let Some((earlier_requested, earlier)) = before
                    && requested < earlier_requested
                    && !close(requested, earlier_requested)
                {
                    let link = self.problem.links[link].name.clone();
                    return Err(Violation::Overtaken {
                        link,
                        earlier: transfer.name.clone(),
                        later: earlier.name.clone(),
                    });
                }
                let real = requested.max(free);
                if !close(transfer.start_us.0, real) {
                    let what = "start";
                    return Err(Violation::TransferFigure {
                        name: transfer.name.clone(),
                        what,
                        stated: transfer.start_us.0,
                        real,
                    });
                }
                free = transfer.start_us.0 + transfer.time_us.0;
                before = Some((requested, transfer));
            }
        }
        Ok(())
    }

    /// Latency, busy times and the interval between results.
    pub(super) fn figures(&self) -> Result<(), Violation> {
        let predicted = &self.plan.predicted;
        let groups = self.plan.groups.iter().map(|g| g.start_us.0 + g.time_us.0);
        let moves = self.plan.transfers.iter().map(|t| t.start_us.0 + t.time_us.0);
        figure("the latency".into(), predicted.latency_us.0, groups.chain(moves).fold(0.0, f64::max))?;
        let mut loads = vec![0.0; self.problem.devices.len() + self.problem.links.len()];
        for (group, home) in self.problem.groups.iter().zip(&self.homes) {
            loads[*home] += group.costs[*home].unwrap_or_default().time.0;
        }
        for transfer in self.plan.transfers.iter().filter(|transfer| self.link(transfer).is_some()) {
            for (device, work) in self.work(transfer) {
                loads[device.0 as usize] += work.time(transfer.sent()).0;
            }
        }
        for (device, load) in self.plan.devices.iter().zip(&loads) {
            figure(format!("the busy time of {}", device.device), device.busy_us.0, *load)?;
        }
        for transfer in &self.plan.transfers {
            if let Some(link) = self.link(transfer) {
                loads[self.problem.devices.len() + link] += transfer.time_us.0;
            }
        }
        let count = self.plan.in_flight.unwrap_or(predicted.in_flight).max(1);
        let share = predicted.latency_us.0 / f64::from(count);
        let interval = loads.into_iter().fold(share, f64::max);
        figure("the time between results".into(), predicted.interval_us.0, interval)
    }
}
