//! What every device holds when: parameters, live tensors and workspace.
//!
//! A tensor lives on a device from its producer's start, or from the start of its arrival, to the end of its last
//! local use or departure; views share the bytes of what they view; inputs live from the beginning and results,
//! on the sink, for ever. Lifetimes are half open: what ends when another begins does not meet it.

use super::{
    DeviceId, Problem,
    simulate::Timeline,
    work::{Origin, PieceId, Work},
};
use crate::{
    memory::{self, ArenaError, Buffer, Packing},
    units::{Bytes, Micros},
};

/// The memory of one device over one run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Account {
    /// Parameters, each once, and what the engine holds beside them.
    pub parameters: Bytes,
    /// Most that parameters, live tensors and workspace take together.
    pub load: Bytes,
    /// When that is reached first.
    pub at: Micros,
    /// The largest workspace of any job.
    pub workspace: Bytes,
    /// Tensors and workspaces with their lifetimes.
    pub holdings: Vec<Holding>,
}

/// Something that occupies memory from `from` until `to`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Holding {
    pub from: Micros,
    pub to: Micros,
    pub bytes: Bytes,
}

/// Offsets are multiples of this: what vector units like, and what engines ask their allocators for.
pub const ALIGNMENT: u64 = 64;

/// The accounts of all devices, in their order.
pub fn accounts(problem: &Problem, work: &Work, times: &Timeline) -> Vec<Account> {
    let mut accounts: Vec<Account> = problem.device_ids().map(|d| standing(problem, work, d)).collect();
    let deaths = deaths(work, times);
    for ((piece, from), to) in work.pieces.iter().zip(&times.births).zip(&deaths) {
        if piece.view_of.is_none() {
            let holding = Holding { from: *from, to: *to, bytes: piece.bytes };
            accounts[piece.device.0 as usize].holdings.push(holding);
        }
    }
    for (job, (from, to)) in work.jobs.iter().zip(times.starts.iter().zip(&times.finishes)) {
        let account = &mut accounts[job.device.0 as usize];
        account.workspace = account.workspace.max(job.cost.workspace);
        account.holdings.push(Holding { from: *from, to: *to, bytes: job.cost.workspace });
    }
    for account in &mut accounts {
        account.holdings.retain(|h| h.bytes > Bytes::ZERO && h.from < h.to);
        (account.load, account.at) = peak(&account.holdings);
        account.load += account.parameters;
    }
    accounts
}

impl Account {
    /// Places tensors and workspaces in one arena; with the parameters, its height is what the device must have.
    ///
    /// # Errors
    /// If the sizes together do not fit in 63 bits.
    pub fn pack(&self) -> Result<Packing, ArenaError> {
        let mut instants: Vec<f64> = self.holdings.iter().flat_map(|h| [h.from.0, h.to.0]).collect();
        instants.sort_by(f64::total_cmp);
        instants.dedup();
        let step = |time: Micros| instants.partition_point(|t| *t < time.0) as u64;
        let buffer = |h: &Holding| Buffer::new(step(h.from), step(h.to), h.bytes).align(ALIGNMENT);
        let buffers: Vec<Buffer> = self.holdings.iter().map(buffer).collect();
        memory::pack(&buffers, &memory::Options::default())
    }
}

/// What the device holds throughout.
fn standing(problem: &Problem, work: &Work, device: DeviceId) -> Account {
    let mut counted = vec![false; problem.parameters.len()];
    let mut account = Account::default();
    for job in work.sequences[device.0 as usize].iter().map(|id| work.job(*id)) {
        account.parameters += job.cost.held;
        for parameter in &problem.group(job.group).parameters {
            if !std::mem::replace(&mut counted[parameter.0 as usize], true) {
                account.parameters += problem.parameters[parameter.0 as usize];
            }
        }
    }
    account
}

/// When the bytes of each piece are free again, views counted with what they view.
fn deaths(work: &Work, times: &Timeline) -> Vec<Micros> {
    let mut deaths: Vec<Micros> = Vec::with_capacity(work.pieces.len());
    for piece in &work.pieces {
        let made = match piece.origin {
            Origin::Job(job) => times.finishes[job.0 as usize],
            Origin::Input | Origin::Transfer { .. } => Micros::ZERO,
        };
        let read = piece.readers.iter().map(|job| times.finishes[job.0 as usize]);
        let sent = piece.copies.iter().map(|copy| times.arrivals[copy.0 as usize]);
        let last = read.chain(sent).fold(made, Micros::max);
        deaths.push(if piece.is_result { Micros(f64::INFINITY) } else { last });
    }
    // A view comes after what it views, so one pass from the back carries chains of views to their roots.
    for (index, piece) in work.pieces.iter().enumerate().rev() {
        if let Some(PieceId(root)) = piece.view_of {
            deaths[root as usize] = deaths[root as usize].max(deaths[index]);
        }
    }
    deaths
}

/// The largest sum of holdings at one instant, and the first such instant.
fn peak(holdings: &[Holding]) -> (Bytes, Micros) {
    let mut events: Vec<(f64, bool, u64)> = Vec::with_capacity(holdings.len() * 2);
    for holding in holdings {
        events.push((holding.from.0, true, holding.bytes.0));
        events.push((holding.to.0, false, holding.bytes.0));
    }
    events.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut now, mut top, mut at) = (0u64, 0u64, 0.0);
    for (time, born, bytes) in events {
        now = if born { now.saturating_add(bytes) } else { now.saturating_sub(bytes) };
        if now > top {
            (top, at) = (now, time);
        }
    }
    (Bytes(top), Micros(at))
}
