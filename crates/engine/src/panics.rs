//! Converts panics in third-party kernels into errors.

use std::{
    any::Any,
    cell::Cell,
    panic::{self, AssertUnwindSafe},
    sync::Once,
};

thread_local! {
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

static QUIET_HOOK: Once = Once::new();

/// Runs `work`; a panic becomes `Err` with its message, and nothing is printed.
///
/// State that `work` modifies must not be used after a panic.
pub(super) fn catch_panic<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    QUIET_HOOK.call_once(|| {
        let default_hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !CAUGHT.with(Cell::get) {
                default_hook(info);
            }
        }));
    });
    let outer = CAUGHT.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    CAUGHT.set(outer);
    result.map_err(message)
}

fn message(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| s.to_string());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    format!("internal error of the kernel: {}", text.unwrap_or_else(|| "no message".to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_and_the_next_call_works() {
        assert_eq!(catch_panic(|| 3), Ok(3));
        let text = catch_panic(|| panic!("axis {} is out of range", 7)).unwrap_err();
        assert!(text.ends_with("axis 7 is out of range"), "{text}");
        assert_eq!(catch_panic(|| 4), Ok(4));
    }
}
