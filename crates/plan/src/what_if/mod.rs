//! Comparisons of a plan with what it might be: the splits of another one, groups moved, a server less.
//!
//! Uses every other layer; none uses this one.
//!
//! | module | |
//! |---|---|
//! | [`adopt`] | another plan at the costs of this request |
//! | [`like`] | the splits of another plan, over the devices of this one |
//! | [`moved`] | another plan as it is, with some groups on other devices |
//! | [`broken_rule`] | moves that contradict the rules of that plan |
//! | [`change`] | what moved groups change, figure by figure |
//! | [`without`] | what each server is worth |

pub mod adopt;
pub mod broken_rule;
pub mod change;
pub mod like;
pub mod moved;
pub mod without;
