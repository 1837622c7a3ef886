//! Two subjects of one kind, whatever it is.

use super::{Comparison, ComparisonError, plans::plans, profiles::profiles, runs::runs};
use crate::subject::{Content, Subject};

/// Compares `a` with `b`; `None` if they are of different kinds, or of one that is not compared.
pub fn subjects(a: &Subject, b: &Subject) -> Option<Result<Comparison, ComparisonError>> {
    let (name_a, name_b) = (a.name.as_str(), b.name.as_str());
    match (&a.content, &b.content) {
        (Content::Profile(a), Content::Profile(b)) => Some(profiles((name_a, a), (name_b, b))),
        (Content::Plan(a), Content::Plan(b)) => Some(plans((name_a, &a.plan), (name_b, &b.plan))),
        (Content::Results(a), Content::Results(b)) => Some(runs((name_a, a), (name_b, b))),
        _ => None,
    }
}
