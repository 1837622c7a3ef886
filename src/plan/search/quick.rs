//! The score of a whole placement without writing anything down: the same simulation as [`crate::plan::simulate`] on flat
//! tables that are used again and again, for searches that look at thousands of placements.
//!
//! It is the same to the last bit, ties included: jobs and pieces have the numbers that [`Work::expand`] gives them, and
//! events of one instant come in the same order. Where memory counts it leaves the work to [`Evaluation`].
//!
//! [`Work::expand`]: crate::plan::work::Work::expand

use std::collections::BinaryHeap;

use crate::plan::{
    DeviceId, GroupId, Problem,
    at::At,
    evaluate::{Evaluation, Score},
    problem::Objective,
    work::{Placement, PlacementError},
};

/// No piece, no link, no job.
const NONE: u32 = u32::MAX;

/// Scores placements of one problem.
pub struct Quick<'a> {
    problem: &'a Problem,
    /// Whether memory may decide anything, so that the full account is needed.
    heavy: bool,
    /// By group: its job, which is its place in the order.
    job: Vec<u32>,
    /// By tensor: the piece that its producer makes, or the input.
    home: Vec<u32>,
    pieces: Vec<Piece>,
    /// Reads of pieces by jobs, chained by piece.
    reads: Vec<(u32, u32)>,
    jobs: Vec<Job>,
    /// By device: its jobs in order, as the next job of each job; the first, and the last.
    first: Vec<u32>,
    last: Vec<u32>,
    busy: Vec<bool>,
    loads: Vec<f64>,
    link_loads: Vec<f64>,
    link_busy: Vec<bool>,
    queues: Vec<BinaryHeap<At<(u32, u32, u32)>>>,
    events: BinaryHeap<At<(u8, u32)>>,
}

#[derive(Clone, Copy)]
struct Piece {
    tensor: u32,
    device: u32,
    link: u32,
    /// First and last of its reads, and of its copies; the next copy of what it is copied from.
    reads: u32,
    last_read: u32,
    copies: u32,
    last_copy: u32,
    next_copy: u32,
}

#[derive(Clone, Copy)]
struct Job {
    group: u32,
    device: u32,
    time: f64,
    missing: u32,
    /// The first of its outputs, which have consecutive numbers.
    outputs: u32,
    next: u32,
}

/// Kinds of events in the order in which they happen at one instant.
const FINISH: u8 = 0;
const ARRIVE: u8 = 1;
const SERVE: u8 = 2;

/// More bytes than any device can come to hold.
fn everything(problem: &Problem) -> u64 {
    let costs = |group: &crate::plan::problem::Group| {
        let each = group.costs.iter().flatten().map(|cost| cost.held.0.saturating_add(cost.workspace.0));
        each.max().unwrap_or(0)
    };
    let tensors = problem.tensors.iter().map(|tensor| tensor.bytes.0);
    let parameters = problem.parameters.iter().map(|bytes| bytes.0);
    tensors.chain(parameters).chain(problem.groups.iter().map(costs)).fold(0, u64::saturating_add)
}

impl<'a> Quick<'a> {
    pub fn new(problem: &'a Problem) -> Quick<'a> {
        let all = everything(problem);
        let limited = problem.devices.iter().any(|device| device.memory.is_some_and(|limit| limit.0 < all));
        let devices = problem.devices.len();
        Quick {
            problem,
            heavy: limited || problem.objective == Objective::Memory,
            job: Vec::new(),
            home: Vec::new(),
            pieces: Vec::new(),
            reads: Vec::new(),
            jobs: Vec::new(),
            first: vec![NONE; devices],
            last: vec![NONE; devices],
            busy: vec![false; devices],
            loads: vec![0.0; devices],
            link_loads: vec![0.0; problem.links.len()],
            link_busy: vec![false; problem.links.len()],
            queues: problem.links.iter().map(|_| BinaryHeap::new()).collect(),
            events: BinaryHeap::new(),
        }
    }

    /// The score of each group on the device in `devices`, taken up in `order`.
    ///
    /// # Errors
    /// If the placement is impossible.
    pub fn score(&mut self, devices: &[DeviceId], order: &[GroupId]) -> Result<Score, PlacementError> {
        let groups = self.problem.groups.len();
        if self.heavy || devices.len() != groups || order.len() != groups || !self.expand(devices, order) {
            return Ok(Evaluation::of(self.problem, Placement::whole(devices, order))?.score);
        }
        let makespan = self.run();
        let interval = self.loads.iter().chain(&self.link_loads).fold(0.0, |a: f64, b| a.max(*b));
        Ok(self.judge(makespan, interval))
    }

    /// Whether memory may decide anything, so that times alone say nothing.
    pub fn needs_account(&self) -> bool {
        self.heavy
    }

    /// The score of a placement by its makespan and the time between results, where memory decides nothing.
    pub fn judge(&self, makespan: f64, interval: f64) -> Score {
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
        };
        Score { violation, value, tie }
    }

    /// Fills the tables. False if the placement is impossible: whoever says why does the work anew.
    fn expand(&mut self, devices: &[DeviceId], order: &[GroupId]) -> bool {
        let problem = self.problem;
        self.pieces.clear();
        self.reads.clear();
        self.jobs.clear();
        self.home.clear();
        self.home.resize(problem.tensors.len(), NONE);
        self.job.clear();
        self.job.resize(problem.groups.len(), NONE);
        self.first.fill(NONE);
        self.last.fill(NONE);
        self.busy.fill(false);
        self.loads.fill(0.0);
        self.link_loads.fill(0.0);
        self.link_busy.fill(false);
        for (index, tensor) in problem.tensors.iter().enumerate() {
            if tensor.producer.is_none() {
                self.home[index] = self.add_piece(index as u32, problem.source.0, NONE);
            }
        }
        for (number, id) in (0u32..).zip(order) {
            let Some((group, device)) = problem.groups.get(id.0 as usize).zip(devices.get(id.0 as usize)) else {
                return false;
            };
            let Some(cost) = group.costs.get(device.0 as usize).copied().flatten() else { return false };
            if std::mem::replace(&mut self.job[id.0 as usize], number) != NONE {
                return false;
            }
            for tensor in &group.inputs {
                let Some(piece) = self.piece_on(tensor.0, device.0) else { return false };
                let read = self.reads.len() as u32;
                self.reads.push((number, NONE));
                let piece = &mut self.pieces[piece as usize];
                match piece.last_read {
                    NONE => piece.reads = read,
                    before => self.reads[before as usize].1 = read,
                }
                piece.last_read = read;
            }
            let outputs = self.pieces.len() as u32;
            for tensor in &group.outputs {
                self.home[tensor.0 as usize] = self.add_piece(tensor.0, device.0, NONE);
            }
            let (time, missing) = (cost.time.0, group.inputs.len() as u32);
            self.jobs.push(Job { group: id.0, device: device.0, time, missing, outputs, next: NONE });
            self.loads[device.0 as usize] += time;
            match self.last[device.0 as usize] {
                NONE => self.first[device.0 as usize] = number,
                before => self.jobs[before as usize].next = number,
            }
            self.last[device.0 as usize] = number;
        }
        for (index, _) in problem.tensors.iter().enumerate().filter(|(_, tensor)| tensor.is_output) {
            self.piece_on(index as u32, problem.sink.0);
        }
        true
    }

    fn add_piece(&mut self, tensor: u32, device: u32, link: u32) -> u32 {
        let (reads, last_read, copies, last_copy, next_copy) = (NONE, NONE, NONE, NONE, NONE);
        self.pieces.push(Piece { tensor, device, link, reads, last_read, copies, last_copy, next_copy });
        self.pieces.len() as u32 - 1
    }

    /// The piece of a tensor on a device, copied there if need be; `None` if the tensor is not made yet.
    fn piece_on(&mut self, tensor: u32, device: u32) -> Option<u32> {
        let home = self.home[tensor as usize];
        let from = *self.pieces.get(home as usize)?;
        if from.device == device {
            return Some(home);
        }
        let mut at = from.copies;
        while at != NONE {
            if self.pieces[at as usize].device == device {
                return Some(at);
            }
            at = self.pieces[at as usize].next_copy;
        }
        let route = self.problem.route(DeviceId(from.device), DeviceId(device));
        let copy = self.add_piece(tensor, device, route.map_or(NONE, |link| link.0));
        if let Some(link) = route {
            let bytes = self.problem.tensors[tensor as usize].bytes;
            self.link_loads[link.0 as usize] += self.problem.link(link).time(bytes).0;
        }
        match from.last_copy {
            NONE => self.pieces[home as usize].copies = copy,
            before => self.pieces[before as usize].next_copy = copy,
        }
        self.pieces[home as usize].last_copy = copy;
        Some(copy)
    }

    /// Simulates, and returns when the last thing is done.
    fn run(&mut self) -> f64 {
        let inputs = self.problem.tensors.iter().filter(|tensor| tensor.producer.is_none()).count() as u32;
        for piece in 0..inputs {
            self.events.push(At(0.0, (ARRIVE, piece)));
        }
        for device in 0..self.first.len() {
            self.start_next(device, 0.0);
        }
        let mut makespan = 0.0;
        while let Some(At(now, (kind, id))) = self.events.pop() {
            makespan = now;
            match kind {
                FINISH => {
                    let job = self.jobs[id as usize];
                    self.busy[job.device as usize] = false;
                    let made = self.problem.groups[job.group as usize].outputs.len() as u32;
                    for output in job.outputs..job.outputs + made {
                        self.arrive(output, now);
                    }
                    self.start_next(job.device as usize, now);
                }
                ARRIVE => {
                    let link = self.pieces[id as usize].link;
                    if link != NONE {
                        self.link_busy[link as usize] = false;
                        self.events.push(At(now, (SERVE, link)));
                    }
                    self.arrive(id, now);
                }
                _ => self.serve(id as usize, now),
            }
        }
        makespan
    }

    fn start_next(&mut self, device: usize, now: f64) {
        let next = self.first[device];
        if next == NONE || self.busy[device] || self.jobs[next as usize].missing > 0 {
            return;
        }
        let job = self.jobs[next as usize];
        self.busy[device] = true;
        self.first[device] = job.next;
        self.events.push(At(now + job.time, (FINISH, next)));
    }

    fn arrive(&mut self, id: u32, now: f64) {
        let piece = self.pieces[id as usize];
        let mut read = piece.reads;
        while read != NONE {
            let (job, next) = self.reads[read as usize];
            self.jobs[job as usize].missing -= 1;
            read = next;
        }
        let mut copy = piece.copies;
        while copy != NONE {
            let target = self.pieces[copy as usize];
            if target.link == NONE {
                self.events.push(At(now, (ARRIVE, copy)));
            } else {
                self.queues[target.link as usize].push(At(now, (target.tensor, target.device, copy)));
                if !self.link_busy[target.link as usize] {
                    self.events.push(At(now, (SERVE, target.link)));
                }
            }
            copy = target.next_copy;
        }
        self.start_next(piece.device as usize, now);
    }

    fn serve(&mut self, link: usize, now: f64) {
        if self.link_busy[link] {
            return;
        }
        let Some(At(_, (tensor, _, piece))) = self.queues[link].pop() else { return };
        self.link_busy[link] = true;
        let bytes = self.problem.tensors[tensor as usize].bytes;
        self.events.push(At(now + self.problem.links[link].time(bytes).0, (ARRIVE, piece)));
    }
}
