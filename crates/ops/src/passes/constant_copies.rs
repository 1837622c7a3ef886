//! Copies of operators that depend on parameters alone, such as the transposition of a weight: every shard that reads such a
//! result computes what it needs of it when its parameters are loaded, and nothing of it is sent.
//!
//! A slice of a result is computed from slices of the parameters where the operators in between can be split so, as the
//! columns of a transposed weight are from its rows.

use edgecut_graph::{Graph, Operator, OperatorId, Origin, TensorId, constant_operators};

use crate::passes::{
    axes::axes,
    rewriter::{ConstantRead, GraphRewriter, Role, ShardTensor, map_args, undefined},
    shard::{ShardCall, Slice, SplitError},
};

impl GraphRewriter<'_> {
    /// Makes all operators that depend on parameters alone copied ones.
    pub fn copy_constants(&mut self) {
        self.copied = constant_operators(self.original);
    }

    /// Whether `operator` is written where its results are read, and nowhere else.
    pub fn is_copied_operator(&self, operator: OperatorId) -> bool {
        self.copied.get(operator.0 as usize) == Some(&true)
    }

    /// Whether `tensor` is a result of such an operator.
    pub fn is_copied(&self, tensor: TensorId) -> bool {
        self.original.producer(tensor).is_some_and(|operator| self.is_copied_operator(operator))
    }

    /// The tensor of a copied operator, or a slice of it, for the reader that has this role.
    pub fn copy_constant(
        &mut self,
        tensor: TensorId,
        need: Option<&Slice>,
        role: Role,
    ) -> Result<TensorId, SplitError> {
        // Unlike slices and joins, it takes no time in a run.
        let role = match role {
            Role::Prepare(shard) => Role::Compute(shard),
            other => other,
        };
        let wanted = ConstantRead { tensor, need: need.cloned(), role };
        let mut open = vec![wanted.clone()];
        while let Some(demand) = open.last().cloned() {
            let missing = match self.copies.contains_key(&demand) {
                true => Vec::new(),
                false => self.write_copy(demand)?,
            };
            if missing.is_empty() {
                open.pop();
            }
            open.extend(missing);
        }
        self.copies.get(&wanted).copied().ok_or_else(|| undefined(tensor))
    }

    /// Writes what is demanded, unless copies that it reads are not written yet: these are returned.
    fn write_copy(&mut self, demand: ConstantRead) -> Result<Vec<ConstantRead>, SplitError> {
        let ConstantRead { tensor, need, role } = demand.clone();
        let Origin::Operator { operator: id, index } = self.original.tensor(tensor).origin else {
            return Err(undefined(tensor));
        };
        let operator = self.original.operator(id);
        let copy = match &need {
            None => Some(whole(self.original, operator)),
            Some(need) => sliced(self.original, operator, index as usize, need),
        };
        let Some(copy) = copy else {
            // Computed whole, then sliced.
            let whole = ConstantRead { need: None, ..demand.clone() };
            let Some(written) = self.copies.get(&whole).copied() else { return Ok(vec![whole]) };
            let slice = self.slice(ShardTensor { tensor: written, producer: None }, need.as_ref(), role)?;
            self.copies.insert(demand, slice);
            return Ok(Vec::new());
        };
        let demands = operator.operands().zip(&copy.operands).filter_map(|(tensor, need)| {
            let demand = ConstantRead { tensor, need: need.clone(), role };
            let missing = self.is_copied(tensor) && !self.copies.contains_key(&demand);
            missing.then_some(demand)
        });
        let missing: Vec<ConstantRead> = demands.collect();
        if missing.is_empty() {
            let mut new = operator.clone();
            new.args = map_args(operator, &copy.operands, |tensor, need| self.read(tensor, need, role))?;
            let types = copy.apply(&mut new);
            let outputs = self.add(new, &types, role);
            let result = *outputs.get(index as usize).ok_or_else(|| undefined(tensor))?;
            self.out.graph.tensor_mut(result).name = self.name_of(tensor, need.as_ref());
            self.copies.insert(demand, result);
        }
        Ok(missing)
    }
}

/// The operator as its own only shard.
fn whole(graph: &Graph, operator: &Operator) -> ShardCall {
    ShardCall {
        attrs: operator.attrs.clone(),
        operands: vec![None; operator.operands().count()],
        types: operator.outputs.iter().map(|output| graph.tensor(*output).ty.clone()).collect(),
        decomposition: operator.decomposition.clone(),
    }
}

/// The shard of `operator` whose result number `index` is the slice `need` of the whole one; `None` if it has no such shard.
fn sliced(graph: &Graph, operator: &Operator, index: usize, need: &Slice) -> Option<ShardCall> {
    let range = need.begin..need.end;
    let ty = &graph.tensor(*operator.outputs.get(index)?).ty;
    let axis = axes(graph, operator).into_iter().find(|axis| {
        let is_along = need.packed.is_none() && axis.aligned_output_axis(index, ty) == Some(need.axis);
        let on_grain = |at: u64| at.is_multiple_of(axis.grain) || at == axis.size;
        is_along && on_grain(range.start) && on_grain(range.end)
    })?;
    axis.shard(graph, operator, &range).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use edgecut_graph::{Attr, Attrs, DType, TensorType};

    use super::*;
    use crate::passes::shard_graph::{Sharding, shard_graph};

    /// `nn.dense(x, transpose(w))`, and what a division along each axis of the result slices of `w`.
    #[test]
    fn shards_transpose_the_part_of_a_weight_that_they_need() {
        let mut graph = Graph::new();
        let ty = |shape: &[u64]| TensorType::of(DType::F32, shape);
        let x = graph.add_tensor("x", ty(&[6, 4]), Origin::Input);
        let w = graph.add_tensor("w", ty(&[4, 8]), Origin::Parameter);
        let attrs: Attrs = [("axes".into(), Attr::List([Attr::Int(1), Attr::Int(0)].into()))].into_iter().collect();
        let transposed = graph.add_operator(Operator::new("transpose", [w]).with_attrs(attrs), &[ty(&[8, 4])]);
        let operands = [x, graph.operator(transposed).outputs[0]];
        let dense = graph.add_operator(Operator::new("nn.dense", operands), &[ty(&[6, 8])]);
        graph.outputs = graph.operator(dense).outputs.clone();
        for (axis, cuts, shapes) in [(0, vec![0, 2, 6], [[8, 4], [8, 4]]), (1, vec![0, 2, 8], [[2, 4], [6, 4]])] {
            let made = shard_graph(&graph, &[], &BTreeMap::from([(dense, Sharding::disjoint(axis, cuts))])).unwrap();
            let copies = made.graph.operators().zip(&made.roles).filter(|((_, o), _)| o.name == "transpose");
            let found: Vec<(u32, Vec<u64>)> = copies
                .map(|((_, operator), role)| {
                    let Role::Compute(shard) = role else { panic!("{role:?}") };
                    assert_eq!(shard.operator, dense);
                    (shard.index, made.graph.tensor(operator.outputs[0]).ty.shape.fixed().unwrap().to_vec())
                })
                .collect();
            let expected: Vec<(u32, Vec<u64>)> = (0..).zip(shapes.map(|shape| shape.to_vec())).collect();
            assert_eq!(found, expected, "axis {axis}");
        }
    }
}
