//! Keeps a panic in a third-party kernel from ending the process: it becomes an error of the computation.

use std::{
    any::Any,
    cell::Cell,
    panic::{self, AssertUnwindSafe},
    sync::Once,
};

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

static QUIET_HOOK: Once = Once::new();

/// Runs `work`; a panic in it becomes `Err` with its message, and nothing is printed.
///
/// `work` must leave nothing behind that is used after it failed.
pub(super) fn contain<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    QUIET_HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !CONTAINED.with(Cell::get) {
                loud(info);
            }
        }));
    });
    let outer = CONTAINED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(outer);
    result.map_err(message)
}

fn message(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| s.to_string());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    format!("the kernel failed internally: {}", text.unwrap_or_else(|| "no message".to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_and_the_next_call_works() {
        assert_eq!(contain(|| 3), Ok(3));
        let text = contain(|| panic!("axis {} is out of range", 7)).unwrap_err();
        assert!(text.ends_with("axis 7 is out of range"), "{text}");
        assert_eq!(contain(|| 4), Ok(4));
    }
}
