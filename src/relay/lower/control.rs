//! Constants, branches, and what cannot become part of a fixed graph.

use super::{
    super::{
        ast::{Expr, ExprId, FloatWidth, IntWidth, MetaRef, Scalar},
        error::{Fault, Located, Result},
    },
    ActivationId, Lowering, Task, Value,
};
use crate::graph::{DType, Origin, TensorData, TensorId, TensorType, Type};

impl Lowering<'_, '_> {
    /// A constant written in line.
    pub(super) fn scalar(&mut self, scalar: Scalar) -> Value {
        let (dtype, bytes, name) = match scalar {
            Scalar::Bool(value) => (DType::Bool, vec![u8::from(value)], if value { "True" } else { "False" }.into()),
            Scalar::Int(n, IntWidth::I16) => (DType::I16, (n as i16).to_le_bytes().to_vec(), n.to_string()),
            Scalar::Int(n, IntWidth::I32) => (DType::I32, (n as i32).to_le_bytes().to_vec(), n.to_string()),
            Scalar::Int(n, IntWidth::I64) => (DType::I64, n.to_le_bytes().to_vec(), n.to_string()),
            Scalar::Float(x, FloatWidth::F16) => {
                (DType::F16, half::f16::from_f64(x).to_le_bytes().to_vec(), x.to_string())
            }
            Scalar::Float(x, FloatWidth::F32) => {
                (DType::F32, (x as f32).to_le_bytes().to_vec(), (x as f32).to_string())
            }
            Scalar::Float(x, FloatWidth::F64) => (DType::F64, x.to_le_bytes().to_vec(), x.to_string()),
        };
        let ty = TensorType::of(dtype, &[]);
        let origin = match TensorData::new(dtype, [], bytes) {
            Ok(data) => Origin::Constant(data),
            Err(_) => Origin::Parameter,
        };
        Value::Tensor(self.graph.add_tensor(name, ty, origin))
    }

    /// A constant of the metadata section; without one, a parameter of the type that the comment gives.
    pub(super) fn constant(&mut self, expr: ExprId, meta: MetaRef<'_>) -> Result<Value> {
        let span = self.span(expr);
        if meta.key != "relay.Constant" {
            return Err(Fault::Metadata(format!("`meta[{}]` is no value", meta.key)).at(span));
        }
        if let Some(known) = self.constants.get(&meta.index) {
            return Ok(Value::Tensor(*known));
        }
        let name = format!("meta[{}][{}]", meta.key, meta.index);
        let tensor = match self.metadata {
            Some(metadata) => {
                let entry = metadata.get(meta);
                let entry = entry.ok_or_else(|| Fault::Metadata(format!("it has no `{name}`")).at(span))?;
                let data = metadata.tensor(entry).map_err(|what| Fault::Record(format!("{name}: {what}")).at(span))?;
                self.graph.add_tensor(name, data.ty(), Origin::Constant(data))
            }
            None => match self.module.note(expr).ty.and_then(|ty| self.type_of(ty)) {
                Some(Type::Tensor(ty)) => self.graph.add_tensor(name, ty, Origin::Parameter),
                _ => {
                    let what = format!("the file has none, and no `ty=` comment gives the type of `{name}`");
                    return Err(Fault::Metadata(what).at(span));
                }
            },
        };
        self.constants.insert(meta.index, tensor);
        Ok(Value::Tensor(tensor))
    }

    /// Goes on with the branch of an `if` that its condition, now on the stack, selects.
    pub(super) fn branch(&mut self, expr: ExprId, activation: ActivationId) -> Result<()> {
        let Expr::If { then, otherwise, .. } = self.module.expr(expr) else { return Err(self.broken()) };
        let condition = match self.pop()? {
            Value::Tensor(tensor) => self.condition(tensor),
            _ => None,
        };
        match condition {
            Some(true) => self.tasks.push(Task::Eval(then, activation)),
            Some(false) => self.tasks.push(Task::Eval(otherwise, activation)),
            None => {
                let reason = "its condition depends on data that is known only when the model runs".to_string();
                return Err(Fault::ControlFlow { construct: "this `if`", reason }.at(self.span(expr)));
            }
        }
        Ok(())
    }

    /// The value of a condition, if it is known now.
    fn condition(&self, tensor: TensorId) -> Option<bool> {
        match &self.graph.tensor(tensor).origin {
            Origin::Constant(data) if data.dtype() == DType::Bool => data.bytes().first().map(|byte| *byte != 0),
            _ => None,
        }
    }

    /// The error for an expression that no fixed graph has.
    pub(super) fn refuse(&self, expr: ExprId) -> Box<Located> {
        let (construct, reason) = match self.module.expr(expr) {
            Expr::Match(_) => ("`match`", "which arm is taken is known only when the model runs"),
            Expr::Constructor(_) => {
                ("a constructor of an algebraic data type", "edgecut plans tensors and tuples only")
            }
            Expr::NewRef(_) => ("`ref`", "a reference is state, and operators must be pure to be placed freely"),
            Expr::ReadRef(_) => ("`ref_read`", "a reference is state, and operators must be pure to be placed freely"),
            Expr::WriteRef(..) => {
                ("`ref_write`", "a reference is state, and operators must be pure to be placed freely")
            }
            _ => ("this expression", "it is none of the forms that a graph has"),
        };
        Fault::ControlFlow { construct, reason: reason.to_string() }.at(self.span(expr))
    }
}
