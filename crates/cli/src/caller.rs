//! The program that calls a verb as a function: it hears of progress, and can stop the work. The command line calls none,
//! so progress goes to stderr, and Ctrl-C means what each verb says.

use std::{
    cell::RefCell,
    fmt,
    future::Future,
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::Failure;

/// Who called. It holds for the work of one thread; verbs report and look for a stop on the thread that they run on.
#[derive(Clone)]
pub struct Caller {
    /// Hears of progress; without it, stderr does.
    pub listener: Option<Listener>,
    /// Set to stop the work.
    pub stop: &'static AtomicBool,
}

/// See [`Caller::listener`].
pub type Listener = Arc<dyn Fn(Event<'_>) + Send + Sync>;

/// What a caller hears.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// Something to know, in a sentence.
    Notice(&'a str),
    /// Items of a model that are measured on a device; the last one is `item`.
    Measured { device: &'a str, done: usize, of: usize, item: &'a str },
    /// What a planner does now.
    Planning(&'a str),
    /// What a run is doing.
    Running(&'a str),
}

/// How soon a stop is noticed.
const STOP_DELAY: Duration = Duration::from_millis(50);

thread_local! {
    static CURRENT: RefCell<Option<Caller>> = const { RefCell::new(None) };
}

impl Caller {
    /// Does `work` for this caller.
    pub fn call<R>(&self, work: impl FnOnce() -> R) -> R {
        let before = CURRENT.replace(Some(self.clone()));
        let result = work();
        CURRENT.set(before);
        result
    }

    /// The caller of the work on this thread.
    pub(crate) fn current() -> Option<Caller> {
        CURRENT.with_borrow(Clone::clone)
    }
}

/// Whether progress is told, and not shown.
pub(crate) fn has_listener() -> bool {
    Caller::current().is_some_and(|caller| caller.listener.is_some())
}

/// Tells a listener, if there is one.
pub(crate) fn tell(event: Event<'_>) {
    if let Some(listener) = Caller::current().and_then(|caller| caller.listener) {
        listener(event);
    }
}

/// A line on stderr, or for the listener.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    match Caller::current().and_then(|caller| caller.listener) {
        Some(listener) => listener(Event::Notice(&text.to_string())),
        // A stderr that cannot be written, such as a full disk, stops nothing.
        None => drop(writeln!(io::stderr(), "{text}")),
    }
}

/// As `eprintln!`, for [`line`], which never panics.
macro_rules! notice {
    ($($arguments:tt)*) => { $crate::caller::line(format_args!($($arguments)*)) };
}
pub(crate) use notice;

/// As [`notice`], for progress and the names of written files: not with `--quiet`.
macro_rules! status {
    ($($arguments:tt)*) => {
        if !$crate::verbosity::is_quiet() {
            $crate::caller::line(format_args!($($arguments)*))
        }
    };
}
pub(crate) use status;

/// Whether the caller wants no more.
pub(crate) fn is_stopped() -> bool {
    Caller::current().is_some_and(|caller| caller.stop.load(Ordering::Relaxed))
}

/// Does `work` until the caller stops it; what it has stored by then stays.
///
/// # Errors
/// Those of `work`, and [`Failure::Stopped`].
pub(crate) async fn until_stopped<T, E: From<Failure>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let stopped = async {
        while !is_stopped() {
            tokio::time::sleep(STOP_DELAY).await;
        }
    };
    tokio::select! {
        done = work => done,
        () = stopped => Err(Failure::Stopped.into()),
    }
}
