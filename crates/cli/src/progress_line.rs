//! One line of progress on stderr, redrawn during a wait; permanent lines go above it.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::verbosity::draw_target;

/// The line; it is erased when this is dropped.
pub struct ProgressLine {
    bar: ProgressBar,
}

/// How often it is drawn.
const TICK: Duration = Duration::from_millis(200);

impl ProgressLine {
    /// An empty line, with the time elapsed from now on.
    pub fn start() -> ProgressLine {
        let bar = ProgressBar::with_draw_target(None, draw_target());
        let style = ProgressStyle::with_template("{elapsed:>4} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.enable_steady_tick(TICK);
        ProgressLine { bar }
    }

    /// Shows `what` until the next one.
    pub fn show(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Does `work`, which prints, with the line out of the way.
    pub fn suspend(&self, work: impl FnOnce()) {
        self.bar.suspend(work);
    }

    /// Draws it only when something new is shown, so that no thread wakes in between.
    pub fn stop_ticking(&self) {
        self.bar.disable_steady_tick();
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
