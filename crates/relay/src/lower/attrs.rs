//! Attributes of a call: from the text, and from attribute objects of the metadata section.

use smol_str::SmolStr;

use super::lowering::Lowering;
use crate::{
    Fault,
    ast::{AttrValue, ExprId, List, MetaRef},
    error::Result,
    metadata::Entry,
    unescape::unescape,
};
use edgecut_graph::{Attr, Attrs};
use edgecut_ops::{AttrKind, OpDef};

/// Maximum nesting of arrays in the metadata section.
const MAX_NESTING: usize = 64;

impl Lowering<'_, '_> {
    /// The attributes of a call; calls that share a list in the text share it in the graph.
    pub(super) fn attrs(&mut self, list: List, def: Option<&'static OpDef>, expr: ExprId) -> Result<Attrs> {
        if list.len == 0 {
            return Ok(Attrs::new());
        }
        if let Some(known) = self.attr_lists.get(&list.start) {
            return Ok(known.clone());
        }
        let attrs = self.new_attrs(list, def, expr)?;
        self.attr_lists.insert(list.start, attrs.clone());
        Ok(attrs)
    }

    fn new_attrs(&self, list: List, def: Option<&'static OpDef>, expr: ExprId) -> Result<Attrs> {
        let written = self.module.attrs_of(list);
        let mut entries = Vec::with_capacity(written.len());
        for attr in written {
            match attr.value {
                AttrValue::Meta(meta) if attr.key.is_empty() => self.attrs_object(&mut entries, meta, def, expr)?,
                value => entries.push((SmolStr::new(attr.key), self.attr(value, expr, 0)?)),
            }
        }
        Ok(entries.into_iter().collect())
    }

    /// A written value. Recursion is bounded by the parser's limit on nested lists.
    fn attr(&self, value: AttrValue<'_>, expr: ExprId, depth: usize) -> Result<Attr> {
        Ok(match value {
            AttrValue::None => Attr::None,
            AttrValue::Bool(value) => Attr::Bool(value),
            AttrValue::Int(n, _) => Attr::Int(n),
            AttrValue::Float(x, _) => Attr::Float(x),
            AttrValue::Str(text) => Attr::Str(SmolStr::new(unescape(text))),
            AttrValue::Word(word) => Attr::Str(SmolStr::new(word)),
            AttrValue::List(list) => {
                let values = self.module.values_of(list).iter();
                Attr::List(values.map(|value| self.attr(*value, expr, depth + 1)).collect::<Result<_>>()?)
            }
            AttrValue::Meta(meta) => match self.metadata.and_then(|metadata| metadata.get(meta)) {
                Some(entry) => self.entry_value(entry, expr, depth)?,
                None if self.metadata.is_none() => Attr::None,
                None => return Err(self.missing(meta, expr)),
            },
        })
    }

    fn missing(&self, meta: MetaRef<'_>, expr: ExprId) -> Box<super::super::error::LocatedFault> {
        Fault::Metadata(format!("it has no `meta[{}][{}]`", meta.key, meta.index)).at(self.span(expr))
    }

    /// All fields of an attribute object. Their kinds come from the operator's schema, since the JSON is untyped.
    fn attrs_object(
        &self,
        entries: &mut Vec<(SmolStr, Attr)>,
        meta: MetaRef<'_>,
        def: Option<&'static OpDef>,
        expr: ExprId,
    ) -> Result<()> {
        let Some(metadata) = self.metadata else { return Ok(()) };
        let entry = metadata.get(meta).ok_or_else(|| self.missing(meta, expr))?;
        let schema = def.map_or(&[][..], |def| def.attrs);
        for (name, text) in entry.fields() {
            let kind = schema.iter().find(|attr| attr.name == name).map(|attr| attr.kind);
            entries.push((SmolStr::new(name), self.field(text, kind, expr)?));
        }
        Ok(())
    }

    /// A field of an attributes object, whose text is a number, a word, or the index of another object.
    fn field(&self, text: &str, kind: Option<AttrKind>, expr: ExprId) -> Result<Attr> {
        let object = self.metadata.and_then(|metadata| metadata.object(text));
        let literal = || match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(n), _) => Attr::Int(n),
            (_, Ok(x)) => Attr::Float(x),
            _ => Attr::Str(text.into()),
        };
        Ok(match kind {
            None | Some(AttrKind::Int) => literal(),
            // TVM stores some flags as objects. Indices 0 and 1 are the null object and the root, never a flag.
            Some(AttrKind::Bool) => match (text, object) {
                ("0" | "false", _) => Attr::Bool(false),
                ("1" | "true", _) | (_, None) => Attr::Bool(true),
                (_, Some(entry)) => Attr::Bool(self.entry_value(entry, expr, 0)?.bool().unwrap_or(false)),
            },
            Some(AttrKind::Float) => text.parse().map_or_else(|_| literal(), Attr::Float),
            Some(AttrKind::Str | AttrKind::DType) => match object.and_then(Entry::text) {
                Some(text) => Attr::Str(SmolStr::new(text)),
                None => Attr::Str(text.into()),
            },
            Some(_) => match object {
                Some(entry) => self.entry_value(entry, expr, 0)?,
                None => Attr::None,
            },
        })
    }

    /// The value of an object of the metadata section.
    fn entry_value(&self, entry: &Entry<'_>, expr: ExprId, depth: usize) -> Result<Attr> {
        let Some(metadata) = self.metadata.filter(|_| depth < MAX_NESTING) else { return Ok(Attr::None) };
        // Arrays that share their elements unfold to any size.
        self.unfolded.set(self.unfolded.get() + 1);
        if self.unfolded.get() > self.budget {
            let what = format!("its arrays expand to more than {} values", self.budget);
            return Err(Fault::Metadata(what).at(self.span(expr)));
        }
        let text = |name: &str| entry.field(name).unwrap_or_default();
        Ok(match entry.type_key() {
            "Array" => {
                let items =
                    metadata.elements(entry).map(|item| match item {
                        Some(item) => self.entry_value(item, expr, depth + 1),
                        None => Err(Fault::Metadata("an array refers to an object that does not exist".into())
                            .at(self.span(expr))),
                    });
                Attr::List(items.collect::<Result<_>>()?)
            }
            "IntImm" => text("value").parse().map_or(Attr::None, Attr::Int),
            "FloatImm" => text("value").parse().map_or(Attr::None, Attr::Float),
            "relay.Constant" => {
                let data = metadata.tensor(entry);
                Attr::Tensor(data.map_err(|what| Fault::Record(what).at(self.span(expr)))?)
            }
            "runtime.BoxInt" => entry.text().and_then(|text| text.parse().ok()).map_or(Attr::None, Attr::Int),
            "runtime.BoxFloat" => entry.text().and_then(|text| text.parse().ok()).map_or(Attr::None, Attr::Float),
            "runtime.BoxBool" => Attr::Bool(entry.text().as_deref() == Some("true")),
            _ => entry.text().map_or(Attr::None, |text| Attr::Str(SmolStr::new(text))),
        })
    }
}
