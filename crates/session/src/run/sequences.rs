//! Several sequences at a time, through the stages of one deployment.

use std::{
    sync::{Mutex, PoisonError},
    thread,
};

use super::{
    deployed::Deployed,
    sequence::{Interfaces, Select, Sequence},
    steps::SequenceSteps,
};
use crate::{Error, Events};

/// A sequence, and how its tokens are drawn.
pub(super) struct Drawn<'a> {
    pub sequence: Sequence<'a>,
    pub select: Box<Select<'a>>,
}

/// Extends all sequences by the steps of `deployed`, `at_a_time` of them. Each begins when one before it ends.
///
/// # Errors
/// The failure of an agent, if there is one; [`Error::Cancelled`], if that ends a sequence without a token; else the first one.
pub(super) fn extend_all(
    deployed: &Deployed,
    interfaces: &Interfaces,
    events: &Events,
    at_a_time: usize,
    drawn: &mut [Drawn<'_>],
) -> Result<(), Error> {
    let waiting = Mutex::new(drawn.iter_mut().filter(|drawn| !drawn.sequence.is_complete()));
    let failed = Mutex::new(Vec::new());
    let has_failed = || !failed.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
    let work = |sequence: u32| {
        let mut steps = SequenceSteps { deployed, sequence };
        loop {
            if has_failed() {
                return;
            }
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(Drawn { sequence, select }) = next else { return };
            if let Err(error) = sequence.extend(&mut steps, interfaces, events, select) {
                return failed.lock().unwrap_or_else(PoisonError::into_inner).push(error);
            }
        }
    };
    thread::scope(|scope| {
        let work = &work;
        for sequence in 1..at_a_time as u32 {
            scope.spawn(move || work(sequence));
        }
        work(0);
    });
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let cause = failed.iter().position(|error| matches!(error, Error::Agent(_)));
    let cause = cause.or_else(|| failed.iter().position(|error| matches!(error, Error::Cancelled))).unwrap_or(0);
    if failed.is_empty() { Ok(()) } else { Err(failed.swap_remove(cause)) }
}
