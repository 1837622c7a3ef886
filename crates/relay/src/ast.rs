//! The syntax of a module, in arenas addressed by index.
//!
//! Names borrow from the text. Expressions form a DAG: as in TVM, a graph variable is not an expression, but another
//! reference to the one it is bound to. No type is recursive, so nested expressions are traversed and dropped without
//! recursion.

use std::num::NonZeroU32;

use smol_str::SmolStr;

use crate::Span;
use edgecut_graph::DType;
use edgecut_ops::OpDef;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// Index into [`Module::exprs`].
    ExprId,
    /// Index into [`Module::vars`].
    VarId,
    /// Index into [`Module::functions`].
    FunctionId,
    /// Index into [`Module::globals`].
    GlobalId,
    /// Index into [`Module::operators`].
    OpId,
    /// Index into [`Module::constructors`].
    ConstructorId,
}

/// Index into [`Module::types`], with a niche for `Option`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(NonZeroU32);

impl TypeId {
    pub(super) fn new(index: usize) -> TypeId {
        TypeId(NonZeroU32::MIN.saturating_add(index as u32))
    }

    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// A range of elements in one of the module's pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct List {
    pub start: u32,
    pub len: u32,
}

impl List {
    pub fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// A parsed file.
#[derive(Debug, Default)]
pub struct Module<'a> {
    pub exprs: Vec<Expr>,
    /// Source range, stated type and scope of each expression.
    pub notes: Vec<Note>,
    /// Names of layers, from `span=` in comments.
    pub layers: Vec<SmolStr>,
    pub types: Vec<TypeExpr<'a>>,
    pub vars: Vec<Var<'a>>,
    pub functions: Vec<Function>,
    pub globals: Vec<Global<'a>>,
    pub operators: Vec<OpRef<'a>>,
    pub scalars: Vec<Scalar>,
    pub metas: Vec<MetaRef<'a>>,
    pub matches: Vec<Match>,
    pub patterns: Vec<Pattern>,
    pub constructors: Vec<Constructor<'a>>,
    pub adts: Vec<Adt<'a>>,
    pub attrs: Vec<Attribute<'a>>,
    pub values: Vec<AttrValue<'a>>,
    pub dims: Vec<DimExpr<'a>>,
    /// Pools that [`List`]s point into.
    pub expr_pool: Vec<ExprId>,
    pub type_pool: Vec<TypeId>,
    pub var_pool: Vec<VarId>,
    pub name_pool: Vec<&'a str>,
    /// The expression of a file without definitions.
    pub entry: Option<ExprId>,
    /// Variables declared by `free_var`.
    pub free_vars: Vec<VarId>,
    /// Whether the file starts with the version header.
    pub header: bool,
    /// The JSON after `#[metadata]`.
    pub metadata: Option<&'a str>,
}

/// One expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expr {
    Var(VarId),
    Global(GlobalId),
    Operator(OpId),
    Constructor(ConstructorId),
    /// Index into [`Module::scalars`].
    Scalar(u32),
    /// Index into [`Module::metas`].
    Meta(u32),
    Tuple(List),
    Project(ExprId, u32),
    Call {
        callee: ExprId,
        args: List,
        attrs: List,
    },
    Function(FunctionId),
    If {
        condition: ExprId,
        then: ExprId,
        otherwise: ExprId,
    },
    Let {
        var: VarId,
        value: ExprId,
        body: ExprId,
    },
    /// Index into [`Module::matches`].
    Match(u32),
    NewRef(ExprId),
    ReadRef(ExprId),
    WriteRef(ExprId, ExprId),
}

/// Source range, stated type and scope of an expression.
#[derive(Debug, Clone, Copy)]
pub struct Note {
    pub span: Span,
    /// From the `ty=` comment.
    pub ty: Option<TypeId>,
    /// From the same comment: index into [`Module::layers`].
    pub layer: Option<u32>,
    /// Number of functions that enclose the binding of the innermost variable it depends on; 0 if it is closed.
    /// It has one value per activation of that function.
    pub level: u32,
}

/// A local variable.
#[derive(Debug, Clone, Copy)]
pub struct Var<'a> {
    /// As written after `%`; empty for the variable of `e; body`.
    pub name: &'a str,
    pub span: Span,
    /// The annotation.
    pub ty: Option<TypeId>,
    /// From the `ty=` comment at the binding.
    pub commented: Option<TypeId>,
    /// Number of functions that enclose the binding.
    pub level: u32,
}

/// A function literal or the body of a global.
#[derive(Debug, Clone, Copy)]
pub struct Function {
    /// Into [`Module::name_pool`].
    pub type_params: List,
    /// Into [`Module::var_pool`].
    pub params: List,
    /// Into [`Module::attrs`].
    pub attrs: List,
    pub result: Option<TypeId>,
    pub body: ExprId,
    /// Number of functions that enclose the body, including this one.
    pub level: u32,
}

/// A global function; `function` is `None` if it is not defined.
#[derive(Debug, Clone, Copy)]
pub struct Global<'a> {
    pub name: &'a str,
    pub function: Option<FunctionId>,
    /// The definition, or the first use.
    pub span: Span,
}

/// An operator's name and its definition in the registry.
#[derive(Debug, Clone, Copy)]
pub struct OpRef<'a> {
    pub name: &'a str,
    pub def: Option<&'static OpDef>,
}

/// An inline constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    Bool(bool),
    Int(i64, IntWidth),
    Float(f64, FloatWidth),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntWidth {
    I16,
    I32,
    I64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloatWidth {
    F16,
    F32,
    F64,
}

/// `meta[KEY][INDEX]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MetaRef<'a> {
    pub key: &'a str,
    pub index: u32,
}

/// `key=value` of a call or a function. A call's attributes given as one object have an empty key.
#[derive(Debug, Clone, Copy)]
pub struct Attribute<'a> {
    pub key: &'a str,
    pub value: AttrValue<'a>,
    pub span: Span,
}

/// The value of an attribute, as written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AttrValue<'a> {
    None,
    Bool(bool),
    Int(i64, IntWidth),
    Float(f64, FloatWidth),
    /// Between the quotes, escapes as written.
    Str(&'a str),
    /// A word without quotes (`dtype=int8`, `'name'`).
    Word(&'a str),
    /// Into [`Module::values`].
    List(List),
    Meta(MetaRef<'a>),
}

/// One dimension of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DimExpr<'a> {
    Known(u64, IntWidth),
    Any,
    Meta(MetaRef<'a>),
}

/// A type, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypeExpr<'a> {
    /// Dimensions into [`Module::dims`].
    Tensor(List, DType),
    /// Into [`Module::type_pool`].
    Tuple(List),
    /// Type parameters into [`Module::name_pool`], arguments into [`Module::type_pool`].
    Function {
        type_params: List,
        args: List,
        result: TypeId,
    },
    Ref(TypeId),
    /// An algebraic data type or a type parameter, with its arguments.
    Named(&'a str, List),
    /// `_`.
    Incomplete,
}

/// `match (scrutinee) { pattern => body, … }`; arms are parallel lists of patterns and bodies.
#[derive(Debug, Clone, Copy)]
pub struct Match {
    pub scrutinee: ExprId,
    pub complete: bool,
    /// Into [`Module::patterns`], one for each arm.
    pub patterns: List,
    /// Into [`Module::expr_pool`], one for each arm.
    pub bodies: List,
}

#[derive(Debug, Clone, Copy)]
pub enum Pattern {
    Wildcard,
    Var(VarId),
    /// Fields into [`Module::patterns`].
    Constructor(ConstructorId, List),
    Tuple(List),
}

/// A constructor of an algebraic data type.
#[derive(Debug, Clone, Copy)]
pub struct Constructor<'a> {
    pub name: &'a str,
    /// Into [`Module::type_pool`].
    pub fields: List,
    /// Index into [`Module::adts`].
    pub adt: u32,
}

/// `type Name[A] { … }`.
#[derive(Debug, Clone, Copy)]
pub struct Adt<'a> {
    pub name: &'a str,
    pub type_params: List,
    /// A run of [`Module::constructors`].
    pub constructors: List,
    pub is_extern: bool,
}

impl<'a> Module<'a> {
    /// Releases the spare capacity of the largest arenas.
    pub(super) fn shrink(&mut self) {
        self.exprs.shrink_to_fit();
        self.notes.shrink_to_fit();
        self.layers.shrink_to_fit();
        self.vars.shrink_to_fit();
        self.types.shrink_to_fit();
        self.dims.shrink_to_fit();
        self.attrs.shrink_to_fit();
        self.values.shrink_to_fit();
        self.expr_pool.shrink_to_fit();
    }

    pub(crate) fn expr(&self, id: ExprId) -> Expr {
        self.exprs[id.index()]
    }

    pub fn note(&self, id: ExprId) -> Note {
        self.notes[id.index()]
    }

    /// Appends the direct subexpressions of `expr`: operands, callee, branches, the body of a function.
    pub fn operands(&self, expr: ExprId, found: &mut Vec<ExprId>) {
        match self.expr(expr) {
            Expr::Tuple(list) => found.extend(self.exprs_of(list)),
            Expr::Project(inner, _) | Expr::NewRef(inner) | Expr::ReadRef(inner) => found.push(inner),
            Expr::WriteRef(target, value) => found.extend([target, value]),
            Expr::Call { callee, args, .. } => {
                found.push(callee);
                found.extend(self.exprs_of(args));
            }
            Expr::Function(function) => found.push(self.functions[function.index()].body),
            Expr::If { condition, then, otherwise } => found.extend([condition, then, otherwise]),
            Expr::Let { value, body, .. } => found.extend([value, body]),
            Expr::Match(index) => {
                let arms = self.matches[index as usize];
                found.push(arms.scrutinee);
                found.extend(self.exprs_of(arms.bodies));
            }
            Expr::Var(_)
            | Expr::Global(_)
            | Expr::Operator(_)
            | Expr::Constructor(_)
            | Expr::Scalar(_)
            | Expr::Meta(_) => {}
        }
    }

    pub(crate) fn exprs_of(&self, list: List) -> &[ExprId] {
        &self.expr_pool[list.range()]
    }

    pub(crate) fn types_of(&self, list: List) -> &[TypeId] {
        &self.type_pool[list.range()]
    }

    pub(crate) fn vars_of(&self, list: List) -> &[VarId] {
        &self.var_pool[list.range()]
    }

    pub(crate) fn names_of(&self, list: List) -> &[&'a str] {
        &self.name_pool[list.range()]
    }

    pub(crate) fn attrs_of(&self, list: List) -> &[Attribute<'a>] {
        &self.attrs[list.range()]
    }

    pub(crate) fn values_of(&self, list: List) -> &[AttrValue<'a>] {
        &self.values[list.range()]
    }

    pub fn dims_of(&self, list: List) -> &[DimExpr<'a>] {
        &self.dims[list.range()]
    }

    pub(crate) fn patterns_of(&self, list: List) -> &[Pattern] {
        &self.patterns[list.range()]
    }

    /// The attribute `key` of a call or function.
    pub fn attr(&self, list: List, key: &str) -> Option<AttrValue<'a>> {
        self.attrs_of(list).iter().find(|attr| attr.key == key).map(|attr| attr.value)
    }
}
