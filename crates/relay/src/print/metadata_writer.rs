//! Writes the metadata section in TVM's format: constants, and attribute objects that have no text form.

use serde_json::{Map, Value, json};

use crate::record;
use edgecut_graph::{Attr, Attrs, TensorData};
use edgecut_ops::{AttrKind, OpDef};

/// The version of TVM whose format is written.
const TVM_VERSION: &str = "0.14.0";

/// Attributes that are numbers or strings in an operator's schema, but objects in TVM's class.
const BOXED: [(&str, &str); 8] = [
    ("relay.attrs.AvgPool2DAttrs", "layout"),
    ("relay.attrs.AvgPool2DAttrs", "out_layout"),
    ("relay.attrs.DFTAttrs", "inverse"),
    ("relay.attrs.ScanopAttrs", "axis"),
    ("relay.attrs.ScanopAttrs", "exclusive"),
    ("relay.attrs.ScatterElementsAttrs", "axis"),
    ("relay.attrs.ScatterElementsAttrs", "reduction"),
    ("relay.attrs.ScatterNDAttrs", "mode"),
];

/// A metadata section under construction. Object 0 is the null object, as in every section.
pub(super) struct MetadataWriter {
    nodes: Vec<Value>,
    tensors: Vec<String>,
    /// The objects that the text can refer to, by key.
    arrays: Vec<(String, Vec<usize>)>,
    device: Option<usize>,
}

impl MetadataWriter {
    pub fn new() -> MetadataWriter {
        MetadataWriter {
            nodes: vec![json!({"type_key": ""}), Value::Null],
            tensors: Vec::new(),
            arrays: Vec::new(),
            device: None,
        }
    }

    /// Adds a constant and returns its reference, `meta[relay.Constant][N]`.
    pub fn constant(&mut self, tensor: &TensorData) -> String {
        self.tensors.push(base64_simd::STANDARD.encode_to_string(record::encode(tensor)));
        let data = self.tensors.len() - 1;
        let device = self.device();
        let fields = [("_checked_type_", 0), ("data", data), ("span", 0), ("virtual_device_", device)];
        let constant = self.object("relay.Constant", fields.map(|(name, value)| (name, value.to_string())));
        self.refer("relay.Constant", constant)
    }

    /// Adds all attributes of a call as one object; missing ones have their defaults.
    pub fn attrs(&mut self, def: &OpDef, attrs: &Attrs) -> String {
        let mut fields = Vec::new();
        for field in def.attrs {
            let value = attrs.get(field.name).cloned().unwrap_or_else(|| default(field.default.unwrap_or("None")));
            fields.push((field.name, self.field(def.attrs_key, field.name, field.kind, &value)));
        }
        let object = self.object(def.attrs_key, fields);
        self.refer(def.attrs_key, object)
    }

    /// The section as text, with its heading; empty if it is unused.
    pub fn finish(mut self) -> String {
        if self.arrays.is_empty() {
            return String::new();
        }
        let keys: Vec<&String> = self.arrays.iter().map(|(key, _)| key).collect();
        let first = self.nodes.len();
        let places: Vec<usize> = (first..first + keys.len()).collect();
        self.nodes[1] = json!({"type_key": "Map", "keys": keys, "data": places});
        let arrays = self.arrays.iter().map(|(_, objects)| json!({"type_key": "Array", "data": objects}));
        self.nodes.extend(arrays.collect::<Vec<_>>());
        let json = json!({
            "root": 1,
            "nodes": self.nodes,
            "b64ndarrays": self.tensors,
            "attrs": {"tvm_version": TVM_VERSION},
        });
        format!("\n#[metadata]\n{json}\n")
    }

    fn add(&mut self, node: Value) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn object<'k>(&mut self, key: &str, fields: impl IntoIterator<Item = (&'k str, String)>) -> usize {
        let fields: Map<String, Value> =
            fields.into_iter().map(|(name, value)| (name.to_string(), value.into())).collect();
        self.add(json!({"type_key": key, "attrs": fields}))
    }

    fn refer(&mut self, key: &str, object: usize) -> String {
        let at = match self.arrays.iter().position(|(name, _)| name == key) {
            Some(at) => at,
            None => {
                self.arrays.push((key.to_string(), Vec::new()));
                self.arrays.len() - 1
            }
        };
        self.arrays[at].1.push(object);
        format!("meta[{key}][{}]", self.arrays[at].1.len() - 1)
    }

    /// The device of expressions without an assigned device.
    fn device(&mut self) -> usize {
        if let Some(device) = self.device {
            return device;
        }
        let scope = self.add(json!({"type_key": "runtime.String"}));
        let fields = [("device_type_int", "-1"), ("target", "0"), ("virtual_device_id", "-1")];
        let scope = ("memory_scope", scope.to_string());
        let device = self.object("VirtualDevice", fields.map(|(n, v)| (n, v.to_string())).into_iter().chain([scope]));
        self.device = Some(device);
        device
    }

    /// The text of a field: the value itself, or the index of the object that holds it.
    fn field(&mut self, key: &str, name: &str, kind: AttrKind, value: &Attr) -> String {
        let boxed = BOXED.contains(&(key, name));
        match (kind, value) {
            (AttrKind::Int | AttrKind::Bool, value) if !boxed => value.int().unwrap_or(0).to_string(),
            (AttrKind::Float, value) => value.float().unwrap_or(0.0).to_string(),
            (AttrKind::Str | AttrKind::DType, value) if !boxed => value.str().unwrap_or_default().to_string(),
            (_, value) => self.value(value).to_string(),
        }
    }

    /// The object for a value; 0, the null object, for `None`.
    fn value(&mut self, value: &Attr) -> usize {
        match value {
            Attr::None | Attr::Tensor(_) => 0,
            Attr::Bool(value) => self.immediate("IntImm", "bool", u8::from(*value).to_string()),
            Attr::Int(n) => self.immediate("IntImm", "int32", n.to_string()),
            Attr::Float(x) => self.immediate("FloatImm", "float64", x.to_string()),
            Attr::Str(text) if text.is_empty() => self.add(json!({"type_key": "runtime.String"})),
            Attr::Str(text) => self.add(json!({"type_key": "runtime.String", "repr_str": text.as_str()})),
            Attr::List(items) => {
                let items: Vec<usize> = items.iter().map(|item| self.value(item)).collect();
                match items.is_empty() {
                    true => self.add(json!({"type_key": "Array"})),
                    false => self.add(json!({"type_key": "Array", "data": items})),
                }
            }
        }
    }

    fn immediate(&mut self, key: &str, dtype: &str, value: String) -> usize {
        self.object(key, [("dtype", dtype.to_string()), ("span", "0".to_string()), ("value", value)])
    }
}

/// Parses a schema default, which is written as printed by TVM.
fn default(text: &str) -> Attr {
    match text {
        "True" => Attr::Bool(true),
        "False" => Attr::Bool(false),
        _ => match (text.strip_prefix('"'), text.strip_prefix('[')) {
            (Some(quoted), _) => Attr::Str(quoted.trim_end_matches('"').into()),
            (_, Some(list)) => {
                let items = list.trim_end_matches(']').split(',').map(str::trim).filter(|item| !item.is_empty());
                Attr::List(items.map(default).collect())
            }
            _ => match (text.parse(), text.trim_end_matches("f64").trim_end_matches('f').parse()) {
                (Ok(n), _) => Attr::Int(n),
                (_, Ok(x)) => Attr::Float(x),
                _ => Attr::None,
            },
        },
    }
}
