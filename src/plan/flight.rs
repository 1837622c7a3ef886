//! Several inputs under way at a time, as a stream of results needs them: how many, and what those hold that wait while a
//! device computes for another one.
//!
//! A device computes one stretch of work after the other, each for one input; between stretches, where something has to
//! come from another device or was made for one, an input waits with what it will need again. The worst is counted: that
//! all others wait where that takes the most. Which of several equally loaded devices inputs queue at is chance.

use super::{
    account::ALIGNMENT,
    evaluate::Evaluation,
    problem::{Objective, Targets},
    work::{Origin, PieceId},
};
use crate::units::Bytes;

/// Inputs under way for each device that takes part.
pub const EACH: u32 = 2;
/// More are never under way.
pub const MOST: u32 = 64;

/// Whether a plan for this is one for a stream of inputs.
pub fn is_stream(objective: Objective, targets: &Targets) -> bool {
    objective == Objective::Throughput || targets.throughput.is_some()
}

/// How many inputs under way keep the busiest device or link busy: two a device, and as many as come between an input and
/// its result.
pub fn wanted(evaluation: &Evaluation) -> u32 {
    let used = evaluation.work.sequences.iter().filter(|jobs| !jobs.is_empty()).count() as u32;
    let between = evaluation.latency().0 / evaluation.loads.interval().0.max(f64::MIN_POSITIVE);
    (EACH * used.max(1)).max(between.min(f64::from(MOST)).ceil() as u32 + 1).min(MOST)
}

/// By device: the most that one input holds there while it waits.
pub fn waiting(evaluation: &Evaluation) -> Vec<Bytes> {
    (0..evaluation.work.sequences.len()).map(|device| on(evaluation, device)).collect()
}

/// By device what is reserved with `count` inputs under way, where one alone takes `single` and holds `waiting` while it
/// waits.
pub fn reserved(single: &[Bytes], waiting: &[Bytes], count: u32) -> Vec<Bytes> {
    single.iter().zip(waiting).map(|(single, waiting)| *single + others(*waiting, count)).collect()
}

/// What the others hold, `count` inputs being under way, where one holds `waiting`.
pub fn others(waiting: Bytes, count: u32) -> Bytes {
    Bytes(waiting.0.next_multiple_of(ALIGNMENT).saturating_mul(u64::from(count.saturating_sub(1))))
}

fn on(evaluation: &Evaluation, device: usize) -> Bytes {
    let (work, times) = (&evaluation.work, &evaluation.times);
    let sequence = &work.sequences[device];
    let count = sequence.len();
    let mut place = vec![None; work.jobs.len()];
    for (index, job) in sequence.iter().enumerate() {
        place[job.0 as usize] = Some(index);
    }
    // Border number i is before job i, the last one after all jobs. By piece: the last border at which it is held.
    let mut until: Vec<usize> = vec![0; work.pieces.len()];
    for (index, piece) in work.pieces.iter().enumerate().rev() {
        if piece.device.0 as usize != device {
            continue;
        }
        let read = piece.readers.iter().filter_map(|job| place[job.0 as usize]).max().unwrap_or(0);
        let made = match piece.origin {
            Origin::Job(job) => place[job.0 as usize].map_or(0, |at| at + 1),
            Origin::Input | Origin::Transfer { .. } => 0,
        };
        let gone = piece.copies.iter().map(|copy| times.arrivals[copy.0 as usize].0).fold(0.0, f64::max);
        let begun = sequence.iter().take_while(|job| times.starts[job.0 as usize].0 < gone).count();
        let sent = if piece.copies.is_empty() { 0 } else { begun.saturating_sub(1).max(made) };
        let kept = if piece.is_result { count } else { 0 };
        until[index] = until[index].max(read).max(sent).max(kept);
        // A view comes after what it views, so one pass from the back carries chains of views to their roots.
        if let Some(PieceId(root)) = piece.view_of {
            until[root as usize] = until[root as usize].max(until[index]);
        }
    }
    let mut change = vec![0i128; count + 2];
    for (piece, until) in work.pieces.iter().zip(until) {
        let from = match piece.origin {
            Origin::Job(job) => place[job.0 as usize].map(|at| at + 1),
            Origin::Input | Origin::Transfer { .. } => Some(0),
        };
        let Some(from) =
            from.filter(|from| piece.device.0 as usize == device && piece.view_of.is_none() && *from <= until)
        else {
            continue;
        };
        change[from] += i128::from(piece.bytes.0);
        change[until + 1] -= i128::from(piece.bytes.0);
    }
    let (mut held, mut most) = (0i128, 0i128);
    for (border, change) in change.iter().take(count + 1).enumerate() {
        held += change;
        let waits = sequence.get(border).is_some_and(|id| {
            let first = |piece: &PieceId| work.piece(*piece).readers.first() == Some(id);
            let comes = |piece: &PieceId| matches!(work.piece(*piece).origin, Origin::Transfer { .. });
            work.job(*id).inputs.iter().any(|piece| comes(piece) && first(piece))
        });
        let sends = border
            .checked_sub(1)
            .and_then(|before| sequence.get(before))
            .is_some_and(|id| work.job(*id).outputs.iter().any(|piece| !work.piece(*piece).copies.is_empty()));
        if border == 0 || border == count || waits || sends {
            most = most.max(held);
        }
    }
    Bytes(u64::try_from(most).unwrap_or(0))
}
