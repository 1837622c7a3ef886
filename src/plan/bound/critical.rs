//! The critical path with best device times and unavoidable transfers.
//!
//! For every group and device: the least time from the group's start there until everything that depends on it
//! is done, when each consumer may be on whichever device is best for it, devices and links are never busy, and
//! one group may be on several devices at once. All of these only help, so it is a bound; on a chain none of
//! them does, so there it is the optimum.

use crate::plan::{DeviceId, GroupId, Problem, TensorIndex};
use crate::units::Micros;

/// The least time from the *finish* of each group on each device to the end.
#[derive(Debug, Clone)]
pub struct Tails {
    devices: usize,
    /// Row-major by group.
    after: Vec<f64>,
    /// Row-major by tensor: from the moment it is on a device.
    waiting: Vec<f64>,
}

impl Tails {
    /// In time (tensors · readers · devices²).
    pub fn of(problem: &Problem) -> Tails {
        let devices = problem.devices.len();
        let consumers = problem.consumers();
        let mut tails = Tails {
            devices,
            after: vec![0.0; problem.groups.len() * devices],
            waiting: vec![0.0; problem.tensors.len() * devices],
        };
        let mut order: Vec<TensorIndex> = problem.tensor_ids().collect();
        order.sort_by_key(|t| std::cmp::Reverse(problem.tensor(*t).producer.map_or(-1, |p| i64::from(p.0))));
        for tensor in order {
            tails.add_tensor(problem, tensor, &consumers[tensor.0 as usize]);
            if let Some(producer) = problem.tensor(tensor).producer {
                for device in 0..devices {
                    let tail = tails.waiting[tensor.0 as usize * devices + device];
                    let after = &mut tails.after[producer.0 as usize * devices + device];
                    *after = after.max(tail);
                }
            }
        }
        tails
    }

    fn add_tensor(&mut self, problem: &Problem, tensor: TensorIndex, readers: &[GroupId]) {
        let (devices, bytes) = (self.devices, problem.tensor(tensor).bytes);
        let move_time = |from: usize, to: usize| {
            let route = problem.route(DeviceId(from as u32), DeviceId(to as u32));
            route.map_or(0.0, |link| problem.link(link).time(bytes).0)
        };
        let row = tensor.0 as usize * devices;
        if problem.tensor(tensor).is_output {
            for from in 0..devices {
                self.waiting[row + from] = move_time(from, problem.sink.0 as usize);
            }
        }
        let moves: Vec<f64> = (0..devices * devices).map(|at| move_time(at / devices, at % devices)).collect();
        for &reader in readers {
            let run: Vec<f64> = problem
                .device_ids()
                .map(|d| problem.cost(reader, d).map_or(f64::INFINITY, |c| c.time.0 + self.after(reader, d)))
                .collect();
            for from in 0..devices {
                let best =
                    run.iter().zip(&moves[from * devices..]).map(|(run, go)| run + go).fold(f64::INFINITY, f64::min);
                let tail = &mut self.waiting[row + from];
                *tail = tail.max(best);
            }
        }
    }

    /// From the finish of `group` on `device` to the end.
    pub fn after(&self, group: GroupId, device: DeviceId) -> f64 {
        self.after[group.0 as usize * self.devices + device.0 as usize]
    }

    /// From the moment `tensor` is on `device` to the end.
    pub fn waiting(&self, tensor: TensorIndex, device: DeviceId) -> f64 {
        self.waiting[tensor.0 as usize * self.devices + device.0 as usize]
    }

    /// The bound on the latency: the longest chain from the start. Infinite if some group runs nowhere.
    pub fn shortest(&self, problem: &Problem) -> Micros {
        let inputs = problem.tensor_ids().filter(|t| problem.tensor(*t).producer.is_none());
        let from_inputs = inputs.map(|t| self.waiting(t, problem.source));
        let rootless = problem.group_ids().filter(|g| problem.group(*g).inputs.is_empty());
        let from_groups = rootless.map(|g| self.best_start(problem, g).map_or(f64::INFINITY, |best| best.1));
        Micros(from_inputs.chain(from_groups).fold(0.0, f64::max))
    }

    /// The longest chain that [`Tails::shortest`] measures, each group with the device it is fastest on there.
    pub fn chain(&self, problem: &Problem) -> Vec<(GroupId, DeviceId)> {
        let consumers = problem.consumers();
        let longest = |(a, tail_a): (usize, f64), (b, tail_b): (usize, f64)| {
            if tail_b > tail_a { (b, tail_b) } else { (a, tail_a) }
        };
        let inputs = (0..problem.tensors.len()).filter(|t| problem.tensors[*t].producer.is_none());
        let input = inputs.map(|t| (t, self.waiting(TensorIndex(t as u32), problem.source))).reduce(longest);
        let rootless = problem.group_ids().filter(|g| problem.group(*g).inputs.is_empty());
        let root = rootless
            .filter_map(|g| Some((g, self.best_start(problem, g)?)))
            .reduce(|a, b| if b.1.1 > a.1.1 { b } else { a });
        let mut chain = Vec::new();
        let mut at = match (input, root) {
            (input, Some((group, (device, length)))) if input.is_none_or(|i| i.1 < length) => {
                chain.push((group, device));
                self.heaviest_output(problem, group, device).map(|t| (t, device))
            }
            (Some((tensor, _)), _) => Some((TensorIndex(tensor as u32), problem.source)),
            _ => None,
        };
        while let Some((tensor, from)) = at {
            let steps = consumers[tensor.0 as usize]
                .iter()
                .filter_map(|g| self.best_reader(problem, tensor, from, *g).map(|b| (*g, b)));
            let Some((group, (device, length))) = steps.reduce(|a, b| if b.1.1 > a.1.1 { b } else { a }) else { break };
            if problem.tensor(tensor).is_output && length < self.waiting(tensor, from) {
                break;
            }
            chain.push((group, device));
            at = self.heaviest_output(problem, group, device).map(|t| (t, device));
        }
        chain
    }

    fn heaviest_output(&self, problem: &Problem, group: GroupId, device: DeviceId) -> Option<TensorIndex> {
        let outputs = problem.group(group).outputs.iter().copied();
        outputs.max_by(|a, b| self.waiting(*a, device).total_cmp(&self.waiting(*b, device)))
    }

    /// Where a group without operands is best started, and how long it takes from there to the end.
    fn best_start(&self, problem: &Problem, group: GroupId) -> Option<(DeviceId, f64)> {
        let lengths =
            problem.device_ids().filter_map(|d| Some((d, problem.cost(group, d)?.time.0 + self.after(group, d))));
        lengths.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Where `reader` is best run on `tensor`, and how long it takes from the tensor's being on `from` to the end.
    fn best_reader(
        &self,
        problem: &Problem,
        tensor: TensorIndex,
        from: DeviceId,
        reader: GroupId,
    ) -> Option<(DeviceId, f64)> {
        let lengths = problem.device_ids().filter_map(|d| {
            let go = problem.route(from, d).map_or(0.0, |link| problem.link(link).time(problem.tensor(tensor).bytes).0);
            Some((d, go + problem.cost(reader, d)?.time.0 + self.after(reader, d)))
        });
        lengths.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}
