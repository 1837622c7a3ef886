//! The definition of one operator, as data: what a family's table is made of.

use smol_str::SmolStr;

use super::{
    kernel::{HostFn, WireFn},
    split::SplitFn,
};
use crate::graph::{Attrs, FusionClass, TensorData, Type};

/// Everything edgecut knows of one Relay operator. Built with [`OpDef::new`] and the methods that follow it.
pub struct OpDef {
    /// Relay's name.
    pub name: &'static str,
    /// Operand names as TVM registers them.
    pub operands: &'static [&'static str],
    /// Attributes in the order in which TVM prints them.
    pub attrs: &'static [AttrDef],
    /// Type key of the attribute object (`relay.attrs.Conv2DAttrs`); empty if the operator has none.
    pub attrs_key: &'static str,
    /// Whether TVM prints the attributes as a reference into the metadata section, because the operator declares
    /// no schema for them (or another one).
    pub attrs_in_metadata: bool,
    pub class: FusionClass,
    /// The type relation, operands to result.
    pub infer: InferFn,
    /// The type relation backwards: see [`OpDef::operand_types`].
    pub infer_operands: Option<InferOperandsFn>,
    /// Floating-point (or integer) operations of one call; a multiply-add is two.
    pub flops: FlopsFn,
    pub alias: Alias,
    /// Along which axes it can be split; `None` if along none.
    pub split: Option<SplitFn>,
    pub kernel: Kernel,
}

/// One attribute of an operator's schema.
#[derive(Debug, Clone, Copy)]
pub struct AttrDef {
    pub name: &'static str,
    pub kind: AttrKind,
    /// The default as TVM prints it; `None` where the text must always give a value.
    pub default: Option<&'static str>,
}

/// What an attribute's value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttrKind {
    Int,
    Bool,
    Float,
    Str,
    DType,
    /// A list of integers, possibly nested.
    Ints,
    /// A list of floats.
    Floats,
    /// An integer or a list of integers (`split`).
    IntOrInts,
    /// Anything else: an expression, a device, a map.
    Object,
    /// As the kind, or `None`.
    OptionalInt,
    OptionalFloat,
    OptionalInts,
}

/// Whether an operator's output may share its first operand's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alias {
    /// The output is a buffer of its own.
    Never,
    /// The output is the same bytes under another shape: nothing is computed, nothing is moved.
    View,
    /// The output may overwrite a dying operand of the same size.
    InPlace,
    /// The operands side by side along the axis `axis`; one after the other in memory where
    /// [`joins_in_a_row`](super::joins_in_a_row) says so.
    Joined,
}

/// How an operator is computed on a CPU.
#[derive(Clone, Copy)]
pub enum Kernel {
    /// As a few tract operators, which tract optimises with their surroundings.
    Wire(WireFn),
    /// By our own function on whole tensors, where tract has no operator.
    Host(HostFn),
    /// Not at all: the reason.
    None(&'static str),
}

/// One call of an operator: its attributes and its operands' types.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub def: &'static OpDef,
    pub attrs: &'a Attrs,
    pub args: &'a [Type],
    /// Values of the operands that are known while typing, by argument; may be shorter than `args`.
    pub values: &'a [Option<&'a TensorData>],
}

/// A call with its result type.
#[derive(Clone, Copy)]
pub struct Typed<'a> {
    pub call: Call<'a>,
    pub out: &'a Type,
}

/// Why a call has no type. The place in the text is added by whoever knows it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{op}: {what}")]
pub struct TypeError {
    pub op: SmolStr,
    pub what: String,
}

/// Why an operator cannot be computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{op} cannot run on this engine: {reason}")]
pub struct Unsupported {
    pub op: SmolStr,
    pub reason: String,
}

pub type InferFn = fn(&Call<'_>) -> Result<Type, TypeError>;
pub type FlopsFn = fn(&Typed<'_>) -> u64;
/// Given the argument types that are known, fills in some that are not (the weight of a convolution).
pub type InferOperandsFn = fn(&Call<'_>, known: &mut [Option<Type>]) -> Result<(), TypeError>;

impl OpDef {
    /// An operator that moves data and computes nothing, opaque to fusion and without a kernel, until told otherwise.
    pub const fn new(name: &'static str, operands: &'static [&'static str], infer: InferFn) -> OpDef {
        OpDef {
            name,
            operands,
            attrs: &[],
            attrs_key: "",
            attrs_in_metadata: false,
            class: FusionClass::Opaque,
            infer,
            infer_operands: None,
            flops: |_| 0,
            alias: Alias::Never,
            split: None,
            kernel: Kernel::None("no kernel for it is known"),
        }
    }

    pub const fn attrs(mut self, attrs_key: &'static str, attrs: &'static [AttrDef]) -> OpDef {
        self.attrs_key = attrs_key;
        self.attrs = attrs;
        self
    }

    pub const fn attrs_in_metadata(mut self) -> OpDef {
        self.attrs_in_metadata = true;
        self
    }

    pub const fn class(mut self, class: FusionClass) -> OpDef {
        self.class = class;
        self
    }

    pub const fn operand_types(mut self, infer_operands: InferOperandsFn) -> OpDef {
        self.infer_operands = Some(infer_operands);
        self
    }

    pub const fn flops(mut self, flops: FlopsFn) -> OpDef {
        self.flops = flops;
        self
    }

    pub const fn alias(mut self, alias: Alias) -> OpDef {
        self.alias = alias;
        self
    }

    pub const fn split(mut self, split: SplitFn) -> OpDef {
        self.split = Some(split);
        self
    }

    pub const fn wire(mut self, wire: WireFn) -> OpDef {
        self.kernel = Kernel::Wire(wire);
        self
    }

    pub const fn host(mut self, host: HostFn) -> OpDef {
        self.kernel = Kernel::Host(host);
        self
    }

    pub const fn without_kernel(mut self, reason: &'static str) -> OpDef {
        self.kernel = Kernel::None(reason);
        self
    }
}

impl AttrDef {
    /// An attribute with a default, written as TVM prints it.
    pub const fn new(name: &'static str, kind: AttrKind, default: &'static str) -> AttrDef {
        AttrDef { name, kind, default: Some(default) }
    }

    /// An attribute that the text must always give.
    pub const fn required(name: &'static str, kind: AttrKind) -> AttrDef {
        AttrDef { name, kind, default: None }
    }
}

impl<'a> Call<'a> {
    pub fn error(&self, what: impl Into<String>) -> TypeError {
        TypeError { op: self.def.name.into(), what: what.into() }
    }

    /// The known value of argument `index`, for operators whose type depends on it.
    pub fn value(&self, index: usize) -> Option<&'a TensorData> {
        self.values.get(index).copied().flatten()
    }
}

impl<'a> std::ops::Deref for Typed<'a> {
    type Target = Call<'a>;
    fn deref(&self) -> &Call<'a> {
        &self.call
    }
}

impl std::fmt::Debug for OpDef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpDef({})", self.name)
    }
}
