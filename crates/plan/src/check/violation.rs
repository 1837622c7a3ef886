//! What the checker reports.

/// A property of plans that a plan violates.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Violation {
    #[error("the plan has {found} {what}, the problem {expected}")]
    Count { what: &'static str, found: usize, expected: usize },
    #[error("group {0} is on a device that cannot run it, or not in exactly one order")]
    Misplaced(String),
    #[error("group {group} starts at {stated} us; by the plan's order it starts at {real} us")]
    Start { group: String, stated: f64, real: f64 },
    #[error("group {group} reads tensor {tensor}, which never arrives on its device")]
    Absent { group: String, tensor: String },
    #[error("the transfer of {0} is unnecessary, duplicate, or from a device that does not hold it")]
    Transfer(String),
    #[error("the transfer of {name}: {what} is {stated}; the plan implies {real}")]
    TransferFigure { name: String, what: &'static str, stated: f64, real: f64 },
    #[error("link {link} serves {later} before {earlier}, which was requested first")]
    Overtaken { link: String, earlier: String, later: String },
    #[error("{what} is {stated}; the plan implies {real}")]
    Figure { what: String, stated: f64, real: f64 },
    #[error("{0} is violated")]
    Target(String),
    #[error("group {group} is on {device}, which `{rule}` forbids")]
    Rule { group: String, device: String, rule: String },
}

/// Compares a stated figure with the one that the plan implies.
pub(super) fn figure(what: String, stated: f64, real: f64) -> Result<(), Violation> {
    if close(stated, real) { Ok(()) } else { Err(Violation::Figure { what, stated, real }) }
}

/// Equality up to a relative 10⁻⁹.
pub(super) fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}
