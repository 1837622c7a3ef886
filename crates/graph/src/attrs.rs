//! Attributes of an operator: names and values in print order, as read from the text.
//!
//! Typed access and defaults are in the operator definitions (crate `ops`).

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::tensor::TensorData;

/// The explicit attributes of an operator. Attributes that are not listed have the operator's defaults.
///
/// Clones share storage: a model has many operators and few distinct attribute lists.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Entries", into = "Entries")]
pub struct Attrs(Option<Arc<Entries>>);

type Entries = Vec<(SmolStr, Attr)>;

/// Up to this many entries, a linear search is faster than hashing. Operators have fewer; a file may contain any number.
const LINEAR_SEARCH_LIMIT: usize = 32;

/// One attribute value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Attr {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(SmolStr),
    List(Box<[Attr]>),
    /// A constant given by reference into the metadata section (`start=meta[relay.Constant][0]`).
    Tensor(TensorData),
}

impl Attrs {
    pub fn new() -> Attrs {
        Attrs::default()
    }

    /// The value of `key`, if it is listed. Linear in the number of attributes.
    pub fn get(&self, key: &str) -> Option<&Attr> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Replaces the value of `key`, or appends it.
    pub fn set(&mut self, key: impl Into<SmolStr>, value: Attr) {
        let key = key.into();
        let entries = Arc::make_mut(self.0.get_or_insert_default());
        match entries.iter_mut().find(|(name, _)| *name == key) {
            Some(entry) => entry.1 = value,
            None => entries.push((key, value)),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Attr)> {
        self.0.iter().flat_map(|entries| entries.iter()).map(|(name, value)| (name.as_str(), value))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl FromIterator<(SmolStr, Attr)> for Attrs {
    fn from_iter<I: IntoIterator<Item = (SmolStr, Attr)>>(entries: I) -> Attrs {
        unique(Entries::from_iter(entries)).into()
    }
}

/// Removes duplicate keys: each stays at its first position, with its last value.
fn unique(entries: Entries) -> Entries {
    let many = entries.len() > LINEAR_SEARCH_LIMIT;
    let mut kept = Entries::with_capacity(entries.len());
    let mut positions: HashMap<SmolStr, usize, RandomState> = HashMap::default();
    for (key, value) in entries {
        let known = if many { positions.get(&key).copied() } else { kept.iter().position(|(name, _)| *name == key) };
        match known.and_then(|at| kept.get_mut(at)) {
            Some(entry) => entry.1 = value,
            None => {
                if many {
                    positions.insert(key.clone(), kept.len());
                }
                kept.push((key, value));
            }
        }
    }
    kept
}

impl From<Entries> for Attrs {
    fn from(entries: Entries) -> Attrs {
        Attrs((!entries.is_empty()).then(|| Arc::new(entries)))
    }
}

impl From<Attrs> for Entries {
    fn from(attrs: Attrs) -> Entries {
        attrs.0.map(Arc::unwrap_or_clone).unwrap_or_default()
    }
}

impl Attr {
    /// The value as an integer; a bool is 0 or 1.
    pub fn int(&self) -> Option<i64> {
        match self {
            Attr::Int(n) => Some(*n),
            Attr::Bool(b) => Some(i64::from(*b)),
            _ => None,
        }
    }

    /// The value as a float; integers are converted.
    pub fn float(&self) -> Option<f64> {
        match self {
            Attr::Float(x) => Some(*x),
            Attr::Int(n) => Some(*n as f64),
            _ => None,
        }
    }

    /// The value as a bool; an integer is true unless it is 0.
    pub fn bool(&self) -> Option<bool> {
        match self {
            Attr::Bool(b) => Some(*b),
            Attr::Int(n) => Some(*n != 0),
            _ => None,
        }
    }

    pub fn str(&self) -> Option<&str> {
        match self {
            Attr::Str(s) => Some(s),
            _ => None,
        }
    }

    pub fn list(&self) -> Option<&[Attr]> {
        match self {
            Attr::List(items) => Some(items),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_key_replaces_the_earlier_value() {
        for count in [4, 4 * LINEAR_SEARCH_LIMIT] {
            let entry = |at: usize| (SmolStr::new(format!("k{}", at % (count / 2))), Attr::Int(at as i64));
            let attrs: Attrs = (0..count).map(entry).collect();
            let found: Vec<(String, Option<i64>)> =
                attrs.iter().map(|(key, value)| (key.into(), value.int())).collect();
            let want = |at: usize| (format!("k{at}"), Some((at + count / 2) as i64));
            assert_eq!(found, (0..count / 2).map(want).collect::<Vec<_>>());
        }
    }
}
