//! The metadata section: JSON with the constants and objects that the text refers to as `meta[KEY][N]`.
//!
//! Strings borrow from the text, so that the base64 of a tensor is decoded directly into its buffer. Only the fields that
//! an import needs are deserialised.

use std::{borrow::Cow, cell::OnceCell, collections::HashMap};

use foldhash::fast::RandomState;
use serde::{Deserialize, Deserializer, de};

use crate::{ast::MetaRef, record};
use edgecut_graph::TensorData;

/// The parsed section. Tensors are decoded on demand.
pub struct Metadata<'a> {
    nodes: Vec<Entry<'a>>,
    /// Encoded tensors with their decoded content; several constants may share one.
    tensors: Vec<(JsonStr<'a>, OnceCell<TensorData>)>,
    /// The array of each key, by its index.
    by_key: HashMap<String, usize, RandomState>,
}

/// An error in the JSON of the section.
#[derive(Debug, Clone, PartialEq)]
pub struct MetadataError {
    pub what: String,
    /// Offset in the JSON in bytes.
    pub offset: usize,
}

/// One object of the section.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Entry<'a> {
    #[serde(borrow)]
    type_key: JsonStr<'a>,
    #[serde(borrow)]
    repr_str: Option<JsonStr<'a>>,
    #[serde(borrow)]
    repr_b64: Option<JsonStr<'a>>,
    #[serde(borrow)]
    attrs: Fields<'a>,
    #[serde(borrow)]
    keys: Vec<JsonStr<'a>>,
    data: Vec<usize>,
}

#[derive(Deserialize)]
struct Section<'a> {
    root: usize,
    #[serde(borrow)]
    nodes: Vec<Entry<'a>>,
    #[serde(borrow, default)]
    b64ndarrays: Vec<JsonStr<'a>>,
}

/// A string that borrows unless it has escapes.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
struct JsonStr<'a>(#[serde(borrow)] Cow<'a, str>);

/// `"attrs": { name: string, … }`.
#[derive(Debug, Default)]
struct Fields<'a>(Vec<(JsonStr<'a>, JsonStr<'a>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object whose values are strings")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

impl<'a> Metadata<'a> {
    /// Parses the JSON after `#[metadata]`. As in TVM, text after the object is ignored.
    ///
    /// # Errors
    /// If the JSON is invalid, or refers to missing objects.
    pub fn read(json: &'a str) -> Result<Metadata<'a>, MetadataError> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let section = Section::deserialize(&mut deserializer).map_err(|error| {
            let line_start = match error.line() {
                0 | 1 => 0,
                line => memchr::memchr_iter(b'\n', json.as_bytes()).nth(line - 2).map_or(0, |at| at + 1),
            };
            let mut what = error.to_string();
            if let Some(at) = what.rfind(" at line ") {
                what.truncate(at);
            }
            MetadataError { what, offset: (line_start + error.column().saturating_sub(1)).min(json.len()) }
        })?;
        let Section { root, nodes, b64ndarrays: tensors } = section;
        let wrong = |what: &str| MetadataError { what: what.to_string(), offset: 0 };
        let root = nodes.get(root).ok_or_else(|| wrong("its root is not one of its objects"))?;
        if root.keys.len() != root.data.len() {
            return Err(wrong("its root does not map keys to arrays"));
        }
        let mut by_key = HashMap::default();
        for (key, array) in root.keys.iter().zip(&root.data) {
            nodes.get(*array).ok_or_else(|| wrong("its root refers to an object that is not there"))?;
            by_key.insert(key.0.to_string(), *array);
        }
        let tensors = tensors.into_iter().map(|text| (text, OnceCell::new())).collect();
        Ok(Metadata { nodes, tensors, by_key })
    }

    /// The object that `meta[KEY][N]` stands for.
    pub fn get(&self, meta: MetaRef<'_>) -> Option<&Entry<'a>> {
        let array = self.nodes.get(*self.by_key.get(meta.key)?)?;
        self.nodes.get(*array.data.get(meta.index as usize)?)
    }

    /// The object that a field holds by its index.
    pub fn object(&self, field: &str) -> Option<&Entry<'a>> {
        self.nodes.get(field.parse::<usize>().ok().filter(|index| *index > 0)?)
    }

    /// The objects of an array.
    pub fn elements<'s>(&'s self, array: &'s Entry<'a>) -> impl Iterator<Item = Option<&'s Entry<'a>>> {
        array.data.iter().map(|index| self.nodes.get(*index))
    }

    /// The tensor of a `relay.Constant`.
    ///
    /// # Errors
    /// If the object has no tensor, or its record is damaged.
    pub fn tensor(&self, constant: &Entry<'_>) -> Result<TensorData, String> {
        let index = constant.field("data").and_then(|index| index.parse::<usize>().ok());
        let tensor = index.and_then(|index| self.tensors.get(index));
        let (text, content) = tensor.ok_or("the constant has no tensor")?;
        if let Some(known) = content.get() {
            return Ok(known.clone());
        }
        let data = record::decode_base64(&text.0)?;
        Ok(content.get_or_init(|| data).clone())
    }
}

impl Entry<'_> {
    pub fn type_key(&self) -> &str {
        &self.type_key.0
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attrs.0.iter().map(|(name, value)| (&*name.0, &*value.0))
    }

    /// The text of a `runtime.String` and of objects written by their representation.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        if let Some(text) = &self.repr_str {
            return Some(Cow::Borrowed(&text.0));
        }
        match &self.repr_b64 {
            Some(text) => {
                let bytes = base64_simd::STANDARD.decode_to_vec(text.0.as_bytes()).ok()?;
                Some(Cow::Owned(String::from_utf8_lossy(bytes.get(8..)?).into_owned()))
            }
            None => (self.type_key() == "runtime.String").then_some(Cow::Borrowed("")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTION: &str = r#"
{ "root": 1, "nodes": [
  {"type_key": ""},
  {"type_key": "Map", "keys": ["relay.Constant"], "data": [2]},
  {"type_key": "Array", "data": [3]},
  {"type_key": "relay.Constant", "attrs": {"data": "0", "span": "0"}},
  {"type_key": "runtime.String", "repr_str": "a\"b"}
 ], "b64ndarrays": ["P6G0lvBAXt0AAAAAAAAAAAEAAAAAAAAAAAAAAAAgAQAEAAAAAAAAAAcAAAA="] }"#;

    #[test]
    fn constants_are_found_and_decoded() {
        let section = Metadata::read(SECTION).unwrap();
        let constant = section.get(MetaRef { key: "relay.Constant", index: 0 }).unwrap();
        assert_eq!(section.tensor(constant).unwrap().to_i64s(), Some(vec![7]));
        assert!(section.get(MetaRef { key: "relay.Constant", index: 1 }).is_none());
        assert_eq!(section.object("4").and_then(|e| e.text()).as_deref(), Some("a\"b"));
    }

    #[test]
    fn a_section_cut_anywhere_is_refused_at_a_place_inside() {
        for len in 0..SECTION.len() {
            match Metadata::read(&SECTION[..len]) {
                Ok(_) => panic!("{len} bytes are not a section"),
                Err(error) => assert!(error.offset <= len),
            }
        }
    }
}
