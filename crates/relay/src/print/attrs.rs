//! Attributes as printed by TVM: in the order of the operator's schema, without defaults.

use super::{
    literal::{escape, float},
    printer::Printer,
};
use crate::{
    ast::{AttrValue, Expr, ExprId, FloatWidth, IntWidth, List},
    unescape::unescape,
};
use edgecut_ops::{AttrDef, AttrKind};

impl Printer<'_, '_> {
    /// The attributes of a call, each as `key=value`.
    pub(super) fn call_attrs(&self, callee: ExprId, attrs: List) -> Vec<String> {
        let def = match self.module.expr(callee) {
            Expr::Operator(operator) => self.module.operators[operator.index()].def,
            _ => None,
        };
        let schema = def.map_or(&[][..], |def| def.attrs);
        let known = schema.iter().filter_map(|field| {
            let text = self.attr_text(self.module.attr(attrs, field.name)?, Some(field));
            let is_default = field.default == Some(text.as_str()) || text == "None" && field.default.is_some();
            (!is_default).then(|| format!("{}={text}", field.name))
        });
        let all = self.module.attrs_of(attrs).iter();
        let unknown = all.filter(|attr| !schema.iter().any(|field| field.name == attr.key)).map(|attr| {
            let text = self.attr_text(attr.value, None);
            if attr.key.is_empty() { text } else { format!("{}={text}", attr.key) }
        });
        known.chain(unknown).collect()
    }

    /// The attributes of a function. TVM cannot parse a list that starts with a dotted key.
    pub(super) fn function_attrs(&self, attrs: List) -> Vec<String> {
        let mut attrs: Vec<_> = self.module.attrs_of(attrs).iter().collect();
        attrs.sort_by_key(|attr| attr.key.contains('.'));
        attrs.iter().map(|attr| format!("{}={}", attr.key, self.attr_text(attr.value, None))).collect()
    }

    /// Recursion is bounded by the parser's limit on the nesting of lists.
    fn attr_text(&self, value: AttrValue<'_>, field: Option<&AttrDef>) -> String {
        let kind = field.map(|field| field.kind);
        match (value, kind) {
            (AttrValue::None, _) => "None".to_string(),
            (AttrValue::Bool(value), Some(AttrKind::Int)) => i64::from(value).to_string(),
            (AttrValue::Bool(value), _) => if value { "True" } else { "False" }.to_string(),
            (AttrValue::Int(n, _), Some(AttrKind::Bool)) => if n != 0 { "True" } else { "False" }.to_string(),
            (AttrValue::Int(n, _), Some(AttrKind::Float | AttrKind::OptionalFloat)) => float(n as f64, FloatWidth::F32),
            (AttrValue::Int(n, IntWidth::I64), _) => format!("{n}i64"),
            (AttrValue::Int(n, IntWidth::I16), _) => format!("{n}i16"),
            (AttrValue::Int(n, IntWidth::I32), _) => n.to_string(),
            (AttrValue::Float(x, width), _) => float(x, width),
            (AttrValue::Str(text), _) => format!("\"{}\"", escape(&unescape(text))),
            (AttrValue::Word(word), _) => format!("\"{}\"", escape(word.trim_matches('\''))),
            (AttrValue::Meta(meta), _) => format!("meta[{}][{}]", meta.key, meta.index),
            (AttrValue::List(list), _) => {
                let items = self.module.values_of(list).iter().map(|item| self.attr_text(*item, None));
                format!("[{}]", items.collect::<Vec<_>>().join(", "))
            }
        }
    }
}
