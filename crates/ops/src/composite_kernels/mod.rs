//! Kernels of composite operators, for those that their decompositions compute much slower or in much more memory.
//!
//! A decomposition says what an operator computes and how it is split; a kernel computes the same as one function. It
//! covers the common calls of its operator, and leaves the others to the decomposition.
//!
//! To add a kernel, add its file and a line in [`KERNELS`].

mod grouped_attention;
mod packed_matmul;

use edgecut_graph::{Attr, Graph, Operator, TensorType, Type};

use crate::{Call, OpDef, TypeError, Typed};

/// The attribute of a composite operator that lists which optional inputs of its node are omitted, by number.
pub const OMITTED: &str = "onnx.omitted";

static KERNELS: &[CompositeKernel] = &[grouped_attention::KERNEL, packed_matmul::KERNEL];

/// The kernel of a composite operator.
struct CompositeKernel {
    /// Of its members, only the name and the kernel are used.
    def: OpDef,
    /// Whether the kernel computes the call. All shapes are known.
    covers: fn(&Typed<'_>) -> Option<bool>,
}

/// The kernel that computes the composite `operator`; `None` if its decomposition does, or it is not composite.
pub fn composite_kernel(graph: &Graph, operator: &Operator) -> Option<&'static OpDef> {
    operator.decomposition.as_ref()?;
    let CompositeKernel { def, covers } = KERNELS.iter().find(|kernel| kernel.def.name == operator.name)?;
    let (args, out) = (graph.arg_types(operator), graph.result_type(operator));
    let is_fixed = |ty: &Type| ty.tensors().iter().all(|tensor| tensor.shape.fixed().is_some());
    let typed = Typed { call: Call { def, attrs: &operator.attrs, args: &args, values: &[] }, out: &out };
    (args.iter().all(is_fixed) && is_fixed(&out) && covers(&typed) == Some(true)).then_some(def)
}

/// The type relation of the definitions here: the types of composite operators are those of their decompositions.
fn no_type(call: &Call<'_>) -> Result<Type, TypeError> {
    Err(call.error("its type follows from its decomposition"))
}

impl<'a> Call<'a> {
    /// The position among the arguments of input `index` of the node; `None` if it is omitted.
    fn place_of_input(&self, index: usize) -> Option<usize> {
        let omitted = match self.attrs.get(OMITTED) {
            Some(Attr::List(list)) => &list[..],
            _ => &[],
        };
        let is_before = |other: &&Attr| other.int().is_some_and(|other| other < index as i64);
        let is_omitted = omitted.iter().any(|other| other.int() == Some(index as i64));
        let place = index.checked_sub(omitted.iter().filter(is_before).count())?;
        (!is_omitted && place < self.args.len()).then_some(place)
    }

    /// The type of input `index` of the node.
    fn input_type(&self, index: usize) -> Option<&'a TensorType> {
        self.tensor(self.place_of_input(index)?).ok()
    }

    /// Whether the integer attributes `names` are 0 or absent.
    fn are_unset(&self, names: &[&str]) -> bool {
        names.iter().all(|name| matches!(self.int(name, 0), Ok(0)))
    }
}

/// The sizes of a type that is fixed.
fn sizes(ty: &TensorType) -> Option<Vec<usize>> {
    ty.shape.fixed().map(|sizes| sizes.iter().map(|size| *size as usize).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use edgecut_graph::{Arg, DType, Origin};

    use super::*;

    /// Whether a kernel covers an operator with operands and results of these types.
    fn is_covered(
        name: &str,
        attrs: &[(&str, i64)],
        omitted: &[i64],
        args: &[(DType, &[u64])],
        out: &[&[u64]],
    ) -> bool {
        let mut graph = Graph::new();
        let tensor = |(dtype, sizes): &(DType, &[u64])| TensorType::of(*dtype, sizes);
        let operands: Vec<Arg> =
            args.iter().map(|arg| Arg::Tensor(graph.add_tensor("x", tensor(arg), Origin::Input))).collect();
        let omitted = Attr::List(omitted.iter().map(|index| Attr::Int(*index)).collect());
        let attrs = attrs.iter().map(|(name, value)| ((*name).into(), Attr::Int(*value)));
        let operator = Operator::new(name, operands).with_attrs(attrs.chain([(OMITTED.into(), omitted)]).collect());
        let results: Vec<TensorType> = out.iter().map(|sizes| TensorType::of(args[0].0, sizes)).collect();
        let id = graph.add_operator(operator, &results);
        assert!(composite_kernel(&graph, graph.operator(id)).is_none(), "it is not composite");
        graph.operator_mut(id).decomposition = Some(Arc::new(Graph::new()));
        composite_kernel(&graph, graph.operator(id)).is_some()
    }

    #[test]
    fn products_with_packed_weights_are_covered_in_single_precision() {
        use DType::{F16, F32, I32, U8};
        let attrs = [("N", 6), ("K", 56), ("bits", 4), ("block_size", 32)];
        let [x, w, s, z] = [(F32, &[3, 56][..]), (U8, &[6, 2, 16]), (F32, &[12]), (U8, &[6, 1])];
        let covered = |attrs: &[(&str, i64)], omitted: &[i64], args: &[(DType, &[u64])]| {
            is_covered("com.microsoft.MatMulNBits", attrs, omitted, args, &[&[3, 6]])
        };
        let prepacked: Vec<_> = attrs.into_iter().chain([("weight_prepacked", 1)]).collect();
        for (is_usual, attrs, omitted, args) in [
            (true, &attrs[..], &[][..], &[x, w, s][..]),
            (true, &attrs, &[], &[x, w, s, z]),
            (true, &attrs, &[3, 4], &[x, w, s, (F32, &[6])]),
            (false, &attrs, &[3], &[x, w, s, (I32, &[64])]),
            (false, &attrs, &[], &[(F16, x.1), w, (F16, s.1)]),
            (false, &attrs, &[], &[x, w, s, (F32, &[6, 2])]),
            (false, &attrs, &[], &[x, w, (F32, &[6])]),
            (false, &prepacked, &[], &[x, w, s]),
            (false, &attrs[..3], &[], &[x, w, s]),
        ] {
            assert_eq!(covered(attrs, omitted, args), is_usual, "{attrs:?} {omitted:?} {args:?}");
        }
    }

    #[test]
    fn grouped_attention_is_covered_in_single_precision() {
        use DType::{F16, F32, I32};
        let attrs = [("num_heads", 4), ("kv_num_heads", 2), ("do_rotary", 1)];
        let cache: &[u64] = &[1, 2, 8, 16];
        let [lengths, angles] = [(I32, &[1][..]), (F32, &[8, 8][..])];
        let covered = |attrs: &[(&str, i64)], dtype: DType, more: &[(DType, &[u64])]| {
            let mut args = vec![(dtype, &[1, 1, 128][..]), (dtype, cache), (dtype, cache), lengths, (I32, &[])];
            args.extend_from_slice(more);
            is_covered("com.microsoft.GroupQueryAttention", attrs, &[1, 2], &args, &[&[1, 1, 64], cache, cache])
        };
        assert!(covered(&attrs, F32, &[angles, angles]));
        assert!(covered(&attrs[..2], F32, &[]));
        assert!(!covered(&attrs, F32, &[]), "it has no angles");
        assert!(!covered(&attrs, F16, &[angles, angles]));
        assert!(!covered(&attrs, F32, &[angles, angles, (I32, &[1, 1])]), "positions are given");
        assert!(!covered(&[("num_heads", 3), ("kv_num_heads", 2)], F32, &[]));
    }
}
