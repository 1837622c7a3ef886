//! What planning says of itself on stderr, and how it is stopped: by `--time-limit` and by Ctrl-C.

use std::time::Duration;

use crate::{
    Failure,
    caller::{Event, tell},
    interrupt,
    progress_line::ProgressLine,
};
use edgecut_cluster::run::pilot::PlanEvent;
use edgecut_plan::Stop;

/// When to stop: after `limit`, if there is one, or on Ctrl-C.
pub(super) fn stop(limit: Option<Duration>) -> Result<Stop, Failure> {
    let flag = interrupt::watch("the best plan so far is used").map_err(Failure::failed)?;
    Ok(Stop::new(limit, flag))
}

/// The line of progress, with lasting lines above it.
pub(super) struct PlanProgress {
    line: ProgressLine,
    stop: Stop,
}

impl PlanProgress {
    pub fn new(stop: Stop) -> PlanProgress {
        PlanProgress { line: ProgressLine::start(), stop }
    }

    /// Shows `event`.
    pub fn show(&self, event: &PlanEvent) {
        if !event.is_transient() {
            return self.line.print(event);
        }
        self.tell(&event.to_string());
    }

    /// Shows `what` until the next one, with the time that is left.
    pub fn tell(&self, what: &str) {
        let left = self.stop.remaining().map(|left| format!(", {:.0} s left", left.as_secs_f64()));
        tell(Event::Planning(what));
        self.line.show(format!("{what}{}", left.unwrap_or_default()));
    }
}
