//! A graph as a Relay module: one function `@main` with one line per operator.

use std::collections::HashMap;

use super::{
    literal::{HEADER, escape, float},
    metadata_writer::MetadataWriter,
    names::NameTable,
};
use crate::{ast::FloatWidth, strict::reads_only_objects};
use edgecut_graph::{
    Arg, Attr, Attrs, DType, Dim, Graph, Operator, OperatorId, Origin, TensorData, TensorId, TensorType, Type,
    inline_composites,
};
use edgecut_ops as ops;
use edgecut_ops::OpDef;

/// Prints `graph` so that TVM, and [`import`](super::super::import), read the same operators from it. TVM lacks the
/// recurrent layers of ONNX models.
///
/// Inputs and parameters become the parameters of `@main`, in the order of the graph. Scalar constants are inline, others
/// in the metadata section. Names of tensors are made legal. Operators are printed in post-order, in which the text is
/// read again; unused ones are omitted. Composite operators are printed as their decompositions.
pub fn print_graph(graph: &Graph) -> String {
    match graph.operators().any(|(_, operator)| operator.decomposition.is_some()) {
        true => print_plain(&inline_composites(graph, |_| true).graph),
        false => print_plain(graph),
    }
}

/// Prints a graph without composite operators.
fn print_plain(graph: &Graph) -> String {
    let mut writer = Writer {
        graph,
        text: HEADER.to_string(),
        section: MetadataWriter::new(),
        names: NameTable::default(),
        printed: HashMap::new(),
        next: 0,
    };
    writer.head();
    for id in post_order(graph) {
        writer.operator(graph.operator(id));
    }
    writer.result();
    writer.text + &writer.section.finish()
}

/// The operators that the outputs need, in post-order.
fn post_order(graph: &Graph) -> Vec<OperatorId> {
    enum Visit {
        Enter(OperatorId),
        Leave(OperatorId),
    }
    let mut seen = vec![false; graph.operators().len()];
    let (mut order, mut steps) = (Vec::with_capacity(seen.len()), Vec::new());
    let enter = |tensor: &TensorId| graph.producer(*tensor).map(Visit::Enter);
    steps.extend(graph.outputs.iter().rev().filter_map(enter));
    while let Some(step) = steps.pop() {
        match step {
            Visit::Leave(id) => order.push(id),
            Visit::Enter(id) if !std::mem::replace(&mut seen[id.0 as usize], true) => {
                steps.push(Visit::Leave(id));
                let operands: Vec<TensorId> = graph.operator(id).operands().collect();
                steps.extend(operands.iter().rev().filter_map(enter));
            }
            Visit::Enter(_) => {}
        }
    }
    order
}

/// The name that `@main` of [`print_graph`] gives to each input and parameter, in its order.
pub fn parameter_names(graph: &Graph) -> Vec<(TensorId, String)> {
    let mut names = NameTable::default();
    parameters(graph).map(|id| (id, names.give(&graph.tensor(id).name))).collect()
}

/// The parameters of the function: inputs and parameters of the graph.
fn parameters(graph: &Graph) -> impl Iterator<Item = TensorId> + '_ {
    let given = |origin: &Origin| matches!(origin, Origin::Input | Origin::Parameter);
    graph.tensors().filter(move |(_, tensor)| given(&tensor.origin)).map(|(id, _)| id)
}

struct Writer<'g> {
    graph: &'g Graph,
    text: String,
    section: MetadataWriter,
    names: NameTable,
    /// The name of each tensor in the text.
    printed: HashMap<TensorId, String>,
    /// The number of the next graph variable.
    next: u64,
}

impl Writer<'_> {
    fn head(&mut self) {
        let mut params = Vec::new();
        for id in parameters(self.graph) {
            let tensor = self.graph.tensor(id);
            let name = format!("%{}", self.names.give(&tensor.name));
            params.push(format!("{name}: {}", type_text(&tensor.ty)));
            self.printed.insert(id, name);
        }
        let outputs: Vec<Type> =
            self.graph.outputs.iter().map(|id| Type::Tensor(self.graph.tensor(*id).ty.clone())).collect();
        let result = match outputs.as_slice() {
            [one] => value_type_text(one),
            _ => value_type_text(&Type::Tuple(outputs)),
        };
        self.text += &format!("def @main({}) -> {result} {{\n", params.join(", "));
    }

    fn operator(&mut self, operator: &Operator) {
        let mut operands: Vec<String> = Vec::new();
        for arg in &operator.args {
            operands.push(match arg {
                Arg::Tensor(tensor) => self.tensor(*tensor),
                Arg::Tuple(tensors) => {
                    let fields: Vec<String> = tensors.iter().map(|tensor| self.tensor(*tensor)).collect();
                    self.bind(&tuple(&fields))
                }
            });
        }
        operands.extend(self.attrs(ops::lookup(&operator.name), &operator.attrs));
        let ty = value_type_text(&self.graph.result_type(operator));
        let name = self.bind(&format!("{}({}) /* ty={ty} */", operator.name, operands.join(", ")));
        match (operator.tuple_result, operator.outputs.as_slice()) {
            (false, [one]) => {
                self.printed.insert(*one, name);
            }
            (_, outputs) => {
                for (index, output) in outputs.iter().enumerate() {
                    let ty = type_text(&self.graph.tensor(*output).ty);
                    let field = self.bind(&format!("{name}.{index} /* ty={ty} */"));
                    self.printed.insert(*output, field);
                }
            }
        }
    }

    fn result(&mut self) {
        let outputs: Vec<String> = self.graph.outputs.iter().map(|output| self.tensor(*output)).collect();
        let result = match outputs.as_slice() {
            [one] => one.clone(),
            _ => tuple(&outputs),
        };
        self.text += &format!("  {result}\n}}\n");
    }

    /// Writes a line that binds the next graph variable.
    fn bind(&mut self, value: &str) -> String {
        let name = format!("%{}", self.next);
        self.next += 1;
        self.text += &format!("  {name} = {value};\n");
        name
    }

    /// The reference to a tensor.
    fn tensor(&mut self, id: TensorId) -> String {
        if let Some(known) = self.printed.get(&id) {
            return known.clone();
        }
        let text = match &self.graph.tensor(id).origin {
            Origin::Constant(data) => {
                let value = scalar(data).unwrap_or_else(|| self.section.constant(data));
                format!("{value} /* ty={} */", type_text(&data.ty()))
            }
            // Operators are in topological order, so only constants are referenced before they are printed.
            _ => format!("%{}", self.graph.tensor(id).name),
        };
        self.printed.insert(id, text.clone());
        text
    }

    /// The attributes of a call; as one metadata object if TVM reads nothing else.
    fn attrs(&mut self, def: Option<&'static OpDef>, attrs: &Attrs) -> Vec<String> {
        if let Some(def) = def.filter(|def| reads_only_objects(def.name)) {
            return vec![self.section.attrs(def, attrs)];
        }
        let schema = def.map_or(&[][..], |def| def.attrs);
        let known = schema.iter().filter_map(|field| Some((field.name, attrs.get(field.name)?, field.default)));
        let unknown = attrs.iter().filter(|(key, _)| !schema.iter().any(|field| field.name == *key));
        let all: Vec<(&str, &Attr, Option<&str>)> =
            known.chain(unknown.map(|(key, value)| (key, value, None))).collect();
        let mut texts = Vec::new();
        for (key, value, default) in all {
            let text = self.attr(value);
            if default != Some(text.as_str()) && !(text == "None" && default.is_some()) {
                texts.push(format!("{key}={text}"));
            }
        }
        texts
    }

    fn attr(&mut self, value: &Attr) -> String {
        match value {
            Attr::None => "None".to_string(),
            Attr::Bool(true) => "True".to_string(),
            Attr::Bool(false) => "False".to_string(),
            Attr::Int(n) if i32::try_from(*n).is_err() => format!("{n}i64"),
            Attr::Int(n) => n.to_string(),
            Attr::Float(x) if f64::from(*x as f32) == *x || x.is_nan() => float(*x, FloatWidth::F32),
            Attr::Float(x) => float(*x, FloatWidth::F64),
            Attr::Str(text) => format!("\"{}\"", escape(text)),
            Attr::List(items) => {
                let items: Vec<String> = items.iter().map(|item| self.attr(item)).collect();
                format!("[{}]", items.join(", "))
            }
            Attr::Tensor(data) => self.section.constant(data),
        }
    }
}

fn tuple(fields: &[String]) -> String {
    match fields {
        [one] => format!("({one},)"),
        _ => format!("({})", fields.join(", ")),
    }
}

/// A scalar constant as printed inline by TVM; `None` if it needs the metadata section.
fn scalar(data: &TensorData) -> Option<String> {
    if !data.shape().is_empty() {
        return None;
    }
    let integer = || data.to_i64s()?.first().copied();
    let finite = || data.to_f64s()?.first().copied().filter(|x| x.is_finite());
    match data.dtype() {
        DType::Bool => Some(if data.bytes().first()? == &0 { "False" } else { "True" }.to_string()),
        DType::I16 => Some(format!("{}i16", integer()?)),
        DType::I32 => Some(integer()?.to_string()),
        DType::I64 => integer().filter(|n| *n != i64::MIN).map(|n| format!("{n}i64")),
        DType::F16 => Some(float(finite()?, FloatWidth::F16)),
        DType::F32 => Some(float(finite()?, FloatWidth::F32)),
        DType::F64 => Some(float(finite()?, FloatWidth::F64)),
        _ => None,
    }
}

fn type_text(ty: &TensorType) -> String {
    if ty.shape.rank() == 0 {
        return ty.dtype.to_string();
    }
    let dims = ty.shape.iter().map(|dim| match dim {
        Dim::Known(n) => n.to_string(),
        Dim::Wide(n) => format!("{n}i64"),
        Dim::Any => "?".to_string(),
    });
    format!("Tensor[({}), {}]", dims.collect::<Vec<_>>().join(", "), ty.dtype)
}

/// Recursion follows the nesting of an operator's result, which the graph keeps flat.
fn value_type_text(ty: &Type) -> String {
    match ty {
        Type::Tensor(tensor) => type_text(tensor),
        Type::Tuple(fields) => tuple(&fields.iter().map(value_type_text).collect::<Vec<_>>()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{ImportOptions, ParseMode, import};
    use super::*;

    fn round(graph: &Graph) -> Graph {
        let text = print_graph(graph);
        let options = ImportOptions { mode: ParseMode::Strict, ..ImportOptions::default() };
        import("printed", text.as_bytes(), &options).unwrap_or_else(|error| panic!("{error}\n{text}")).graph
    }

    #[test]
    fn constants_tuples_and_attributes_come_back() {
        let text = r#"def @main(%aten::x.1: Tensor[(2, 6), float32]) {
            %0 = split(%aten::x.1, indices_or_sections=[2, 4], axis=1);
            %1 = (%0.0, %0.2, %0.1);
            %2 = concatenate(%1, axis=1);
            %3 = clip(%2, a_min=-0.333333333f, a_max=6f);
            (multiply(%3, 0.1f), %0.1)
        }"#;
        let graph = import("text", text.as_bytes(), &ImportOptions::default()).unwrap().graph;
        let again = round(&graph);
        let operators = |graph: &Graph| -> Vec<_> {
            graph.operators().map(|(_, op)| (op.name.clone(), op.attrs.clone(), op.args.clone())).collect()
        };
        assert_eq!(operators(&graph), operators(&again));
        assert_eq!(graph.outputs, again.outputs);
        assert_eq!(print_graph(&again), print_graph(&round(&again)));
    }
}
