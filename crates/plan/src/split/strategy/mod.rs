//! The strategies without schedules, in order.
//!
//! | strategy | why it is there |
//! |---|---|
//! | [`Like`] | a request like another plan splits just what that splits |
//! | [`Whole`] | most plans: groups that run whole need no exchange |
//! | [`Split`] | groups split where that gains, starting from the plan of whole groups |

mod like;
mod split;
mod whole;

pub(crate) use self::{
    like::{Like, choices_like},
    split::Split,
    whole::Whole,
};

use crate::candidate::strategy::Strategy;

/// In the order in which they are tried.
pub(crate) const STRATEGIES: [&dyn Strategy; 3] = [&Like, &Whole, &Split];
