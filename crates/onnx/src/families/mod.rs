//! The registry of ONNX operators: one file a family, each with a table of names and functions. Those of ONNX Runtime's own
//! domain are in `contrib`.

mod activation;
mod attention;
mod constant;
mod contrib;
mod control;
mod conv;
mod elementwise;
mod gather;
mod grid;
mod linear;
mod loss;
mod norm;
mod pool;
mod qlinear;
mod quantize;
mod random;
mod recurrent;
mod reduce;
mod resize;
mod reverse;
mod scatter;
mod sequence;
mod shape;
mod slice;
mod sort;

use crate::lowering::{Entry, IsKept, Lower};

/// The names of operators, and how each is expressed.
type Operators = &'static [(&'static str, Lower)];

/// The operators of one family.
struct Family {
    domain: &'static str,
    operators: Operators,
    /// Whether a node stays one operator, with its lowering as the decomposition.
    is_kept: IsKept,
}

/// ONNX's own domain, as nodes have it.
const ONNX: &str = "";
/// The domain of ONNX Runtime's operators.
const MICROSOFT: &str = "com.microsoft";

const FAMILIES: &[Family] = &[
    lowered(activation::OPS),
    kept(ONNX, activation::COMPOSED_OPS),
    Family { domain: ONNX, operators: attention::OPS, is_kept: attention::is_kept },
    lowered(constant::OPS),
    lowered(control::OPS),
    lowered(conv::OPS),
    lowered(elementwise::OPS),
    lowered(gather::OPS),
    lowered(grid::OPS),
    lowered(linear::OPS),
    kept(ONNX, loss::OPS),
    Family { domain: ONNX, operators: norm::OPS, is_kept: norm::is_kept },
    lowered(pool::OPS),
    Family { domain: ONNX, operators: qlinear::OPS, is_kept: qlinear::is_kept },
    Family { domain: ONNX, operators: quantize::OPS, is_kept: quantize::is_kept },
    lowered(random::OPS),
    lowered(recurrent::OPS),
    lowered(reduce::OPS),
    lowered(resize::OPS),
    lowered(reverse::OPS),
    lowered(scatter::OPS),
    lowered(sequence::OPS),
    lowered(shape::OPS),
    lowered(slice::OPS),
    lowered(sort::OPS),
    kept(MICROSOFT, contrib::attention::OPS),
    kept(MICROSOFT, contrib::elementwise::OPS),
    kept(MICROSOFT, contrib::norm::OPS),
    kept(ONNX, contrib::norm::ONNX_OPS),
    kept(MICROSOFT, contrib::product::OPS),
    kept(MICROSOFT, pool::MICROSOFT_OPS),
    kept(MICROSOFT, recurrent::MICROSOFT_OPS),
];

/// A family of ONNX's own domain that is expressed by operators of the graph.
const fn lowered(operators: Operators) -> Family {
    Family { domain: ONNX, operators, is_kept: |_| false }
}

/// A family whose nodes stay one operator each.
const fn kept(domain: &'static str, operators: Operators) -> Family {
    Family { domain, operators, is_kept: |_| true }
}

/// The entry of an operator. In ONNX Runtime's domain, most operators of the default one are found too, unless the
/// domain defines its own of that name.
pub(crate) fn find(domain: &str, kind: &str) -> Option<Entry> {
    let within = |domain: &str| {
        let mut all = FAMILIES.iter().filter(|family| family.domain == domain);
        all.find_map(|family| {
            let (_, lower) = family.operators.iter().find(|(name, _)| *name == kind)?;
            Some(Entry { lower: *lower, is_kept: family.is_kept })
        })
    };
    match domain {
        MICROSOFT => within(MICROSOFT).or_else(|| within(ONNX)),
        ONNX => within(ONNX),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_distinguished() {
        let of = |domain: &str, kind: &str| find(domain, kind).map(|entry| entry.lower as usize);
        for kind in ["Attention", "RotaryEmbedding"] {
            assert!(of(ONNX, kind).is_some() && of(MICROSOFT, kind).is_some(), "{kind}");
            assert_ne!(of(ONNX, kind), of(MICROSOFT, kind), "{kind}");
        }
        assert_eq!(of(ONNX, "QLinearAdd"), of(MICROSOFT, "QLinearAdd"));
        assert!(of(ONNX, "FusedConv").is_none() && of("com.example", "Relu").is_none());
    }
}
