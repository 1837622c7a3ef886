//! The score of a placement without a task graph: the simulation on flat tables that are reused between placements.
//!
//! Scores are bitwise equal to those of [`Evaluation`], including ties: tasks and replicas are numbered as by
//! [`TaskGraph::new`], and simultaneous events are processed in the same order. If the score depends on memory,
//! [`Evaluation`] computes it.
//!
//! [`TaskGraph::new`]: crate::judge::task_graph::TaskGraph::new

use std::{iter, ops::Range};

use crate::{
    judge::{
        energy,
        evaluation::{Evaluation, Score},
        event_loop::{EventLoop, TaskTables},
        task_graph::{ReplicaId, TaskId},
    },
    problem::{
        DeviceId, Group, GroupId, LinkId, Objective, Problem, TensorIndex,
        placement::{Placement, PlacementError},
    },
};

use edgecut_graph::units::{Joules, Micros, Watts};

/// Null index of a replica, task or read.
const NONE: u32 = u32::MAX;

/// Scores placements of one problem.
pub struct FastEvaluator<'a> {
    problem: &'a Problem,
    /// Whether the score may depend on memory, which needs a full evaluation.
    depends_on_memory: bool,
    /// Whether energy is the objective, and the idle power of all devices.
    by_energy: bool,
    idle: Watts,
    /// Energy of all tasks above idle; zero where energy is not the objective.
    above_idle: Joules,
    /// By group: its task, which is its position in the order.
    task: Vec<u32>,
    /// By tensor: the replica on its producer's device, or on the source.
    home: Vec<u32>,
    replicas: Vec<ReplicaRow>,
    /// Reads of replicas: the task, and the next read of the same replica.
    reads: Vec<(u32, u32)>,
    tasks: Vec<TaskRow>,
    /// By device: its tasks, in order.
    sequences: Vec<Vec<TaskId>>,
    loads: Vec<f64>,
    /// By device at the end of a transfer: what it adds to the load. They are added after those of all tasks, as
    /// [`crate::judge::simulate::loads`] does.
    transfer_loads: Vec<(DeviceId, f64)>,
    link_loads: Vec<f64>,
    events: EventLoop<Self>,
}

#[derive(Clone, Copy)]
struct ReplicaRow {
    tensor: TensorIndex,
    device: DeviceId,
    link: Option<LinkId>,
    /// Linked lists of its reads and of its copies; the next copy of the replica that it is sent from.
    reads: u32,
    last_read: u32,
    copies: u32,
    last_copy: u32,
    next_copy: u32,
}

struct TaskRow {
    device: DeviceId,
    time: f64,
    /// The replicas that it produces, which are numbered consecutively.
    outputs: Range<u32>,
}

/// An upper bound on the bytes that any device holds.
fn max_bytes(problem: &Problem) -> u64 {
    let costs = |group: &Group| {
        let each = group.costs.iter().flatten().map(|cost| cost.held.0.saturating_add(cost.workspace.0));
        each.max().unwrap_or(0)
    };
    let tensors = problem.tensors.iter().map(|tensor| tensor.bytes.0);
    let parameters = problem.parameters.iter().map(|bytes| bytes.0);
    tensors.chain(parameters).chain(problem.groups.iter().map(costs)).fold(0, u64::saturating_add)
}

impl<'a> FastEvaluator<'a> {
    pub fn new(problem: &'a Problem) -> FastEvaluator<'a> {
        let all = max_bytes(problem);
        let limited = problem.devices.iter().any(|device| device.memory.is_some_and(|limit| limit.0 < all));
        let devices = problem.devices.len();
        FastEvaluator {
            problem,
            depends_on_memory: limited || problem.objective == Objective::Memory,
            by_energy: problem.objective == Objective::Energy,
            idle: problem.idle_power(),
            above_idle: Joules::ZERO,
            task: Vec::new(),
            home: Vec::new(),
            replicas: Vec::new(),
            reads: Vec::new(),
            tasks: Vec::new(),
            sequences: vec![Vec::new(); devices],
            loads: vec![0.0; devices],
            transfer_loads: Vec::new(),
            link_loads: vec![0.0; problem.links.len()],
            events: EventLoop::new(devices, problem.links.len()),
        }
    }

    /// The score of the placement with these devices by group and this order.
    ///
    /// # Errors
    /// If the placement is impossible.
    pub fn score(&mut self, devices: &[DeviceId], order: &[GroupId]) -> Result<Score, PlacementError> {
        let groups = self.problem.groups.len();
        if self.depends_on_memory || devices.len() != groups || order.len() != groups || !self.expand(devices, order) {
            return Ok(Evaluation::of(self.problem, Placement::new(devices, order))?.score);
        }
        let makespan = self.run();
        let interval = self.loads.iter().chain(&self.link_loads).fold(0.0, |a: f64, b| a.max(*b));
        Ok(self.score_times(makespan, interval, self.above_idle))
    }

    /// Whether the score may depend on memory, not on times alone.
    pub(crate) fn depends_on_memory(&self) -> bool {
        self.depends_on_memory
    }

    /// The score of a makespan and an interval between results, in microseconds, and the energy of all tasks above idle, if
    /// it does not depend on memory.
    pub fn score_times(&self, makespan: f64, interval: f64, above_idle: Joules) -> Score {
        let mut violation = 0.0;
        if let Some(target) = self.problem.targets.latency.filter(|target| makespan > target.0) {
            violation += (makespan - target.0) / target.0.max(1.0);
        }
        if let Some(rate) = self.problem.targets.throughput.filter(|rate| interval * rate / 1e6 > 1.0) {
            violation += interval * rate / 1e6 - 1.0;
        }
        let (value, tie) = match self.problem.objective {
            Objective::Latency => (makespan, interval),
            Objective::Throughput | Objective::Memory => (interval, makespan),
            Objective::Energy => (energy::of_run(self.idle, Micros(makespan), above_idle).0, makespan),
        };
        Score { violation, value, tie }
    }

    /// Fills the tables; false if the placement is impossible, for reasons that a full evaluation reports.
    fn expand(&mut self, devices: &[DeviceId], order: &[GroupId]) -> bool {
        let problem = self.problem;
        self.replicas.clear();
        self.reads.clear();
        self.tasks.clear();
        self.home.clear();
        self.home.resize(problem.tensors.len(), NONE);
        self.task.clear();
        self.task.resize(problem.groups.len(), NONE);
        self.sequences.iter_mut().for_each(Vec::clear);
        self.events.reset();
        self.events.missing.clear();
        self.loads.fill(0.0);
        self.above_idle = Joules::ZERO;
        self.transfer_loads.clear();
        self.link_loads.fill(0.0);
        for tensor in problem.tensor_ids().filter(|tensor| problem.tensor(*tensor).producer.is_none()) {
            self.home[tensor.0 as usize] = self.add_replica(tensor, problem.source, None);
        }
        for (number, id) in (0u32..).zip(order) {
            let Some((group, device)) = problem.groups.get(id.0 as usize).zip(devices.get(id.0 as usize)) else {
                return false;
            };
            let Some(cost) = group.costs.get(device.0 as usize).copied().flatten() else { return false };
            if std::mem::replace(&mut self.task[id.0 as usize], number) != NONE {
                return false;
            }
            for tensor in &group.inputs {
                let Some(replica) = self.replica_on(*tensor, *device) else { return false };
                let read = self.reads.len() as u32;
                self.reads.push((number, NONE));
                let replica = &mut self.replicas[replica as usize];
                match replica.last_read {
                    NONE => replica.reads = read,
                    before => self.reads[before as usize].1 = read,
                }
                replica.last_read = read;
            }
            let outputs = self.replicas.len() as u32;
            for tensor in &group.outputs {
                self.home[tensor.0 as usize] = self.add_replica(*tensor, *device, None);
            }
            let outputs = outputs..self.replicas.len() as u32;
            self.tasks.push(TaskRow { device: *device, time: cost.time.0, outputs });
            self.sequences[device.0 as usize].push(TaskId(number));
            self.events.missing.push(group.inputs.len() as u32);
            self.loads[device.0 as usize] += cost.time.0;
            if self.by_energy {
                self.above_idle = self.above_idle + cost.energy_above_idle();
            }
        }
        for tensor in problem.tensor_ids().filter(|tensor| problem.tensor(*tensor).is_output) {
            self.replica_on(tensor, problem.sink);
        }
        for (device, time) in &self.transfer_loads {
            self.loads[device.0 as usize] += time;
        }
        true
    }

    fn add_replica(&mut self, tensor: TensorIndex, device: DeviceId, link: Option<LinkId>) -> u32 {
        let (reads, last_read, copies, last_copy, next_copy) = (NONE, NONE, NONE, NONE, NONE);
        self.replicas.push(ReplicaRow { tensor, device, link, reads, last_read, copies, last_copy, next_copy });
        self.replicas.len() as u32 - 1
    }

    /// The replica of a tensor on a device, sent there if necessary; `None` if the tensor is not produced yet.
    fn replica_on(&mut self, tensor: TensorIndex, device: DeviceId) -> Option<u32> {
        let home = self.home[tensor.0 as usize];
        let from = *self.replicas.get(home as usize)?;
        if from.device == device {
            return Some(home);
        }
        let mut at = from.copies;
        while at != NONE {
            if self.replicas[at as usize].device == device {
                return Some(at);
            }
            at = self.replicas[at as usize].next_copy;
        }
        let route = self.problem.route(from.device, device);
        let copy = self.add_replica(tensor, device, route);
        if let Some(link) = route {
            let (sent, carrier) = (self.problem.tensor(tensor), self.problem.link(link));
            let bytes = carrier.carried_bytes(sent);
            self.link_loads[link.0 as usize] += carrier.time(sent).0;
            self.transfer_loads.push((from.device, self.problem.handling(from.device, device).sending.time(bytes).0));
            self.transfer_loads.push((device, self.problem.handling(device, from.device).receiving.time(bytes).0));
        }
        match from.last_copy {
            NONE => self.replicas[home as usize].copies = copy,
            before => self.replicas[before as usize].next_copy = copy,
        }
        self.replicas[home as usize].last_copy = copy;
        Some(copy)
    }

    /// Simulates, and returns the makespan.
    fn run(&mut self) -> f64 {
        let inputs = self.problem.tensors.iter().filter(|tensor| tensor.producer.is_none()).count() as u32;
        let mut events = std::mem::replace(&mut self.events, EventLoop::new(0, 0));
        events.start(self, (0..inputs).map(ReplicaId));
        let makespan = events.run(self, f64::INFINITY);
        self.events = events;
        makespan.unwrap_or(f64::INFINITY)
    }

    fn row(&self, replica: ReplicaId) -> &ReplicaRow {
        &self.replicas[replica.0 as usize]
    }
}

impl TaskTables for FastEvaluator<'_> {
    type Task = TaskId;
    type Replica = ReplicaId;

    fn problem(&self) -> &Problem {
        self.problem
    }

    fn sequence(&self, device: DeviceId) -> &[TaskId] {
        &self.sequences[device.0 as usize]
    }

    fn task(&self, task: TaskId) -> (DeviceId, f64) {
        let task = &self.tasks[task.0 as usize];
        (task.device, task.time)
    }

    fn outputs(&self, task: TaskId) -> impl Iterator<Item = ReplicaId> {
        self.tasks[task.0 as usize].outputs.clone().map(ReplicaId)
    }

    fn replica(&self, replica: ReplicaId) -> (TensorIndex, [DeviceId; 2]) {
        let ReplicaRow { tensor, device, .. } = *self.row(replica);
        (tensor, [device, self.replicas[self.home[tensor.0 as usize] as usize].device])
    }

    fn readers(&self, replica: ReplicaId) -> impl Iterator<Item = TaskId> {
        let read = |at: u32| self.reads.get(at as usize);
        iter::successors(read(self.row(replica).reads), move |(_, next)| read(*next)).map(|(task, _)| TaskId(*task))
    }

    fn copies(&self, replica: ReplicaId) -> impl Iterator<Item = (ReplicaId, DeviceId, Option<LinkId>)> {
        let present = |id: u32| (id != NONE).then_some(ReplicaId(id));
        iter::successors(present(self.row(replica).copies), move |copy| present(self.row(*copy).next_copy))
            .map(|copy| (copy, self.row(copy).device, self.row(copy).link))
    }

    fn record_arrival(&mut self, replica: ReplicaId, _: f64) -> Option<LinkId> {
        self.row(replica).link
    }
}
