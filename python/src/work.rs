//! Long work: on a thread of its own while the caller's, without the GIL, waits for it, passes progress on, and looks for
//! Ctrl-C.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use edgecut_session::{Cancellation, Error, Event, Events};
use pyo3::prelude::*;

use crate::errors::{bug, exception};

/// How often signals are looked for.
const SIGNALS: Duration = Duration::from_millis(50);

/// As that of the main thread of the command line.
const STACK: usize = 8 << 20;

/// Does `work` and returns its result. `progress`, a function of kind, text, device, done and total, hears of it; without it
/// stderr does. An exception of `progress`, or of a signal's handler, stops the work and is raised.
pub fn work<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&Events) -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    let mut work = Work::begin(progress, work)?;
    while work.token(py).is_some() {}
    work.finish(py)
}

/// Like [`work`], for what measures nothing: the heap of the process stays as it is.
pub fn light_work<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&Events) -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    let mut work = Work::begin_light(progress, work)?;
    while work.token(py).is_some() {}
    work.finish(py)
}

/// Work that has begun. If it is dropped, it is cancelled and ends by itself.
pub struct Work<T> {
    /// Closes with the work.
    sent: Receiver<Sent>,
    worker: Option<JoinHandle<Result<T, Error>>>,
    progress: Option<Py<PyAny>>,
    cancellation: Cancellation,
    /// One exception is raised; after it `progress` is not called, so that no later one is lost.
    raised: Option<PyErr>,
}

impl<T: Send + 'static> Work<T> {
    /// Begins `work`; see [`work`].
    pub fn begin(
        progress: Option<Py<PyAny>>,
        work: impl FnOnce(&Events) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<Work<T>> {
        Work::begin_light(progress, |events| {
            edgecut_engine::configure_heap();
            work(events)
        })
    }

    /// Begins `work`; see [`light_work`].
    fn begin_light(
        progress: Option<Py<PyAny>>,
        work: impl FnOnce(&Events) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<Work<T>> {
        let cancellation = Cancellation::new();
        let shown = progress.is_none().then(|| edgecut_cli::stderr_events(cancellation.clone()));
        let (sender, sent) = channel();
        let events = {
            let sender = sender.clone();
            let listener = move |event: Event<'_>| {
                // Nobody receives once the caller has an exception.
                let _ = Sent::of(&event, shown.is_none()).map(|what| sender.send(what));
                shown.iter().for_each(|shown| shown.emit(event));
            };
            Events::new(Arc::new(listener), cancellation.clone())
        };
        let worker = thread::Builder::new().name("edgecut".into()).stack_size(STACK).spawn(move || {
            // The last sender: the channel closes with the work.
            let _open = sender;
            work(&events)
        })?;
        Ok(Work { sent, worker: Some(worker), progress, cancellation, raised: None })
    }

    /// The next token; `None` when the work has ended. Passes progress on, and looks for signals.
    pub fn token(&mut self, py: Python<'_>) -> Option<u64> {
        loop {
            let sent = &mut self.sent;
            let heard = match py.detach(move || sent.recv_timeout(SIGNALS)) {
                Ok(Sent::Token(token)) if self.raised.is_none() => return Some(token),
                Ok(Sent::Step(step)) if self.raised.is_none() => step.pass_on(py, self.progress.as_ref()),
                Ok(_) | Err(RecvTimeoutError::Timeout) => Ok(()),
                Err(RecvTimeoutError::Disconnected) => return None,
            };
            if self.raised.is_none()
                && let Err(error) = heard.and_then(|()| py.check_signals())
            {
                self.cancellation.cancel();
                self.raised = Some(error);
            }
        }
    }

    /// Cancels the work, and waits for its end.
    pub fn cancel(mut self, py: Python<'_>) {
        self.cancellation.cancel();
        let worker = self.worker.take();
        // Its result is of no use.
        py.detach(|| worker.map(JoinHandle::join)).map(drop).unwrap_or_default();
    }

    /// The result, for which it waits.
    pub fn finish(mut self, py: Python<'_>) -> PyResult<T> {
        let worker = self.worker.take();
        let result = py.detach(|| worker.map(JoinHandle::join));
        match (self.raised.take(), result) {
            (Some(error), _) => Err(error),
            (None, Some(Ok(Ok(value)))) => Ok(value),
            (None, Some(Ok(Err(error)))) => Err(exception(py, &error)),
            (None, Some(Err(_)) | None) => Err(bug("it panicked, as stderr says")),
        }
    }
}

impl<T> Drop for Work<T> {
    fn drop(&mut self) {
        self.cancellation.cancel();
    }
}

/// What a worker sends to the caller.
enum Sent {
    Step(Step),
    Token(u64),
}

impl Sent {
    /// `None` if the caller does not hear of it; of steps it does if they are passed on.
    fn of(event: &Event<'_>, has_steps: bool) -> Option<Sent> {
        match *event {
            Event::Token { token, .. } => Some(Sent::Token(token)),
            _ if has_steps => Step::of(event).map(Sent::Step),
            _ => None,
        }
    }
}

/// An [`Event`] on its way between threads.
struct Step {
    kind: &'static str,
    text: String,
    device: Option<String>,
    done: Option<usize>,
    of: Option<usize>,
}

impl Step {
    /// `None` if the caller does not hear of it.
    fn of(event: &Event<'_>) -> Option<Step> {
        let step = |kind, text: &str| Some(Step { kind, text: text.to_string(), device: None, done: None, of: None });
        match *event {
            Event::Notice(text) | Event::Status(text) => step("notice", text),
            Event::Planning { what, .. } => step("planning", what),
            Event::Running { what, .. } => step("running", what),
            Event::Measured { device, done, total, group } => Some(Step {
                kind: "measured",
                text: group.to_string(),
                device: Some(device.to_string()),
                done: Some(done),
                of: Some(total),
            }),
            Event::Started | Event::Finished | Event::Interruptible(_) | Event::Token { .. } => None,
        }
    }

    fn pass_on(self, py: Python<'_>, progress: Option<&Py<PyAny>>) -> PyResult<()> {
        let Some(progress) = progress else { return Ok(()) };
        progress.call1(py, (self.kind, self.text, self.device, self.done, self.of)).map(drop)
    }
}
