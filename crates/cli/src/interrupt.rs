//! Ctrl-C in a verb that has something to give out before it is done: the first one stops the work, the second one the program.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Runtime;

use crate::{
    caller::{Caller, notice},
    failure::EXIT_INTERRUPTED,
};

/// Set by the first Ctrl-C.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// What is set once the work is to stop; `kept` says on stderr what is given out then. A caller has signals of its own, and sets
/// its own flag.
pub fn watch(runtime: &Runtime, kept: &'static str) -> &'static AtomicBool {
    if let Some(caller) = Caller::current() {
        return caller.stop;
    }
    runtime.spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            if INTERRUPTED.swap(true, Ordering::Relaxed) {
                std::process::exit(EXIT_INTERRUPTED.into());
            }
            notice!("stopping: {kept}; Ctrl-C again gives up");
        }
    });
    &INTERRUPTED
}
