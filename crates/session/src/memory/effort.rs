//! Budgets of searches.

/// The budget of a search in steps, from an effort in millions of steps.
pub(super) fn steps(millions: Option<u64>, default: u64) -> u64 {
    millions.unwrap_or(default).saturating_mul(1_000_000)
}
