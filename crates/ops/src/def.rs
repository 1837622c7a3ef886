//! The definition of an operator, as data: what the tables of the operator families are made of.

use edgecut_graph::{Alias, Attr, Attrs, FusionClass, TensorData, Type};
use smol_str::SmolStr;

#[cfg(not(feature = "kernels"))]
pub(crate) use self::function::NotCompiled;
pub(crate) use self::function::RecipeFn;
pub use self::function::{HostFn, WireFn};
use crate::split::{axis::SplitAxis, linear::Linearity};

/// The attribute that says whose meaning a call has where Relay's and ONNX's differ: at NaN and infinities, at the edges of
/// windows, for indices out of bounds. Absent, it is Relay's.
pub const SEMANTICS: &str = "semantics";

/// The value of [`SEMANTICS`] for ONNX's meaning.
pub const ONNX: &str = "onnx";

/// The definition of one Relay operator, built from [`OpDef::new`] and the methods that follow it.
pub struct OpDef {
    /// Relay's name.
    pub name: &'static str,
    /// Operand names as TVM registers them.
    pub operands: &'static [&'static str],
    /// Attributes in the order in which TVM prints them.
    pub attrs: &'static [AttrDef],
    /// Type key of the attribute object (`relay.attrs.Conv2DAttrs`); empty if the operator has none.
    pub attrs_key: &'static str,
    /// Whether TVM prints the attributes as a reference into the metadata section, because the operator registers
    /// no schema for them (or a different one).
    pub attrs_in_metadata: bool,
    pub class: FusionClass,
    /// The type relation, from operands to result.
    pub infer: InferFn,
    /// The type relation from known operands to unknown ones: see [`OpDef::operand_types`].
    pub infer_operands: Option<InferOperandsFn>,
    /// Floating-point (or integer) operations of one call; a multiply-add counts as two.
    pub flops: FlopsFn,
    pub alias: Alias,
    /// The axes along which it can be split into shards; `None` if it cannot.
    pub split: Option<SplitFn>,
    /// In which operands it is linear.
    pub linearity: Linearity,
    /// Whether two calls draw different numbers, or may do so.
    pub is_random: bool,
    /// Whether ONNX's meaning differs from Relay's: see [`SEMANTICS`].
    pub has_onnx_semantics: bool,
    /// The fusion class of calls with ONNX's semantics, if it differs.
    pub(crate) onnx_class: Option<FusionClass>,
    pub kernel: Kernel,
    /// What its host kernel computes, as data.
    pub(crate) recipe: Option<RecipeFn>,
}

/// One attribute of an operator's schema.
#[derive(Debug, Clone, Copy)]
pub struct AttrDef {
    pub name: &'static str,
    pub kind: AttrKind,
    /// The default as TVM prints it; `None` where the text must give a value.
    pub default: Option<&'static str>,
}

/// The type of an attribute's value.
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
    /// An integer or `None`.
    OptionalInt,
    /// A float or `None`.
    OptionalFloat,
    /// A list of integers or `None`.
    OptionalInts,
}

/// How an operator is computed on a CPU.
#[derive(Clone, Copy)]
pub enum Kernel {
    /// By tract operators, which tract optimises together with their neighbours.
    Wire(WireFn),
    /// By a function on whole tensors, where tract has no operator.
    Host(HostFn),
    /// Not supported, for this reason.
    None(&'static str),
}

/// One call of an operator: its attributes and its operands' types.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub def: &'static OpDef,
    pub attrs: &'a Attrs,
    pub args: &'a [Type],
    /// By argument, the operand values known at type inference; may be shorter than `args`.
    pub values: &'a [Option<&'a TensorData>],
}

/// A call with its result type.
#[derive(Clone, Copy)]
pub struct Typed<'a> {
    pub call: Call<'a>,
    pub out: &'a Type,
}

/// Why type inference of a call failed. The caller adds the position in the source text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{op}: {what}")]
pub struct TypeError {
    pub op: SmolStr,
    pub what: String,
}

/// Why an engine cannot compute an operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{op} is not supported by this engine: {reason}")]
pub struct Unsupported {
    pub op: SmolStr,
    pub reason: String,
}

pub type InferFn = fn(&Call<'_>) -> Result<Type, TypeError>;

pub type FlopsFn = fn(&Typed<'_>) -> u64;

/// Fills in unknown argument types from known ones (the weight of a convolution from its data and attributes).
pub type InferOperandsFn = fn(&Call<'_>, known: &mut [Option<Type>]) -> Result<(), TypeError>;

/// Lists the split axes of a call whose shapes are known.
pub type SplitFn = fn(&Typed<'_>) -> Result<Vec<SplitAxis>, TypeError>;

/// The functions of kernels.
#[cfg(feature = "kernels")]
mod function {
    use tract_core::internal::{OutletId, TValue, TVec, Tensor, TractResult};

    use super::Typed;
    use crate::kernel::{recipe::Recipe, wiring::Wiring};

    /// Adds the tract operators of one call to a model, given its flattened operands, and returns one outlet for each output
    /// tensor. Never sees bfloat16: operands and results are converted to float32 around it, whatever the attributes say, so
    /// dtypes are to be read from [`Typed::out`].
    pub type WireFn = fn(&mut Wiring<'_>, &Typed<'_>, &[OutletId]) -> TractResult<TVec<OutletId>>;

    /// Computes the output tensors of one call from its flattened operands.
    pub type HostFn = fn(&Typed<'_>, &[TValue]) -> TractResult<TVec<Tensor>>;

    /// Describes what the host kernel of a call computes; `None` if no recipe covers this call.
    pub(crate) type RecipeFn = fn(&Typed<'_>) -> Option<Recipe>;
}

/// Stand-ins for the functions, so that definitions without kernels still tell which operators have one.
#[cfg(not(feature = "kernels"))]
mod function {
    /// Stands for a function that is not compiled.
    #[derive(Clone, Copy)]
    pub struct NotCompiled;

    pub type WireFn = NotCompiled;
    pub type HostFn = NotCompiled;
    pub(crate) type RecipeFn = NotCompiled;
}

/// A function of the `kernel` module of the file, or a closure over such functions, as an argument of [`OpDef::wire`],
/// [`OpDef::host`] and [`OpDef::recipe`]. Without the feature `kernels` it is not compiled.
#[cfg(feature = "kernels")]
macro_rules! kernel {
    ($function:expr) => {{
        #[allow(unused_imports)]
        use self::kernel::*;
        $function
    }};
}

#[cfg(not(feature = "kernels"))]
macro_rules! kernel {
    ($function:expr) => {
        $crate::def::NotCompiled
    };
}

impl OpDef {
    /// An operator without attributes, FLOPs, fusion, aliasing, split axes or kernel; the methods below add them.
    pub(crate) const fn new(name: &'static str, operands: &'static [&'static str], infer: InferFn) -> OpDef {
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
            linearity: Linearity::Nonlinear,
            is_random: false,
            has_onnx_semantics: false,
            onnx_class: None,
            kernel: Kernel::None("it has no kernel"),
            recipe: None,
        }
    }

    pub(crate) const fn attrs(mut self, attrs_key: &'static str, attrs: &'static [AttrDef]) -> OpDef {
        self.attrs_key = attrs_key;
        self.attrs = attrs;
        self
    }

    pub(crate) const fn attrs_in_metadata(mut self) -> OpDef {
        self.attrs_in_metadata = true;
        self
    }

    pub(crate) const fn class(mut self, class: FusionClass) -> OpDef {
        self.class = class;
        self
    }

    pub(crate) const fn operand_types(mut self, infer_operands: InferOperandsFn) -> OpDef {
        self.infer_operands = Some(infer_operands);
        self
    }

    pub(crate) const fn flops(mut self, flops: FlopsFn) -> OpDef {
        self.flops = flops;
        self
    }

    pub(crate) const fn alias(mut self, alias: Alias) -> OpDef {
        self.alias = alias;
        self
    }

    pub(crate) const fn random(mut self) -> OpDef {
        self.is_random = true;
        self
    }

    pub(crate) const fn split(mut self, split: SplitFn) -> OpDef {
        self.split = Some(split);
        self
    }

    pub(crate) const fn linearity(mut self, linearity: Linearity) -> OpDef {
        self.linearity = linearity;
        self
    }

    /// Calls with the attribute [`SEMANTICS`] have ONNX's meaning, others Relay's.
    pub(crate) const fn onnx(mut self) -> OpDef {
        self.has_onnx_semantics = true;
        self
    }

    /// As [`OpDef::onnx`]; calls with ONNX's semantics have this class.
    pub(crate) const fn onnx_class(mut self, class: FusionClass) -> OpDef {
        self.onnx_class = Some(class);
        self.onnx()
    }

    pub(crate) const fn wire(mut self, wire: WireFn) -> OpDef {
        self.kernel = Kernel::Wire(wire);
        self
    }

    pub(crate) const fn host(mut self, host: HostFn) -> OpDef {
        self.kernel = Kernel::Host(host);
        self
    }

    pub(crate) const fn recipe(mut self, recipe: RecipeFn) -> OpDef {
        self.recipe = Some(recipe);
        self
    }

    pub(crate) const fn without_kernel(mut self, reason: &'static str) -> OpDef {
        self.kernel = Kernel::None(reason);
        self
    }

    /// The fusion class of a call with these attributes.
    pub fn class_of(&self, attrs: &Attrs) -> FusionClass {
        let is_onnx = attrs.get(SEMANTICS).and_then(Attr::str) == Some(ONNX);
        self.onnx_class.filter(|_| is_onnx).unwrap_or(self.class)
    }

    /// The definition `name` in the tables `families`, for operators that delegate to another one.
    pub(crate) fn find(families: &[&'static [OpDef]], name: &str) -> Option<&'static OpDef> {
        families.iter().flat_map(|defs| defs.iter()).find(|def| def.name == name)
    }
}

impl AttrDef {
    /// An attribute with a default, written as TVM prints it.
    pub(crate) const fn new(name: &'static str, kind: AttrKind, default: &'static str) -> AttrDef {
        AttrDef { name, kind, default: Some(default) }
    }

    /// An attribute without a default.
    pub(crate) const fn required(name: &'static str, kind: AttrKind) -> AttrDef {
        AttrDef { name, kind, default: None }
    }
}

impl<'a> Call<'a> {
    pub fn error(&self, what: impl Into<String>) -> TypeError {
        TypeError { op: self.def.name.into(), what: what.into() }
    }

    /// Whether it has ONNX's meaning: see [`SEMANTICS`].
    pub fn is_onnx(&self) -> bool {
        self.attrs.get(SEMANTICS).and_then(Attr::str) == Some(ONNX)
    }

    /// The known value of argument `index`, for operators whose result type depends on it.
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
