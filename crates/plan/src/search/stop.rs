//! A request to stop planning and give out the best plan so far: after some time, or at any moment.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// When to stop. Searches look at it often; what they return then depends on when it came.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stop {
    /// The whole limit, which [`Stop::restarted`] gives again; `until` of an earlier request is before its end.
    limit: Option<Duration>,
    until: Option<Instant>,
    flag: Option<&'static AtomicBool>,
}

impl Stop {
    /// A request that never comes.
    pub const fn never() -> Stop {
        Stop { limit: None, until: None, flag: None }
    }

    /// A request that comes after `limit`.
    pub fn after(limit: Duration) -> Stop {
        Stop::within(Some(limit))
    }

    /// A request that comes after `limit`, if there is one, or once `flag` is set.
    pub fn new(limit: Option<Duration>, flag: &'static AtomicBool) -> Stop {
        Stop { flag: Some(flag), ..Stop::within(limit) }
    }

    fn within(limit: Option<Duration>) -> Stop {
        Stop { limit, until: limit.and_then(|limit| Instant::now().checked_add(limit)), flag: None }
    }

    /// The same request with its whole limit from now on.
    #[must_use]
    pub fn restarted(&self) -> Stop {
        Stop { flag: self.flag, ..Stop::within(self.limit) }
    }

    pub fn is_requested(&self) -> bool {
        self.flag.is_some_and(|flag| flag.load(Ordering::Relaxed)) || self.is_over()
    }

    /// Whether the limit is reached.
    pub fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// The same request, but after a `share` of the time that is left.
    #[must_use]
    pub fn earlier(&self, share: f64) -> Stop {
        let until = self.remaining().and_then(|left| Instant::now().checked_add(left.mul_f64(share.clamp(0.0, 1.0))));
        Stop { until, ..*self }
    }

    /// When the limit is reached; `None` without one.
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// The time that is left; `None` without a limit.
    pub fn remaining(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }
}

impl PartialEq for Stop {
    fn eq(&self, other: &Stop) -> bool {
        let flag = |stop: &Stop| stop.flag.map(std::ptr::from_ref);
        self.until == other.until && flag(self) == flag(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_comes_by_time_or_by_its_flag() {
        static FLAG: AtomicBool = AtomicBool::new(false);
        assert!(!Stop::never().is_requested() && Stop::never().remaining().is_none());
        assert!(Stop::new(Some(Duration::ZERO), &FLAG).is_requested());
        let stop = Stop::new(Some(Duration::from_secs(3600)), &FLAG);
        assert!(!stop.is_requested() && stop.remaining() > Some(Duration::from_secs(3000)));
        let earlier = stop.earlier(0.25);
        assert!(
            earlier.remaining() < Some(Duration::from_secs(901))
                && earlier.remaining() > Some(Duration::from_secs(600))
        );
        assert_eq!(Stop::never().earlier(0.25), Stop::never());
        assert_eq!(Stop::never().restarted(), Stop::never());
        assert!(
            stop.earlier(0.0).is_over() && stop.earlier(0.0).restarted().remaining() > Some(Duration::from_secs(3000))
        );
        FLAG.store(true, Ordering::Relaxed);
        assert!(stop.is_requested() && stop.restarted().is_requested() && Stop::new(None, &FLAG).is_requested());
    }
}
