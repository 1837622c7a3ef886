//! Ctrl-C in a verb that can keep partial results. The first Ctrl-C cancels the verb, the second one ends the program.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use edgecut_session::Cancellation;

use crate::{failure::EXIT_INTERRUPTED, stderr::notice};

/// Set by the first Ctrl-C.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// What Ctrl-C cancels, and which results are kept. A process runs one verb, which may call [`watch`] several times.
static WATCHED: Mutex<Option<(Cancellation, String)>> = Mutex::new(None);

/// Whether Ctrl-C was pressed after the first call of [`watch`].
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// From now on, Ctrl-C cancels `cancellation`, and a line on stderr says what is kept, by the text `kept`.
pub fn watch(kept: &str, cancellation: &Cancellation) {
    let watched = (cancellation.clone(), kept.to_string());
    let before = WATCHED.lock().unwrap_or_else(PoisonError::into_inner).replace(watched);
    if is_interrupted() {
        cancellation.cancel();
    }
    if before.is_none()
        && let Err(why) = listen()
    {
        notice!("Ctrl-C ends the program at once: it cannot be listened to: {why}");
    }
}

/// Listens on its own thread until the program ends. Once a process listens, Ctrl-C has no other effect.
fn listen() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listening = async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            if INTERRUPTED.swap(true, Ordering::Relaxed) {
                std::process::exit(EXIT_INTERRUPTED.into());
            }
            if let Some((cancellation, kept)) = &*WATCHED.lock().unwrap_or_else(PoisonError::into_inner) {
                cancellation.cancel();
                notice!("stopping: {kept}; press Ctrl-C again to exit at once");
            }
        }
    };
    thread::Builder::new().name("interrupt".into()).spawn(move || runtime.block_on(listening)).map(drop)
}
