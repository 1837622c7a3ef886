//! Operators that many families use. Reshapes, transpositions and conversions of constants are computed here, so that
//! weights are written as ONNX wants them.

use edgecut_graph::{DType, TensorData};

use super::builder::{ModelBuilder, OnnxValue};
use crate::{error::Result, tensor::element};

impl ModelBuilder {
    pub fn unary(&mut self, op: &'static str, x: &OnnxValue) -> Result<OnnxValue> {
        self.node(op, &[x]).one(x.dtype)
    }

    /// A broadcast operator whose result has its operands' type.
    pub fn binary(&mut self, op: &'static str, a: &OnnxValue, b: &OnnxValue) -> Result<OnnxValue> {
        self.node(op, &[a, b]).one(a.dtype)
    }

    /// A broadcast operator with a bool result.
    pub fn compare(&mut self, op: &'static str, a: &OnnxValue, b: &OnnxValue) -> Result<OnnxValue> {
        self.node(op, &[a, b]).one(DType::Bool)
    }

    /// `x op number`, the number in the type of `x`.
    pub fn with_number(&mut self, op: &'static str, x: &OnnxValue, number: f64) -> Result<OnnxValue> {
        let number = self.scalar(number, x.dtype)?;
        self.binary(op, x, &number)
    }

    pub fn cast(&mut self, x: &OnnxValue, dtype: DType) -> Result<OnnxValue> {
        if x.dtype == dtype {
            return Ok(x.clone());
        }
        if let Some(data) = &x.content
            && let Some(content) = converted(data, dtype)
        {
            return Ok(OnnxValue { content: Some(content), dtype, name: Default::default() });
        }
        let number = crate::tensor::element_type(dtype)?;
        self.node("Cast", &[x]).int("to", number.into()).one(dtype)
    }

    /// `x` with the shape `dims`, of which one may be −1.
    pub fn reshape(&mut self, x: &OnnxValue, dims: &[i64]) -> Result<OnnxValue> {
        if let Some(data) = &x.content
            && let Ok(dims) = dims.iter().map(|n| u64::try_from(*n)).collect::<std::result::Result<Vec<u64>, _>>()
            && let Ok(content) = TensorData::new(data.dtype(), dims, data.bytes().clone())
        {
            if content.shape() == data.shape() {
                return Ok(x.clone());
            }
            return Ok(OnnxValue { content: Some(content), ..self.derived(x) });
        }
        let shape = self.ints(dims)?;
        let mut node = self.node("Reshape", &[x, &shape]);
        if dims.contains(&0) {
            node = node.int("allowzero", 1);
        }
        node.one(x.dtype)
    }

    /// `x` with its axes in the order `axes`; `x` itself where that is the order it has.
    pub fn transpose(&mut self, x: &OnnxValue, axes: &[usize]) -> Result<OnnxValue> {
        if axes.iter().enumerate().all(|(at, axis)| at == *axis) {
            return Ok(x.clone());
        }
        if let Some(data) = &x.content
            && let Some(content) = permuted(data, axes)
        {
            return Ok(OnnxValue { content: Some(content), ..self.derived(x) });
        }
        let axes: Vec<i64> = axes.iter().map(|axis| *axis as i64).collect();
        self.node("Transpose", &[x]).ints("perm", &axes).one(x.dtype)
    }

    /// A constant made of the constant `x`, which keeps the beginning of its name.
    fn derived(&mut self, x: &OnnxValue) -> OnnxValue {
        let name = if x.name.is_empty() { x.name.clone() } else { self.unique(&x.name) };
        OnnxValue { name, dtype: x.dtype, content: None }
    }

    /// Inserts axes of length 1 at these positions of the result.
    pub fn unsqueeze(&mut self, x: &OnnxValue, axes: &[i64]) -> Result<OnnxValue> {
        let axes = self.ints(axes)?;
        self.node("Unsqueeze", &[x, &axes]).one(x.dtype)
    }

    pub fn squeeze(&mut self, x: &OnnxValue, axes: &[i64]) -> Result<OnnxValue> {
        let axes = self.ints(axes)?;
        self.node("Squeeze", &[x, &axes]).one(x.dtype)
    }

    pub fn concat(&mut self, parts: &[OnnxValue], axis: usize) -> Result<OnnxValue> {
        let [first, ..] = parts else { return Err("a concatenation of nothing".to_string()) };
        if parts.len() == 1 {
            return Ok(first.clone());
        }
        let all: Vec<&OnnxValue> = parts.iter().collect();
        self.node("Concat", &all).int("axis", axis as i64).one(first.dtype)
    }

    /// Elements `begin..end` in steps of 1 along one axis.
    pub fn range(&mut self, x: &OnnxValue, axis: usize, begin: i64, end: i64) -> Result<OnnxValue> {
        self.slice(x, &[axis as i64], &[begin], &[end], &[1])
    }

    pub fn slice(
        &mut self,
        x: &OnnxValue,
        axes: &[i64],
        begin: &[i64],
        end: &[i64],
        steps: &[i64],
    ) -> Result<OnnxValue> {
        if let Some(data) = &x.content
            && steps.iter().all(|step| *step == 1)
            && let Some(content) = sliced(data, axes, begin, end)
        {
            return Ok(OnnxValue { content: Some(content), ..self.derived(x) });
        }
        let [begin, end] = [self.ints(begin)?, self.ints(end)?];
        let [axes, steps] = [self.ints(axes)?, self.ints(steps)?];
        self.node("Slice", &[x, &begin, &end, &axes, &steps]).one(x.dtype)
    }

    pub fn gather(&mut self, x: &OnnxValue, indices: &OnnxValue, axis: usize) -> Result<OnnxValue> {
        let indices = self.index(indices)?;
        self.node("Gather", &[x, &indices]).int("axis", axis as i64).one(x.dtype)
    }

    /// Indices in a type that gathering operators take.
    pub fn index(&mut self, indices: &OnnxValue) -> Result<OnnxValue> {
        match indices.dtype {
            DType::I32 | DType::I64 => Ok(indices.clone()),
            _ => self.cast(indices, DType::I64),
        }
    }

    /// Pads with `value`; negative widths crop.
    pub fn pad(&mut self, x: &OnnxValue, widths: &[(i64, i64)], value: &OnnxValue) -> Result<OnnxValue> {
        if widths.iter().all(|width| *width == (0, 0)) {
            return Ok(x.clone());
        }
        let before = widths.iter().map(|width| width.0);
        let pads: Vec<i64> = before.chain(widths.iter().map(|width| width.1)).collect();
        let pads = self.ints(&pads)?;
        self.node("Pad", &[x, &pads, value]).one(x.dtype)
    }

    pub fn expand(&mut self, x: &OnnxValue, dims: &[i64]) -> Result<OnnxValue> {
        let dims = self.ints(dims)?;
        self.node("Expand", &[x, &dims]).one(x.dtype)
    }

    /// A reduction over `axes`, all if there are none.
    pub fn reduce(&mut self, op: &'static str, x: &OnnxValue, axes: &[usize], keep: bool) -> Result<OnnxValue> {
        let axes: Vec<i64> = axes.iter().map(|axis| *axis as i64).collect();
        let axes = self.ints(&axes)?;
        self.node(op, &[x, &axes]).int("keepdims", keep.into()).one(x.dtype)
    }

    /// `condition ? yes : no`, broadcast; the condition is bool.
    pub fn choose(&mut self, condition: &OnnxValue, yes: &OnnxValue, no: &OnnxValue) -> Result<OnnxValue> {
        self.node("Where", &[condition, yes, no]).one(yes.dtype)
    }

    /// A matrix product; `dtype` is that of the operands.
    pub fn matmul(&mut self, a: &OnnxValue, b: &OnnxValue) -> Result<OnnxValue> {
        self.binary("MatMul", a, b)
    }

    /// The elements, flattened.
    pub fn flat(&mut self, x: &OnnxValue) -> Result<OnnxValue> {
        match &x.content {
            Some(data) => self.reshape(x, &[data.shape().iter().product::<u64>() as i64]),
            None => self.reshape(x, &[-1]),
        }
    }

    /// `⌊a / b⌋` of integers: `Div` truncates, and `Mod` has the sign of the divisor.
    pub fn floor_divide(&mut self, a: &OnnxValue, b: &OnnxValue) -> Result<OnnxValue> {
        let rest = self.binary("Mod", a, b)?;
        let whole = self.binary("Sub", a, &rest)?;
        self.binary("Div", &whole, b)
    }
}

/// The elements as another type, if every one is exact or rounded as `Cast` rounds it.
fn converted(data: &TensorData, dtype: DType) -> Option<TensorData> {
    let from = data.dtype();
    let bytes: Vec<u8> = if from.is_integer() && dtype.is_integer() {
        let width = dtype.size() as usize;
        data.to_i64s()?.into_iter().flat_map(|n| n.to_le_bytes().into_iter().take(width)).collect()
    } else if dtype.is_float() || dtype == DType::Bool {
        let values = data.to_f64s()?.into_iter().map(|value| element(value, dtype));
        values.collect::<Option<Vec<_>>>()?.concat()
    } else {
        // What becomes of values beyond an integer type's range is left to the runtime.
        return None;
    };
    TensorData::new(dtype, data.shape(), bytes).ok()
}

/// The content with its axes in the order `axes`.
fn permuted(data: &TensorData, axes: &[usize]) -> Option<TensorData> {
    let shape: Vec<usize> = data.shape().iter().map(|n| *n as usize).collect();
    let mut strides = vec![1usize; shape.len()];
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1] * shape[axis + 1];
    }
    let order: Option<Vec<(usize, usize)>> =
        axes.iter().map(|axis| Some((*shape.get(*axis)?, *strides.get(*axis)?))).collect();
    let order = order.filter(|order| order.len() == shape.len())?;
    let (width, source) = (data.dtype().size() as usize, data.bytes());
    let mut bytes = Vec::with_capacity(source.len());
    let mut index = vec![0usize; order.len()];
    let mut offset = 0;
    for _ in 0..shape.iter().product::<usize>() {
        bytes.extend_from_slice(source.get(offset * width..(offset + 1) * width)?);
        for axis in (0..order.len()).rev() {
            let (size, stride) = order[axis];
            index[axis] += 1;
            offset += stride;
            if index[axis] < size {
                break;
            }
            index[axis] = 0;
            offset -= size * stride;
        }
    }
    let dims: Vec<u64> = order.iter().map(|(size, _)| *size as u64).collect();
    TensorData::new(data.dtype(), dims, bytes).ok()
}

/// The elements `begin..end` of each of `axes`, counted from the end where they are negative, as `Slice` reads them: a part
/// of a weight is stored in place of the whole.
fn sliced(data: &TensorData, axes: &[i64], begin: &[i64], end: &[i64]) -> Option<TensorData> {
    let mut content = data.clone();
    for ((axis, begin), end) in axes.iter().zip(begin).zip(end) {
        let axis = usize::try_from(*axis).ok().filter(|axis| *axis < content.shape().len())?;
        let mut shape = content.shape().to_vec();
        let size = i64::try_from(shape[axis]).ok()?;
        let within = |at: i64| (if at < 0 { at.saturating_add(size) } else { at }).clamp(0, size);
        let (from, to) = (within(*begin), within(*end).max(within(*begin)));
        let row = shape[axis + 1..].iter().product::<u64>() as usize * data.dtype().size() as usize;
        shape[axis] = (to - from) as u64;
        let (block, from, to) = (size as usize * row, from as usize * row, to as usize * row);
        let blocks = content.bytes().chunks(block.max(1)).filter_map(|block| block.get(from..to));
        let bytes: Vec<u8> = blocks.collect::<Vec<_>>().concat();
        content = TensorData::new(data.dtype(), shape, bytes).ok()?;
    }
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_constants_are_stored_alone() {
        let data = TensorData::new(DType::I8, [2, 3, 2], (0..12).collect::<Vec<u8>>()).unwrap();
        for (axes, begin, end, shape, bytes) in [
            (&[1][..], &[1][..], &[2][..], [2, 1, 2], &[2, 3, 8, 9][..]),
            (&[0], &[-1], &[i64::MAX], [1, 3, 2], &[6, 7, 8, 9, 10, 11]),
            (&[2, 0], &[1, 0], &[2, 1], [1, 3, 1], &[1, 3, 5]),
            (&[1], &[2], &[1], [2, 0, 2], &[]),
        ] {
            let found = sliced(&data, axes, begin, end).unwrap();
            assert_eq!((found.shape(), &found.bytes()[..]), (&shape[..], bytes), "{axes:?} {begin:?}..{end:?}");
        }
        assert!(sliced(&data, &[3], &[0], &[1]).is_none());
        let empty = sliced(&data, &[2, 0, 1], &[0, 0, 0], &[0, 1, 3]).unwrap();
        assert_eq!((empty.shape(), empty.bytes().len()), (&[1, 3, 0][..], 0));
    }

    #[test]
    fn constants_are_permuted_and_converted() {
        let data = TensorData::new(DType::U8, [2, 3], vec![1, 2, 3, 4, 5, 6]).unwrap();
        let turned = permuted(&data, &[1, 0]).unwrap();
        assert_eq!((turned.shape(), turned.bytes().as_ref()), (&[3u64, 2][..], &[1u8, 4, 2, 5, 3, 6][..]));
        assert_eq!(converted(&turned, DType::I64).unwrap().to_i64s(), Some(vec![1, 4, 2, 5, 3, 6]));
        assert_eq!(
            converted(&TensorData::new(DType::F32, [1], 2.5f32.to_le_bytes().to_vec()).unwrap(), DType::I8),
            None
        );
    }
}
