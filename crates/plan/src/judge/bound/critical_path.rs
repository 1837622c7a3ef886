//! The critical path on the best devices, with unavoidable transfers.
//!
//! The tail of a group on a device is the least time from its finish there until everything that depends on it is done,
//! if every consumer may run on its best device, devices and links are never busy, and a group may run on several devices
//! at once. These are relaxations, so the longest tail is a lower bound on the latency. On a chain they change nothing,
//! and the bound is the optimum.

use crate::problem::{DeviceId, GroupId, Problem, TensorIndex};
use edgecut_graph::units::Micros;

/// Tails of all groups and tensors on all devices, in microseconds.
#[derive(Debug, Clone)]
pub struct Tails {
    devices: usize,
    /// Row-major by group: from its finish.
    groups: Vec<f64>,
    /// Row-major by tensor: from its arrival on the device.
    tensors: Vec<f64>,
}

impl Tails {
    /// Backward over the tensors, in time O(tensors · readers · devices²).
    pub fn of(problem: &Problem) -> Tails {
        let devices = problem.devices.len();
        let consumers = problem.consumers();
        let mut tails = Tails {
            devices,
            groups: vec![0.0; problem.groups.len() * devices],
            tensors: vec![0.0; problem.tensors.len() * devices],
        };
        let mut order: Vec<TensorIndex> = problem.tensor_ids().collect();
        order.sort_by_key(|t| std::cmp::Reverse(problem.tensor(*t).producer.map_or(-1, |p| i64::from(p.0))));
        for tensor in order {
            tails.add_tensor(problem, tensor, &consumers[tensor.0 as usize]);
            if let Some(producer) = problem.tensor(tensor).producer {
                for device in 0..devices {
                    let tail = tails.tensors[tensor.0 as usize * devices + device];
                    let group = &mut tails.groups[producer.0 as usize * devices + device];
                    *group = group.max(tail);
                }
            }
        }
        tails
    }

    fn add_tensor(&mut self, problem: &Problem, tensor: TensorIndex, readers: &[GroupId]) {
        let (devices, sent) = (self.devices, problem.tensor(tensor));
        let transfer_time = |from: usize, to: usize| {
            let route = problem.route(DeviceId(from as u32), DeviceId(to as u32));
            route.map_or(0.0, |link| problem.link(link).time(sent).0)
        };
        let row = tensor.0 as usize * devices;
        if problem.tensor(tensor).is_output {
            for from in 0..devices {
                self.tensors[row + from] = transfer_time(from, problem.sink.0 as usize);
            }
        }
        let transfers: Vec<f64> = (0..devices * devices).map(|at| transfer_time(at / devices, at % devices)).collect();
        for &reader in readers {
            let run: Vec<f64> = problem
                .device_ids()
                .map(|d| problem.cost(reader, d).map_or(f64::INFINITY, |c| c.time.0 + self.group(reader, d)))
                .collect();
            for from in 0..devices {
                let sums = run.iter().zip(&transfers[from * devices..]).map(|(run, transfer)| run + transfer);
                let best = sums.fold(f64::INFINITY, f64::min);
                let tail = &mut self.tensors[row + from];
                *tail = tail.max(best);
            }
        }
    }

    /// From the finish of `group` on `device` to the end.
    pub fn group(&self, group: GroupId, device: DeviceId) -> f64 {
        self.groups[group.0 as usize * self.devices + device.0 as usize]
    }

    /// From the arrival of `tensor` on `device` to the end.
    pub fn tensor(&self, tensor: TensorIndex, device: DeviceId) -> f64 {
        self.tensors[tensor.0 as usize * self.devices + device.0 as usize]
    }

    /// Lower bound on the latency: the longest tail from the start. Infinite if some group runs nowhere.
    pub fn critical_path_length(&self, problem: &Problem) -> Micros {
        let inputs = problem.tensor_ids().filter(|t| problem.tensor(*t).producer.is_none());
        let from_inputs = inputs.map(|t| self.tensor(t, problem.source));
        let roots = problem.group_ids().filter(|g| problem.group(*g).inputs.is_empty());
        let from_roots = roots.map(|g| self.best_start(problem, g).map_or(f64::INFINITY, |best| best.1));
        Micros(from_inputs.chain(from_roots).fold(0.0, f64::max))
    }

    /// The path of [`Tails::critical_path_length`], each group with its best device.
    pub fn critical_path(&self, problem: &Problem) -> Vec<(GroupId, DeviceId)> {
        let consumers = problem.consumers();
        let longest = |(a, tail_a): (usize, f64), (b, tail_b): (usize, f64)| {
            if tail_b > tail_a { (b, tail_b) } else { (a, tail_a) }
        };
        let inputs = (0..problem.tensors.len()).filter(|t| problem.tensors[*t].producer.is_none());
        let input = inputs.map(|t| (t, self.tensor(TensorIndex(t as u32), problem.source))).reduce(longest);
        let roots = problem.group_ids().filter(|g| problem.group(*g).inputs.is_empty());
        let root = roots
            .filter_map(|g| Some((g, self.best_start(problem, g)?)))
            .reduce(|a, b| if b.1.1 > a.1.1 { b } else { a });
        let mut path = Vec::new();
        let mut at = match (input, root) {
            (input, Some((group, (device, length)))) if input.is_none_or(|i| i.1 < length) => {
                path.push((group, device));
                self.critical_output(problem, group, device).map(|t| (t, device))
            }
            (Some((tensor, _)), _) => Some((TensorIndex(tensor as u32), problem.source)),
            _ => None,
        };
        while let Some((tensor, from)) = at {
            let readers = consumers[tensor.0 as usize]
                .iter()
                .filter_map(|g| self.best_reader(problem, tensor, from, *g).map(|b| (*g, b)));
            let Some((group, (device, length))) = readers.reduce(|a, b| if b.1.1 > a.1.1 { b } else { a }) else {
                break;
            };
            if problem.tensor(tensor).is_output && length < self.tensor(tensor, from) {
                break;
            }
            path.push((group, device));
            at = self.critical_output(problem, group, device).map(|t| (t, device));
        }
        path
    }

    /// The output of `group` with the longest tail.
    fn critical_output(&self, problem: &Problem, group: GroupId, device: DeviceId) -> Option<TensorIndex> {
        let outputs = problem.group(group).outputs.iter().copied();
        outputs.max_by(|a, b| self.tensor(*a, device).total_cmp(&self.tensor(*b, device)))
    }

    /// The best device for a group without operands, and the time from its start there to the end.
    fn best_start(&self, problem: &Problem, group: GroupId) -> Option<(DeviceId, f64)> {
        let lengths =
            problem.device_ids().filter_map(|d| Some((d, problem.cost(group, d)?.time.0 + self.group(group, d))));
        lengths.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The best device for a reader of `tensor`, and the time from the tensor's arrival on `from` to the end.
    fn best_reader(
        &self,
        problem: &Problem,
        tensor: TensorIndex,
        from: DeviceId,
        reader: GroupId,
    ) -> Option<(DeviceId, f64)> {
        let sent = problem.tensor(tensor);
        let lengths = problem.device_ids().filter_map(|d| {
            let transfer = problem.route(from, d).map_or(0.0, |link| problem.link(link).time(sent).0);
            Some((d, transfer + problem.cost(reader, d)?.time.0 + self.group(reader, d)))
        });
        lengths.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}
