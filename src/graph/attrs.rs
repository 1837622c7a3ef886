//! Attributes of an operator, as the text gave them: names and plain values, in print order.
//!
//! Typed views (`ConvAttrs` and its like) are read from these by the operator families in `ops`.

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::TensorData;

/// The attributes written on an operator. A missing key means the operator's default.
///
/// Cloning shares them: the operators of a model repeat few lists of attributes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Entries", into = "Entries")]
pub struct Attrs(Option<Arc<Entries>>);

type Entries = Vec<(SmolStr, Attr)>;

/// Entries up to which looking at each is faster than hashing. Operators have fewer; a file may claim any number.
const FEW: usize = 32;

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

    pub fn get(&self, key: &str) -> Option<&Attr> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Sets `key`, in place if it is there, else at the end.
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

/// The entries with each key once, where it stood first, with the value that it had last.
fn unique(given: Entries) -> Entries {
    let many = given.len() > FEW;
    let mut kept = Entries::with_capacity(given.len());
    let mut places: HashMap<SmolStr, usize, RandomState> = HashMap::default();
    for (key, value) in given {
        let known = if many { places.get(&key).copied() } else { kept.iter().position(|(name, _)| *name == key) };
        match known.and_then(|at| kept.get_mut(at)) {
            Some(entry) => entry.1 = value,
            None => {
                if many {
                    places.insert(key.clone(), kept.len());
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
    pub fn int(&self) -> Option<i64> {
        match self {
            Attr::Int(n) => Some(*n),
            Attr::Bool(b) => Some(i64::from(*b)),
            _ => None,
        }
    }

    pub fn float(&self) -> Option<f64> {
        match self {
            Attr::Float(x) => Some(*x),
            Attr::Int(n) => Some(*n as f64),
            _ => None,
        }
    }

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
    fn a_key_that_comes_again_replaces_the_value_of_the_first() {
        for count in [4, 4 * FEW] {
            let entry = |at: usize| (SmolStr::new(format!("k{}", at % (count / 2))), Attr::Int(at as i64));
            let attrs: Attrs = (0..count).map(entry).collect();
            let found: Vec<(String, Option<i64>)> =
                attrs.iter().map(|(key, value)| (key.into(), value.int())).collect();
            let want = |at: usize| (format!("k{at}"), Some((at + count / 2) as i64));
            assert_eq!(found, (0..count / 2).map(want).collect::<Vec<_>>());
        }
    }
}
