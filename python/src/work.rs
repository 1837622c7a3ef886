//! Long work: on a thread of its own while the caller's, without the GIL, waits for it, passes progress on, and looks for
//! Ctrl-C.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
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
    let cancellation = Cancellation::new();
    let (sender, mut sent) = channel();
    let events = match progress {
        None => edgecut_cli::stderr_events(cancellation.clone()),
        Some(_) => {
            let sender = sender.clone();
            // Nobody listens once the caller has an exception.
            let listener = move |event: Event<'_>| drop(Step::of(&event).map(|step| sender.send(step)));
            Events::new(Arc::new(listener), cancellation.clone())
        }
    };
    let worker = thread::Builder::new().name("edgecut".into()).stack_size(STACK).spawn(move || {
        // The last sender: the channel closes with the work.
        let _open = sender;
        edgecut_engine::configure_heap();
        work(&events)
    })?;
    let mut raised = None;
    while let Some(step) = next(py, &mut sent) {
        // One exception is raised; after it `progress` is not called, so that no later one is lost.
        if raised.is_some() {
            continue;
        }
        let heard = step.map_or(Ok(()), |step| step.pass_on(py, progress.as_ref()));
        if let Err(error) = heard.and_then(|()| py.check_signals()) {
            cancellation.cancel();
            raised = Some(error);
        }
    }
    let result = py.detach(|| worker.join());
    match (raised, result) {
        (Some(error), _) => Err(error),
        (None, Ok(Ok(value))) => Ok(value),
        (None, Ok(Err(error))) => Err(exception(py, &error)),
        (None, Err(_)) => Err(bug("it panicked, as stderr says")),
    }
}

/// The next step, `Some(None)` once in a while without one, and `None` when the work has ended.
fn next(py: Python<'_>, sent: &mut Receiver<Step>) -> Option<Option<Step>> {
    match py.detach(move || sent.recv_timeout(SIGNALS)) {
        Ok(step) => Some(Some(step)),
        Err(RecvTimeoutError::Timeout) => Some(None),
        Err(RecvTimeoutError::Disconnected) => None,
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
            Event::Started | Event::Finished | Event::Interruptible(_) => None,
        }
    }

    fn pass_on(self, py: Python<'_>, progress: Option<&Py<PyAny>>) -> PyResult<()> {
        let Some(progress) = progress else { return Ok(()) };
        progress.call1(py, (self.kind, self.text, self.device, self.done, self.of)).map(drop)
    }
}
