//! Checks of the strict mode, which TVM performs after parsing: attributes against the operators' schemas, undefined
//! globals, references to a missing metadata section, non-exhaustive matches.

use std::collections::HashSet;

use crate::{
    Fault,
    ast::{AttrValue, Expr, ExprId, List, Match, Module, Pattern},
    error::Result,
};
use edgecut_ops::{AttrDef, AttrKind};

/// Operators whose attributes TVM prints as `key=value`, but reads only as a metadata object.
const OBJECT_ONLY: [&str; 23] = [
    "annotation.cast_hint",
    "annotation.compiler_begin",
    "annotation.compiler_end",
    "collapse_sum_to",
    "cumprod",
    "cumsum",
    "dft",
    "dyn.expand_dims",
    "nn.avg_pool2d_grad",
    "nn.contrib_dense_pack",
    "nn.dilate",
    "scatter_elements",
    "scatter_nd",
    "stft",
    "trilu",
    "unique",
    "vision.all_class_non_max_suppression",
    "vision.get_valid_counts",
    "vision.non_max_suppression",
    "vision.proposal",
    "vision.regular_non_max_suppression",
    "vision.roi_align",
    "vision.roi_pool",
];

/// Whether TVM reads the attributes of the operator `name` only as a metadata object.
pub(super) fn reads_only_objects(name: &str) -> bool {
    OBJECT_ONLY.contains(&name)
}

/// Rejects what TVM rejects.
pub(super) fn check(module: &Module<'_>) -> Result<()> {
    for (index, expr) in module.exprs.iter().enumerate() {
        let id = ExprId(index as u32);
        match *expr {
            Expr::Call { callee, attrs, .. } => call(module, id, callee, attrs)?,
            Expr::Meta(meta) if module.metadata.is_none() => {
                let meta = module.metas[meta as usize];
                let what = format!("the file has none, but the text refers to `meta[{}][{}]`", meta.key, meta.index);
                return Err(Fault::Metadata(what).at(module.note(id).span));
            }
            Expr::Global(global) if module.entry.is_none() => {
                let global = module.globals[global.index()];
                if global.function.is_none() {
                    let name = format!("@{}", global.name);
                    return Err(Fault::Undefined { name, hint: "in this file" }.at(module.note(id).span));
                }
            }
            Expr::Match(index) => complete(module, id, module.matches[index as usize])?,
            _ => {}
        }
    }
    Ok(())
}

fn call(module: &Module<'_>, id: ExprId, callee: ExprId, attrs: List) -> Result<()> {
    let span = module.note(id).span;
    let Expr::Operator(operator) = module.expr(callee) else {
        let named = module.attr(attrs, "attrs_type_key").is_some();
        let what = "attributes of a call to a function need `attrs_type_key`";
        return if named || attrs.len == 0 { Ok(()) } else { Err(Fault::Other(what.to_string()).at(span)) };
    };
    let operator = module.operators[operator.index()];
    let Some(def) = operator.def else { return Ok(()) };
    let name = operator.name;
    let written = module.attrs_of(attrs);
    if written.iter().any(|attr| attr.key.is_empty()) {
        return Ok(());
    }
    if reads_only_objects(name) {
        let what = format!("TVM reads the attributes of {name} only as one `meta[{}][0]`", def.attrs_key);
        return Err(Fault::Other(what).at(written.first().map_or(span, |attr| attr.span)));
    }
    for attr in written {
        let Some(field) = def.attrs.iter().find(|field| field.name == attr.key) else {
            let known: Vec<&str> = def.attrs.iter().map(|field| field.name).collect();
            let known =
                if known.is_empty() { "it has none".to_string() } else { format!("it has {}", known.join(", ")) };
            return Err(Fault::Other(format!("{name} has no attribute `{}`: {known}", attr.key)).at(attr.span));
        };
        if !fits(module, attr.value, field.kind) {
            let what = format!("the attribute `{}` of {name} takes {}", attr.key, describe(field.kind));
            return Err(Fault::Other(what).at(attr.span));
        }
    }
    match def.attrs.iter().find(|field| is_missing(module, attrs, field)) {
        Some(field) => Err(Fault::Other(format!("{name} needs the attribute `{}`", field.name)).at(span)),
        None => Ok(()),
    }
}

fn is_missing(module: &Module<'_>, attrs: List, field: &AttrDef) -> bool {
    field.default.is_none() && module.attr(attrs, field.name).is_none()
}

/// Whether TVM accepts `value` for an attribute of this kind.
fn fits(module: &Module<'_>, value: AttrValue<'_>, kind: AttrKind) -> bool {
    let is_int = |value: &AttrValue<'_>| matches!(value, AttrValue::Int(..) | AttrValue::Bool(_));
    match (kind, value) {
        (_, AttrValue::Meta(_)) | (AttrKind::Object, _) => true,
        (AttrKind::Int | AttrKind::OptionalInt | AttrKind::Bool, AttrValue::Int(..) | AttrValue::Bool(_)) => true,
        (AttrKind::Float | AttrKind::OptionalFloat, AttrValue::Float(..) | AttrValue::Int(..)) => true,
        (AttrKind::Str | AttrKind::DType, AttrValue::Str(_)) => true,
        (AttrKind::Int | AttrKind::Bool | AttrKind::Float | AttrKind::Str | AttrKind::DType, _) => false,
        (_, AttrValue::None) => true,
        (AttrKind::IntOrInts, AttrValue::Int(..)) => true,
        (AttrKind::Ints | AttrKind::OptionalInts | AttrKind::IntOrInts, AttrValue::List(list)) => {
            module.values_of(list).iter().all(|item| match item {
                AttrValue::List(inner) => module.values_of(*inner).iter().all(is_int),
                AttrValue::Meta(_) => true,
                item => is_int(item),
            })
        }
        (AttrKind::Floats, AttrValue::List(list)) => {
            module.values_of(list).iter().all(|item| matches!(item, AttrValue::Float(..) | AttrValue::Int(..)))
        }
        _ => false,
    }
}

fn describe(kind: AttrKind) -> &'static str {
    match kind {
        AttrKind::Int | AttrKind::OptionalInt => "an integer",
        AttrKind::Bool => "True or False",
        AttrKind::Float | AttrKind::OptionalFloat => "a number",
        AttrKind::Str => "a string in quotes",
        AttrKind::DType => "a dtype in quotes",
        AttrKind::Ints | AttrKind::OptionalInts => "a list of integers in `[…]`",
        AttrKind::Floats => "a list of numbers in `[…]`",
        AttrKind::IntOrInts => "an integer or a list of integers in `[…]`",
        AttrKind::Object => "an object",
    }
}

/// Rejects a `match` in which a constructor has no arm. Nested patterns are assumed to be exhaustive.
fn complete(module: &Module<'_>, id: ExprId, arms: Match) -> Result<()> {
    let patterns = module.patterns_of(arms.patterns);
    let first = patterns.iter().find_map(|pattern| match pattern {
        Pattern::Constructor(constructor, _) => Some(*constructor),
        _ => None,
    });
    let catches_all = patterns.iter().any(|pattern| !matches!(pattern, Pattern::Constructor(..)));
    let Some(first) = first.filter(|_| arms.complete && !catches_all) else { return Ok(()) };
    let adt = module.adts[module.constructors[first.index()].adt as usize];
    let with_arm: HashSet<usize> = patterns
        .iter()
        .filter_map(|pattern| match pattern {
            Pattern::Constructor(constructor, _) => Some(constructor.index()),
            _ => None,
        })
        .collect();
    match adt.constructors.range().find(|index| !with_arm.contains(index)) {
        Some(index) => {
            let name = module.constructors[index].name;
            let what = format!("this `match` has no arm for `{name}`; write `match?` if that is meant");
            Err(Fault::Other(what).at(module.note(id).span))
        }
        None => Ok(()),
    }
}
