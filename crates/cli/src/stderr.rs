//! Lines on stderr, and how progress is shown there.

use std::{
    collections::HashMap,
    fmt,
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use edgecut_session::{Cancellation, Event, Events};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::{flag_text::with_flags, interrupt, progress_line::ProgressLine, verbosity};

/// A line on stderr. One that cannot be written, as on a full disk, stops nothing.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    drop(writeln!(io::stderr(), "{}", with_flags(&text.to_string())));
}

/// As `eprintln!`, for [`line`], which never panics.
macro_rules! notice {
    ($($arguments:tt)*) => { $crate::stderr::line(format_args!($($arguments)*)) };
}
pub(crate) use notice;

/// As [`notice`], for progress and the names of written files: not with `--quiet`.
macro_rules! status {
    ($($arguments:tt)*) => {
        if !$crate::verbosity::is_quiet() {
            $crate::stderr::line(format_args!($($arguments)*))
        }
    };
}
pub(crate) use status;

/// Events of a verb. Ctrl-C cancels it from when it has results to keep; until then it ends the program.
pub(crate) fn events() -> Events {
    let cancellation = Cancellation::keeping_results();
    let shown = Shown { interrupted: Some(cancellation.clone()), progress: Mutex::default() };
    Events::new(Arc::new(move |event| shown.hear(event)), cancellation)
}

/// Events shown on stderr, for a program that has signals of its own.
pub fn events_of(cancellation: Cancellation) -> Events {
    let shown = Shown { interrupted: None, progress: Mutex::default() };
    Events::new(Arc::new(move |event| shown.hear(event)), cancellation)
}

/// What is shown of a verb.
struct Shown {
    /// What Ctrl-C cancels.
    interrupted: Option<Cancellation>,
    progress: Mutex<Option<Progress>>,
}

/// What is shown of work that tells its progress, until it is over.
struct Progress {
    /// None while profiles are taken: what redraws it would disturb what is measured in this process.
    line: Option<ProgressLine>,
    /// By device.
    bars: HashMap<String, ProgressBar>,
    all: MultiProgress,
}

impl Progress {
    fn start() -> Progress {
        let all = MultiProgress::with_draw_target(verbosity::draw_target());
        Progress { line: None, bars: HashMap::new(), all }
    }

    /// Prints `text` above what is shown, permanently.
    fn print(&self, text: &str) {
        let print = || line(format_args!("{text}"));
        self.all.suspend(|| self.line.as_ref().map_or_else(print, |line| line.suspend(print)));
    }

    fn line(&mut self) -> &ProgressLine {
        self.line.get_or_insert_with(ProgressLine::start)
    }

    fn measured(&mut self, device: &str, done: usize, of: usize, item: &str) {
        let all = &self.all;
        let bar = self.bars.entry(device.to_string()).or_insert_with(|| {
            let style = ProgressStyle::with_template("{elapsed:>4} {prefix} measured {pos}/{len} {wide_msg}");
            let bar = ProgressBar::new(of as u64).with_prefix(device.to_string());
            all.add(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
        });
        bar.set_length(of as u64);
        bar.set_position(done as u64);
        bar.set_message(item.to_string());
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
            Event::Status(_) => {}
            Event::Started => *progress = Some(Progress::start()),
            Event::Finished => *progress = None,
            Event::Interruptible(kept) => {
                self.interrupted.iter().for_each(|cancellation| interrupt::watch(kept, cancellation));
            }
            Event::Measured { device, done, of, item } => {
                if let Some(progress) = &mut *progress {
                    progress.measured(device, done, of, item);
                }
            }
            Event::Planning { what, left } => {
                if let Some(progress) = &mut *progress {
                    let left = left.map(|left| format!(", {:.0} s left", left.as_secs_f64()));
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
