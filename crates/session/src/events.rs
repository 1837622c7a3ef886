//! Progress and cancellation of work.

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

/// An event of a verb.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A notice about the result, in a sentence.
    Notice(&'a str),
    /// What the verb does or has done, such as writing a file.
    Status(&'a str),
    /// Work with progress begins. The next events belong to it.
    Started,
    /// `done` of `of` groups are measured on `device`. `item` is the last one.
    Measured { device: &'a str, done: usize, total: usize, group: &'a str },
    /// What the planner does now, and the time that is left.
    Planning { what: &'a str, remaining: Option<Duration> },
    /// What the run does now. If `measures_here`, this process measures until the next event, and nothing else should
    /// run in it.
    Running { what: &'a str, measures_here: bool },
    /// A token of a sequence is generated; sequences are numbered from 0.
    Token { sequence: usize, token: u64 },
    /// The work is finished.
    Finished,
    /// From now on, a cancellation can keep partial results. The text says which.
    Interruptible(&'a str),
}

/// The listener and the cancellation of work. By default, nothing listens and nothing cancels.
#[derive(Clone)]
pub struct Events {
    listener: Arc<Listener>,
    cancellation: Cancellation,
}

/// A function that receives each event.
pub type Listener = dyn Fn(Event<'_>) + Send + Sync;

impl Default for Events {
    fn default() -> Events {
        Events::new(Arc::new(|_| {}), Cancellation::new())
    }
}

impl Events {
    /// Events for `listener`. `cancellation` ends the work early.
    pub fn new(listener: Arc<Listener>, cancellation: Cancellation) -> Events {
        Events { listener, cancellation }
    }

    /// Passes an event to the listener.
    pub fn emit(&self, event: Event<'_>) {
        (self.listener)(event);
    }

    pub(crate) fn notice(&self, text: impl fmt::Display) {
        self.emit(Event::Notice(&text.to_string()));
    }

    /// Emits `texts` as notices, such as [`crate::Model::notices`].
    pub fn notices(&self, texts: &[String]) {
        texts.iter().for_each(|text| self.emit(Event::Notice(text)));
    }

    pub(crate) fn status(&self, text: impl fmt::Display) {
        self.emit(Event::Status(&text.to_string()));
    }

    /// Starts work with progress. The work is finished when the guard is dropped.
    pub(crate) fn progress(&self) -> Progress<'_> {
        self.emit(Event::Started);
        Progress(self)
    }

    /// Checks that the work is not cancelled.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the work is cancelled and its results are discarded.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_unwanted() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Whether the work is cancelled and its results are discarded.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.cancellation.on_cancel == OnCancel::Discard && self.cancellation.is_cancelled()
    }

    /// Whether the work is cancelled, whatever becomes of its results.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// Awaits `work`, which has no partial results, unless it is cancelled. What is stored by then stays.
    ///
    /// # Errors
    /// Those of `work`, and [`Error::Cancelled`].
    pub(crate) async fn until_cancelled<T, E: From<Error>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        until(|| self.cancellation.is_cancelled(), work).await
    }

    /// Awaits `work`, which ends with its partial results when it is cancelled, unless these are discarded.
    ///
    /// # Errors
    /// Those of `work`, and [`Error::Cancelled`].
    pub(crate) async fn until_unwanted<T, E: From<Error>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        until(|| self.is_unwanted(), work).await
    }

    /// The stop condition of work that keeps partial results: `limit`, if there is one, or cancellation. `kept` says
    /// what is kept.
    pub(crate) fn stop(&self, limit: Option<Duration>, kept: &str) -> Stop {
        self.emit(Event::Interruptible(kept));
        Stop::new(limit, self.cancellation.flag())
    }
}

/// Awaits `work` until `is_over`.
async fn until<T, E: From<Error>>(
    is_over: impl Fn() -> bool,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let over = async {
        while !is_over() {
            tokio::time::sleep(CANCELLATION_DELAY).await;
        }
    };
    tokio::select! {
        done = work => done,
        () = over => Err(Error::Cancelled.into()),
    }
}

/// Interval between checks for a cancellation.
const CANCELLATION_DELAY: Duration = Duration::from_millis(50);

/// Emits [`Event::Finished`] when it is dropped.
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
    /// The best plan so far, or the finished runs; [`Error::Cancelled`] if there are none.
    Keep,
}

/// Cancels the work that it is given to. Clones cancel the same work.
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
    /// A cancellation after which work returns [`Error::Cancelled`].
    pub fn new() -> Cancellation {
        Cancellation { flag: Arc::new(Flag::take()), on_cancel: OnCancel::Discard }
    }

    /// A cancellation after which work returns the best plan so far or the finished runs, if there are any.
    pub fn keeping_results() -> Cancellation {
        Cancellation { on_cancel: OnCancel::Keep, ..Cancellation::new() }
    }

    /// Cancels the work. The work ends soon, but a measurement or a run on an agent may be completed first.
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

/// The flag of one cancellation. Searches hold it as `&'static`, so flags are never freed, and are reused.
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
