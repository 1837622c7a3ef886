//! The seed of an operator that draws random numbers, where the file has none: a function of its result's name, so that
//! runs are reproducible and two operators draw different numbers.

use crate::proto::{AttributeProto, NodeProto, attribute_proto::AttributeType};

/// Operators that stay as they are in the file and draw random numbers.
const DRAWING: &[&str] = &["Multinomial"];

/// The first 24 bits of the hash (BLAKE3) of the first result's name: a float holds them.
pub(crate) fn seed(node: &NodeProto) -> f64 {
    let name = node.output.first().map(String::as_str).unwrap_or_default();
    let [a, b, c, ..] = *blake3::hash(name.as_bytes()).as_bytes();
    f64::from(u32::from_le_bytes([a, b, c, 0]))
}

/// The `seed` attribute that a node of the default domain lacks to draw the same numbers in every session.
pub(crate) fn missing_seed(node: &NodeProto) -> Option<AttributeProto> {
    let has_seed = || node.attribute.iter().any(|attribute| attribute.name.as_deref() == Some("seed"));
    let is_drawing = matches!(node.domain.as_deref(), None | Some("" | "ai.onnx"))
        && DRAWING.contains(&node.op_type.as_deref().unwrap_or_default());
    (is_drawing && !has_seed()).then(|| AttributeProto {
        name: Some("seed".to_string()),
        f: Some(seed(node) as f32),
        r#type: Some(AttributeType::Float.into()),
        ..AttributeProto::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_models::node;

    #[test]
    fn results_of_other_names_have_other_seeds() {
        let of = |name| seed(&node("RandomNormal", &[], &[name], Vec::new()));
        assert_eq!(of("noise"), of("noise"));
        assert_ne!(of("noise"), of("noise_1"));
        assert!(of("noise") < f64::from(1 << 24));
        let drawing = node("Multinomial", &["x"], &["y"], Vec::new());
        let seeded = node("Multinomial", &["x"], &["y"], missing_seed(&drawing).into_iter().collect());
        assert!(seeded.attribute.len() == 1 && missing_seed(&seeded).is_none());
    }
}
