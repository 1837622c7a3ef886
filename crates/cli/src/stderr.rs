//! Messages and progress on stderr.

use std::{
    collections::HashMap,
    fmt,
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use edgecut_session::{Cancellation, Event, Events};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::{flag_text::with_flags, interrupt, progress_line::ProgressLine, verbosity};

/// Writes a line to stderr. A line that cannot be written, as on a full disk, is dropped.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    drop(writeln!(io::stderr(), "{}", with_flags(&text.to_string())));
}

/// Like `eprintln!`, but by [`line`], which never panics.
macro_rules! notice {
    ($($arguments:tt)*) => { $crate::stderr::line(format_args!($($arguments)*)) };
}
pub(crate) use notice;

/// Like [`notice`], for progress and the names of written files. Prints nothing with `--quiet`.
macro_rules! status {
    ($($arguments:tt)*) => {
        if !$crate::verbosity::is_quiet() {
            $crate::stderr::line(format_args!($($arguments)*))
        }
    };
}
pub(crate) use status;

/// The events of a verb. Once it has results to keep, Ctrl-C cancels the verb. Before, Ctrl-C ends the program.
pub(crate) fn events() -> Events {
    let cancellation = Cancellation::keeping_results();
    let shown = Shown { interrupted: Some(cancellation.clone()), progress: Mutex::default() };
    Events::new(Arc::new(move |event| shown.hear(event)), cancellation)
}

/// Events that are shown on stderr, for a program that handles signals itself.
pub fn events_of(cancellation: Cancellation) -> Events {
    let shown = Shown { interrupted: None, progress: Mutex::default() };
    Events::new(Arc::new(move |event| shown.hear(event)), cancellation)
}

/// Shows the events of a verb.
struct Shown {
    /// What Ctrl-C cancels.
    interrupted: Option<Cancellation>,
    progress: Mutex<Option<Progress>>,
}

/// The progress of work, shown until the work is finished.
struct Progress {
    /// `None` while profiles are measured, because redrawing would disturb measurements in this process.
    line: Option<ProgressLine>,
    /// Progress bars by device.
    bars: HashMap<String, ProgressBar>,
    all: MultiProgress,
}

impl Progress {
    fn start() -> Progress {
        let all = MultiProgress::with_draw_target(verbosity::draw_target());
        Progress { line: None, bars: HashMap::new(), all }
    }

    /// Prints `text` above the progress, permanently.
    fn print(&self, text: &str) {
        let print = || line(format_args!("{text}"));
        self.all.suspend(|| self.line.as_ref().map_or_else(print, |line| line.suspend(print)));
    }

    fn line(&mut self) -> &ProgressLine {
        self.line.get_or_insert_with(ProgressLine::start)
    }

    fn measured(&mut self, device: &str, done: usize, total: usize, group: &str) {
        let all = &self.all;
        let bar = self.bars.entry(device.to_string()).or_insert_with(|| {
            let style = ProgressStyle::with_template("{elapsed:>4} {prefix} measured {pos}/{len} {wide_msg}");
            let bar = ProgressBar::new(total as u64).with_prefix(device.to_string());
            all.add(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
        });
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        bar.set_message(group.to_string());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bars.values().for_each(ProgressBar::finish_and_clear);
    }
}

impl Shown {
    fn hear(&self, event: Event<'_>) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let print = |text: &str| match &*progress {
            Some(progress) => progress.print(text),
            None => line(format_args!("{text}")),
        };
        match event {
            Event::Notice(text) => print(text),
            Event::Status(text) if !verbosity::is_quiet() => print(text),
            Event::Status(_) | Event::Token { .. } => {}
            Event::Started => *progress = Some(Progress::start()),
            Event::Finished => *progress = None,
            Event::Interruptible(kept) => {
                self.interrupted.iter().for_each(|cancellation| interrupt::watch(kept, cancellation));
            }
            Event::Measured { device, done, total, group } => {
                if let Some(progress) = &mut *progress {
                    progress.measured(device, done, total, group);
                }
            }
            Event::Planning { what, remaining } => {
                if let Some(progress) = &mut *progress {
                    let left = remaining.map(|left| format!(", {:.0} s left", left.as_secs_f64()));
                    progress.line().show(format!("{what}{}", left.unwrap_or_default()));
                }
            }
            Event::Running { what, measures_here } => {
                if let Some(progress) = &mut *progress {
                    if measures_here {
                        progress.line().stop_ticking();
                    }
                    progress.line().show(what.to_string());
                }
            }
        }
    }
}
