//! Scratch memory and storage reuse of a meta-operator.

use crate::{
    Buffer, PackOptions, Placement, StorageRules, pack,
    place::{self, PlaceError},
};
use edgecut_graph::{Alias, Graph, OperatorId, Part, TensorId, units::Bytes};

/// Effort of packing the inner tensors of one meta-operator.
const EFFORT: u64 = 100_000;

/// The memory behaviour of a meta-operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FusedFootprint {
    /// The arena of its inner tensors and workspaces.
    pub scratch: Bytes,
    pub alias: Alias,
}

/// The footprint of the operators `members` of `graph` as one meta-operator, in the best order found for them.
///
/// Its result may overwrite an operand only if no member reads the operand after the first that writes to the result's
/// storage.
///
/// # Errors
/// If a size is unknown.
pub(crate) fn fused_footprint(
    graph: &Graph,
    members: &[OperatorId],
    rules: &StorageRules<'_>,
) -> Result<FusedFootprint, PlaceError> {
    if let [single] = members {
        return Ok(FusedFootprint { scratch: (rules.workspace)(*single), alias: (rules.alias)(*single) });
    }
    let mut part = Part::cut(graph, members);
    let (inputs, outputs): (Vec<TensorId>, Vec<TensorId>) = (part.graph.inputs().collect(), part.graph.outputs.clone());
    // Outputs are never overwritten, so that operands stay intact.
    part.graph.outputs.extend(&inputs);
    let whole = |id: OperatorId| part.whole_operator[id.0 as usize];
    // Concatenation elision applies outside of meta-operators only.
    let alias = |id: OperatorId| Some((rules.alias)(whole(id))).filter(|r| *r != Alias::Concat).unwrap_or(Alias::Never);
    let workspace = |id: OperatorId| (rules.workspace)(whole(id));
    let inner = StorageRules { alias: &alias, workspace: &workspace, align: rules.align };
    let options = PackOptions { capacity: None, effort: EFFORT };
    let placed = place::best_placement(&part.graph, &inner, &options)?.best;
    let storage = |tensor: TensorId| placed.lifetimes.storage[tensor.0 as usize];
    let outside: Vec<usize> = inputs.iter().chain(&outputs).filter_map(|tensor| storage(*tensor)).collect();
    let buffers = placed.lifetimes.buffers.iter().enumerate().filter(|(index, _)| !outside.contains(index));
    let buffers: Vec<Buffer> = buffers.map(|(_, buffer)| *buffer).collect();
    let alias = match outputs.as_slice() {
        [output] => overwriting(&part, &placed, &inner, *output),
        _ => Alias::Never,
    };
    Ok(FusedFootprint { scratch: pack(&buffers, &options)?.height, alias })
}

/// The storage reuse of a single output.
fn overwriting(part: &Part, placed: &Placement, rules: &StorageRules<'_>, output: TensorId) -> Alias {
    let storage = |tensor: TensorId| placed.lifetimes.storage[tensor.0 as usize];
    let size = |tensor: TensorId| part.graph.tensor(tensor).ty.bytes();
    let operands: Vec<TensorId> = part.graph.operators().flat_map(|(_, o)| o.operands().collect::<Vec<_>>()).collect();
    let from_outside = |tensor: &&TensorId| part.graph.producer(**tensor).is_none();
    // Only with one operand is the first operand certain: contraction may reorder several.
    let one = part.graph.inputs().count() == 1;
    let first = operands.iter().find(from_outside).copied().filter(|_| one);
    let Some(own) = storage(output) else { return Alias::Never };
    if part.graph.inputs().any(|input| storage(input) == Some(own)) {
        let views = part.graph.operators().all(|(id, _)| (rules.alias)(id) == Alias::View);
        return if views && first.and_then(storage) == Some(own) { Alias::View } else { Alias::Never };
    }
    let birth = placed.lifetimes.buffers[own].lower;
    let Some(writer) = placed.order.get(birth as usize).copied() else { return Alias::Never };
    // The last step that reads an operand or a view of it.
    let last_read = |input: TensorId| {
        let reads = |id: &OperatorId| {
            part.graph.operator(*id).operands().any(|t| storage(t).is_some() && storage(t) == storage(input))
        };
        placed.order.iter().rposition(reads).unwrap_or(0) as u64
    };
    let free = |input: TensorId, rule: Alias| {
        let last = last_read(input);
        last < birth || (last == birth && (rules.alias)(writer) == rule)
    };
    let mut rivals = part.graph.inputs().filter(|input| size(*input) == size(output)).peekable();
    match (rivals.peek().is_some(), first) {
        (true, _) if rivals.all(|input| free(input, Alias::InPlace)) => Alias::InPlace,
        (_, Some(first))
            if storage(first).is_some() && size(first) >= size(output) && free(first, Alias::InPlaceFirst) =>
        {
            Alias::InPlaceFirst
        }
        _ => Alias::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{DType, Operator, Origin, TensorType};

    /// Operators as (name, operands): `x` and `y` are 0 and 1, results follow. 16 bytes each.
    fn inside_of(operators: &[(&str, &[u32])]) -> FusedFootprint {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[4]);
        for name in ["x", "y"] {
            graph.add_tensor(name, ty.clone(), Origin::Input);
        }
        for (name, reads) in operators {
            let operator = Operator::new(*name, reads.iter().map(|read| TensorId(*read)));
            let id = graph.add_operator(operator, std::slice::from_ref(&ty));
            graph.outputs = graph.operator(id).outputs.clone();
        }
        let alias = |id: OperatorId| match graph.operator(id).name.as_str() {
            "view" => Alias::View,
            "map" => Alias::InPlace,
            _ => Alias::Never,
        };
        let workspace = |id: OperatorId| if graph.operator(id).name == "work" { Bytes(5) } else { Bytes::ZERO };
        let rules = StorageRules { alias: &alias, workspace: &workspace, align: 1 };
        let members: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
        fused_footprint(&graph, &members, &rules).unwrap()
    }

    #[test]
    fn inner_tensors_count() {
        for (operators, scratch, alias) in [
            // In place in the result, step by step; only the first step reads `x`.
            (&[("map", &[0][..]), ("map", &[2])][..], 0, Alias::InPlace),
            (&[("conv", &[0]), ("map", &[2])], 0, Alias::Never),
            (&[("conv", &[0]), ("conv", &[2])], 16, Alias::InPlace),
            (&[("work", &[0]), ("map", &[2])], 5, Alias::Never),
            // `x` is read after the first step, whose result shares storage with the last.
            (&[("map", &[0]), ("map", &[2, 0])], 0, Alias::Never),
            (&[("map", &[0]), ("conv", &[2]), ("map", &[3, 0])], 16, Alias::Never),
            (&[("view", &[0]), ("view", &[2])], 0, Alias::View),
            (&[("view", &[0]), ("map", &[2])], 0, Alias::InPlace),
            (&[("conv", &[0]), ("map", &[2, 1])], 0, Alias::Never),
        ] {
            assert_eq!(inside_of(operators), FusedFootprint { scratch: Bytes(scratch), alias }, "{operators:?}");
        }
    }
}
