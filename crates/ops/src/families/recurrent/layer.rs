//! A recurrent layer as one tract operator: the input's part of all gates by one product for the whole sequence, then a loop
//! over the steps.

use std::sync::Arc;

use tract_core::internal::*;

use super::{
    cell::RecurrentCell,
    product::{Product, Workspace},
};
use crate::families::recurrent::cell::kernel::Activations;

/// A layer of known sizes in single precision. Inputs are those of the operator; with packed weights, the data and the
/// initial states alone. Every run starts from the initial states.
#[derive(Debug, Clone)]
pub(super) struct RecurrentLayer {
    pub cell: RecurrentCell,
    /// By direction: whether the sequence is read from its end.
    pub backwards: &'static [bool],
    pub steps: usize,
    pub batch: usize,
    pub hidden: usize,
    /// Constant weights, packed.
    pub weights: Option<Arc<Packed>>,
}

/// What does not change from run to run.
#[derive(Debug)]
pub(super) struct Packed {
    directions: Vec<DirectionWeights>,
    activations: Activations,
}

/// The weights of one direction.
#[derive(Debug)]
pub(super) struct DirectionWeights {
    /// From the data to all gates, with all biases but those that a product with the state must add itself.
    input: Product,
    /// From the hidden state to the gates that add it as it is.
    state: Product,
    /// From the hidden state after the reset gate to the candidate of a GRU, if that is where the gate acts.
    after_reset: Option<Product>,
}

/// The state of one direction during a run.
struct Direction<'a> {
    weights: &'a DirectionWeights,
    /// What the input adds to the gates: [steps, batch, gates x hidden], overwritten step by step.
    gates: Tensor,
    from_state: Tensor,
    from_reset: Tensor,
    /// [batch, hidden]
    hidden: Tensor,
    reset: Tensor,
    cell_state: Option<Tensor>,
    /// Of the products with the hidden state and with what the reset gate keeps of it.
    workspaces: [Workspace; 2],
}

/// Entry `index` of the first axis.
fn first_axis_entry(tensor: &Tensor, index: usize) -> TractResult<Tensor> {
    let mut entry = tensor.slice(0, index, index + 1)?;
    entry.remove_axis(0)?;
    Ok(entry)
}

fn as_f32(tensor: &Tensor) -> TractResult<&[f32]> {
    tensor.try_as_plain_ram()?.as_slice::<f32>()
}

/// Overwrites elements from number `begin` on.
fn copy_into(to: &mut Tensor, begin: usize, from: &Tensor) -> TractResult<()> {
    let from = as_f32(from)?;
    to.try_as_plain_ram_mut()?.as_slice_mut::<f32>()?[begin..begin + from.len()].copy_from_slice(from);
    Ok(())
}

impl DirectionWeights {
    /// From matrices of gates x hidden rows, and the biases of the input and of the state in one vector.
    fn new(layer: &RecurrentLayer, input: &Tensor, recurrent: &Tensor, bias: &Tensor) -> TractResult<DirectionWeights> {
        let (hidden, rows) = (layer.hidden, layer.cell.gates() * layer.hidden);
        let of_state = as_f32(bias)?[rows..].to_vec();
        let mut of_input = as_f32(bias)?[..rows].to_vec();
        // The reset gate of a GRU scales what the state adds, its bias included.
        let (added, scaled) = match layer.cell {
            RecurrentCell::Gru { linear_before_reset: true } => (2 * hidden, of_state[2 * hidden..].to_vec()),
            _ => (rows, Vec::new()),
        };
        of_input[..added].iter_mut().zip(&of_state).for_each(|(input, state)| *input += state);
        let input = Product::new(input, Some(tensor1(&of_input)), layer.steps * layer.batch)?;
        let (state, after_reset) = match layer.cell {
            RecurrentCell::Gru { linear_before_reset: false } => (
                Product::new(&recurrent.slice(0, 0, 2 * hidden)?, None, layer.batch)?,
                Some(Product::new(&recurrent.slice(0, 2 * hidden, rows)?, None, layer.batch)?),
            ),
            _ => {
                let bias = (!scaled.is_empty()).then(|| {
                    let mut bias = vec![0f32; rows];
                    bias[rows - scaled.len()..].copy_from_slice(&scaled);
                    tensor1(&bias)
                });
                (Product::new(recurrent, bias, layer.batch)?, None)
            }
        };
        Ok(DirectionWeights { input, state, after_reset })
    }
}

impl Direction<'_> {
    /// Advances all sequences of the batch to step `at`.
    fn step(&mut self, layer: &RecurrentLayer, activations: &Activations, at: usize) -> TractResult<()> {
        let (hidden, batch) = (layer.hidden, layer.batch);
        let width = layer.cell.gates() * hidden;
        self.weights.state.of(&self.hidden, &mut self.from_state, &mut self.workspaces[0])?;
        let mut gates = self.gates.try_as_plain_ram_mut()?;
        let gates = &mut gates.as_slice_mut::<f32>()?[at * batch * width..(at + 1) * batch * width];
        let mut from_state = self.from_state.try_as_plain_ram_mut()?;
        let from_state = from_state.as_slice_mut::<f32>()?;
        let mut state = self.hidden.try_as_plain_ram_mut()?;
        let state = state.as_slice_mut::<f32>()?;
        match (layer.cell, &mut self.cell_state) {
            (RecurrentCell::Lstm, Some(cell_state)) => {
                let mut cell_state = cell_state.try_as_plain_ram_mut()?;
                let cell_state = cell_state.as_slice_mut::<f32>()?;
                for row in 0..batch {
                    let (own, units) = (row * width..(row + 1) * width, row * hidden..(row + 1) * hidden);
                    let state = &mut state[units.clone()];
                    activations.lstm(&mut gates[own.clone()], &from_state[own], state, &mut cell_state[units])?;
                }
            }
            (RecurrentCell::Gru { linear_before_reset: true }, _) => {
                for row in 0..batch {
                    let (own, units) = (row * width..(row + 1) * width, row * hidden..(row + 1) * hidden);
                    let (gates, from_state) = (&mut gates[own.clone()], &mut from_state[own]);
                    activations.gru_gates(gates, from_state, hidden)?;
                    let candidate = &mut from_state[2 * hidden..];
                    candidate.iter_mut().zip(&gates[hidden..]).for_each(|(candidate, reset)| *candidate *= reset);
                    activations.gru(gates, candidate, &mut state[units])?;
                }
            }
            (RecurrentCell::Gru { linear_before_reset: false }, _) => {
                let mut reset_view = self.reset.try_as_plain_ram_mut()?;
                let reset = reset_view.as_slice_mut::<f32>()?;
                for row in 0..batch {
                    let units = row * hidden..(row + 1) * hidden;
                    let gates = &mut gates[row * width..(row + 1) * width];
                    activations.gru_gates(gates, &from_state[row * 2 * hidden..(row + 1) * 2 * hidden], hidden)?;
                    let kept = gates[hidden..].iter().zip(&state[units.clone()]).map(|(reset, state)| reset * state);
                    reset[units].iter_mut().zip(kept).for_each(|(to, kept)| *to = kept);
                }
                let after_reset = self.weights.after_reset.as_ref().context("a GRU has candidates")?;
                after_reset.of(&self.reset, &mut self.from_reset, &mut self.workspaces[1])?;
                let from_reset = as_f32(&self.from_reset)?;
                for row in 0..batch {
                    let units = row * hidden..(row + 1) * hidden;
                    let gates = &mut gates[row * width..(row + 1) * width];
                    activations.gru(gates, &from_reset[units.clone()], &mut state[units])?;
                }
            }
            _ => {
                for row in 0..batch {
                    let (own, units) = (row * width..(row + 1) * width, row * hidden..(row + 1) * hidden);
                    activations.rnn(&mut gates[own.clone()], &from_state[own], &mut state[units])?;
                }
            }
        }
        Ok(())
    }
}

/// The results of a layer: all hidden states, the last one, and the last cell state of an LSTM.
struct Results {
    all: Tensor,
    hidden: Tensor,
    cell_state: Option<Tensor>,
}

impl RecurrentLayer {
    /// Whether there is no step to compute, so that the states stay as they are.
    fn is_empty(&self) -> bool {
        self.steps * self.batch == 0
    }

    fn width(&self) -> usize {
        self.cell.gates() * self.hidden
    }

    /// The weights of all directions, packed.
    fn pack(&self, input: &Tensor, recurrent: &Tensor, bias: &Tensor) -> TractResult<Arc<Packed>> {
        let of = |index| {
            let (input, recurrent) = (first_axis_entry(input, index)?, first_axis_entry(recurrent, index)?);
            DirectionWeights::new(self, &input, &recurrent, &first_axis_entry(bias, index)?)
        };
        let directions = (0..self.backwards.len()).map(of).collect::<TractResult<Vec<_>>>()?;
        Ok(Arc::new(Packed { directions, activations: Activations::new()? }))
    }

    /// One direction over the whole sequence.
    fn run(
        &self,
        index: usize,
        packed: &Packed,
        data: &Tensor,
        states: &[TValue],
        results: &mut Results,
    ) -> TractResult<()> {
        let (hidden, batch, directions) = (self.hidden, self.batch, self.backwards.len());
        let weights = &packed.directions[index];
        let after_reset = weights.after_reset.as_ref().unwrap_or(&weights.state);
        let zeros = |rows, columns| Tensor::zero::<f32>(&[rows, columns]);
        let mut direction = Direction {
            weights,
            gates: zeros(self.steps * batch, self.width())?,
            from_state: zeros(batch, weights.state.outputs())?,
            from_reset: zeros(batch, hidden)?,
            hidden: first_axis_entry(&states[0], index)?,
            reset: zeros(batch, hidden)?,
            workspaces: [weights.state.workspace(batch)?, after_reset.workspace(batch)?],
            cell_state: states.get(1).map(|cell_state| first_axis_entry(cell_state, index)).transpose()?,
        };
        weights.input.of(data, &mut direction.gates, &mut weights.input.workspace(self.steps * batch)?)?;
        let size = batch * hidden;
        for step in 0..self.steps {
            let at = if self.backwards[index] { self.steps - 1 - step } else { step };
            direction.step(self, &packed.activations, at)?;
            let begin = (at * directions + index) * size;
            copy_into(&mut results.all, begin, &direction.hidden)?;
        }
        copy_into(&mut results.hidden, index * size, &direction.hidden)?;
        if let (Some(to), Some(cell_state)) = (&mut results.cell_state, &direction.cell_state) {
            copy_into(to, index * size, cell_state)?;
        }
        Ok(())
    }
}

/// Equal only to its own clones, once it is packed.
impl PartialEq for RecurrentLayer {
    fn eq(&self, other: &RecurrentLayer) -> bool {
        let weights = match (&self.weights, &other.weights) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let sizes = |layer: &RecurrentLayer| (layer.steps, layer.batch, layer.hidden);
        weights && self.cell == other.cell && self.backwards == other.backwards && sizes(self) == sizes(other)
    }
}

impl Eq for RecurrentLayer {}

impl Op for RecurrentLayer {
    fn name(&self) -> StaticName {
        "RecurrentLayer".into()
    }

    op_as_typed_op!();
}

impl EvalOp for RecurrentLayer {
    op_out_of_plan!();

    fn eval(&self, _ctx: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        if self.is_empty() {
            let all = Tensor::zero::<f32>(&[self.steps, self.backwards.len(), self.batch, self.hidden])?;
            return Ok(std::iter::once(all.into_tvalue()).chain(inputs.into_iter().skip(4)).collect());
        }
        let packed = match &self.weights {
            Some(packed) => packed.clone(),
            None => self.pack(&inputs[1], &inputs[2], &inputs[3])?,
        };
        let states = if self.weights.is_some() { &inputs[1..] } else { &inputs[4..] };
        let mut data = inputs[0].clone().into_tensor();
        let input = data.shape()[2];
        data.set_shape(&[self.steps * self.batch, input])?;
        let directions = self.backwards.len();
        let state = || Tensor::zero::<f32>(&[directions, self.batch, self.hidden]);
        let mut results = Results {
            all: Tensor::zero::<f32>(&[self.steps, directions, self.batch, self.hidden])?,
            hidden: state()?,
            cell_state: (self.cell == RecurrentCell::Lstm).then(state).transpose()?,
        };
        for index in 0..directions {
            self.run(index, &packed, &data, states, &mut results)?;
        }
        let Results { all, hidden, cell_state } = results;
        Ok([all, hidden].into_iter().chain(cell_state).map(Tensor::into_tvalue).collect())
    }
}

impl TypedOp for RecurrentLayer {
    fn output_facts(&self, _inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        let directions = self.backwards.len();
        let state = f32::fact([directions, self.batch, self.hidden]);
        let mut facts = tvec![f32::fact([self.steps, directions, self.batch, self.hidden]), state.clone()];
        facts.extend((self.cell == RecurrentCell::Lstm).then_some(state));
        Ok(facts)
    }

    /// Packs weights that are constants.
    fn codegen(&self, model: &TypedModel, node: &TypedNode) -> TractResult<Option<TypedModelPatch>> {
        if self.weights.is_some() || self.is_empty() {
            return Ok(None);
        }
        let known = |index: usize| model.outlet_fact(node.inputs[index]).map(|fact| fact.konst.clone());
        let (Some(input), Some(recurrent), Some(bias)) = (known(1)?, known(2)?, known(3)?) else { return Ok(None) };
        let packed = RecurrentLayer { weights: Some(self.pack(&input, &recurrent, &bias)?), ..self.clone() };
        let inputs: TVec<OutletId> = [&node.inputs[..1], &node.inputs[4..]].concat().into();
        TypedModelPatch::replace_single_op(model, node, &inputs, packed).map(Some)
    }

    as_op!();
}
