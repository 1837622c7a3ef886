//! What fuses with what: the classes of operators.

use serde::{Deserialize, Serialize};

/// TVM's operator patterns (`OpPatternKind`), which decide what fuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FusionClass {
    /// Each element of the output depends on the same element of each operand.
    Elementwise,
    /// Elementwise on operands that are broadcast.
    Broadcast,
    /// Each element of the output is a copy of one element of an operand.
    Injective,
    /// Each element of the output reduces several elements of the operand.
    Reduce,
    /// Elementwise operators can be fused into its output (convolution, dense).
    OutFusable,
    /// Joins the group that reads its result, if it is the only one; not one of TVM's classes.
    InFusable,
    /// Fuses with nothing.
    Opaque,
}
