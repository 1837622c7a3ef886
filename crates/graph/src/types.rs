//! Shapes and types of tensors, with dimensions that may be unknown.

use std::{fmt, ops, sync::Arc};

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{dtype::DType, units::Bytes};

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
/// Copy-on-write: a model has many tensors and few distinct shapes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Dims", into = "Dims")]
pub struct Shape(Arc<Dims>);

type Dims = SmallVec<[Dim; 4]>;

/// One dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Option<u64>", from = "Option<u64>")]
pub enum Dim {
    Known(u64),
    /// A dimension that TVM's types hold as int64 (`1i64` in the text). Equivalent to [`Dim::Known`], except for the
    /// index dtype of argmax and argmin.
    Wide(u64),
    /// `?` in the text: unknown until the dimension is bound or the model runs.
    Any,
}

impl Dim {
    /// The size; `None` if unknown.
    pub fn get(self) -> Option<u64> {
        match self {
            Dim::Known(n) | Dim::Wide(n) => Some(n),
            Dim::Any => None,
        }
    }

    /// Whether both have the same size, regardless of the integer type that holds it.
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
    /// Maximum rank of a tensor in a model. TVM's kernels support ranks up to 6 or 7.
    pub const MAX_DIMS: usize = 64;

    /// A shape of known dimensions.
    pub fn of(dims: &[u64]) -> Shape {
        dims.iter().map(|&n| Dim::Known(n)).collect()
    }

    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// All dimensions, if all are known.
    pub fn fixed(&self) -> Option<SmallVec<[u64; 4]>> {
        self.0.iter().map(|d| d.get()).collect()
    }

    /// Number of elements, if all dimensions are known and the product does not overflow.
    pub fn elements(&self) -> Option<u64> {
        let sizes = self.fixed()?;
        if sizes.contains(&0) {
            return Some(0);
        }
        sizes.iter().try_fold(1u64, |n, size| n.checked_mul(*size))
    }

    /// The index of a possibly negative axis, as in numpy; `None` if out of range.
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

    /// A type of known dimensions.
    pub fn of(dtype: DType, dims: &[u64]) -> TensorType {
        TensorType { dtype, shape: Shape::of(dims) }
    }

    /// Size in bytes, if all dimensions are known; the largest number where the size is beyond it.
    pub fn bytes(&self) -> Option<Bytes> {
        self.shape.fixed()?;
        Some(Bytes(self.shape.elements().map_or(u64::MAX, |count| count.saturating_mul(self.dtype.size()))))
    }

    /// Whether a tensor of this type can be one of type `declared`, whose dimensions may be unknown.
    pub fn is_instance_of(&self, declared: &TensorType) -> bool {
        let same = |(found, declared): (&Dim, &Dim)| declared.get().is_none() || found == declared;
        self.dtype == declared.dtype
            && self.shape.rank() == declared.shape.rank()
            && self.shape.iter().zip(declared.shape.iter()).all(same)
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

    /// The tensor type; `None` for a tuple.
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
    fn negative_axes_count_from_the_end() {
        let shape = Shape::of(&[2, 3, 4]);
        for (axis, index) in [(0, Some(0)), (2, Some(2)), (-1, Some(2)), (-3, Some(0)), (3, None), (-4, None)] {
            assert_eq!(shape.axis(axis), index, "{axis}");
        }
        assert_eq!(Shape::default().axis(0), None);
    }

    #[test]
    fn changing_a_clone_leaves_the_original() {
        let shape = Shape::of(&[2, 3]);
        let mut other = shape.clone();
        other[0] = Dim::Known(5);
        assert_eq!((shape, other), (Shape::of(&[2, 3]), Shape::of(&[5, 3])));
    }

    #[test]
    fn sizes_beyond_all_numbers_are_the_largest_one() {
        for (dims, bytes) in
            [(&[2, 3][..], 24), (&[1 << 40, 1 << 24], u64::MAX), (&[1 << 62], u64::MAX), (&[1 << 40, 1 << 40, 0], 0)]
        {
            assert_eq!(TensorType::of(DType::F32, dims).bytes(), Some(Bytes(bytes)), "{dims:?}");
        }
        assert_eq!(TensorType::new(DType::F32, [Dim::Any, Dim::Known(0)].into_iter().collect()).bytes(), None);
    }

    #[test]
    fn types_print_in_table_notation() {
        let tensor = TensorType::new(DType::F32, [Dim::Known(1), Dim::Any].into_iter().collect());
        let tuple = Type::Tuple(vec![tensor.clone().into(), TensorType::of(DType::Bool, &[]).into()]);
        assert_eq!(tuple.to_string(), "(float32[1,?];bool[])");
        assert_eq!(tensor.bytes(), None);
        assert_eq!(TensorType::of(DType::F16, &[3, 5]).bytes(), Some(Bytes(30)));
    }
}
