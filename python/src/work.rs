//! Long work: on a thread of its own while the caller's, without the GIL, waits for it, passes progress on, and looks for
//! Ctrl-C.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use edgecut_cli::{
    Failure,
    caller::{Caller, Event, Listener},
};
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
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    let stop = StopFlag::take();
    let (sender, mut events) = channel();
    let listener: Option<Listener> = progress.as_ref().map(|_| {
        let sender = sender.clone();
        // Nobody listens once the caller has an exception.
        Arc::new(move |event: Event<'_>| drop(sender.send(Told::of(&event)))) as Listener
    });
    let caller = Caller { listener, stop: stop.0 };
    let worker = thread::Builder::new().name("edgecut".into()).stack_size(STACK).spawn(move || {
        // The last sender: the channel closes with the work.
        let _open = sender;
        caller.call(work)
    })?;
    let mut raised = None;
    while let Some(told) = next(py, &mut events) {
        // One exception is raised; after it `progress` is not called, so that no later one is lost.
        if raised.is_some() {
            continue;
        }
        let heard = told.map_or(Ok(()), |told| told.pass_on(py, progress.as_ref()));
        if let Err(error) = heard.and_then(|()| py.check_signals()) {
            stop.0.store(true, Ordering::Relaxed);
            raised = Some(error);
        }
    }
    let result = py.detach(|| worker.join());
    match (raised, result) {
        (Some(error), _) => Err(error),
        (None, Ok(Ok(value))) => Ok(value),
        (None, Ok(Err(failure))) => Err(exception(py, &failure)),
        (None, Err(_)) => Err(bug("it panicked, as stderr says")),
    }
}

/// The next thing that is told, `Some(None)` once in a while without one, and `None` when the work has ended.
fn next(py: Python<'_>, events: &mut Receiver<Told>) -> Option<Option<Told>> {
    match py.detach(move || events.recv_timeout(SIGNALS)) {
        Ok(told) => Some(Some(told)),
        Err(RecvTimeoutError::Timeout) => Some(None),
        Err(RecvTimeoutError::Disconnected) => None,
    }
}

/// An [`Event`] on its way between threads.
struct Told {
    kind: &'static str,
    text: String,
    device: Option<String>,
    done: Option<usize>,
    of: Option<usize>,
}

impl Told {
    fn of(event: &Event<'_>) -> Told {
        let told = |kind, text: &str| Told { kind, text: text.to_string(), device: None, done: None, of: None };
        match *event {
            Event::Notice(text) => told("notice", text),
            Event::Planning(text) => told("planning", text),
            Event::Running(text) => told("running", text),
            Event::Measured { device, done, of, item } => {
                Told { device: Some(device.to_string()), done: Some(done), of: Some(of), ..told("measured", item) }
            }
        }
    }

    fn pass_on(self, py: Python<'_>, progress: Option<&Py<PyAny>>) -> PyResult<()> {
        let Some(progress) = progress else { return Ok(()) };
        progress.call1(py, (self.kind, self.text, self.device, self.done, self.of)).map(drop)
    }
}

/// A flag of one call. Searches hold it for as long as the process lives, so flags are used again.
struct StopFlag(&'static AtomicBool);

static UNUSED: Mutex<Vec<&'static AtomicBool>> = Mutex::new(Vec::new());

impl StopFlag {
    fn take() -> StopFlag {
        let unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let flag = unused.unwrap_or_else(|| Box::leak(Box::new(AtomicBool::new(false))));
        flag.store(false, Ordering::Relaxed);
        StopFlag(flag)
    }
}

impl Drop for StopFlag {
    fn drop(&mut self) {
        UNUSED.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}
