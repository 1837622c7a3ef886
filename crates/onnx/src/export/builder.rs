//! The model under construction: nodes, initializers, unique names.

use std::collections::{BTreeMap, HashMap, HashSet};

use edgecut_graph::{DType, TensorData};
use smol_str::SmolStr;

use super::kernels::restrictions;
use crate::{
    error::Result,
    proto::{AttributeProto, NodeProto, TensorProto, attribute_proto::AttributeType},
    tensor::{element, element_type},
};

/// Constants of the writer's own of at most this many bytes are stored once.
const SHARED_BYTES: usize = 256;

/// A value of the model. One with content is a constant, which becomes an initializer when a node reads it.
#[derive(Debug, Clone)]
pub(super) struct OnnxValue {
    /// Empty for an optional input that is absent, and for a constant of the writer's own.
    pub name: SmolStr,
    pub dtype: DType,
    pub content: Option<TensorData>,
}

/// Nodes and initializers.
#[derive(Debug, Default)]
pub(super) struct ModelBuilder {
    pub nodes: Vec<NodeProto>,
    pub initializers: Vec<TensorProto>,
    names: HashSet<SmolStr>,
    counts: HashMap<SmolStr, usize>,
    node_names: HashSet<SmolStr>,
    /// By domain: the version of its operator set that an operator needs.
    pub versions: BTreeMap<String, i64>,
    stored: HashSet<SmolStr>,
    shared: HashMap<(DType, Vec<u64>, Vec<u8>), SmolStr>,
    /// The name of the operator being written, which its nodes and values are named after.
    base: SmolStr,
    /// Whether a node of the operator being written divides integers by what may be 0 or −1.
    may_trap: bool,
}

impl ModelBuilder {
    /// A name of a value that no other has: `wanted`, else with a number appended.
    pub fn unique(&mut self, wanted: &str) -> SmolStr {
        let wanted = if wanted.is_empty() { "value" } else { wanted };
        let mut name = SmolStr::new(wanted);
        let count = self.counts.entry(name.clone()).or_default();
        while !self.names.insert(name.clone()) {
            *count += 1;
            name = SmolStr::new(format!("{wanted}.{count}"));
        }
        name
    }

    /// Whether no value has this name.
    pub fn is_free(&self, name: &str) -> bool {
        !self.names.contains(name)
    }

    /// Begins an operator whose nodes are named after `base`.
    pub fn begin(&mut self, base: &str) {
        self.base = SmolStr::new(base);
        self.may_trap = false;
    }

    /// Whether the operator being written has a division that ends the process for some operands.
    pub fn may_trap(&self) -> bool {
        self.may_trap
    }

    /// A constant of the writer's own.
    pub fn constant(&self, data: TensorData) -> OnnxValue {
        OnnxValue { name: SmolStr::default(), dtype: data.dtype(), content: Some(data) }
    }

    /// A list of int64.
    pub fn ints(&self, list: &[i64]) -> Result<OnnxValue> {
        let bytes: Vec<u8> = list.iter().flat_map(|n| n.to_le_bytes()).collect();
        self.filled(DType::I64, &[list.len() as u64], bytes)
    }

    /// A scalar of rank 0, rounded to `dtype`.
    pub fn scalar(&self, value: f64, dtype: DType) -> Result<OnnxValue> {
        self.list_of(&[value], dtype, &[])
    }

    /// A tensor of `values`, rounded to `dtype`.
    pub fn list_of(&self, values: &[f64], dtype: DType, dims: &[u64]) -> Result<OnnxValue> {
        let mut bytes = Vec::with_capacity(values.len() * dtype.size() as usize);
        for value in values {
            bytes.extend(element(*value, dtype).ok_or_else(|| format!("elements of type {dtype} are not supported"))?);
        }
        self.filled(dtype, dims, bytes)
    }

    /// A tensor of integers, exact for every integer type.
    pub fn integers(&self, values: &[i64], dtype: DType, dims: &[u64]) -> Result<OnnxValue> {
        if !dtype.is_integer() {
            let values: Vec<f64> = values.iter().map(|n| *n as f64).collect();
            return self.list_of(&values, dtype, dims);
        }
        let width = dtype.size() as usize;
        let bytes = values.iter().flat_map(|n| n.to_le_bytes().into_iter().take(width)).collect();
        self.filled(dtype, dims, bytes)
    }

    fn filled(&self, dtype: DType, dims: &[u64], bytes: Vec<u8>) -> Result<OnnxValue> {
        Ok(self.constant(TensorData::new(dtype, dims, bytes).map_err(|error| error.to_string())?))
    }

    /// An optional input that is absent.
    pub fn absent(&self) -> OnnxValue {
        OnnxValue { name: SmolStr::default(), dtype: DType::F32, content: None }
    }

    /// Makes the model refer to at least this version of a domain's operator set.
    pub fn require(&mut self, domain: &str, version: i64) {
        let known = self.versions.entry(domain.to_string()).or_insert(version);
        *known = version.max(*known);
    }

    /// A node of the operator being written.
    pub fn node(&mut self, op: &'static str, inputs: &[&OnnxValue]) -> NodeBuilder<'_> {
        let inputs = inputs.iter().map(|value| (*value).clone()).collect();
        NodeBuilder { builder: self, op, inputs, attributes: Vec::new() }
    }

    /// The name under which a node reads a value; stores a constant as an initializer.
    pub fn named(&mut self, value: &OnnxValue) -> Result<SmolStr> {
        let Some(data) = &value.content else { return Ok(value.name.clone()) };
        if !value.name.is_empty() {
            if self.stored.insert(value.name.clone()) {
                self.store(value.name.clone(), data)?;
            }
            return Ok(value.name.clone());
        }
        let key =
            (data.bytes().len() <= SHARED_BYTES).then(|| (data.dtype(), data.shape().to_vec(), data.bytes().to_vec()));
        if let Some(name) = key.as_ref().and_then(|key| self.shared.get(key)) {
            return Ok(name.clone());
        }
        let wanted = if key.is_some() { "constant".to_string() } else { format!("{}/constant", self.base) };
        let name = self.unique(&wanted);
        self.store(name.clone(), data)?;
        if let Some(key) = key {
            self.shared.insert(key, name.clone());
        }
        Ok(name)
    }

    /// Adds an initializer.
    pub fn store(&mut self, name: SmolStr, data: &TensorData) -> Result<()> {
        self.initializers.push(TensorProto {
            dims: data.shape().iter().map(|n| *n as i64).collect(),
            data_type: Some(element_type(data.dtype())?),
            name: Some(name.into()),
            raw_data: Some(data.bytes().clone()),
            ..Default::default()
        });
        Ok(())
    }

    fn node_name(&mut self, op: &str) -> SmolStr {
        let mut name = self.base.clone();
        let mut count = 0;
        while !self.node_names.insert(name.clone()) {
            count += 1;
            name = match count {
                1 => SmolStr::new(format!("{}/{op}", self.base)),
                n => SmolStr::new(format!("{}/{op}_{n}", self.base)),
            };
        }
        name
    }

    /// Adds a node of the kind `op`; returns the names of its outputs, empty for those that are omitted.
    pub fn push(
        &mut self,
        op: &str,
        domain: String,
        inputs: &[OnnxValue],
        attributes: Vec<AttributeProto>,
        outputs: &[bool],
    ) -> Result<Vec<SmolStr>> {
        let mut input = inputs.iter().map(|value| self.named(value).map(String::from)).collect::<Result<Vec<_>>>()?;
        while input.last().is_some_and(String::is_empty) {
            input.pop();
        }
        self.may_trap |= domain.is_empty() && matches!(op, "Div" | "Mod") && inputs.get(1).is_some_and(may_trap);
        let name = self.node_name(op);
        let wanted = format!("{}/{op}", self.base);
        let named = |is_present: &bool| if *is_present { self.unique(&wanted) } else { SmolStr::default() };
        let names: Vec<SmolStr> = outputs.iter().map(named).collect();
        self.nodes.push(NodeProto {
            input,
            output: names.iter().map(ToString::to_string).collect(),
            name: Some(name.into()),
            op_type: Some(op.to_string()),
            domain: Some(domain).filter(|domain| !domain.is_empty()),
            attribute: attributes,
            ..Default::default()
        });
        Ok(names)
    }

    /// Gives the value `from`, which one of the nodes from number `first` on computes, the name `to`. Returns whether one
    /// does.
    pub fn rename(&mut self, first: usize, from: &str, to: &str) -> bool {
        let Some(nodes) = self.nodes.get_mut(first..) else { return false };
        let mut found = false;
        for node in nodes {
            for output in node.output.iter_mut().filter(|output| *output == from) {
                *output = to.to_string();
                found = true;
            }
            for input in node.input.iter_mut().filter(|input| found && *input == from) {
                *input = to.to_string();
            }
        }
        found
    }
}

/// Whether a division by this value can trap: it is an integer, and not known to be neither 0 nor −1, by which the least
/// integer has no quotient.
fn may_trap(divisor: &OnnxValue) -> bool {
    let is_safe = |value: i64| value != 0 && !(value == -1 && divisor.dtype.is_signed());
    let known = divisor.content.as_ref().and_then(TensorData::to_i64s);
    divisor.dtype.is_integer() && !known.is_some_and(|values| values.into_iter().all(is_safe))
}

/// A node whose attributes are being added.
pub(super) struct NodeBuilder<'b> {
    builder: &'b mut ModelBuilder,
    op: &'static str,
    inputs: Vec<OnnxValue>,
    attributes: Vec<AttributeProto>,
}

impl NodeBuilder<'_> {
    fn attribute(mut self, name: &str, ty: AttributeType, set: impl FnOnce(&mut AttributeProto)) -> Self {
        let mut attribute =
            AttributeProto { name: Some(name.to_string()), r#type: Some(ty as i32), ..Default::default() };
        set(&mut attribute);
        self.attributes.push(attribute);
        self
    }

    pub fn int(self, name: &str, value: i64) -> Self {
        self.attribute(name, AttributeType::Int, |attribute| attribute.i = Some(value))
    }

    pub fn ints(self, name: &str, values: &[i64]) -> Self {
        self.attribute(name, AttributeType::Ints, |attribute| attribute.ints = values.to_vec())
    }

    pub fn float(self, name: &str, value: f64) -> Self {
        self.attribute(name, AttributeType::Float, |attribute| attribute.f = Some(value as f32))
    }

    pub fn text(self, name: &str, value: &str) -> Self {
        let bytes = value.as_bytes().to_vec().into();
        self.attribute(name, AttributeType::String, |attribute| attribute.s = Some(bytes))
    }

    /// Adds the node, whose only result has elements of `dtype`.
    pub fn one(self, dtype: DType) -> Result<OnnxValue> {
        self.many(&[dtype])?.pop().ok_or_else(|| "a node without results".to_string())
    }

    /// Adds the node, with one result for each of `dtypes`. Where ONNX Runtime has no kernel for the operands' type, they
    /// are converted to a wider one, and results back.
    pub fn many(mut self, dtypes: &[DType]) -> Result<Vec<OnnxValue>> {
        let restrictions = restrictions(self.op);
        let data = restrictions.and_then(|kernels| self.inputs.get(kernels.data)).map(|value| value.dtype);
        let (mut given, mut computed) = (None, None);
        if let (Some(kernels), Some(dtype)) = (restrictions, data) {
            let wide = kernels.computed_in(dtype)?;
            if wide != dtype {
                for input in self.inputs.iter_mut().skip(kernels.data) {
                    if input.dtype == dtype && !(input.name.is_empty() && input.content.is_none()) {
                        *input = self.builder.cast(input, wide)?;
                    }
                }
                (given, computed) = (Some(dtype).filter(|_| !kernels.predicate), Some(wide));
            }
        }
        let names =
            self.builder.push(self.op, String::new(), &self.inputs, self.attributes, &vec![true; dtypes.len()])?;
        let mut values = Vec::with_capacity(dtypes.len());
        for (name, dtype) in names.into_iter().zip(dtypes) {
            let value = match computed {
                Some(wide) if given == Some(*dtype) => {
                    let value = OnnxValue { name, dtype: wide, content: None };
                    self.builder.cast(&value, *dtype)?
                }
                _ => OnnxValue { name, dtype: *dtype, content: None },
            };
            values.push(value);
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_small_constants_are_shared() {
        let mut builder = ModelBuilder::default();
        assert_eq!(
            (builder.unique("x"), builder.unique("x"), builder.unique("")),
            ("x".into(), "x.1".into(), "value".into())
        );
        let (a, b) = (builder.ints(&[1, 2]).unwrap(), builder.ints(&[1, 2]).unwrap());
        assert_eq!(builder.named(&a), builder.named(&b));
        assert_eq!(builder.initializers.len(), 1);
    }

    #[test]
    fn divisions_of_integers_trap_unless_their_divisors_are_known() {
        let mut builder = ModelBuilder::default();
        let runtime = |dtype| OnnxValue { name: "x".into(), dtype, content: None };
        let known = |list: &[i64], dtype| builder.integers(list, dtype, &[list.len() as u64]).unwrap();
        let cases = [
            (runtime(DType::I32), true),
            (runtime(DType::U8), true),
            (runtime(DType::F32), false),
            (known(&[2, 0], DType::I64), true),
            (known(&[2, -1], DType::I64), true),
            (known(&[2, -2], DType::I64), false),
            (known(&[255], DType::U8), false),
        ];
        for (divisor, expected) in cases {
            for op in ["Div", "Mod"] {
                builder.begin("divide");
                builder.binary(op, &runtime(divisor.dtype), &divisor).unwrap();
                assert_eq!(builder.may_trap(), expected, "{op} {divisor:?}");
            }
        }
        builder.begin("add");
        builder.binary("Add", &runtime(DType::I32), &runtime(DType::I32)).unwrap();
        assert!(!builder.may_trap());
    }

    #[test]
    fn operands_without_a_kernel_are_converted() {
        let mut builder = ModelBuilder::default();
        builder.begin("add");
        let x = OnnxValue { name: builder.unique("x"), dtype: DType::I8, content: None };
        let sum = builder.node("Add", &[&x, &x]).one(DType::I8).unwrap();
        assert_eq!(sum.dtype, DType::I8);
        let kinds: Vec<_> = builder.nodes.iter().filter_map(|node| node.op_type.as_deref()).collect();
        assert_eq!(kinds, ["Cast", "Cast", "Add", "Cast"]);
        assert!(builder.rename(0, &sum.name, "y"));
        assert_eq!(builder.nodes[3].output, ["y"]);
    }
}
