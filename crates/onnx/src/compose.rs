//! Operators of the graph, by the names that families call them: elementwise arithmetic, reductions, views.

use edgecut_graph::{Arg, Attr, DType, TensorData, TensorId};

use crate::{
    error::Result,
    lowering::{Call, Value},
};

/// A list of integers as an attribute.
pub(crate) fn list(values: &[i64]) -> Attr {
    Attr::List(values.iter().map(|n| Attr::Int(*n)).collect())
}

/// A list of sizes as an attribute.
pub(crate) fn sizes(values: &[u64]) -> Attr {
    Attr::List(values.iter().map(|n| Attr::Int(*n as i64)).collect())
}

pub(crate) fn text(value: &str) -> Attr {
    Attr::Str(value.into())
}

/// The only result of a node.
pub(crate) fn one(tensor: TensorId) -> Result<Vec<Value>> {
    Ok(vec![Value::Tensor(tensor)])
}

/// Results of a node, all tensors.
pub(crate) fn many(tensors: impl IntoIterator<Item = TensorId>) -> Result<Vec<Value>> {
    Ok(tensors.into_iter().map(Value::Tensor).collect())
}

impl Call<'_, '_> {
    /// A call of `name` with one result.
    pub fn op(
        &mut self,
        name: &'static str,
        operands: &[TensorId],
        attrs: Vec<(&'static str, Attr)>,
    ) -> Result<TensorId> {
        let args = operands.iter().map(|tensor| Arg::Tensor(*tensor)).collect();
        self.first(name, args, attrs)
    }

    /// A call of `name` on a tuple of tensors, with one result.
    pub fn on_tuple(
        &mut self,
        name: &'static str,
        fields: &[TensorId],
        attrs: Vec<(&'static str, Attr)>,
    ) -> Result<TensorId> {
        self.first(name, vec![Arg::Tuple(fields.to_vec())], attrs)
    }

    fn first(&mut self, name: &'static str, args: Vec<Arg>, attrs: Vec<(&'static str, Attr)>) -> Result<TensorId> {
        self.lowering.add(name, args, attrs)?.first().copied().ok_or_else(|| format!("{name} has no result"))
    }

    /// An elementwise call without attributes.
    pub fn map(&mut self, name: &'static str, operands: &[TensorId]) -> Result<TensorId> {
        self.op(name, operands, Vec::new())
    }

    /// `value` in the element type of `tensor`.
    pub fn like(&mut self, value: f64, tensor: TensorId) -> Result<TensorId> {
        let dtype = self.dtype_of(tensor);
        self.lowering.scalar(value, dtype)
    }

    /// An elementwise call on `tensor` and a number.
    pub fn with(&mut self, name: &'static str, tensor: TensorId, value: f64) -> Result<TensorId> {
        let scalar = self.like(value, tensor)?;
        self.map(name, &[tensor, scalar])
    }

    pub fn cast(&mut self, tensor: TensorId, dtype: DType) -> Result<TensorId> {
        match self.dtype_of(tensor) == dtype {
            true => Ok(tensor),
            false => self.op("cast", &[tensor], vec![("dtype", text(&dtype.to_string()))]),
        }
    }

    pub fn reshape(&mut self, tensor: TensorId, shape: &[u64]) -> Result<TensorId> {
        if self.ty(tensor).shape.fixed().is_some_and(|dims| *dims == *shape) {
            return Ok(tensor);
        }
        let known = self.ty(tensor).shape.elements();
        if shape.contains(&0) && known == Some(0) {
            return self.op("reshape", &[tensor], vec![("newshape", sizes(shape)), ("allowzero", Attr::Bool(true))]);
        }
        self.op("reshape", &[tensor], vec![("newshape", sizes(shape))])
    }

    /// A transposition; the tensor itself if it changes nothing.
    pub fn transpose(&mut self, tensor: TensorId, axes: &[usize]) -> Result<TensorId> {
        if axes.iter().enumerate().all(|(at, axis)| at == *axis) && axes.len() == self.rank(tensor) {
            return Ok(tensor);
        }
        let axes: Vec<i64> = axes.iter().map(|axis| *axis as i64).collect();
        self.op("transpose", &[tensor], vec![("axes", list(&axes))])
    }

    /// Inserts `count` axes of size 1 at `axis`.
    pub fn expand(&mut self, tensor: TensorId, axis: usize, count: usize) -> Result<TensorId> {
        if count == 0 {
            return Ok(tensor);
        }
        let attrs = vec![("axis", Attr::Int(axis as i64)), ("num_newaxis", Attr::Int(count as i64))];
        self.op("expand_dims", &[tensor], attrs)
    }

    pub fn squeeze(&mut self, tensor: TensorId, axes: &[usize]) -> Result<TensorId> {
        let axes: Vec<i64> = axes.iter().map(|axis| *axis as i64).collect();
        match axes.is_empty() {
            true => Ok(tensor),
            false => self.op("squeeze", &[tensor], vec![("axis", list(&axes))]),
        }
    }

    pub fn broadcast(&mut self, tensor: TensorId, shape: &[u64]) -> Result<TensorId> {
        if self.ty(tensor).shape.fixed().is_some_and(|dims| *dims == *shape) {
            return Ok(tensor);
        }
        self.op("broadcast_to", &[tensor], vec![("shape", sizes(shape))])
    }

    pub fn concat(&mut self, tensors: &[TensorId], axis: usize) -> Result<TensorId> {
        match tensors {
            [tensor] => Ok(*tensor),
            _ => self.on_tuple("concatenate", tensors, vec![("axis", Attr::Int(axis as i64))]),
        }
    }

    /// Elements `begin .. end` of `axis`.
    pub fn slice(&mut self, tensor: TensorId, axis: usize, begin: u64, end: u64) -> Result<TensorId> {
        let attrs = vec![
            ("begin", list(&[begin as i64])),
            ("end", list(&[end as i64])),
            ("strides", list(&[1])),
            ("axes", list(&[axis as i64])),
        ];
        self.op("strided_slice", &[tensor], attrs)
    }

    /// Parts of the given sizes along `axis`.
    pub fn split(&mut self, tensor: TensorId, axis: usize, parts: &[u64]) -> Result<Vec<TensorId>> {
        let mut begin = 0;
        parts
            .iter()
            .map(|size| {
                let part = self.slice(tensor, axis, begin, begin + size)?;
                begin += size;
                Ok(part)
            })
            .collect()
    }

    /// A reduction over `axes`.
    pub fn reduce(&mut self, name: &'static str, tensor: TensorId, axes: &[usize], keep: bool) -> Result<TensorId> {
        let axes: Vec<i64> = axes.iter().map(|axis| *axis as i64).collect();
        self.op(name, &[tensor], vec![("axis", list(&axes)), ("keepdims", Attr::Bool(keep))])
    }

    /// A constant vector of int64.
    pub fn vector(&mut self, values: &[i64]) -> Result<TensorId> {
        self.ints_of_shape(values, &[values.len() as u64])
    }

    pub fn ints_of_shape(&mut self, values: &[i64], shape: &[u64]) -> Result<TensorId> {
        let bytes: Vec<u8> = values.iter().flat_map(|n| n.to_le_bytes()).collect();
        let data = TensorData::new(DType::I64, shape.to_vec(), bytes).map_err(|error| error.to_string())?;
        Ok(self.lowering.add_constant(data))
    }

    /// A tensor of `shape` filled with `value`.
    pub fn full(&mut self, value: f64, dtype: DType, shape: &[u64]) -> Result<TensorId> {
        let scalar = self.lowering.scalar(value, dtype)?;
        self.op("full", &[scalar], vec![("shape", sizes(shape)), ("dtype", text(&dtype.to_string()))])
    }
}
