//! Recurrent layers: one operator each, or unrolled over their steps where they have what that operator lacks, such as
//! peepholes or other activations.

use edgecut_graph::{Arg, Attr, DType, TensorId};
use edgecut_ops::RecurrentCell;

use crate::{
    compose::{many, text},
    error::Result,
    lowering::{Call, Lower, Value},
};

use super::quantize::dequantized;

pub(super) const OPS: &[(&str, Lower)] = &[("LSTM", recurrent), ("GRU", recurrent), ("RNN", recurrent)];

/// Operators of ONNX Runtime's domain.
pub(super) const MICROSOFT_OPS: &[(&str, Lower)] = &[("DynamicQuantizeLSTM", dynamic_quantize_lstm)];

/// LSTM on dequantised weights, which are stored transposed. ONNX Runtime also quantises data and states before each
/// product; the decomposition keeps them in single precision.
fn dynamic_quantize_lstm(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    for (at, scale) in [(1, 8), (2, 10)] {
        let (weight, zero, scale) = (call.input(at)?, call.optional(scale + 1)?, call.input(scale)?);
        // A scale for each direction, or for each row of its weights.
        let unsqueezed = |call: &mut Call<'_, '_>, parameter: TensorId| match call.dims(parameter)?[..] {
            [directions] => call.reshape(parameter, &[directions, 1, 1]),
            [directions, rows] => call.reshape(parameter, &[directions, 1, rows]),
            _ => Err("expected one scale for each direction or for each row of its weights".to_string()),
        };
        let scale = unsqueezed(call, scale)?;
        let zero = zero.map(|zero| unsqueezed(call, zero)).transpose()?;
        let weight = dequantized(call, weight, scale, zero)?;
        let weight = call.transpose(weight, &[0, 2, 1])?;
        call.inputs[at] = Some(Value::Tensor(weight));
    }
    recurrent(call)
}

/// The weights of one direction.
struct Direction {
    /// [gates · hidden, input].
    input: TensorId,
    /// [gates · hidden, hidden].
    recurrent: TensorId,
    /// Vectors of gates · hidden, if there are any.
    bias: Option<[TensorId; 2]>,
    /// Vectors of hidden numbers: input, output, forget.
    peepholes: Option<Vec<TensorId>>,
    activations: Vec<String>,
    backwards: bool,
}

struct Layer {
    cell: RecurrentCell,
    hidden: u64,
    /// Threshold of `clip`.
    clip: Option<f64>,
    couples_gates: bool,
}

struct Sizes {
    steps: u64,
    batch: u64,
    directions: u64,
}

fn recurrent(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let cell = match call.node.op_type.as_deref() {
        Some("LSTM" | "DynamicQuantizeLSTM") => RecurrentCell::Lstm,
        Some("GRU") => RecurrentCell::Gru { linear_before_reset: call.int("linear_before_reset", 0) != 0 },
        _ => RecurrentCell::Rnn,
    };
    let (x, r) = (call.input(0)?, call.input(2)?);
    let batch_first = call.int("layout", 0) != 0;
    let x = if batch_first { call.transpose(x, &[1, 0, 2])? } else { x };
    let (data, weights) = (call.dims(x)?, call.dims(r)?);
    let (&[steps, batch, _], &[directions, _, hidden]) = (&data[..], &weights[..]) else {
        return Err("data and weights must have three dimensions".to_string());
    };
    if let Some(lengths) = call.content_ints(4, "the lengths of the sequences")?
        && lengths.iter().any(|length| *length != steps as i64)
    {
        return Err("sequences of different lengths are not supported".to_string());
    }
    let layer = Layer {
        cell,
        hidden,
        clip: call.has("clip").then(|| call.float("clip", 0.0)),
        couples_gates: call.int("input_forget", 0) != 0,
    };
    let sizes = Sizes { steps, batch, directions };
    let mut results = match layer.is_plain(call, x)? {
        true => layer.as_operator(call, x, &sizes, batch_first)?,
        false => layer.unrolled(call, x, &sizes, batch_first)?,
    };
    if batch_first {
        results[0] = call.transpose(results[0], &[2, 0, 1, 3])?;
        for state in &mut results[1..] {
            *state = call.transpose(*state, &[1, 0, 2])?;
        }
    }
    many(results)
}

/// Row `index` of the first axis.
fn row(call: &mut Call<'_, '_>, x: TensorId, index: u64) -> Result<TensorId> {
    let row = call.slice(x, 0, index, index + 1)?;
    call.squeeze(row, &[0])
}

/// The initial state that input `at` is, of [directions, batch, hidden]; `None` if it is absent.
fn initial_state(call: &mut Call<'_, '_>, at: usize, batch_first: bool) -> Result<Option<TensorId>> {
    match call.optional(at)? {
        Some(state) if batch_first => call.transpose(state, &[1, 0, 2]).map(Some),
        state => Ok(state),
    }
}

fn direction(call: &mut Call<'_, '_>, layer: &Layer, index: u64) -> Result<Direction> {
    let (w, r) = (call.input(1)?, call.input(2)?);
    let (input, recurrent) = (row(call, w, index)?, row(call, r, index)?);
    let half = layer.rows()?;
    let bias = match call.optional(3)? {
        Some(bias) => {
            let bias = row(call, bias, index)?;
            let parts = call.split(bias, 0, &[half, half])?;
            Some([parts[0], parts[1]])
        }
        None => None,
    };
    let peepholes = match call.optional(7)? {
        Some(p) => {
            let p = row(call, p, index)?;
            Some(call.split(p, 0, &[layer.hidden; 3])?)
        }
        None => None,
    };
    let defaults = layer.activations();
    let named = call.texts("activations").unwrap_or_default();
    let first = index as usize * defaults.len();
    let activations = match named.get(first..first + defaults.len()) {
        Some(own) => own.to_vec(),
        None => defaults.iter().map(|name| name.to_string()).collect(),
    };
    let backwards = call.text("direction", "forward") == "reverse" || index == 1;
    Ok(Direction { input, recurrent, bias, peepholes, activations, backwards })
}

impl Layer {
    /// Rows of the weights: gates times hidden units.
    fn rows(&self) -> Result<u64> {
        (self.cell.gates() as u64).checked_mul(self.hidden).ok_or_else(|| "the hidden size is too large".to_string())
    }

    /// Whether the layer is one operator of the graph: the default activations, and nothing between them and the gates.
    fn is_plain(&self, call: &Call<'_, '_>, x: TensorId) -> Result<bool> {
        let defaults = self.activations();
        let named = call.texts("activations").unwrap_or_default();
        let are_default = named.iter().zip(defaults.iter().cycle()).all(|(own, name)| own.eq_ignore_ascii_case(name));
        let is_computed = matches!(call.dtype_of(x), DType::F16 | DType::Bf16 | DType::F32);
        let has_more = self.clip.is_some() || self.couples_gates || call.optional(7)?.is_some();
        Ok(are_default && is_computed && !has_more)
    }

    /// The names of ONNX's default activations of one direction.
    fn activations(&self) -> &'static [&'static str] {
        match self.cell {
            RecurrentCell::Lstm => &["Sigmoid", "Tanh", "Tanh"],
            RecurrentCell::Gru { .. } => &["Sigmoid", "Tanh"],
            RecurrentCell::Rnn => &["Tanh"],
        }
    }

    /// The layer as one operator.
    fn as_operator(
        &self,
        call: &mut Call<'_, '_>,
        x: TensorId,
        sizes: &Sizes,
        batch_first: bool,
    ) -> Result<Vec<TensorId>> {
        let &Sizes { batch, directions, .. } = sizes;
        let dtype = call.dtype_of(x);
        let bias = match call.optional(3)? {
            Some(bias) => bias,
            None => call.full(0.0, dtype, &[directions, self.rows()?.saturating_mul(2)])?,
        };
        let mut operands = vec![x, call.input(1)?, call.input(2)?, bias];
        for at in if self.cell == RecurrentCell::Lstm { 5..7 } else { 5..6 } {
            operands.push(match initial_state(call, at, batch_first)? {
                Some(state) => state,
                None => call.full(0.0, dtype, &[directions, batch, self.hidden])?,
            });
        }
        let mut attrs = vec![("direction", text(call.text("direction", "forward")))];
        let name = match self.cell {
            RecurrentCell::Lstm => "nn.lstm",
            RecurrentCell::Gru { linear_before_reset } => {
                attrs.push(("linear_before_reset", Attr::Bool(linear_before_reset)));
                "nn.gru"
            }
            RecurrentCell::Rnn => "nn.rnn",
        };
        call.lowering.add(name, operands.into_iter().map(Arg::Tensor).collect(), attrs)
    }

    /// The layer as operators for every step.
    fn unrolled(
        &self,
        call: &mut Call<'_, '_>,
        x: TensorId,
        sizes: &Sizes,
        batch_first: bool,
    ) -> Result<Vec<TensorId>> {
        let &Sizes { steps, batch, directions } = sizes;
        let (mut outputs, mut last_hidden, mut last_cell) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..directions {
            let direction = direction(call, self, index)?;
            let initial = |call: &mut Call<'_, '_>, at: usize| match initial_state(call, at, batch_first)? {
                Some(state) => row(call, state, index),
                None => {
                    let dtype = call.dtype_of(x);
                    call.full(0.0, dtype, &[batch, self.hidden])
                }
            };
            let mut state = initial(call, 5)?;
            let mut memory = if self.cell == RecurrentCell::Lstm { Some(initial(call, 6)?) } else { None };
            let mut list = Vec::new();
            for step in 0..steps {
                let at = if direction.backwards { steps - 1 - step } else { step };
                let now = row(call, x, at)?;
                (state, memory) = self.step(call, &direction, now, state, memory)?;
                list.push(call.expand(state, 0, 1)?);
            }
            if direction.backwards {
                list.reverse();
            }
            let all = call.concat(&list, 0)?;
            outputs.push(call.expand(all, 1, 1)?);
            last_hidden.push(call.expand(state, 0, 1)?);
            if let Some(memory) = memory {
                last_cell.push(call.expand(memory, 0, 1)?);
            }
        }
        let mut results = vec![call.concat(&outputs, 1)?, call.concat(&last_hidden, 0)?];
        if self.cell == RecurrentCell::Lstm {
            results.push(call.concat(&last_cell, 0)?);
        }
        Ok(results)
    }

    /// The next hidden state, and the next memory of an LSTM.
    fn step(
        &self,
        call: &mut Call<'_, '_>,
        direction: &Direction,
        x: TensorId,
        state: TensorId,
        memory: Option<TensorId>,
    ) -> Result<(TensorId, Option<TensorId>)> {
        let from_input = self.product(call, x, direction.input, direction.bias.map(|bias| bias[0]))?;
        let from_state = self.product(call, state, direction.recurrent, direction.bias.map(|bias| bias[1]))?;
        match (self.cell, memory) {
            (RecurrentCell::Lstm, Some(memory)) => {
                let sum = call.map("add", &[from_input, from_state])?;
                self.lstm(call, direction, sum, memory)
            }
            (RecurrentCell::Gru { .. }, _) => Ok((self.gru(call, direction, from_input, from_state, state)?, None)),
            _ => {
                let sum = call.map("add", &[from_input, from_state])?;
                Ok((self.activate(call, direction, 0, sum)?, None))
            }
        }
    }

    fn product(&self, call: &mut Call<'_, '_>, x: TensorId, w: TensorId, bias: Option<TensorId>) -> Result<TensorId> {
        let units = call.dims(w)?[0] as i64;
        let made = call.op("nn.dense", &[x, w], vec![("units", Attr::Int(units))])?;
        match bias {
            Some(bias) => call.op("nn.bias_add", &[made, bias], vec![("axis", Attr::Int(1))]),
            None => Ok(made),
        }
    }

    fn lstm(
        &self,
        call: &mut Call<'_, '_>,
        direction: &Direction,
        sum: TensorId,
        memory: TensorId,
    ) -> Result<(TensorId, Option<TensorId>)> {
        let gates = call.split(sum, 1, &[self.hidden; 4])?;
        let peep = |call: &mut Call<'_, '_>, gate: TensorId, at: usize, memory: TensorId| match &direction.peepholes {
            Some(vectors) => {
                let seen = call.map("multiply", &[memory, vectors[at]])?;
                call.map("add", &[gate, seen])
            }
            None => Ok(gate),
        };
        let input = peep(call, gates[0], 0, memory)?;
        let input = self.activate(call, direction, 0, input)?;
        let forget = if self.couples_gates {
            let unit = call.like(1.0, input)?;
            call.map("subtract", &[unit, input])?
        } else {
            let forget = peep(call, gates[2], 2, memory)?;
            self.activate(call, direction, 0, forget)?
        };
        let candidate = self.activate(call, direction, 1, gates[3])?;
        let (kept, added) = (call.map("multiply", &[forget, memory])?, call.map("multiply", &[input, candidate])?);
        let memory = call.map("add", &[kept, added])?;
        let output = peep(call, gates[1], 1, memory)?;
        let output = self.activate(call, direction, 0, output)?;
        let shown = self.activate(call, direction, 2, memory)?;
        Ok((call.map("multiply", &[output, shown])?, Some(memory)))
    }

    fn gru(
        &self,
        call: &mut Call<'_, '_>,
        direction: &Direction,
        from_input: TensorId,
        from_state: TensorId,
        state: TensorId,
    ) -> Result<TensorId> {
        let (x, h) = (call.split(from_input, 1, &[self.hidden; 3])?, call.split(from_state, 1, &[self.hidden; 3])?);
        let update = call.map("add", &[x[0], h[0]])?;
        let update = self.activate(call, direction, 0, update)?;
        let reset = call.map("add", &[x[1], h[1]])?;
        let reset = self.activate(call, direction, 0, reset)?;
        let seen = if self.cell == (RecurrentCell::Gru { linear_before_reset: true }) {
            call.map("multiply", &[reset, h[2]])?
        } else {
            let part = call.map("multiply", &[reset, state])?;
            let first = 2 * self.hidden;
            let weights = call.slice(direction.recurrent, 0, first, first + self.hidden)?;
            let bias = match direction.bias {
                Some([_, bias]) => Some(call.slice(bias, 0, first, first + self.hidden)?),
                None => None,
            };
            self.product(call, part, weights, bias)?
        };
        let hidden = call.map("add", &[x[2], seen])?;
        let hidden = self.activate(call, direction, 1, hidden)?;
        // (1 - z) h + z H
        let difference = call.map("subtract", &[state, hidden])?;
        let difference = call.map("multiply", &[update, difference])?;
        call.map("add", &[hidden, difference])
    }

    /// Activation number `index` of the direction.
    fn activate(&self, call: &mut Call<'_, '_>, direction: &Direction, index: usize, x: TensorId) -> Result<TensorId> {
        let x = match self.clip {
            Some(most) => call.op("clip", &[x], vec![("a_min", Attr::Float(-most)), ("a_max", Attr::Float(most))])?,
            None => x,
        };
        let name = direction.activations.get(index).map(|name| name.to_ascii_lowercase()).unwrap_or_default();
        match name.as_str() {
            "sigmoid" => call.map("sigmoid", &[x]),
            "tanh" => call.map("tanh", &[x]),
            "relu" => call.map("nn.relu", &[x]),
            other => Err(format!("activation {} is not supported", crate::error::shown(other))),
        }
    }
}
