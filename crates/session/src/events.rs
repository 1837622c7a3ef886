//! What a caller hears of work, and how it ends the work early.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use edgecut_plan::Stop;

use crate::Error;

/// What a caller hears.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// Something to know about the result, in a sentence.
    Notice(&'a str),
    /// What was done, such as a file that was written.
    Status(&'a str),
    /// Work begins that tells its progress; the next ones are of it.
    Started,
    /// Items of a model that are measured on a device; the last one is `item`.
    Measured { device: &'a str, done: usize, of: usize, item: &'a str },
    /// What a planner does now, and the time that it has left.
    Planning { what: &'a str, left: Option<Duration> },
    /// What a run does now. Where it measures in this process, nothing else is to disturb it until the next event.
    Running { what: &'a str, measures_here: bool },
    /// The work that was started is over.
    Finished,
    /// From now on a cancellation keeps what was found, which is this.
    Interruptible(&'a str),
}

/// How a caller hears of work and cancels it. The default hears nothing and cancels nothing.
#[derive(Clone)]
pub struct Events {
    listener: Arc<Listener>,
    cancellation: Cancellation,
}

/// Hears of each event.
pub type Listener = dyn Fn(Event<'_>) + Send + Sync;

impl Default for Events {
    fn default() -> Events {
        Events::new(Arc::new(|_| {}), Cancellation::new())
    }
}

impl Events {
    /// Events for `listener`, of work that `cancellation` ends early.
    pub fn new(listener: Arc<Listener>, cancellation: Cancellation) -> Events {
        Events { listener, cancellation }
    }

    pub(crate) fn emit(&self, event: Event<'_>) {
        (self.listener)(event);
    }

    pub(crate) fn notice(&self, text: impl fmt::Display) {
        self.emit(Event::Notice(&text.to_string()));
    }

    /// Passes on what a person should know, such as [`crate::Model::notices`].
    pub fn notices(&self, texts: &[String]) {
        texts.iter().for_each(|text| self.emit(Event::Notice(text)));
    }

    pub(crate) fn status(&self, text: impl fmt::Display) {
        self.emit(Event::Status(&text.to_string()));
    }

    /// Work with progress, until the guard is dropped.
    pub(crate) fn progress(&self) -> Progress<'_> {
        self.emit(Event::Started);
        Progress(self)
    }

    /// # Errors
    /// [`Error::Cancelled`] once the caller wants no result.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_unwanted() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Whether the caller wants no result.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.cancellation.on_cancel == OnCancel::Discard && self.cancellation.is_cancelled()
    }

    /// Does `work` until the caller wants no result; what was stored by then stays.
    ///
    /// # Errors
    /// Those of `work`, and [`Error::Cancelled`].
    pub(crate) async fn until_cancelled<T, E: From<Error>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let cancelled = async {
            while !self.is_unwanted() {
                tokio::time::sleep(CANCELLATION_DELAY).await;
            }
        };
        tokio::select! {
            done = work => done,
            () = cancelled => Err(Error::Cancelled.into()),
        }
    }

    /// When to stop: after `limit`, if there is one, or once it is cancelled. `kept` says what there is by then.
    pub(crate) fn stop(&self, limit: Option<Duration>, kept: &str) -> Stop {
        self.emit(Event::Interruptible(kept));
        Stop::new(limit, self.cancellation.flag())
    }
}

/// How soon a cancellation is noticed.
const CANCELLATION_DELAY: Duration = Duration::from_millis(50);

/// Ends with [`Event::Finished`].
pub(crate) struct Progress<'a>(&'a Events);

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.0.emit(Event::Finished);
    }
}

/// What cancelled work returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnCancel {
    /// [`Error::Cancelled`].
    Discard,
    /// The best plan so far, the runs that are finished; [`Error::Cancelled`] without any.
    Keep,
}

/// Cancels the work that has it; clones cancel the same work.
#[derive(Debug, Clone)]
pub struct Cancellation {
    flag: Arc<Flag>,
    on_cancel: OnCancel,
}

impl Default for Cancellation {
    fn default() -> Cancellation {
        Cancellation::new()
    }
}

impl Cancellation {
    /// One whose work returns [`Error::Cancelled`].
    pub fn new() -> Cancellation {
        Cancellation { flag: Arc::new(Flag::take()), on_cancel: OnCancel::Discard }
    }

    /// One whose work returns the best plan so far or the runs that are finished, if there is one.
    pub fn keeping_results() -> Cancellation {
        Cancellation { on_cancel: OnCancel::Keep, ..Cancellation::new() }
    }

    /// Cancels the work. It ends soon, not at once: what an agent measures is waited for.
    pub fn cancel(&self) {
        self.flag().store(true, Ordering::Relaxed);
    }

    pub fn is_cancelled(&self) -> bool {
        self.flag().load(Ordering::Relaxed)
    }

    fn flag(&self) -> &'static AtomicBool {
        self.flag.0
    }
}

/// A flag of one cancellation. Searches hold it for as long as the process lives, so flags are used again.
#[derive(Debug)]
struct Flag(&'static AtomicBool);

static UNUSED: Mutex<Vec<&'static AtomicBool>> = Mutex::new(Vec::new());

impl Flag {
    fn take() -> Flag {
        let unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let flag = unused.unwrap_or_else(|| Box::leak(Box::new(AtomicBool::new(false))));
        flag.store(false, Ordering::Relaxed);
        Flag(flag)
    }
}

impl Drop for Flag {
    fn drop(&mut self) {
        UNUSED.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}
