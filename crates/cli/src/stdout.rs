//! Standard output: what a verb prints, or the result that goes to `-`; what is printed then goes to stderr.
//!
//! Where stdout takes no more, the verb goes on, so that its files are written even if no one reads what it prints; the failure
//! is kept for the end of the program.

use std::{
    io::{self, Write},
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use edgecut_session::error::Message;

use crate::{
    Failure, Outcome,
    failure::{self, exit_code as code_of},
};

/// Whether a result goes to stdout.
static HAS_RESULT: AtomicBool = AtomicBool::new(false);

/// Why stdout took no more. Nothing is written to it after that.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Reserves stdout for a result.
///
/// # Errors
/// If another result goes there.
pub fn reserve() -> Outcome {
    if HAS_RESULT.swap(true, Ordering::Relaxed) {
        let what = "two results cannot both go to stdout: name a file for one of them";
        return Err(Failure::BadInput(Message::from(what)));
    }
    Ok(())
}

/// Prints what the verb shows.
pub fn print(text: &[u8]) {
    if HAS_RESULT.load(Ordering::Relaxed) {
        // There is no other place to say that stderr takes no more.
        let _ = io::stderr().write_all(text);
    } else {
        write(text);
    }
}

/// As `println!`, for [`print`].
macro_rules! print_line {
    ($($arguments:tt)*) => { $crate::stdout::print(format!("{}\n", format_args!($($arguments)*)).as_bytes()) };
}
pub(crate) use print_line;

/// Writes a result.
pub fn write(content: &[u8]) {
    let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    if failed.is_none() {
        let mut out = io::stdout().lock();
        *failed = out.write_all(content).and_then(|()| out.flush()).err();
    }
}

/// The exit code of a verb that would end with `code`, once it is reported that stdout took no more. A reader that has stopped,
/// as `head` does, is no news.
pub fn exit_code(code: u8) -> u8 {
    let Some(error) = FAILED.lock().unwrap_or_else(PoisonError::into_inner).take() else { return code };
    let failure = Failure::unwritable(Path::new("-"), &error);
    if error.kind() != io::ErrorKind::BrokenPipe {
        failure::print(&failure);
    }
    if code == 0 { code_of(&failure) } else { code }
}
