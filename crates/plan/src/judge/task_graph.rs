//! The task graph of a placement: the tasks of every device, the replicas of tensors that they read and write, and the
//! transfers between devices.
//!
//! The simulator, the memory account and the plan file all work on this expansion.

use crate::problem::{
    Cost, DeviceId, GroupId, LinkId, Problem, TensorIndex,
    placement::{Placement, PlacementError},
};
use edgecut_graph::units::Bytes;

/// Everything that devices and links execute under one placement.
#[derive(Debug, Clone, Default)]
pub struct TaskGraph {
    pub tasks: Vec<Task>,
    pub replicas: Vec<Replica>,
    /// For each device its tasks, in order.
    pub sequences: Vec<Vec<TaskId>>,
}

/// A group on its device.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    pub group: GroupId,
    pub device: DeviceId,
    pub cost: Cost,
    /// The replicas that it reads, all on its device, each once.
    pub inputs: Vec<ReplicaId>,
    pub outputs: Vec<ReplicaId>,
}

/// A tensor on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Replica {
    pub tensor: TensorIndex,
    pub device: DeviceId,
    pub bytes: Bytes,
    pub origin: ReplicaOrigin,
    /// The replica on the same device whose storage it shares.
    pub view_of: Option<ReplicaId>,
    /// Tasks of the same device that read it.
    pub readers: Vec<TaskId>,
    /// Replicas on other devices that are sent from it.
    pub copies: Vec<ReplicaId>,
    /// Whether it is a result of the model on the sink, which is kept until the end.
    pub is_result: bool,
}

/// How a replica comes to its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaOrigin {
    /// It is there from the start.
    Input,
    Task(TaskId),
    /// Sent from a replica on another device; `link` is `None` where transfers are free.
    Transfer {
        from: ReplicaId,
        link: Option<LinkId>,
    },
}

/// Index of a task in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// Index of a replica in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u32);

impl From<TaskId> for usize {
    fn from(task: TaskId) -> usize {
        task.0 as usize
    }
}

impl ReplicaOrigin {
    /// The link that the replica crosses.
    pub fn link(self) -> Option<LinkId> {
        match self {
            ReplicaOrigin::Transfer { link, .. } => link,
            _ => None,
        }
    }
}

impl TaskGraph {
    /// Expands `placement`.
    ///
    /// # Errors
    /// If the placement does not fit the problem, places a group on a device that cannot run it, or orders a group before
    /// one that it reads from.
    pub fn new(problem: &Problem, placement: &Placement) -> Result<TaskGraph, PlacementError> {
        let groups = problem.groups.len();
        if placement.devices.len() != groups || placement.order.len() != groups {
            let (given, ordered) = (placement.devices.len(), placement.order.len());
            return Err(PlacementError::Count { groups, given, ordered });
        }
        let mut graph = TaskGraph { sequences: vec![Vec::new(); problem.devices.len()], ..TaskGraph::default() };
        let mut homes = Homes { replicas: vec![None; problem.tensors.len()] };
        for index in problem.tensor_ids() {
            if problem.tensor(index).producer.is_none() {
                let replica = graph.add_replica(problem, index, problem.source, ReplicaOrigin::Input);
                homes.replicas[index.0 as usize] = Some(replica);
            }
        }
        let mut done = vec![false; groups];
        for &id in &placement.order {
            let misplaced = || PlacementError::Order {
                group: problem.groups.get(id.0 as usize).map_or(id.0.to_string(), |g| g.label.clone()),
            };
            let device = *placement.devices.get(id.0 as usize).ok_or_else(misplaced)?;
            if std::mem::replace(&mut done[id.0 as usize], true) {
                return Err(misplaced());
            }
            graph.add_task(problem, &mut homes, id, device, misplaced)?;
        }
        for index in problem.tensor_ids().filter(|t| problem.tensor(*t).is_output) {
            if let Some(replica) = homes.replica_on(&mut graph, problem, index, problem.sink) {
                graph.replicas[replica.0 as usize].is_result = true;
            }
        }
        Ok(graph)
    }

    pub fn task(&self, id: TaskId) -> &Task {
        &self.tasks[id.0 as usize]
    }

    pub fn replica(&self, id: ReplicaId) -> &Replica {
        &self.replicas[id.0 as usize]
    }

    fn add_task(
        &mut self,
        problem: &Problem,
        homes: &mut Homes,
        id: GroupId,
        device: DeviceId,
        misplaced: impl Fn() -> PlacementError,
    ) -> Result<(), PlacementError> {
        let group = problem.group(id);
        let impossible = || PlacementError::Impossible {
            group: group.label.clone(),
            device: problem
                .devices
                .get(device.0 as usize)
                .map_or(device.0.to_string(), |d| d.device_name().to_string()),
        };
        let cost = group.costs.get(device.0 as usize).copied().flatten().ok_or_else(impossible)?;
        let task = TaskId(self.tasks.len() as u32);
        let mut inputs = Vec::with_capacity(group.inputs.len());
        for &tensor in &group.inputs {
            let replica = homes.replica_on(self, problem, tensor, device).ok_or_else(&misplaced)?;
            self.replicas[replica.0 as usize].readers.push(task);
            inputs.push(replica);
        }
        let mut outputs = Vec::with_capacity(group.outputs.len());
        for &tensor in &group.outputs {
            let replica = self.add_replica(problem, tensor, device, ReplicaOrigin::Task(task));
            let viewed = problem.tensor(tensor).view_of;
            let viewed = viewed.and_then(|of| group.inputs.iter().position(|i| *i == of)).map(|at| inputs[at]);
            self.replicas[replica.0 as usize].view_of = viewed;
            homes.replicas[tensor.0 as usize] = Some(replica);
            outputs.push(replica);
        }
        self.tasks.push(Task { group: id, device, cost, inputs, outputs });
        self.sequences[device.0 as usize].push(task);
        Ok(())
    }

    fn add_replica(
        &mut self,
        problem: &Problem,
        tensor: TensorIndex,
        device: DeviceId,
        origin: ReplicaOrigin,
    ) -> ReplicaId {
        let id = ReplicaId(self.replicas.len() as u32);
        self.replicas.push(Replica {
            tensor,
            device,
            bytes: problem.tensor(tensor).bytes,
            origin,
            view_of: None,
            readers: Vec::new(),
            copies: Vec::new(),
            is_result: false,
        });
        id
    }
}

/// By tensor: the replica on the device that produces it, or on the source for inputs.
struct Homes {
    replicas: Vec<Option<ReplicaId>>,
}

impl Homes {
    /// The replica of `tensor` on `device`, with a transfer if it is produced elsewhere; `None` if it is not produced yet.
    fn replica_on(
        &self,
        graph: &mut TaskGraph,
        problem: &Problem,
        tensor: TensorIndex,
        device: DeviceId,
    ) -> Option<ReplicaId> {
        let home = self.replicas[tensor.0 as usize]?;
        let source = graph.replica(home).device;
        if source == device {
            return Some(home);
        }
        if let Some(&copy) = graph.replica(home).copies.iter().find(|copy| graph.replica(**copy).device == device) {
            return Some(copy);
        }
        let origin = ReplicaOrigin::Transfer { from: home, link: problem.route(source, device) };
        let copy = graph.add_replica(problem, tensor, device, origin);
        graph.replicas[home.0 as usize].copies.push(copy);
        Some(copy)
    }
}
