//! Shapes and types of tensors, with dimensions that may be unknown.

use std::{fmt, ops, sync::Arc};

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::DType;
use crate::units::Bytes;

/// The type of a value: a tensor or a tuple of values.
///
/// Displays in the notation of TVM's shape tables: `float32[1,3,?]`, a tuple as `(a;b)`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Type {
    Tensor(TensorType),
    Tuple(Vec<Type>),
}

/// Element type and shape of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorType {
    pub dtype: DType,
    pub shape: Shape,
}

/// The dimensions of a tensor, outermost first.
///
/// Cloning shares them until one of the two is changed: a model has many tensors and few shapes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Dims", into = "Dims")]
pub struct Shape(Arc<Dims>);

type Dims = SmallVec<[Dim; 4]>;

/// One dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Option<u64>", from = "Option<u64>")]
pub enum Dim {
    Known(u64),
    /// A dimension that TVM's types hold as int64 (`1i64` in the text). The same size as
    /// [`Dim::Known`]; only the index dtype of argmax and its like depends on it.
    Wide(u64),
    /// `?` in the text: known only when the model runs or is bound.
    Any,
}

impl Dim {
    pub fn get(self) -> Option<u64> {
        match self {
            Dim::Known(n) | Dim::Wide(n) => Some(n),
            Dim::Any => None,
        }
    }

    /// Same size, whatever integer type holds it.
    pub fn same(self, other: Dim) -> bool {
        self.get() == other.get()
    }
}

impl From<u64> for Dim {
    fn from(n: u64) -> Dim {
        Dim::Known(n)
    }
}

impl From<Option<u64>> for Dim {
    fn from(n: Option<u64>) -> Dim {
        n.map_or(Dim::Any, Dim::Known)
    }
}

impl From<Dim> for Option<u64> {
    fn from(dim: Dim) -> Option<u64> {
        dim.get()
    }
}

impl Shape {
    /// Most dimensions of a tensor in a model. TVM's kernels know no more than 6 or 7.
    pub const MOST_DIMS: usize = 64;

    pub fn of(dims: &[u64]) -> Shape {
        dims.iter().map(|&n| Dim::Known(n)).collect()
    }

    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// All dimensions, if every one is known.
    pub fn fixed(&self) -> Option<SmallVec<[u64; 4]>> {
        self.0.iter().map(|d| d.get()).collect()
    }

    /// Number of elements, if every dimension is known and the product fits.
    pub fn elements(&self) -> Option<u64> {
        self.0.iter().try_fold(1u64, |n, d| n.checked_mul(d.get()?))
    }

    /// Turns a possibly negative axis into an index, as numpy does.
    pub fn axis(&self, axis: i64) -> Option<usize> {
        let rank = self.rank() as i64;
        (-rank..rank).contains(&axis).then(|| (if axis < 0 { axis + rank } else { axis }) as usize)
    }

    pub fn push(&mut self, dim: Dim) {
        Arc::make_mut(&mut self.0).push(dim);
    }

    pub fn insert(&mut self, at: usize, dim: Dim) {
        Arc::make_mut(&mut self.0).insert(at, dim);
    }

    pub fn remove(&mut self, at: usize) -> Dim {
        Arc::make_mut(&mut self.0).remove(at)
    }
}

impl ops::Deref for Shape {
    type Target = [Dim];
    fn deref(&self) -> &[Dim] {
        &self.0
    }
}

impl ops::DerefMut for Shape {
    fn deref_mut(&mut self) -> &mut [Dim] {
        Arc::<Dims>::make_mut(&mut self.0)
    }
}

impl FromIterator<Dim> for Shape {
    fn from_iter<I: IntoIterator<Item = Dim>>(dims: I) -> Shape {
        Shape(Arc::new(dims.into_iter().collect()))
    }
}

impl From<Dims> for Shape {
    fn from(dims: Dims) -> Shape {
        Shape(Arc::new(dims))
    }
}

impl From<Shape> for Dims {
    fn from(shape: Shape) -> Dims {
        Arc::unwrap_or_clone(shape.0)
    }
}

impl TensorType {
    pub fn new(dtype: DType, shape: Shape) -> TensorType {
        TensorType { dtype, shape }
    }

    pub fn of(dtype: DType, dims: &[u64]) -> TensorType {
        TensorType { dtype, shape: Shape::of(dims) }
    }

    /// Size in bytes, if every dimension is known and the product fits.
    pub fn bytes(&self) -> Option<Bytes> {
        self.shape.elements()?.checked_mul(self.dtype.size()).map(Bytes)
    }
}

impl Type {
    /// The tensors of the value, tuples flattened left to right.
    pub fn tensors(&self) -> Vec<&TensorType> {
        let (mut found, mut stack) = (Vec::new(), vec![self]);
        while let Some(ty) = stack.pop() {
            match ty {
                Type::Tensor(tensor) => found.push(tensor),
                Type::Tuple(fields) => stack.extend(fields.iter().rev()),
            }
        }
        found
    }

    pub fn tensor(&self) -> Option<&TensorType> {
        match self {
            Type::Tensor(tensor) => Some(tensor),
            Type::Tuple(_) => None,
        }
    }
}

impl From<TensorType> for Type {
    fn from(tensor: TensorType) -> Type {
        Type::Tensor(tensor)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(n) => write!(f, "{n}"),
            None => f.write_str("?"),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.iter().enumerate() {
            write!(f, "{}{dim}", if i == 0 { "" } else { "," })?;
        }
        f.write_str("]")
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor(tensor) => tensor.fmt(f),
            Type::Tuple(fields) => {
                f.write_str("(")?;
                for (i, field) in fields.iter().enumerate() {
                    write!(f, "{}{field}", if i == 0 { "" } else { ";" })?;
                }
                f.write_str(")")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_print_in_table_notation() {
        let tensor = TensorType::new(DType::F32, [Dim::Known(1), Dim::Any].into_iter().collect());
        let tuple = Type::Tuple(vec![tensor.clone().into(), TensorType::of(DType::Bool, &[]).into()]);
        assert_eq!(tuple.to_string(), "(float32[1,?];bool[])");
        assert_eq!(tensor.bytes(), None);
        assert_eq!(TensorType::of(DType::F16, &[3, 5]).bytes(), Some(Bytes(30)));
        assert_eq!(TensorType::of(DType::F32, &[u64::MAX, 2]).bytes(), None);
    }
}
