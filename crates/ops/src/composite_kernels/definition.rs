//! What a kernel of a composite operator is, and how it reads a call: by the input indices of the operator's schema.

use edgecut_graph::{TensorType, Type};

use crate::{Call, OpDef, TypeError, Typed, omitted_inputs::present_inputs};

/// The kernel of a composite operator.
pub(super) struct CompositeKernel {
    /// Only the name and the kernel are used.
    pub def: OpDef,
    /// Whether the kernel supports the call; `None` counts as no. All shapes are known.
    pub supports: fn(&Typed<'_>) -> Option<bool>,
}

/// The type rule of the definitions here: the types of composite operators are those of their decompositions.
pub(super) fn no_type_rule(call: &Call<'_>) -> Result<Type, TypeError> {
    Err(call.error("its type follows from its decomposition"))
}

impl<'a> Call<'a> {
    /// The argument index of input `index`; `None` if the input is omitted.
    pub(super) fn arg_index(&self, index: usize) -> Option<usize> {
        present_inputs(self.attrs, self.args.len()).iter().position(|input| *input == index as i64)
    }

    /// The type of input `index`; `None` if the input is omitted.
    pub(super) fn input_type(&self, index: usize) -> Option<&'a TensorType> {
        self.tensor(self.arg_index(index)?).ok()
    }

    /// Whether the integer attributes `names` are 0 or absent.
    pub(super) fn are_zero_or_absent(&self, names: &[&str]) -> bool {
        names.iter().all(|name| matches!(self.int(name, 0), Ok(0)))
    }
}

/// The dimensions; `None` if any is unknown.
pub(super) fn dims(ty: &TensorType) -> Option<Vec<usize>> {
    ty.shape.fixed()?.iter().map(|dim| usize::try_from(*dim).ok()).collect()
}
