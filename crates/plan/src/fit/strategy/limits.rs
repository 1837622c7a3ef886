//! When limits on memory are a reason to look for other plans, and how much better these must be.

use crate::request::PlanRequest;

/// A plan with schedules must be better than any other by this factor, because the times of its steps are estimates.
pub(crate) const MIN_GAIN: f64 = 0.97;

/// Why limits on memory give no reason to look for other plans of `request`, if they do not.
pub(super) fn unneeded(request: &PlanRequest<'_>) -> Option<&'static str> {
    if !request.instance.is_limited() {
        return Some("every device has room for everything");
    }
    (!request.may_schedule()).then_some("splits, ratios or the use of schedules are given")
}
