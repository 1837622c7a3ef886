//! Linear operators: what a reduction leaves to be added up passes through them as partial sums, and is added up later.
//!
//! So the sum of a dense layer that is split along its reduction axis comes after its bias and its residual sum, where the shards
//! that read it are (the row-parallel layers of Shoeybi et al., Megatron-LM, 2019).

/// In which operands, each for itself, an operator is linear, whatever its others are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linearity {
    Nonlinear,
    /// `f(a + b, c) = f(a, c) + f(b, c)`: every shard computes it.
    Linear(&'static [usize]),
    /// `f(a + b, c) = f(a, c) + b`, if the result has the operand's shape: the first shard computes it, the others keep what they have.
    Offset(&'static [usize]),
}

impl Linearity {
    pub(crate) fn operands(self) -> &'static [usize] {
        match self {
            Linearity::Nonlinear => &[],
            Linearity::Linear(operands) | Linearity::Offset(operands) => operands,
        }
    }
}

/// The operand of which each shard reads a partial sum, and makes one of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    pub operand: usize,
    /// The axis of the operand's producer, cut alike, whose shards make the partial sums.
    pub axis: usize,
    /// Whether only the first shard computes the operator, and the others keep what they have.
    pub is_offset: bool,
}
