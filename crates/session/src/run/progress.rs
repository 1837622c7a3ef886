//! Progress of a run: loaded devices and finished runs, with an estimate of the remaining time.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::RunProgress;

use crate::{Event, Events, events::Progress};

/// Reports the progress of a run until it is dropped.
pub(super) struct RunWatch<'a> {
    events: &'a Events,
    count: Mutex<Option<Count>>,
    _shown: Progress<'a>,
}

/// The state of the count of finished runs.
#[derive(Clone, Copy)]
struct Count {
    /// When the first run was finished.
    first: Instant,
    shown: Instant,
}

/// Minimum interval between reports of the count, so that they do not delay short runs.
const INTERVAL: Duration = Duration::from_millis(200);

impl<'a> RunWatch<'a> {
    pub fn start(events: &'a Events) -> RunWatch<'a> {
        RunWatch { events, count: Mutex::new(None), _shown: events.progress() }
    }

    /// Reports `progress`.
    pub fn show(&self, progress: RunProgress<'_>) {
        match progress {
            RunProgress::Queued { server, queued } => self.events.status(format_args!("{server}: {queued}")),
            RunProgress::Loading { left: [], .. } => {}
            RunProgress::Loading { left, of } => {
                let done = of.saturating_sub(left.len());
                self.tell(&format!("{done} of {of} devices loaded, waiting for {}", left.join(", ")));
            }
            RunProgress::WarmingUp => self.tell("warming up"),
            RunProgress::Finished { done, of } => self.count(done, of),
        }
    }

    /// Reports what the run does now.
    pub fn tell(&self, what: &str) {
        self.events.emit(Event::Running { what, measures_here: false });
    }

    /// Like [`RunWatch::tell`], before a measurement in this process.
    pub fn tell_measured(&self, what: &str) {
        self.events.emit(Event::Running { what, measures_here: true });
    }

    /// Reports that `done` of `of` runs are finished, unless the last report was less than [`INTERVAL`] ago.
    pub fn count(&self, done: u64, of: u64) {
        let now = Instant::now();
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let first = count.map_or(now, |count| count.first);
        if count.is_some_and(|count| now.saturating_duration_since(count.shown) < INTERVAL) {
            return;
        }
        *count = Some(Count { first, shown: now });
        drop(count);
        let left = left(now.saturating_duration_since(first), done, of);
        self.tell(&format!("{done} of {of} runs finished{left}"));
    }
}

/// The estimate of the remaining time, `elapsed` after the first of `done` runs was finished. Empty after a single run.
fn left(elapsed: Duration, done: u64, of: u64) -> String {
    match done {
        0 | 1 => String::new(),
        _ => {
            let seconds = elapsed.as_secs_f64() / (done - 1) as f64 * of.saturating_sub(done) as f64;
            format!(", about {seconds:.0} s left")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_the_mean_time_of_a_run() {
        assert_eq!(left(Duration::from_secs(6), 3, 10), ", about 21 s left");
        assert_eq!(left(Duration::from_secs(6), 10, 10), ", about 0 s left");
        assert_eq!(left(Duration::ZERO, 1, 10), "");
    }
}
