//! Fusion of elementwise operators of an optimised model, so that tensors are not written and read between them.
//!
//! tract fuses what follows a matrix product into it, and runs of binary operators into one; what remains are activations
//! of several operators (hard swish, SiLU, GELU), and gates that are broadcast. A region is grown backwards from its
//! result: an operand joins it if it has the region's shape and nothing outside of the region uses it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tract_core::{
    internal::*,
    ops::{
        binary::{OptBinByScalar, OptBinChain, OptBinUnicast, TypedBinOp},
        element_wise::{ElementWiseMiniOp, ElementWiseOp},
    },
};

use super::elementwise::{BinaryFunction, Elementwise, Instruction, Value};
use edgecut_ops::kernel::contiguous_runs::ContiguousRuns;

/// Upper limit on the operators of a region, as each has a register.
const MAX_OPERATORS: usize = 16;

/// From this many elements on that a run has in common, a region is faster than its operators one by one.
const MIN_RUN: usize = 16;

/// Fuses all regions of two operators or more, and those of which tract has no vectorised one.
pub(super) fn fuse_elementwise(model: &mut TypedModel) -> TractResult<()> {
    let order = model.eval_order()?;
    let mut position: BTreeMap<usize, usize> = BTreeMap::new();
    position.extend(order.iter().enumerate().map(|(position, id)| (*id, position)));
    let mut taken: BTreeSet<usize> = BTreeSet::new();
    let mut regions = Vec::new();
    for id in order.iter().rev() {
        if taken.contains(id) || elementwise(model, model.node(*id))?.is_none() {
            continue;
        }
        let region = grow(model, *id, &position, &taken)?;
        if let Some(program) = program(model, &region)? {
            taken.extend(&region);
            regions.push((region, program));
        }
    }
    for (region, (inputs, op)) in regions {
        let Some(last) = region.last().copied() else { continue };
        // A region that was fused meanwhile may compute an input.
        let mut patch = TypedModelPatch::new("elementwise operators as one");
        let inputs = inputs.iter().map(|(node, input)| model.node(*node).inputs[*input]).collect::<TVec<_>>();
        let inputs = patch.taps(model, &inputs)?;
        let output = patch.wire_node(model.node(last).name.clone(), op, &inputs)?;
        patch.shunt_outside(model, last.into(), output[0])?;
        patch.apply(model)?;
    }
    model.compact()
}

/// An elementwise node as functions: of its operand, or of pairs, each of the function before and one more operand.
enum Functions {
    One(Box<dyn ElementWiseMiniOp>),
    /// With whether the accumulated operand is the second.
    Pairs(TVec<(BinaryFunction, bool)>),
}

/// What `node` computes, if it can be in a region.
fn elementwise(model: &TypedModel, node: &TypedNode) -> TractResult<Option<Functions>> {
    let [output] = &node.outputs[..] else { return Ok(None) };
    let single = |fact: &TypedFact| fact.datum_type == DatumType::F32 && fact.shape.as_concrete().is_some();
    let facts = model.node_input_facts(node.id)?;
    let is_plain = facts.iter().all(|fact| single(fact) && fact.rank() == output.fact.rank());
    if !single(&output.fact) || !is_plain || output.fact.konst.is_some() {
        return Ok(None);
    }
    if let Some(op) = node.op_as::<ElementWiseOp>() {
        let keeps_type = op.1.is_none() && op.0.output_type(DatumType::F32).is_none();
        return Ok(keeps_type.then(|| Functions::One(op.0.clone())));
    }
    let pairs = if let Some(op) = node.op_as::<TypedBinOp>() {
        BinaryFunction::of(op).map(|pair| tvec![pair])
    } else if let Some(op) = node.op_as::<OptBinByScalar>() {
        BinaryFunction::of_mini(&*op.binop).map(|pair| tvec![pair])
    } else if let Some(op) = node.op_as::<OptBinUnicast>() {
        BinaryFunction::of_mini(&*op.binop).map(|pair| tvec![pair])
    } else if let Some(op) = node.op_as::<OptBinChain>() {
        op.steps.iter().map(|step| BinaryFunction::of_mini(&*step.binop)).collect()
    } else {
        None
    };
    Ok(pairs.map(Functions::Pairs))
}

/// The region whose result is that of `sink`, in the order of evaluation.
fn grow(
    model: &TypedModel,
    sink: usize,
    position: &BTreeMap<usize, usize>,
    taken: &BTreeSet<usize>,
) -> TractResult<Vec<usize>> {
    let shape = &model.node(sink).outputs[0].fact.shape;
    let outputs = model.output_outlets()?;
    let mut region: BTreeMap<usize, usize> = BTreeMap::new();
    let mut operators = 0;
    // Latest first: when an operand's turn comes, all its users in the region are known.
    let mut candidates: BTreeMap<usize, usize> = BTreeMap::from([(position[&sink], sink)]);
    while let Some((at, id)) = candidates.pop_last() {
        let node = model.node(id);
        let users = node.outputs[0].successors.iter();
        let is_inner = id == sink
            || (users.clone().all(|user| region.contains_key(&position[&user.node])) && !outputs.contains(&id.into()));
        if !is_inner || taken.contains(&id) || node.outputs[0].fact.shape != *shape {
            continue;
        }
        let Some(functions) = elementwise(model, node)? else { continue };
        operators += match &functions {
            Functions::One(_) => 1,
            Functions::Pairs(pairs) => pairs.len(),
        };
        if operators > MAX_OPERATORS && id != sink {
            break;
        }
        region.insert(at, id);
        for input in &node.inputs {
            let operand = model.node(input.node);
            if operand.outputs.len() == 1 && position.contains_key(&operand.id) {
                candidates.insert(position[&operand.id], operand.id);
            }
        }
    }
    Ok(region.into_values().collect())
}

/// An input of a region: a node of it, and the number of its input.
type RegionInput = (usize, usize);

/// The operator that computes `region` and its inputs, if that is faster.
fn program(model: &TypedModel, region: &[usize]) -> TractResult<Option<(TVec<RegionInput>, Elementwise)>> {
    let Some(last) = region.last() else { return Ok(None) };
    let Some(shape) = model.node(*last).outputs[0].fact.shape.as_concrete() else { return Ok(None) };
    let mut inputs: TVec<RegionInput> = tvec![];
    let mut outlets: HashMap<OutletId, usize> = HashMap::new();
    let mut results: HashMap<usize, usize> = HashMap::new();
    let mut instructions = Vec::new();
    for id in region {
        let node = model.node(*id);
        let mut operands = node.inputs.iter().enumerate().map(|(number, outlet)| match results.get(&outlet.node) {
            Some(result) => Value::Result(*result),
            None => Value::Input(*outlets.entry(*outlet).or_insert_with(|| {
                inputs.push((*id, number));
                inputs.len() - 1
            })),
        });
        let Some(mut value) = operands.next() else { return Ok(None) };
        match elementwise(model, node)? {
            Some(Functions::One(function)) => instructions.push(Instruction::Unary(function, value)),
            Some(Functions::Pairs(pairs)) => {
                for (function, reversed) in pairs {
                    let Some(other) = operands.next() else { return Ok(None) };
                    let (a, b) = if reversed { (other, value) } else { (value, other) };
                    instructions.push(Instruction::Binary(function, a, b));
                    value = Value::Result(instructions.len() - 1);
                }
            }
            None => return Ok(None),
        }
        let Some(result) = instructions.len().checked_sub(1) else { return Ok(None) };
        results.insert(*id, result);
    }
    let shapes = inputs.iter().map(|(node, input)| model.outlet_fact(model.node(*node).inputs[*input]));
    let shapes =
        shapes.map(|fact| Ok(fact?.shape.as_concrete().unwrap_or_default())).collect::<TractResult<TVec<_>>>()?;
    let long = ContiguousRuns::new(shape, &shapes).length >= MIN_RUN.min(shape.iter().product());
    let alone = [BinaryFunction::Divide, BinaryFunction::MinOrNan, BinaryFunction::MaxOrNan];
    let has_none =
        instructions.iter().any(|i| matches!(i, Instruction::Binary(function, ..) if alone.contains(function)));
    let worth = long && (region.len() > 1 || has_none);
    Ok(worth.then(|| (inputs, Elementwise { shape: shape.into(), instructions })))
}
