//! Which inputs of a model are states: by the names of caches, or as options say.

use edgecut_graph::{Graph, StateError, StatePair};
use smol_str::{SmolStr, format_smolstr};

use super::config::{InputNames, OutputNames, layer};

/// The states of a model: those that are `named`, and inputs with names of caches by `patterns` whose sizes do not change.
///
/// # Errors
/// If a named one is no state of the model.
pub(super) fn states_of(
    graph: &Graph,
    named: &[StatePair],
    patterns: Option<(&InputNames, &OutputNames)>,
) -> Result<Vec<StatePair>, StateError> {
    graph.states(named)?;
    let outputs: Vec<SmolStr> = graph.outputs.iter().map(|id| graph.tensor(*id).name.clone()).collect();
    let of = |input: &SmolStr| {
        let explicit = named.iter().find(|state| state.input == *input).cloned();
        let known = || state_by_name(input, &outputs, patterns?).filter(|state| graph.state(state).is_ok());
        explicit.or_else(known)
    };
    Ok(graph.inputs().filter_map(|id| of(&graph.tensor(id).name)).collect())
}

/// The state of the input `name`, if it has the name of a cache; `outputs` are the names of the outputs.
pub(super) fn state_by_name(
    name: &str,
    outputs: &[SmolStr],
    patterns: (&InputNames, &OutputNames),
) -> Option<StatePair> {
    let (of_inputs, of_outputs) = patterns;
    let configured = [
        (&of_inputs.past_key_names, &of_outputs.present_key_names),
        (&of_inputs.past_value_names, &of_outputs.present_value_names),
    ];
    let configured = configured
        .into_iter()
        .find_map(|(past, present)| Some(SmolStr::from(present.replacen("%d", layer(name, past)?, 1))));
    // As Optimum (`past_key_values`) and others export them.
    let usual = ["past_key_values", "past"]
        .into_iter()
        .filter_map(|past| Some(format_smolstr!("present{}", name.strip_prefix(past)?)));
    let output = configured.into_iter().chain(usual).find(|output| outputs.contains(output))?;
    Some(StatePair { input: name.into(), output })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_known_by_their_names() {
        let patterns = (&InputNames::default(), &OutputNames::default());
        let outputs = ["logits", "present.0.key", "present.10.value", "present_key_1"].map(SmolStr::from);
        for (input, output) in [
            ("past_key_values.0.key", Some("present.0.key")),
            ("past_key_values.10.value", Some("present.10.value")),
            ("past_key_values.1.key", None),
            ("past_key_1", Some("present_key_1")),
            ("input_ids", None),
        ] {
            let state = state_by_name(input, &outputs, patterns);
            assert_eq!(state.as_ref().map(|state| state.output.as_str()), output, "{input}");
        }
    }
}
