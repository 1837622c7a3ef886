//! One node: typed access to its inputs and attributes.

use edgecut_graph::{DType, TensorData, TensorId, TensorType};

use crate::{
    error::{Result, shown},
    lowering::{Call, Value},
    proto::{AttributeProto, GraphProto},
    tensor,
    unknown_dim::UnknownDim,
};

impl<'m> Call<'_, 'm> {
    /// Input `index`, a tensor that must be present.
    pub fn input(&self, index: usize) -> Result<TensorId> {
        self.optional(index)?.ok_or_else(|| format!("input {index} is missing"))
    }

    /// Input `index` if it is present.
    pub fn optional(&self, index: usize) -> Result<Option<TensorId>> {
        match self.inputs.get(index) {
            Some(Some(Value::Tensor(tensor))) => Ok(Some(*tensor)),
            Some(Some(Value::Sequence(_))) => Err(format!("input {index} is a sequence, expected a tensor")),
            Some(Some(Value::Refused(why))) => Err(why.to_string()),
            Some(None) | None => Ok(None),
        }
    }

    /// All inputs, which must be tensors.
    pub fn all(&self) -> Result<Vec<TensorId>> {
        (0..self.inputs.len()).map(|index| self.input(index)).collect()
    }

    /// Input `index`, a sequence.
    pub fn sequence(&self, index: usize) -> Result<Vec<TensorId>> {
        match self.inputs.get(index) {
            Some(Some(Value::Sequence(tensors))) => Ok(tensors.clone()),
            _ => Err(format!("input {index} must be a sequence")),
        }
    }

    /// The content of input `index`, which must be known during the import; `None` if it is absent.
    pub fn content(&self, index: usize, what: &str) -> Result<Option<TensorData>> {
        self.optional(index)?.map(|tensor| self.lowering.content(tensor, what)).transpose()
    }

    /// The content of input `index` for what may depend on data, such as a condition; `None` if it is absent.
    pub fn content_of_run(&mut self, index: usize, what: &str) -> Result<Option<TensorData>> {
        self.optional(index)?.map(|tensor| self.lowering.content_of_run(tensor, what)).transpose()
    }

    /// The integers of input `index`; `None` if it is absent.
    pub fn content_ints(&self, index: usize, what: &str) -> Result<Option<Vec<i64>>> {
        let data = self.content(index, what)?;
        data.map(|data| data.to_i64s().ok_or_else(|| format!("{what} must be integers"))).transpose()
    }

    /// The numbers of input `index`; `None` if it is absent.
    pub fn content_floats(&self, index: usize, what: &str) -> Result<Option<Vec<f64>>> {
        let data = self.content(index, what)?;
        data.map(|data| data.to_f64s().ok_or_else(|| format!("{what} must be numbers"))).transpose()
    }

    pub fn ty(&self, tensor: TensorId) -> &TensorType {
        &self.lowering.graph.tensor(tensor).ty
    }

    pub fn dtype_of(&self, tensor: TensorId) -> DType {
        self.ty(tensor).dtype
    }

    pub fn rank(&self, tensor: TensorId) -> usize {
        self.ty(tensor).shape.rank()
    }

    /// The sizes of a tensor, all of which must be known.
    pub fn dims(&self, tensor: TensorId) -> Result<Vec<u64>> {
        let found = &self.lowering.graph.tensor(tensor);
        let fixed = found.ty.shape.fixed().map(|dims| dims.to_vec());
        fixed.ok_or_else(|| {
            let (what, unbound) = (shown(&found.name), self.lowering.unbound_dims());
            let why = match unbound.is_empty() {
                true => "before the model runs".to_string(),
                false => {
                    format!("because those of inputs are not: give them, such as {}", UnknownDim::options(&unbound))
                }
            };
            format!("the sizes of `{what}` ({}) are not known {why}", found.ty)
        })
    }

    /// The index of a possibly negative axis of `tensor`.
    pub fn axis(&self, axis: i64, tensor: TensorId) -> Result<usize> {
        axis_in(axis, self.rank(tensor))
    }

    fn attr(&self, name: &str) -> Option<&'m AttributeProto> {
        let stated = self.node.attribute.iter().find(|attribute| attribute.name.as_deref() == Some(name));
        stated.and_then(|attribute| self.lowering.attribute(attribute))
    }

    pub fn has(&self, name: &str) -> bool {
        self.attr(name).is_some()
    }

    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.optional_int(name).unwrap_or(default)
    }

    pub fn optional_int(&self, name: &str) -> Option<i64> {
        self.attr(name).map(|attribute| attribute.i.unwrap_or_default())
    }

    pub fn float(&self, name: &str, default: f64) -> f64 {
        self.attr(name).map_or(default, |attribute| f64::from(attribute.f.unwrap_or_default()))
    }

    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attr(name).map(|attribute| attribute.ints.clone())
    }

    pub fn floats(&self, name: &str) -> Option<Vec<f64>> {
        self.attr(name).map(|attribute| attribute.floats.iter().map(|x| f64::from(*x)).collect())
    }

    /// A string; the default if it is absent or not text.
    pub fn text(&self, name: &str, default: &'static str) -> &'m str {
        let bytes = self.attr(name).and_then(|attribute| attribute.s.as_deref());
        bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or(default)
    }

    pub fn texts(&self, name: &str) -> Option<Vec<String>> {
        let text = |bytes: &bytes::Bytes| String::from_utf8_lossy(bytes).into_owned();
        self.attr(name).map(|attribute| attribute.strings.iter().map(text).collect())
    }

    pub fn tensor(&self, name: &str) -> Result<Option<TensorData>> {
        let tensor = self.attr(name).and_then(|attribute| attribute.t.as_ref());
        tensor
            .map(|tensor| tensor::tensor_data(tensor, &self.lowering.files))
            .transpose()
            .map_err(|what| format!("attribute {name}: {what}"))
    }

    pub fn graph(&self, name: &str) -> Result<&'m GraphProto> {
        let graph = self.attr(name).and_then(|attribute| attribute.g.as_ref());
        graph.ok_or_else(|| format!("attribute {name}, a graph, is missing"))
    }

    /// The element type that the attribute `name` states.
    pub fn dtype(&self, name: &str) -> Result<Option<DType>> {
        let Some(number) = self.optional_int(name) else { return Ok(None) };
        match tensor::dtype(number).map_err(|what| format!("attribute {name}: {what}"))? {
            exotic @ DType::Exotic(_) => Err(format!("attribute {name}: there are no kernels for {exotic}")),
            dtype => Ok(Some(dtype)),
        }
    }
}

/// The index of a possibly negative axis of a tensor of `rank` dimensions.
pub(crate) fn axis_in(axis: i64, rank: usize) -> Result<usize> {
    let index = if axis < 0 { axis + rank as i64 } else { axis };
    match usize::try_from(index) {
        Ok(index) if index < rank => Ok(index),
        _ => Err(format!("axis {axis} is out of range for rank {rank}")),
    }
}
