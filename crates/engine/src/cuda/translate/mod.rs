//! Translates a tract model, as wired by the operators' kernels, to a [`GpuProgram`].
//!
//! One file per family of operators: each translates a node, or leaves it to the next family. A node that no family
//! translates is unsupported on a GPU, and its operator stays on a CPU.

mod builder;
mod conv;
mod data_movement;
mod gather;
mod matmul;
mod pointwise;
mod pool;
mod reduce;
mod strides;

use std::{collections::HashMap, sync::Arc};

use tract_core::{internal::*, ops::konst::Const, optim::Optimizer};

use super::{
    device_memory::DeviceMemory,
    driver::GpuError,
    program::{GpuProgram, Slot},
};
use crate::tract::fold_scales;
use builder::{KernelBuilder, Value};

/// Translates a node with the given operands; `None` if it belongs to another family.
type Translator = fn(&mut KernelBuilder<'_>, &TypedNode, &[Value]) -> TractResult<Option<TVec<Value>>>;

const TRANSLATORS: &[Translator] = &[
    data_movement::translate,
    pointwise::translate,
    matmul::translate,
    conv::translate,
    reduce::translate,
    pool::translate,
    gather::translate,
];

/// Why a model cannot be translated.
#[derive(Debug)]
pub(super) enum TranslateError {
    /// No kernel computes this tract operator on a GPU.
    Unsupported {
        name: String,
        operator: String,
        reason: String,
    },
    Gpu(GpuError),
    Other(String),
}

/// Translates `model` and uploads its constants. Inputs and outputs of the program are those of the model.
pub(super) fn translate(mut model: TypedModel, memory: &Arc<DeviceMemory>) -> Result<GpuProgram, TranslateError> {
    let other = |e: TractError| TranslateError::Other(format!("{e:#}"));
    Optimizer::prop_consts().optimize(&mut model).map_err(other)?;
    fold_scales(&mut model).map_err(other)?;
    let mut builder = KernelBuilder::new(&model, memory);
    let mut values: HashMap<OutletId, Value> = HashMap::new();
    for source in model.input_outlets().map_err(other)? {
        let fact = model.outlet_fact(*source).map_err(other)?;
        values.insert(*source, builder.input(fact).map_err(other)?);
    }
    for id in model.eval_order().map_err(other)? {
        let node = model.node(id);
        if values.contains_key(&OutletId::new(id, 0)) {
            continue;
        }
        if let Some(constant) = node.op_as::<Const>() {
            values.insert(OutletId::new(id, 0), builder.constant(constant.val()));
            continue;
        }
        let operands: TVec<Value> = node.inputs.iter().filter_map(|outlet| values.get(outlet).cloned()).collect();
        let outputs = translate_node(&mut builder, node, &operands).map_err(|e| TranslateError::Unsupported {
            name: node.name.clone(),
            operator: node.op.name().to_string(),
            reason: format!("{e:#}"),
        })?;
        for (index, value) in outputs.into_iter().enumerate() {
            values.insert(OutletId::new(id, index), value);
        }
    }
    let output = |outlet: &OutletId| values.get(outlet).map(|value| value.slot);
    let outputs = model.output_outlets().map_err(other)?.iter().map(output).collect::<Option<Vec<Slot>>>();
    let outputs = outputs.ok_or_else(|| TranslateError::Other("an output is not computed".to_string()))?;
    builder.finish(outputs).map_err(TranslateError::Gpu)
}

fn translate_node(builder: &mut KernelBuilder<'_>, node: &TypedNode, operands: &[Value]) -> TractResult<TVec<Value>> {
    ensure!(operands.len() == node.inputs.len(), "an operand is not computed");
    for translator in TRANSLATORS {
        if let Some(outputs) = translator(builder, node, operands)? {
            return Ok(outputs);
        }
    }
    bail!("no kernel")
}
