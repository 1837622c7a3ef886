//! How nodes and their operators are named in messages.

use crate::{
    error::{Message, shown},
    proto::NodeProto,
};

/// `ai.onnx` is another name of the default domain.
pub(crate) fn domain(domain: Option<&str>) -> &str {
    match domain {
        None | Some("ai.onnx") => "",
        Some(domain) => domain,
    }
}

/// The node in a message: its operator, and its name or that of its first result.
pub(crate) fn title(node: &NodeProto) -> String {
    let kind = shown(node.op_type.as_deref().unwrap_or_default());
    match (node.name.as_deref(), node.output.first()) {
        (Some(name), _) if !name.is_empty() => format!("{kind} `{}`", shown(name)),
        (_, Some(output)) => format!("{kind} that computes `{}`", shown(output)),
        _ => kind,
    }
}

/// Why an operator that no family has is refused.
pub(crate) fn unknown(domain: &str, kind: &str) -> Message {
    match domain {
        "" => format!("operator {} is not supported", shown(kind)),
        domain => format!("operator {} of domain {} is not supported", shown(kind), shown(domain)),
    }
}
