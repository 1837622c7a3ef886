//! Storage reuse: which operand's bytes the result of an operator may occupy.

/// How the result of an operator may share storage with its operands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Alias {
    /// The result has a buffer of its own.
    #[default]
    Never,
    /// The result is a view of the first operand: the same bytes under another shape. Nothing is computed or moved.
    View,
    /// The result may overwrite any operand of the same size that has its last use in this operator.
    InPlace,
    /// The result may overwrite the first operand, if that is large enough and has no other consumer.
    InPlaceFirst,
    /// The result is the concatenation of the operands. Operands that are contiguous in it may be produced in place, as
    /// slices of the result.
    Concat,
}

/// Which in-place reuse a memory planner may make use of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InPlacePolicy {
    /// Every kind.
    #[default]
    Any,
    /// Element-wise operators overwrite their first operand only, and only if it has no other consumer: Aidge's rule.
    FirstOperand,
    /// None: every result that is not a view has a buffer of its own.
    Never,
}

impl InPlacePolicy {
    /// The reuse that is left of `alias` under this policy. Views are not affected: they overwrite nothing.
    pub fn restrict(self, alias: Alias) -> Alias {
        match (alias, self) {
            (Alias::View, _) => Alias::View,
            (alias, InPlacePolicy::Any) => alias,
            (Alias::InPlace | Alias::InPlaceFirst, InPlacePolicy::FirstOperand) => Alias::InPlaceFirst,
            (_, InPlacePolicy::FirstOperand | InPlacePolicy::Never) => Alias::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_restrict_reuse() {
        use InPlacePolicy::{Any, FirstOperand};
        for (alias, policy, allowed) in [
            (Alias::View, InPlacePolicy::Never, Alias::View),
            (Alias::InPlace, Any, Alias::InPlace),
            (Alias::InPlace, FirstOperand, Alias::InPlaceFirst),
            (Alias::InPlace, InPlacePolicy::Never, Alias::Never),
            (Alias::Concat, Any, Alias::Concat),
            (Alias::Concat, FirstOperand, Alias::Never),
            (Alias::Never, Any, Alias::Never),
        ] {
            assert_eq!(policy.restrict(alias), allowed, "{alias:?} under {policy:?}");
        }
    }
}
