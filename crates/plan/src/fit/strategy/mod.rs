//! The strategies for limits on memory, in order. They follow those of [`split`](crate::split).
//!
//! | strategy | why it is there |
//! |---|---|
//! | [`Front`] | plans made without the limit, so that a looser limit never gives a worse plan |
//! | [`Schedules`] | devices that compute in another order or in parts need less memory |
//! | [`Unsplit`] | whole groups leave more to schedules than shards do |

mod front;
mod limits;
mod schedules;
mod unsplit;

#[cfg(test)]
pub(crate) use self::limits::MIN_GAIN;
pub(crate) use self::{front::Front, schedules::Schedules, unsplit::Unsplit};

use crate::candidate::strategy::Strategy;

/// In the order in which they are tried.
pub(crate) const STRATEGIES: [&dyn Strategy; 3] = [&Front, &Schedules, &Unsplit];
