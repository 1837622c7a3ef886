//! tract kernels for composite operators whose decompositions take a multiple of the time or memory.
//!
//! A decomposition says what an operator computes and how it is split. A kernel computes the same, within float tolerance, in
//! one function. It supports the common calls of its operator; the others are decomposed.
//!
//! To add a kernel, add its file and an entry of [`KERNELS`].

mod definition;
mod grouped_attention;
pub mod int8_activations;
mod packed_matmul;

use edgecut_graph::{Graph, Operator, Type};

use self::definition::CompositeKernel;
use crate::{Call, OpDef, Typed};

static KERNELS: &[CompositeKernel] = &[grouped_attention::KERNEL, packed_matmul::KERNEL];

/// The kernel of the composite `operator`; `None` if it is not composite, has no kernel, or the kernel does not support the
/// call. Of the definition, only the name and the kernel have a meaning.
pub fn composite_kernel(graph: &Graph, operator: &Operator) -> Option<&'static OpDef> {
    operator.decomposition.as_ref()?;
    let CompositeKernel { def, supports } = KERNELS.iter().find(|kernel| kernel.def.name == operator.name)?;
    let (args, out) = (graph.arg_types(operator), graph.result_type(operator));
    let is_fixed = |ty: &Type| ty.tensors().iter().all(|tensor| tensor.shape.fixed().is_some());
    let is_tensor = |ty: &Type| matches!(ty, Type::Tensor(_));
    let typed = Typed { call: Call { def, attrs: &operator.attrs, args: &args, values: &[] }, out: &out };
    (args.iter().all(is_fixed) && args.iter().all(is_tensor) && is_fixed(&out) && supports(&typed) == Some(true))
        .then_some(def)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use edgecut_graph::{Arg, Attr, DType, Origin, TensorType};

    use super::*;
    use crate::OMITTED_INPUTS;

    /// Whether an operator with operands and results of these types has a kernel.
    fn has_kernel(
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
        let operator =
            Operator::new(name, operands).with_attrs(attrs.chain([(OMITTED_INPUTS.into(), omitted)]).collect());
        let results: Vec<TensorType> = out.iter().map(|sizes| TensorType::of(args[0].0, sizes)).collect();
        let id = graph.add_operator(operator, &results);
        assert!(composite_kernel(&graph, graph.operator(id)).is_none(), "it is not composite");
        graph.operator_mut(id).decomposition = Some(Arc::new(Graph::new()));
        composite_kernel(&graph, graph.operator(id)).is_some()
    }

    #[test]
    fn matmul_nbits_supports_float32() {
        use DType::{F16, F32, I32, U8};
        let attrs = [("N", 6), ("K", 56), ("bits", 4), ("block_size", 32)];
        let [x, w, s, z] = [(F32, &[3, 56][..]), (U8, &[6, 2, 16]), (F32, &[12]), (U8, &[6, 1])];
        let supported = |attrs: &[(&str, i64)], omitted: &[i64], args: &[(DType, &[u64])]| {
            has_kernel("com.microsoft.MatMulNBits", attrs, omitted, args, &[&[3, 6]])
        };
        let prepacked: Vec<_> = attrs.into_iter().chain([("weight_prepacked", 1)]).collect();
        for (expected, attrs, omitted, args) in [
            (true, &attrs[..], &[][..], &[x, w, s][..]),
            (true, &attrs, &[], &[x, w, s, z]),
            (true, &attrs, &[3, 4], &[x, w, s, (F32, &[6])]),
            (false, &attrs, &[3, 4], &[x, w, s, (F32, &[6, 1])]),
            (false, &attrs, &[3], &[x, w, s, (I32, &[64])]),
            (false, &attrs, &[], &[(F16, x.1), w, (F16, s.1)]),
            (false, &attrs, &[], &[x, w, s, (F32, &[6, 2])]),
            (false, &attrs, &[], &[x, w, (F32, &[6])]),
            (false, &prepacked, &[], &[x, w, s]),
            (false, &attrs[..3], &[], &[x, w, s]),
        ] {
            assert_eq!(supported(attrs, omitted, args), expected, "{attrs:?} {omitted:?} {args:?}");
        }
        // A block may be much larger than a row.
        let of_block = |block: u64, dims: &[u64]| {
            let attrs = [("N", 1), ("K", 32), ("bits", 8), ("block_size", block as i64)];
            has_kernel(
                "com.microsoft.MatMulNBits",
                &attrs,
                &[],
                &[(F32, &[4, 32]), (U8, dims), (F32, &dims[1..2])],
                &[&[4, 1]],
            )
        };
        assert!(of_block(1 << 20, &[1, 1, 1 << 20]) && of_block(24, &[1, 2, 24]));
        assert!(
            !of_block(4, &[1, 8, 4]) && !of_block(384, &[1, 1, 384]),
            "a block of 4 bytes, and one of 1.5 blocks of activations"
        );
        let short = [("N", 1), ("K", 1), ("bits", 8), ("block_size", 16)];
        let args = [(F32, &[4, 1][..]), (U8, &[1, 1, 16]), (F32, &[1])];
        assert!(
            !has_kernel("com.microsoft.MatMulNBits", &short, &[], &args, &[&[4, 1]]),
            "padding would multiply the rows"
        );
    }

    #[test]
    fn grouped_attention_supports_float32() {
        use DType::{F16, F32, I32};
        let attrs = [("num_heads", 4), ("kv_num_heads", 2), ("do_rotary", 1)];
        let cache: &[u64] = &[1, 2, 8, 16];
        let [lengths, angles] = [(I32, &[1][..]), (F32, &[8, 8][..])];
        let supported = |attrs: &[(&str, i64)], dtype: DType, more: &[(DType, &[u64])]| {
            let mut args = vec![(dtype, &[1, 1, 128][..]), (dtype, cache), (dtype, cache), lengths, (I32, &[])];
            args.extend_from_slice(more);
            has_kernel("com.microsoft.GroupQueryAttention", attrs, &[1, 2], &args, &[&[1, 1, 64], cache, cache])
        };
        assert!(supported(&attrs, F32, &[angles, angles]));
        assert!(supported(&attrs[..2], F32, &[]));
        assert!(!supported(&attrs, F32, &[]), "it has no angles");
        assert!(!supported(&attrs, F16, &[angles, angles]));
        assert!(!supported(&attrs, F32, &[angles, angles, (I32, &[1, 1])]), "positions are given");
        assert!(!supported(&[("num_heads", 3), ("kv_num_heads", 2)], F32, &[]));
        assert!(!supported(&attrs, F32, &[angles, (F32, &[8, 1])]), "the tables differ");
        for (query, value) in [(&[1, 1, 130][..], cache), (&[1, 1, 128], &[1, 2, 16, 16])] {
            let args = [(F32, query), (F32, cache), (F32, value), lengths, (I32, &[])];
            let results = [&[1, 1, 64][..], cache, cache];
            assert!(
                !has_kernel("com.microsoft.GroupQueryAttention", &attrs[..2], &[1, 2], &args, &results),
                "{query:?}"
            );
        }
    }
}
