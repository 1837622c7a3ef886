//! Recurrent layers over whole sequences: `nn.lstm`, `nn.gru` and `nn.rnn`, with ONNX's operands, gate order and results.
//! TVM has none of them: its frontends unroll such layers.

mod cell;
#[cfg(feature = "kernels")]
mod layer;
#[cfg(feature = "kernels")]
mod product;

use crate::{
    AttrDef, Call, OpDef, TypeError, Typed,
    def::AttrKind::{Bool, Str},
    rules::{FUNCTION_COST, unify},
    split::{Join, SplitAxis},
};
pub use cell::RecurrentCell;
use edgecut_graph::{Attr, DType, Dim, Shape, TensorType, Type};

const DIRECTION: AttrDef = AttrDef::new("direction", Str, "\"forward\"");

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new(
        "nn.lstm",
        &["data", "input_weight", "recurrent_weight", "bias", "initial_hidden", "initial_cell"],
        |call| layer_type(call, RecurrentCell::Lstm),
    )
    .attrs("", &[DIRECTION])
    .flops(|call| flops(call, RecurrentCell::Lstm))
    .split(split_axes)
    .wire(kernel!(|wiring, call, inputs| wire(wiring, call, inputs, RecurrentCell::Lstm))),
    OpDef::new("nn.gru", &["data", "input_weight", "recurrent_weight", "bias", "initial_hidden"], |call| {
        layer_type(call, gru(call)?)
    })
    .attrs("", &[DIRECTION, AttrDef::new("linear_before_reset", Bool, "False")])
    .flops(|call| flops(call, RecurrentCell::Gru { linear_before_reset: false }))
    .split(split_axes)
    .wire(kernel!(|wiring, call, inputs| wire(wiring, call, inputs, gru(call)?))),
    OpDef::new("nn.rnn", &["data", "input_weight", "recurrent_weight", "bias", "initial_hidden"], |call| {
        layer_type(call, RecurrentCell::Rnn)
    })
    .attrs("", &[DIRECTION])
    .flops(|call| flops(call, RecurrentCell::Rnn))
    .split(split_axes)
    .wire(kernel!(|wiring, call, inputs| wire(wiring, call, inputs, RecurrentCell::Rnn))),
];

fn gru(call: &Call<'_>) -> Result<RecurrentCell, TypeError> {
    Ok(RecurrentCell::Gru { linear_before_reset: call.flag("linear_before_reset", false)? })
}

/// By direction, in the order of the weights: whether the sequence is read backwards.
fn directions(call: &Call<'_>) -> Result<&'static [bool], TypeError> {
    match call.text("direction", "forward")? {
        "forward" => Ok(&[false]),
        "reverse" => Ok(&[true]),
        "bidirectional" => Ok(&[false, true]),
        other => Err(call.error(format!("direction is \"{other}\", expected forward, reverse or bidirectional"))),
    }
}

/// The sizes of a layer, as far as they are known.
struct Sizes {
    steps: Dim,
    batch: Dim,
    input: Dim,
    hidden: Dim,
}

/// Operand `index` as a tensor of `N` dimensions, for what `layout` names.
fn of_rank<const N: usize>(call: &Call<'_>, index: usize, layout: &str) -> Result<[Dim; N], TypeError> {
    let ty = call.tensor(index)?;
    let dims = ty.shape.iter().copied().collect::<Vec<Dim>>();
    dims.try_into().map_err(|_| call.error(format!("{} is {ty}, expected {layout}", call.def.operands[index])))
}

/// The sizes, with those that one operand leaves unknown taken from the others.
fn sizes(call: &Call<'_>, cell: RecurrentCell) -> Result<Sizes, TypeError> {
    let gates = cell.gates() as u64;
    let [steps, batch, input] = of_rank(call, 0, "[steps, batch, input]")?;
    let [_, _, hidden] = of_rank(call, 2, "[directions, gates x hidden, hidden]")?;
    let mut sizes = Sizes { steps, batch, input, hidden };
    for index in 4..call.def.operands.len() {
        let [_, batch, hidden] = of_rank(call, index, "[directions, batch, hidden]")?;
        sizes.batch = unify(sizes.batch, batch).unwrap_or(sizes.batch);
        sizes.hidden = unify(sizes.hidden, hidden).unwrap_or(sizes.hidden);
    }
    let directions = Dim::Known(directions(call)?.len() as u64);
    let times = |dim: Dim, by: u64| dim.get().map_or(Dim::Any, |n| Dim::Known(n.saturating_mul(by)));
    let state = [directions, sizes.batch, sizes.hidden];
    let of_gates = times(sizes.hidden, gates);
    let wanted: [&[Dim]; 6] = [
        &[sizes.steps, sizes.batch, sizes.input],
        &[directions, of_gates, sizes.input],
        &[directions, of_gates, sizes.hidden],
        &[directions, times(sizes.hidden, 2 * gates)],
        &state,
        &state,
    ];
    for (index, wanted) in wanted.iter().enumerate().take(call.def.operands.len()) {
        let ty = call.tensor(index)?;
        let fits =
            ty.shape.rank() == wanted.len() && ty.shape.iter().zip(*wanted).all(|(a, b)| unify(*a, *b).is_some());
        if !fits {
            let wanted: Shape = wanted.iter().copied().collect();
            return Err(call.error(format!("{} is {ty}, expected the shape {wanted}", call.def.operands[index])));
        }
    }
    Ok(sizes)
}

/// The hidden states of all steps, the last one, and the last cell state of an LSTM.
fn layer_type(call: &Call<'_>, cell: RecurrentCell) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    if !matches!(data.dtype, DType::F16 | DType::Bf16 | DType::F32) {
        return Err(call.error(format!("data is {data}, expected float32, float16 or bfloat16")));
    }
    for index in 1..call.def.operands.len() {
        call.same_dtype(data, call.tensor(index)?)?;
    }
    let Sizes { steps, batch, hidden, .. } = sizes(call, cell)?;
    let directions = Dim::Known(directions(call)?.len() as u64);
    let of = |dims: &[Dim]| Type::from(TensorType::new(data.dtype, dims.iter().copied().collect()));
    let state = of(&[directions, batch, hidden]);
    let mut results = vec![of(&[steps, directions, batch, hidden]), state.clone()];
    results.extend((cell == RecurrentCell::Lstm).then_some(state));
    Ok(Type::Tuple(results))
}

/// Products with both weights, two biases and their sum for each gate, and what a cell does with them.
fn flops(call: &Typed<'_>, cell: RecurrentCell) -> u64 {
    let Ok(Sizes { input, hidden, .. }) = sizes(call, cell) else { return 0 };
    let units = call.out.tensors().first().and_then(|all| all.shape.elements()).unwrap_or(0);
    let inner = input.get().unwrap_or(1).saturating_add(hidden.get().unwrap_or(1));
    let (functions, arithmetic) = cell.operations();
    let gate = inner.saturating_mul(2).saturating_add(3);
    let unit = gate.saturating_mul(cell.gates() as u64).saturating_add(functions * FUNCTION_COST + arithmetic);
    units.saturating_mul(unit)
}

/// The batch, and the two directions of a bidirectional layer.
fn split_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let (results, operands) = (call.out.tensors().len(), call.args.len());
    let along = |of_all: usize, of_state: usize, size: u64| {
        let mut axes = vec![Some(of_state); results];
        axes[0] = Some(of_all);
        SplitAxis::new(Join::Axis(axes), size, operands)
    };
    let batch = call.tensor(0)?.shape.get(1).and_then(|dim| dim.get()).unwrap_or(0);
    let by_batch = (4..operands).fold(along(2, 1, batch).operand(0, 1), |split, state| split.operand(state, 1));
    let mut axes = vec![by_batch];
    if directions(call)?.len() == 2 {
        let by_direction = (1..operands).fold(along(1, 0, 2), |split, operand| split.operand(operand, 0));
        axes.push(by_direction.attr("direction", |range| {
            let name = match (range.start, range.end) {
                (0, 1) => "forward",
                (1, 2) => "reverse",
                _ => "bidirectional",
            };
            Attr::Str(name.into())
        }));
    }
    Ok(axes)
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::families::recurrent::layer::RecurrentLayer;
    use crate::kernel::Wiring;

    /// One operator of this crate's own, in single precision.
    pub(super) fn wire(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
        cell: RecurrentCell,
    ) -> TractResult<TVec<OutletId>> {
        let dtype = wiring.fact(inputs[0])?.datum_type;
        let inputs =
            inputs.iter().map(|input| wiring.cast(*input, DatumType::F32)).collect::<TractResult<TVec<OutletId>>>()?;
        let [data, state] = [wiring.concrete(inputs[0])?, wiring.concrete(inputs[4])?];
        ensure!(data[2] > 0 && state[2] > 0, "a layer without inputs or hidden units");
        let op = RecurrentLayer {
            cell,
            backwards: directions(call)?,
            steps: data[0],
            batch: data[1],
            hidden: state[2],
            weights: None,
        };
        let results = wiring.wire(op, &inputs)?;
        results.into_iter().map(|result| wiring.cast(result, dtype)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::Attrs;

    fn infer(name: &str, direction: &str, shapes: &[&[u64]]) -> Result<Type, TypeError> {
        let def = crate::lookup(name).unwrap();
        let attrs: Attrs = [("direction".into(), Attr::Str(direction.into()))].into_iter().collect();
        let args: Vec<Type> = shapes.iter().map(|dims| TensorType::of(DType::F32, dims).into()).collect();
        (def.infer)(&Call { def, attrs: &attrs, args: &args, values: &[] })
    }

    #[test]
    fn results_follow_from_data_and_weights() {
        let shapes: [&[u64]; 6] = [&[7, 3, 5], &[2, 16, 5], &[2, 16, 4], &[2, 32], &[2, 3, 4], &[2, 3, 4]];
        let ty = infer("nn.lstm", "bidirectional", &shapes).unwrap();
        let found: Vec<Shape> = ty.tensors().iter().map(|ty| ty.shape.clone()).collect();
        let shape = |dims: &[u64]| TensorType::of(DType::F32, dims).shape;
        assert_eq!(found, [shape(&[7, 2, 3, 4]), shape(&[2, 3, 4]), shape(&[2, 3, 4])]);
        let shapes: [&[u64]; 5] = [&[7, 3, 5], &[1, 12, 5], &[1, 12, 4], &[1, 24], &[1, 3, 4]];
        assert_eq!(infer("nn.gru", "reverse", &shapes).unwrap().tensors().len(), 2);
    }

    #[test]
    fn errors_name_the_operand() {
        let fits: [&[u64]; 5] = [&[7, 3, 5], &[1, 4, 5], &[1, 4, 4], &[1, 8], &[1, 3, 4]];
        assert!(infer("nn.rnn", "forward", &fits).is_ok());
        for (index, dims, name) in [
            (1, &[1u64, 4, 6][..], "input_weight"),
            (2, &[2, 4, 4], "recurrent_weight"),
            (3, &[1, 9], "bias"),
            (4, &[1, 2, 4], "initial_hidden"),
            (0, &[7, 3], "data"),
        ] {
            let mut shapes = fits;
            shapes[index] = dims;
            let error = infer("nn.rnn", "forward", &shapes).unwrap_err().to_string();
            assert!(error.starts_with(&format!("nn.rnn: {name} is ")), "{error}");
        }
        let error = infer("nn.rnn", "up", &fits).unwrap_err().to_string();
        assert!(error.contains("expected forward, reverse or bidirectional"), "{error}");
    }
}
