//! What a meta-operator needs besides its operands and results, and whose bytes it may overwrite.

use crate::{
    graph::{Graph, OperatorId, Part, TensorId},
    memory::{
        Buffer, Options, Reuse, Sharing, pack,
        place::{self, PlaceError, Placed},
    },
    units::Bytes,
};

/// Effort of packing one meta-operator's inner tensors.
const EFFORT: u64 = 100_000;

/// A meta-operator as its surroundings see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inside {
    /// The arena of its inner tensors and its operators' workspaces.
    pub scratch: Bytes,
    pub reuse: Reuse,
}

/// What the operators `members` of `graph` need when they run as one, in the best order found for them.
///
/// Operands stay untouched until all of them have run, unless the result may be written over one: no operator that
/// reads the operand may run after the first that writes into the result's bytes.
///
/// # Errors
/// If a size is not known.
pub fn inside(graph: &Graph, members: &[OperatorId], sharing: &Sharing<'_>) -> Result<Inside, PlaceError> {
    if let [single] = members {
        return Ok(Inside { scratch: (sharing.workspace)(*single), reuse: (sharing.reuse)(*single) });
    }
    let mut part = Part::cut(graph, members);
    let (inputs, outputs): (Vec<TensorId>, Vec<TensorId>) = (part.graph.inputs().collect(), part.graph.outputs.clone());
    // What is returned is never overwritten.
    part.graph.outputs.extend(&inputs);
    let whole = |id: OperatorId| part.whole_operator[id.0 as usize];
    // A result that is made piece by piece is the surroundings' affair.
    let reuse = |id: OperatorId| Some((sharing.reuse)(whole(id))).filter(|r| *r != Reuse::Join).unwrap_or(Reuse::Never);
    let workspace = |id: OperatorId| (sharing.workspace)(whole(id));
    let inner = Sharing { reuse: &reuse, workspace: &workspace, align: sharing.align };
    let options = Options { capacity: None, effort: EFFORT };
    let placed = place::best(&part.graph, &inner, &options)?.best;
    let storage = |tensor: TensorId| placed.lifetimes.storage[tensor.0 as usize];
    let outside: Vec<usize> = inputs.iter().chain(&outputs).filter_map(|tensor| storage(*tensor)).collect();
    let buffers = placed.lifetimes.buffers.iter().enumerate().filter(|(index, _)| !outside.contains(index));
    let buffers: Vec<Buffer> = buffers.map(|(_, buffer)| *buffer).collect();
    let reuse = match outputs.as_slice() {
        [output] => overwriting(&part, &placed, &inner, *output),
        _ => Reuse::Never,
    };
    Ok(Inside { scratch: pack(&buffers, &options)?.height, reuse })
}

/// How the only output may use an operand's bytes.
fn overwriting(part: &Part, placed: &Placed, sharing: &Sharing<'_>, output: TensorId) -> Reuse {
    let storage = |tensor: TensorId| placed.lifetimes.storage[tensor.0 as usize];
    let size = |tensor: TensorId| part.graph.tensor(tensor).ty.bytes();
    let operands: Vec<TensorId> = part.graph.operators().flat_map(|(_, o)| o.operands().collect::<Vec<_>>()).collect();
    let from_outside = |tensor: &&TensorId| part.graph.producer(**tensor).is_none();
    // Rules for the first operand are kept to operators with one: of several, the fused graph may name another first.
    let one = part.graph.inputs().count() == 1;
    let first = operands.iter().find(from_outside).copied().filter(|_| one);
    let Some(own) = storage(output) else { return Reuse::Never };
    if part.graph.inputs().any(|input| storage(input) == Some(own)) {
        let views = part.graph.operators().all(|(id, _)| (sharing.reuse)(id) == Reuse::View);
        return if views && first.and_then(storage) == Some(own) { Reuse::View } else { Reuse::Never };
    }
    let birth = placed.lifetimes.buffers[own].lower;
    let Some(writer) = placed.order.get(birth as usize).copied() else { return Reuse::Never };
    // The last step that reads an operand from outside, or a view of it.
    let last_read = |input: TensorId| {
        let reads = |id: &OperatorId| {
            part.graph.operator(*id).operands().any(|t| storage(t).is_some() && storage(t) == storage(input))
        };
        placed.order.iter().rposition(reads).unwrap_or(0) as u64
    };
    let free = |input: TensorId, rule: Reuse| {
        let last = last_read(input);
        last < birth || (last == birth && (sharing.reuse)(writer) == rule)
    };
    let mut rivals = part.graph.inputs().filter(|input| size(*input) == size(output)).peekable();
    match (rivals.peek().is_some(), first) {
        (true, _) if rivals.all(|input| free(input, Reuse::InPlace)) => Reuse::InPlace,
        (_, Some(first)) if storage(first).is_some() && size(first) >= size(output) && free(first, Reuse::First) => {
            Reuse::First
        }
        _ => Reuse::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Arg, Attrs, DType, Operator, Origin, TensorType};

    /// Operators as (name, operands): `x` and `y` are 0 and 1, results follow. 16 bytes each.
    fn inside_of(operators: &[(&str, &[u32])]) -> Inside {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[4]);
        for name in ["x", "y"] {
            graph.add_tensor(name, ty.clone(), Origin::Input);
        }
        for (name, reads) in operators {
            let args = reads.iter().map(|read| Arg::Tensor(TensorId(*read))).collect();
            let (name, attrs, outputs) = ((*name).into(), Attrs::new(), Vec::new());
            let operator = Operator { name, attrs, args, outputs, tuple_result: false, label: None, place: None };
            let id = graph.add_operator(operator, std::slice::from_ref(&ty));
            graph.outputs = graph.operator(id).outputs.clone();
        }
        let reuse = |id: OperatorId| match graph.operator(id).name.as_str() {
            "view" => Reuse::View,
            "map" => Reuse::InPlace,
            _ => Reuse::Never,
        };
        let workspace = |id: OperatorId| if graph.operator(id).name == "work" { Bytes(5) } else { Bytes::ZERO };
        let sharing = Sharing { reuse: &reuse, workspace: &workspace, align: 1 };
        let members: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
        inside(&graph, &members, &sharing).unwrap()
    }

    #[test]
    fn inner_tensors_count() {
        for (operators, scratch, reuse) in [
            // Written over the result itself, step by step; `x` is read by the first step only.
            (&[("map", &[0][..]), ("map", &[2])][..], 0, Reuse::InPlace),
            (&[("conv", &[0]), ("map", &[2])], 0, Reuse::Never),
            (&[("conv", &[0]), ("conv", &[2])], 16, Reuse::InPlace),
            (&[("work", &[0]), ("map", &[2])], 5, Reuse::Never),
            // `x` is read again after the first step, whose result lies in the last one's bytes.
            (&[("map", &[0]), ("map", &[2, 0])], 0, Reuse::Never),
            (&[("map", &[0]), ("conv", &[2]), ("map", &[3, 0])], 16, Reuse::Never),
            (&[("view", &[0]), ("view", &[2])], 0, Reuse::View),
            (&[("view", &[0]), ("map", &[2])], 0, Reuse::InPlace),
            (&[("conv", &[0]), ("map", &[2, 1])], 0, Reuse::Never),
        ] {
            assert_eq!(inside_of(operators), Inside { scratch: Bytes(scratch), reuse }, "{operators:?}");
        }
    }
}
