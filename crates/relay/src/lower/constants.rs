//! Constants, and errors for expressions that a static graph cannot contain.

use super::{
    fold::{encode_float, encode_integer},
    lowering::Lowering,
    value::Value,
};
use crate::{
    Fault, ParseMode,
    ast::{Expr, ExprId, FloatWidth, IntWidth, MetaRef, Scalar},
    error::{LocatedFault, Result},
};
use edgecut_graph::{DType, Origin, TensorData, TensorType, Type};

impl Lowering<'_, '_> {
    /// An inline constant.
    pub(super) fn scalar(&mut self, expr: ExprId, scalar: Scalar) -> Value {
        let (written, name) = match scalar {
            Scalar::Bool(value) => (DType::Bool, if value { "True" } else { "False" }.into()),
            Scalar::Int(n, IntWidth::I16) => (DType::I16, n.to_string()),
            Scalar::Int(n, IntWidth::I32) => (DType::I32, n.to_string()),
            Scalar::Int(n, IntWidth::I64) => (DType::I64, n.to_string()),
            Scalar::Float(x, FloatWidth::F16) => (DType::F16, x.to_string()),
            Scalar::Float(x, FloatWidth::F32) => (DType::F32, (x as f32).to_string()),
            Scalar::Float(x, FloatWidth::F64) => (DType::F64, x.to_string()),
        };
        let dtype = self.noted_dtype(expr, written).unwrap_or(written);
        let bytes = match scalar {
            Scalar::Bool(value) => Some(vec![u8::from(value)]),
            Scalar::Int(n, _) => encode_integer(n, dtype),
            Scalar::Float(x, _) => encode_float(x, dtype),
        };
        let ty = TensorType::of(dtype, &[]);
        let origin = match TensorData::new(dtype, [], bytes.unwrap_or_default()) {
            Ok(data) => Origin::Constant(data),
            Err(_) => Origin::Parameter,
        };
        Value::Tensor(self.graph.add_tensor(name, ty, origin))
    }

    /// The dtype of a number according to its comment: before v0.9, TVM printed int64 like int32, and only the comment
    /// distinguished them.
    fn noted_dtype(&mut self, expr: ExprId, written: DType) -> Option<DType> {
        let noted = self.module.note(expr).ty.filter(|_| self.options.mode == ParseMode::Tolerant)?;
        let ty = self.type_of(noted)?;
        let ty = ty.tensor().filter(|ty| ty.shape.rank() == 0)?;
        let alike = written != DType::Bool
            && ty.dtype != DType::Bool
            && !matches!(ty.dtype, DType::Exotic(_))
            && written.is_float() == ty.dtype.is_float();
        alike.then_some(ty.dtype)
    }

    /// A constant of the metadata section; without a section, a parameter with the commented type.
    pub(super) fn constant(&mut self, expr: ExprId, meta: MetaRef<'_>) -> Result<Value> {
        let span = self.span(expr);
        if meta.key != "relay.Constant" {
            return Err(Fault::Metadata(format!("`meta[{}]` is not a value", meta.key)).at(span));
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

    /// The error for an expression that a static graph cannot contain.
    pub(super) fn refuse(&self, expr: ExprId) -> Box<LocatedFault> {
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
