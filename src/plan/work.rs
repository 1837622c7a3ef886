//! A placement written out: what every device computes, what lies where, and what crosses which link.
//!
//! Strategies are expanded here once, so that the simulator, the memory account and the plan file see only
//! [`Job`]s and [`Piece`]s, whatever a strategy does to its group.

use super::{
    DeviceId, GroupId, Problem, Strategy, TensorIndex,
    problem::{Cost, LinkId},
};
use crate::units::Bytes;

/// A strategy for every group, and the order in which devices take them up.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    pub strategies: Vec<Strategy>,
    /// Every group once, in a topological order; each device follows it for the groups it has a part in.
    pub order: Vec<GroupId>,
}

/// Everything that a placement makes devices and links do.
#[derive(Debug, Clone, Default)]
pub struct Work {
    pub jobs: Vec<Job>,
    pub pieces: Vec<Piece>,
    /// For each device its jobs, in order.
    pub sequences: Vec<Vec<JobId>>,
}

/// A group, or a shard of one, on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub group: GroupId,
    pub device: DeviceId,
    pub cost: Cost,
    /// What it reads, all on its device, each once.
    pub inputs: Vec<PieceId>,
    pub outputs: Vec<PieceId>,
}

/// A tensor, or a slice of one, on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    pub tensor: TensorIndex,
    pub device: DeviceId,
    pub bytes: Bytes,
    pub origin: Origin,
    /// The piece of the same device whose bytes it shares.
    pub view_of: Option<PieceId>,
    /// Jobs of the same device that read it.
    pub readers: Vec<JobId>,
    /// Pieces of other devices that are copied from it.
    pub copies: Vec<PieceId>,
    /// Whether it must be there, on the sink, when all is done.
    pub is_result: bool,
}

/// How a piece comes to its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It is there from the start.
    Input,
    Job(JobId),
    /// Sent from a piece of another device; `link` is `None` where that is free.
    Transfer {
        from: PieceId,
        link: Option<LinkId>,
    },
}

/// Index of a job in its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u32);

/// Index of a piece in its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PieceId(pub u32);

/// Why a placement cannot be written out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    #[error("{given} strategies and {ordered} places in the order for {groups} groups")]
    Count { groups: usize, given: usize, ordered: usize },
    #[error("group {group} cannot run on {device}")]
    Impossible { group: String, device: String },
    #[error("group {group} comes before what it reads, or twice")]
    Order { group: String },
}

impl Placement {
    /// Each group whole on the device given for it, in `order`.
    pub fn whole(devices: &[DeviceId], order: &[GroupId]) -> Placement {
        let strategies = devices.iter().map(|&device| Strategy::Whole { device }).collect();
        Placement { strategies, order: order.to_vec() }
    }
}

impl Work {
    /// Writes `placement` out.
    ///
    /// # Errors
    /// If the placement does not fit the problem, uses a device for what it cannot compute, or orders a group
    /// before what it reads.
    pub fn expand(problem: &Problem, placement: &Placement) -> Result<Work, PlacementError> {
        let groups = problem.groups.len();
        if placement.strategies.len() != groups || placement.order.len() != groups {
            let (given, ordered) = (placement.strategies.len(), placement.order.len());
            return Err(PlacementError::Count { groups, given, ordered });
        }
        let mut work = Work { sequences: vec![Vec::new(); problem.devices.len()], ..Work::default() };
        let mut located = Located { homes: vec![None; problem.tensors.len()] };
        for index in problem.tensor_ids() {
            if problem.tensor(index).producer.is_none() {
                let piece = work.add_piece(problem, index, problem.source, Origin::Input);
                located.homes[index.0 as usize] = Some(piece);
            }
        }
        let mut done = vec![false; groups];
        for &id in &placement.order {
            let misplaced = || PlacementError::Order {
                group: problem.groups.get(id.0 as usize).map_or(id.0.to_string(), |g| g.name.clone()),
            };
            let strategy = placement.strategies.get(id.0 as usize).ok_or_else(misplaced)?;
            if std::mem::replace(&mut done[id.0 as usize], true) {
                return Err(misplaced());
            }
            match strategy {
                Strategy::Whole { device } => work.add_whole(problem, &mut located, id, *device, misplaced)?,
            }
        }
        for index in problem.tensor_ids().filter(|t| problem.tensor(*t).is_output) {
            if let Some(piece) = located.on(&mut work, problem, index, problem.sink) {
                work.pieces[piece.0 as usize].is_result = true;
            }
        }
        Ok(work)
    }

    pub fn job(&self, id: JobId) -> &Job {
        &self.jobs[id.0 as usize]
    }

    pub fn piece(&self, id: PieceId) -> &Piece {
        &self.pieces[id.0 as usize]
    }

    fn add_whole(
        &mut self,
        problem: &Problem,
        located: &mut Located,
        id: GroupId,
        device: DeviceId,
        misplaced: impl Fn() -> PlacementError,
    ) -> Result<(), PlacementError> {
        let group = problem.group(id);
        let impossible = || PlacementError::Impossible {
            group: group.name.clone(),
            device: problem.devices.get(device.0 as usize).map_or(device.0.to_string(), |d| d.full_name()),
        };
        let cost = group.costs.get(device.0 as usize).copied().flatten().ok_or_else(impossible)?;
        let job = JobId(self.jobs.len() as u32);
        let mut inputs = Vec::with_capacity(group.inputs.len());
        for &tensor in &group.inputs {
            let piece = located.on(self, problem, tensor, device).ok_or_else(&misplaced)?;
            self.pieces[piece.0 as usize].readers.push(job);
            inputs.push(piece);
        }
        let mut outputs = Vec::with_capacity(group.outputs.len());
        for &tensor in &group.outputs {
            let piece = self.add_piece(problem, tensor, device, Origin::Job(job));
            let shared = problem.tensor(tensor).view_of;
            let shared = shared.and_then(|of| group.inputs.iter().position(|i| *i == of)).map(|at| inputs[at]);
            self.pieces[piece.0 as usize].view_of = shared;
            located.homes[tensor.0 as usize] = Some(piece);
            outputs.push(piece);
        }
        self.jobs.push(Job { group: id, device, cost, inputs, outputs });
        self.sequences[device.0 as usize].push(job);
        Ok(())
    }

    fn add_piece(&mut self, problem: &Problem, tensor: TensorIndex, device: DeviceId, origin: Origin) -> PieceId {
        let id = PieceId(self.pieces.len() as u32);
        self.pieces.push(Piece {
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

/// Where each tensor is while a placement is written out.
struct Located {
    /// The piece that its producer makes, or the input.
    homes: Vec<Option<PieceId>>,
}

impl Located {
    /// The piece of `tensor` on `device`, sent there if need be; `None` if the tensor is not made yet.
    fn on(&self, work: &mut Work, problem: &Problem, tensor: TensorIndex, device: DeviceId) -> Option<PieceId> {
        let home = self.homes[tensor.0 as usize]?;
        let source = work.piece(home).device;
        if source == device {
            return Some(home);
        }
        if let Some(&copy) = work.piece(home).copies.iter().find(|copy| work.piece(**copy).device == device) {
            return Some(copy);
        }
        let origin = Origin::Transfer { from: home, link: problem.route(source, device) };
        let copy = work.add_piece(problem, tensor, device, origin);
        work.pieces[home.0 as usize].copies.push(copy);
        Some(copy)
    }
}
