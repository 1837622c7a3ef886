//! Progress of a run on stderr: loading by device, and the number of finished runs, with an estimate of the time left.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    caller::{Event, tell},
    progress_line::ProgressLine,
};
use edgecut_cluster::run::RunProgress;

/// The line of progress of a run.
pub(super) struct RunLine {
    line: ProgressLine,
    count: Mutex<Option<Count>>,
}

/// The state of the count of finished runs.
#[derive(Clone, Copy)]
struct Count {
    /// When the first one was finished.
    first: Instant,
    shown: Instant,
}

/// How often the count is shown, so that short runs are not delayed.
const INTERVAL: Duration = Duration::from_millis(200);

impl RunLine {
    pub fn start() -> RunLine {
        RunLine { line: ProgressLine::start(), count: Mutex::new(None) }
    }

    /// Shows `progress`.
    pub fn show(&self, progress: RunProgress<'_>) {
        match progress {
            RunProgress::Queued { server, queued } => self.line.print(format_args!("{server}: {queued}")),
            RunProgress::Loading { left: [], .. } => {}
            RunProgress::Loading { left, of } => {
                let done = of.saturating_sub(left.len());
                self.tell(&format!("{done} of {of} devices loaded, waiting for {}", left.join(", ")));
            }
            RunProgress::WarmingUp => self.tell("warming up"),
            RunProgress::Finished { done, of } => self.count(done, of),
        }
    }

    /// Shows `what` until the next one.
    pub fn tell(&self, what: &str) {
        tell(Event::Running(what));
        self.line.show(what.to_string());
    }

    /// As [`RunLine::tell`], before a measurement in this process: from then on, the line is only drawn between runs.
    pub fn tell_measured(&self, what: &str) {
        self.line.stop_ticking();
        self.tell(what);
    }

    /// Shows that `done` of `of` runs are finished, unless that was shown a moment ago.
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

/// The estimate of the time left, `elapsed` after the first of `done` runs was finished; empty after a single run.
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
