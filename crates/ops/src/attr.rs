//! Typed access to the attributes and operands of a call. An accessor returns the explicit value, else the default.

use edgecut_graph::{Attr, DType, Dim, Shape, TensorData, TensorType, Type};

use crate::def::{Call, TypeError};

impl<'a> Call<'a> {
    /// Argument `index` as a tensor.
    pub fn tensor(&self, index: usize) -> Result<&'a TensorType, TypeError> {
        match self.args.get(index) {
            Some(Type::Tensor(tensor)) => Ok(tensor),
            Some(Type::Tuple(_)) => Err(self.error(format!("operand {index} is a tuple, expected a tensor"))),
            None => Err(self.error(format!("operand {index} is missing"))),
        }
    }

    /// The fields of argument `index`, which must be a tuple of tensors.
    pub fn tuple(&self, index: usize) -> Result<Vec<&'a TensorType>, TypeError> {
        match self.args.get(index) {
            Some(Type::Tuple(fields)) => fields
                .iter()
                .map(|f| f.tensor().ok_or_else(|| self.error("a field of the tuple operand is a tuple")))
                .collect(),
            _ => Err(self.error(format!("operand {index} must be a tuple of tensors"))),
        }
    }

    /// The explicit value of `key`; `None` if it is absent or `None`.
    pub fn attr(&self, key: &str) -> Option<&'a Attr> {
        self.attrs.get(key).filter(|value| !matches!(value, Attr::None))
    }

    fn read<T>(&self, key: &str, expected: &str, read: impl Fn(&'a Attr) -> Option<T>) -> Result<Option<T>, TypeError> {
        self.attr(key)
            .map(|value| {
                read(value).ok_or_else(|| self.error(format!("attribute {key} is {value:?}, expected {expected}")))
            })
            .transpose()
    }

    pub fn int(&self, key: &str, default: i64) -> Result<i64, TypeError> {
        Ok(self.optional_int(key)?.unwrap_or(default))
    }

    pub fn optional_int(&self, key: &str) -> Result<Option<i64>, TypeError> {
        self.read(key, "an integer", Attr::int)
    }

    pub fn float(&self, key: &str, default: f64) -> Result<f64, TypeError> {
        Ok(self.read(key, "a number", Attr::float)?.unwrap_or(default))
    }

    pub fn flag(&self, key: &str, default: bool) -> Result<bool, TypeError> {
        Ok(self.read(key, "True or False", Attr::bool)?.unwrap_or(default))
    }

    pub fn text(&self, key: &str, default: &'static str) -> Result<&'a str, TypeError> {
        Ok(self.read(key, "a string", Attr::str)?.unwrap_or(default))
    }

    /// A list of integers; a single integer counts as a list of one.
    pub fn ints(&self, key: &str) -> Result<Option<Vec<i64>>, TypeError> {
        self.read(key, "a list of integers", |value| match value {
            Attr::List(items) => items.iter().map(Attr::int).collect(),
            Attr::Tensor(tensor) => tensor.to_i64s(),
            other => other.int().map(|n| vec![n]),
        })
    }

    /// A list of dimensions, where the element `None` is an unknown one; `None` if absent.
    pub fn shape(&self, key: &str) -> Result<Option<Shape>, TypeError> {
        let dim = |value: &Attr| match value {
            Attr::None => Some(Dim::Any),
            other => u64::try_from(other.int()?).ok().map(Dim::Known),
        };
        self.read(key, "a list of dimensions", |value| match value {
            Attr::List(items) => items.iter().map(dim).collect(),
            Attr::Tensor(tensor) => dims_of(tensor),
            other => dim(other).map(|d| [d].into_iter().collect()),
        })
    }

    /// A list of numbers; a single number counts as a list of one.
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f64>>, TypeError> {
        self.read(key, "a list of numbers", |value| match value {
            Attr::List(items) => items.iter().map(Attr::float).collect(),
            other => other.float().map(|x| vec![x]),
        })
    }

    /// A dtype given as a string; `None` if absent or `""`.
    pub fn dtype(&self, key: &str) -> Result<Option<DType>, TypeError> {
        match self.text(key, "")? {
            "" => Ok(None),
            name => name.parse().map(Some).map_err(|e: edgecut_graph::DTypeError| self.error(format!("{key}: {e}"))),
        }
    }
}

/// The shape that a tensor of integers holds; `None` if an entry is negative.
pub(crate) fn dims_of(tensor: &TensorData) -> Option<Shape> {
    tensor.to_i64s()?.into_iter().map(|d| u64::try_from(d).ok().map(Dim::Known)).collect()
}
