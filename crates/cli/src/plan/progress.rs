//! What planning says of itself on stderr, and how it is stopped: by `--time-limit` and by Ctrl-C.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    Failure,
    caller::{Event, status, tell},
    interrupt,
    verbosity::draw_target,
};
use edgecut_cluster::run::pilot::PlanEvent;
use edgecut_plan::Stop;

/// How often the line of progress is drawn.
const TICK: Duration = Duration::from_millis(200);

/// When to stop: after `limit`, if there is one, or on Ctrl-C.
pub(super) fn stop(limit: Option<Duration>) -> Result<Stop, Failure> {
    let flag = interrupt::watch("the best plan so far is used").map_err(Failure::failed)?;
    Ok(Stop::new(limit, flag))
}

/// The line of progress, with lasting lines above it.
pub(super) struct PlanProgress {
    line: ProgressBar,
    stop: Stop,
}

impl PlanProgress {
    pub fn new(stop: Stop) -> PlanProgress {
        let line = ProgressBar::with_draw_target(None, draw_target());
        let style = ProgressStyle::with_template("{elapsed:>4} {wide_msg}");
        line.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        line.enable_steady_tick(TICK);
        PlanProgress { line, stop }
    }

    /// Shows `event`.
    pub fn show(&self, event: &PlanEvent) {
        if !event.is_transient() {
            return self.line.suspend(|| status!("{event}"));
        }
        self.tell(&event.to_string());
    }

    /// Shows `what` until the next one, with the time that is left.
    pub fn tell(&self, what: &str) {
        let left = self.stop.remaining().map(|left| format!(", {:.0} s left", left.as_secs_f64()));
        tell(Event::Planning(what));
        self.line.set_message(format!("{what}{}", left.unwrap_or_default()));
    }
}

impl Drop for PlanProgress {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}
