//! Ctrl-C in a verb that has something to give out before it is done: the first one stops the work, the second one the program.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use crate::{
    caller::{Caller, notice},
    failure::EXIT_INTERRUPTED,
};

/// Set by the first Ctrl-C.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether there is a handler for Ctrl-C.
static HANDLER_INSTALLED: AtomicBool = AtomicBool::new(false);

/// Whether Ctrl-C was pressed while it was watched.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// What is set once the work is to stop; `kept` says on stderr what is given out then. A caller has signals of its own, and sets
/// its own flag.
///
/// # Errors
/// If Ctrl-C cannot be listened to.
pub fn watch(kept: &'static str) -> io::Result<&'static AtomicBool> {
    if let Some(caller) = Caller::current() {
        return Ok(caller.stop);
    }
    if HANDLER_INSTALLED.load(Ordering::Relaxed) {
        return Ok(&INTERRUPTED);
    }
    // On a thread of its own, until the program ends: once it was listened to, Ctrl-C has no other effect.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listening = async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            if INTERRUPTED.swap(true, Ordering::Relaxed) {
                std::process::exit(EXIT_INTERRUPTED.into());
            }
            notice!("stopping: {kept}; press Ctrl-C again to exit at once");
        }
    };
    thread::Builder::new().name("interrupt".into()).spawn(move || runtime.block_on(listening))?;
    HANDLER_INSTALLED.store(true, Ordering::Relaxed);
    Ok(&INTERRUPTED)
}
