//! When everything happens: the one simulation that plans are judged by.
//!
//! Every device runs its jobs one at a time in plan order; every directed link carries one transfer at a time,
//! first come first served; devices and links overlap freely; inputs start on the source, results must arrive
//! at the sink. A transfer is asked for when its tensor is made. Of transfers asked for at one instant the one
//! of the lower tensor goes first, then the one to the lower device.

use std::collections::BinaryHeap;

use super::{
    Problem,
    at::At,
    work::{JobId, Origin, PieceId, Work},
};
use crate::units::Micros;

/// The times of one run of a work, alone in the cluster.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Timeline {
    /// By job.
    pub starts: Vec<Micros>,
    pub finishes: Vec<Micros>,
    /// By piece: when its transfer takes hold of the link, or when the job that makes it starts.
    pub births: Vec<Micros>,
    /// By piece: when it can be read.
    pub arrivals: Vec<Micros>,
    /// When the last thing is done.
    pub makespan: Micros,
}

/// The sums of times by which throughput is limited.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Loads {
    pub devices: Vec<Micros>,
    pub links: Vec<Micros>,
}

/// What happens at an instant; the order of the variants is that in which one instant's events happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Finish(JobId),
    Arrive(PieceId),
    /// A link looks for its next transfer.
    Serve(u32),
}

/// The state of the simulation.
struct Simulation<'a> {
    problem: &'a Problem,
    work: &'a Work,
    times: Timeline,
    events: BinaryHeap<At<Event>>,
    /// By job: inputs that are not there yet.
    missing: Vec<u32>,
    /// By device: the place of the next job in its sequence.
    next: Vec<usize>,
    busy: Vec<bool>,
    /// By link: transfers that wait, by time of asking, tensor, receiver.
    queues: Vec<BinaryHeap<At<(u32, u32, PieceId)>>>,
    link_busy: Vec<bool>,
}

/// Runs `work` once.
///
/// A work that [`Work::expand`] made always runs to its end, because its sequences follow one topological order.
pub fn simulate(problem: &Problem, work: &Work) -> Timeline {
    let never = Micros(f64::INFINITY);
    let mut sim = Simulation {
        problem,
        work,
        times: Timeline {
            starts: vec![never; work.jobs.len()],
            finishes: vec![never; work.jobs.len()],
            births: vec![never; work.pieces.len()],
            arrivals: vec![never; work.pieces.len()],
            makespan: Micros::ZERO,
        },
        events: BinaryHeap::new(),
        missing: work.jobs.iter().map(|j| j.inputs.len() as u32).collect(),
        next: vec![0; problem.devices.len()],
        busy: vec![false; problem.devices.len()],
        queues: vec![BinaryHeap::new(); problem.links.len()],
        link_busy: vec![false; problem.links.len()],
    };
    for (piece, _) in (0u32..).map(PieceId).zip(&work.pieces).filter(|(_, p)| p.origin == Origin::Input) {
        sim.times.births[piece.0 as usize] = Micros::ZERO;
        sim.events.push(At(0.0, Event::Arrive(piece)));
    }
    for device in 0..problem.devices.len() {
        sim.start_next(device, 0.0);
    }
    while let Some(At(now, event)) = sim.events.pop() {
        sim.times.makespan = Micros(now);
        match event {
            Event::Finish(job) => sim.finish(job, now),
            Event::Arrive(piece) => {
                if let Origin::Transfer { link: Some(link), .. } = work.piece(piece).origin {
                    sim.link_busy[link.0 as usize] = false;
                    sim.events.push(At(now, Event::Serve(link.0)));
                }
                sim.arrive(piece, now);
            }
            Event::Serve(link) => sim.serve(link as usize, now),
        }
    }
    sim.times
}

/// The load of every device and link: what they are busy with for one result.
pub fn loads(problem: &Problem, work: &Work) -> Loads {
    let mut loads =
        Loads { devices: vec![Micros::ZERO; problem.devices.len()], links: vec![Micros::ZERO; problem.links.len()] };
    for job in &work.jobs {
        loads.devices[job.device.0 as usize] += job.cost.time;
    }
    for piece in &work.pieces {
        if let Origin::Transfer { link: Some(link), .. } = piece.origin {
            loads.links[link.0 as usize] += problem.link(link).time(piece.bytes);
        }
    }
    loads
}

impl Loads {
    /// The largest of them: the time between results when inputs are pipelined.
    pub fn interval(&self) -> Micros {
        self.devices.iter().chain(&self.links).fold(Micros::ZERO, |a, b| a.max(*b))
    }
}

impl Simulation<'_> {
    fn start_next(&mut self, device: usize, now: f64) {
        let Some(&id) = self.work.sequences[device].get(self.next[device]) else { return };
        if self.busy[device] || self.missing[id.0 as usize] > 0 {
            return;
        }
        self.busy[device] = true;
        self.next[device] += 1;
        let work = self.work;
        let job = work.job(id);
        let finish = now + job.cost.time.0;
        self.times.starts[id.0 as usize] = Micros(now);
        self.times.finishes[id.0 as usize] = Micros(finish);
        for output in &job.outputs {
            self.times.births[output.0 as usize] = Micros(now);
        }
        self.events.push(At(finish, Event::Finish(id)));
    }

    fn finish(&mut self, id: JobId, now: f64) {
        let work = self.work;
        let job = work.job(id);
        self.busy[job.device.0 as usize] = false;
        for &output in &job.outputs {
            self.arrive(output, now);
        }
        self.start_next(job.device.0 as usize, now);
    }

    fn arrive(&mut self, id: PieceId, now: f64) {
        self.times.arrivals[id.0 as usize] = Micros(now);
        let work = self.work;
        let piece = work.piece(id);
        for reader in &piece.readers {
            self.missing[reader.0 as usize] -= 1;
        }
        for &copy in &piece.copies {
            let target = work.piece(copy);
            match target.origin {
                Origin::Transfer { link: Some(link), .. } => {
                    self.queues[link.0 as usize].push(At(now, (target.tensor.0, target.device.0, copy)));
                    if !self.link_busy[link.0 as usize] {
                        self.events.push(At(now, Event::Serve(link.0)));
                    }
                }
                _ => {
                    self.times.births[copy.0 as usize] = Micros(now);
                    self.events.push(At(now, Event::Arrive(copy)));
                }
            }
        }
        self.start_next(piece.device.0 as usize, now);
    }

    /// Gives a free link its next transfer: when one ends, and when one is asked for while the link is free.
    fn serve(&mut self, link: usize, now: f64) {
        if self.link_busy[link] {
            return;
        }
        let Some(At(_, (.., piece))) = self.queues[link].pop() else { return };
        self.link_busy[link] = true;
        let end = now + self.problem.links[link].time(self.work.piece(piece).bytes).0;
        self.times.births[piece.0 as usize] = Micros(now);
        self.events.push(At(end, Event::Arrive(piece)));
    }
}
