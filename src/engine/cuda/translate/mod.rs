//! From a tract model, as the operators' kernels wire it, to a [`Program`].
//!
//! One file a family of operators; a family takes a node or leaves it to the next one. What no family takes is
//! [`Unsupported`] on a GPU, and stays on a CPU.

mod convolve;
mod folds;
mod looked_up;
mod moves;
mod pointwise;
mod pool;
mod products;

use std::{collections::HashMap, sync::Arc};

use tract_core::{internal::*, ops::konst::Const, optim::Optimizer};

use super::{
    arguments::{Arguments, Product, RANK},
    card::{Address, Threads},
    heap::Heap,
    program::{Program, Slot, Step, Work},
    source::Kernel,
};
use crate::engine::cpu::fold_scales;

/// Tries to translate a node, whose operands are given. `None` if it is another family's.
type Family = fn(&mut Sheet<'_>, &TypedNode, &[Value]) -> TractResult<Option<TVec<Value>>>;

const FAMILIES: &[Family] = &[
    moves::translate,
    pointwise::translate,
    products::translate,
    convolve::translate,
    folds::translate,
    pool::translate,
    looked_up::translate,
];

/// Why a model does not become a program.
#[derive(Debug)]
pub(super) enum Failed {
    /// No kernel computes this operator of tract's on a GPU.
    Unsupported {
        name: String,
        operator: String,
        reason: String,
    },
    Other(String),
}

/// A tensor on the card: row-major in its slot.
#[derive(Debug, Clone)]
struct Value {
    slot: Slot,
    shape: TVec<usize>,
    dtype: DatumType,
    /// The content, where the model has it.
    known: Option<Arc<Tensor>>,
}

/// A program under construction.
struct Sheet<'m> {
    model: &'m TypedModel,
    sizes: Vec<usize>,
    inputs: Vec<Slot>,
    constants: Vec<(Slot, Arc<Tensor>)>,
    steps: Vec<Step>,
}

/// Translates `model` and loads its constants. Its sources and outputs are the program's inputs and outputs.
pub(super) fn translate(mut model: TypedModel, heap: &Arc<Heap>) -> Result<Program, Failed> {
    let other = |e: TractError| Failed::Other(format!("{e:#}"));
    Optimizer::prop_consts().optimize(&mut model).map_err(other)?;
    fold_scales(&mut model).map_err(other)?;
    let mut sheet =
        Sheet { model: &model, sizes: Vec::new(), inputs: Vec::new(), constants: Vec::new(), steps: Vec::new() };
    let mut values: HashMap<OutletId, Value> = HashMap::new();
    for source in model.input_outlets().map_err(other)? {
        let fact = model.outlet_fact(*source).map_err(other)?;
        let value = sheet.value(fact).map_err(other)?;
        sheet.inputs.push(value.slot);
        values.insert(*source, value);
    }
    for id in model.eval_order().map_err(other)? {
        let node = model.node(id);
        if values.contains_key(&OutletId::new(id, 0)) {
            continue;
        }
        if let Some(constant) = node.op_as::<Const>() {
            let value = sheet.constant(constant.val());
            values.insert(OutletId::new(id, 0), value);
            continue;
        }
        let operands: TVec<Value> = node.inputs.iter().filter_map(|outlet| values.get(outlet).cloned()).collect();
        let made = sheet.node(node, &operands).map_err(|e| Failed::Unsupported {
            name: node.name.clone(),
            operator: node.op.name().to_string(),
            reason: format!("{e:#}"),
        })?;
        for (index, value) in made.into_iter().enumerate() {
            values.insert(OutletId::new(id, index), value);
        }
    }
    let output = |outlet: &OutletId| values.get(outlet).map(|value| value.slot);
    let outputs = model.output_outlets().map_err(other)?.iter().map(output).collect::<Option<Vec<Slot>>>();
    let outputs = outputs.ok_or_else(|| Failed::Other("an output is computed by nothing".to_string()))?;
    let Sheet { sizes, inputs, constants, steps, .. } = sheet;
    let upload = |(slot, tensor): (Slot, Arc<Tensor>)| Ok((slot, heap.upload(tensor.as_bytes())?));
    let constants = constants
        .into_iter()
        .filter(|(slot, _)| outputs.contains(slot) || steps.iter().any(|step: &Step| step.reads.contains(slot)));
    let constants =
        constants.map(upload).collect::<Result<_, _>>().map_err(|e: super::card::CardError| Failed::Other(e.0))?;
    let mut program = Program { sizes, constants, inputs, outputs, steps };
    program.find_last_uses();
    Ok(program)
}

impl Sheet<'_> {
    fn node(&mut self, node: &TypedNode, operands: &[Value]) -> TractResult<TVec<Value>> {
        ensure!(operands.len() == node.inputs.len(), "an operand is computed by nothing");
        for family in FAMILIES {
            if let Some(made) = family(self, node, operands)? {
                return Ok(made);
            }
        }
        bail!("there is no kernel for it")
    }

    /// The type of output `index` of `node`.
    fn made(&self, node: &TypedNode, index: usize) -> TractResult<&TypedFact> {
        self.model.outlet_fact(OutletId::new(node.id, index))
    }

    /// A new tensor of this type.
    fn value(&mut self, fact: &TypedFact) -> TractResult<Value> {
        let shape = fact.shape.as_concrete().with_context(|| format!("{fact:?} has unknown dimensions"))?;
        self.tensor(shape, fact.datum_type)
    }

    fn tensor(&mut self, shape: &[usize], dtype: DatumType) -> TractResult<Value> {
        ensure!(size_of_element(dtype).is_some(), "elements of type {dtype:?} are not computed on a GPU");
        let count = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).filter(|n| *n < 1 << 31);
        let count = count.with_context(|| format!("{shape:?} is more than 2^31 elements"))?;
        self.sizes.push(count * dtype.size_of());
        Ok(Value { slot: Slot(self.sizes.len() - 1), shape: shape.into(), dtype, known: None })
    }

    /// A tensor with this content.
    fn constant(&mut self, tensor: &Arc<Tensor>) -> Value {
        self.sizes.push(tensor.as_bytes().len());
        let slot = Slot(self.sizes.len() - 1);
        self.constants.push((slot, Arc::clone(tensor)));
        let known = Some(Arc::clone(tensor));
        Value { slot, shape: tensor.shape().into(), dtype: tensor.datum_type(), known }
    }

    /// A table of indices.
    fn table(&mut self, entries: &[i32]) -> Value {
        self.constant(&Arc::new(tensor1(entries)))
    }

    /// Adds a call of `kernel`; nothing is called where there is nothing to do.
    fn launch<A: Arguments>(
        &mut self,
        kernel: Kernel,
        reads: &[&Value],
        writes: &Value,
        threads: Threads,
        arguments: impl Fn(&[Address]) -> A + Send + 'static,
    ) {
        // Even an empty result has memory: a slot that nothing writes would be none.
        let arguments = Box::new(move |at: &[Address]| arguments(at).words());
        let reads = reads.iter().map(|value| value.slot).collect();
        let work = Work::Launch { kernel, threads, arguments };
        self.steps.push(Step { writes: writes.slot, reads, work, frees: Vec::new() });
    }

    /// Adds a matrix product of tensors of one type, whose addresses are filled in. Single precision may be computed by
    /// the card's library.
    fn multiply(
        &mut self,
        kernel: Kernel,
        left: &Value,
        right: &Value,
        to: &Value,
        offset: [u64; 3],
        product: Product,
    ) {
        let placed = move |at: &[Address]| Product {
            left: at[0] + offset[0],
            right: at[1] + offset[1],
            to: at[2] + offset[2],
            ..product
        };
        if to.dtype != DatumType::F32 {
            let threads = Threads::Each(product.batch * product.rows * product.columns);
            return self.launch(kernel, &[left, right], to, threads, placed);
        }
        let (reads, work) = (vec![left.slot, right.slot], Work::Multiply(Box::new(placed), kernel));
        self.steps.push(Step { writes: to.slot, reads, work, frees: Vec::new() });
    }
}

impl Value {
    fn count(&self) -> u32 {
        self.shape.iter().product::<usize>() as u32
    }

    /// Elements from one index to the next along each axis.
    fn steps(&self) -> TVec<i64> {
        dense_steps(&self.shape)
    }

    /// The same memory under another shape.
    fn viewed(&self, shape: &[usize]) -> Value {
        Value { shape: shape.into(), known: None, ..self.clone() }
    }
}

fn dense_steps(shape: &[usize]) -> TVec<i64> {
    let mut steps: TVec<i64> = tvec![1; shape.len()];
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        steps[axis] = steps[axis + 1] * shape[axis + 1] as i64;
    }
    steps
}

/// The name of a dtype in kernels; `None` for those that are not computed with.
fn name_of(dtype: DatumType) -> Option<&'static str> {
    Some(match dtype {
        DatumType::F32 => "f32",
        DatumType::F64 => "f64",
        DatumType::I32 => "i32",
        DatumType::I64 => "i64",
        DatumType::I8 => "i8",
        DatumType::U8 => "u8",
        DatumType::Bool => "boolean",
        _ => return None,
    })
}

/// Bytes of an element, where kernels move it.
fn size_of_element(dtype: DatumType) -> Option<usize> {
    let plain = dtype.is_number() && !dtype.is_quantized() || dtype == DatumType::Bool;
    Some(dtype.size_of()).filter(|size| plain && matches!(size, 1 | 2 | 4 | 8))
}

/// An element's bits, the lowest first.
fn bits(tensor: &Tensor) -> u64 {
    let mut bits = [0; 8];
    let size = tensor.datum_type().size_of().min(8);
    bits.iter_mut().zip(tensor.as_bytes().iter().take(size)).for_each(|(bit, byte)| *bit = *byte);
    u64::from_le_bytes(bits)
}

/// A walk over a shape by several tensors' steps, with axes joined where all of them allow it.
struct Walk<const N: usize> {
    rank: u32,
    shape: [u32; RANK],
    steps: [[i32; RANK]; N],
}

impl<const N: usize> Walk<N> {
    /// # Errors
    /// If more than [`RANK`] axes are left.
    fn new(shape: &[usize], steps: [&[i64]; N]) -> TractResult<Walk<N>> {
        let mut joined: Vec<(usize, [i64; N])> = Vec::new();
        for (axis, n) in shape.iter().enumerate().filter(|(_, n)| **n != 1) {
            let own = steps.map(|steps| steps[axis]);
            match joined.last_mut() {
                Some((size, last)) if last.iter().zip(&own).all(|(outer, inner)| *outer == inner * *n as i64) => {
                    *size *= n;
                    *last = own;
                }
                _ => joined.push((*n, own)),
            }
        }
        ensure!(joined.len() <= RANK, "{} axes cannot be joined to {RANK}", joined.len());
        let mut walk = Walk { rank: joined.len() as u32, shape: [1; RANK], steps: [[0; RANK]; N] };
        for (axis, (size, own)) in joined.into_iter().enumerate() {
            walk.shape[axis] = size as u32;
            for (which, step) in own.into_iter().enumerate() {
                walk.steps[which][axis] = i32::try_from(step).context("a step is beyond 2^31 elements")?;
            }
        }
        Ok(walk)
    }
}

/// The steps of a tensor of `from` repeated to `to`, which has the same rank.
fn repeated_steps(from: &[usize], to: &[usize]) -> TVec<i64> {
    let mut steps = dense_steps(from);
    steps.iter_mut().zip(from.iter().zip(to)).filter(|(_, (from, to))| from != to).for_each(|(step, _)| *step = 0);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_joined_where_every_tensor_runs_on() {
        let shape = [2, 3, 4, 5];
        let (dense, across) = (dense_steps(&shape), [20, 40, 5, 1]);
        let walk = Walk::new(&shape, [&dense[..], &across[..]]).unwrap();
        assert_eq!((walk.rank, &walk.shape[..3]), (3, &[2, 3, 20][..]));
        assert_eq!((&walk.steps[0][..3], &walk.steps[1][..3]), (&[60, 20, 1][..], &[20, 40, 1][..]));
        let whole = Walk::new(&shape, [&dense[..]]).unwrap();
        assert_eq!((whole.rank, whole.shape[0]), (1, 120));
        assert!(Walk::<1>::new(&[2; 9], [&[3; 9]]).is_err());
        assert_eq!(repeated_steps(&[2, 1, 3], &[2, 4, 3])[..], [3, 0, 1]);
    }
}
