//! The strategies for limits on memory, in order. They follow those of [`split`](crate::split).
//!
//! | strategy | why it is there |
//! |---|---|
//! | [`Front`] | plans made without the limit, so that a looser limit never gives a worse plan |
//! | [`Schedules`] | devices that compute in another order or in parts need less memory |
//! | [`Unsplit`] | whole groups leave more to schedules than shards do |

mod front;
mod schedules;
mod unsplit;

pub(crate) use self::{front::Front, schedules::Schedules, unsplit::Unsplit};

use crate::{candidate::strategy::Strategy, request::PlanRequest};

/// In the order in which they are tried.
pub(crate) const STRATEGIES: [&dyn Strategy; 3] = [&Front, &Schedules, &Unsplit];

/// A plan with schedules must be better than any other by this factor, because the times of its steps are estimates.
pub(crate) const MIN_GAIN: f64 = 0.97;

/// Why limits on memory give no reason to look for other plans of `request`, if they do not.
fn unneeded(request: &PlanRequest<'_>) -> Option<&'static str> {
    if !request.is_limited() {
        return Some("every device has room for everything");
    }
    (!request.may_schedule()).then_some("splits, ratios or the use of schedules are given")
}
