//! Adapts a plan to the same model with other sizes. Weights and states stay on their devices, so that a decoder reads its prompt in
//! longer steps by the plan that generates its tokens.

use edgecut_graph::{Graph, Origin};
use edgecut_ops::passes::axes::counterpart;

use super::file::{Plan, Split};

/// Why a plan does not fit the model with other sizes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResizedError {
    #[error("in steps of several tokens, the model has other operators")]
    Operators,
    #[error("in steps of several tokens, parameter {0} has another type")]
    Parameter(String),
    #[error("in steps of several tokens, {0} has no such split")]
    Split(String),
    #[error("the plan has memory schedules, which are for steps of one token")]
    Schedules,
}

/// `plan` of `graph` for `other`, the same model with other sizes. Each operator is split along the axis that cuts the same dimensions
/// at the same positions, with the same tiles. Times, memory and transfers remain those of `plan`.
///
/// # Errors
/// If operators or parameters are others, or an operator has no such axis.
pub fn resized(plan: &Plan, graph: &Graph, other: &Graph) -> Result<Plan, ResizedError> {
    if !plan.schedules.is_empty() {
        return Err(ResizedError::Schedules);
    }
    check_same_operators(graph, other)?;
    let mut parameters = graph.parameters().map(|id| (graph.tensor(id), other.tensor(id)));
    let differs = parameters.find(|(one, other)| matches!(one.origin, Origin::Parameter) && one.ty != other.ty);
    if let Some((parameter, _)) = differs {
        return Err(ResizedError::Parameter(parameter.name.to_string()));
    }
    let split = |split: &Split| {
        if split.operator.0 as usize >= graph.operators().len() {
            return Err(ResizedError::Split(format!("operator {}", split.operator.0)));
        }
        let (one, of_other) = (graph.operator(split.operator), other.operator(split.operator));
        let axis = counterpart((graph, one), split.axis, (other, of_other));
        let axis = axis.ok_or_else(|| ResizedError::Split(graph.unique_name(split.operator).to_string()))?;
        Ok(Split { axis, ..split.clone() })
    };
    let splits = plan.splits.iter().map(split).collect::<Result<_, _>>()?;
    Ok(Plan { splits, ..plan.clone() })
}

/// Checks that both graphs have the same operators on the same tensors, but for types and attributes.
///
/// # Errors
/// If they have not.
pub fn check_same_operators(graph: &Graph, other: &Graph) -> Result<(), ResizedError> {
    let operators = |graph: &Graph| {
        let operators = graph.operators();
        let of = |(_, operator): (_, &edgecut_graph::Operator)| {
            (operator.name.clone(), operator.operands().collect::<Vec<_>>(), operator.outputs.clone())
        };
        operators.map(of).collect::<Vec<_>>()
    };
    let declared = |graph: &Graph| {
        let tensors = graph.inputs().chain(graph.parameters());
        tensors.map(|id| (id, graph.tensor(id).name.clone())).collect::<Vec<_>>()
    };
    let is_same =
        operators(graph) == operators(other) && declared(graph) == declared(other) && graph.outputs == other.outputs;
    if is_same { Ok(()) } else { Err(ResizedError::Operators) }
}

#[cfg(test)]
mod tests {
    use edgecut_graph::OperatorId;
    use edgecut_relay::{ImportOptions, import};

    use super::*;
    use crate::{
        plan_file::planned_graph::divided,
        problem::DeviceId,
        testing::{CONVOLUTIONS, with_request},
    };

    #[test]
    fn tiles_are_those_of_the_same_axis() {
        let batch = CONVOLUTIONS.replace("(1, 16, 64, 64)", "(3, 16, 64, 64)");
        let text = format!("#[version = \"0.0.5\"]\n{batch}");
        let other = import("model", text.as_bytes(), &ImportOptions::default()).unwrap().graph;
        with_request(CONVOLUTIONS, &[1000.0, 1000.0], |request| {
            let graph = request.instance.split_options.graph;
            let mut plan = crate::plan(&request).unwrap().to_plan(&request).unwrap();
            let operator = OperatorId(0);
            let rows = |graph: &Graph| {
                let mut axes = edgecut_ops::passes::axes::axes(graph, graph.operator(operator)).into_iter();
                axes.position(|axis| axis.size == 64).unwrap()
            };
            plan.splits = vec![Split {
                operator,
                axis: rows(graph),
                cuts: vec![0, 32, 64],
                tiles: vec![0..33, 31..64],
                packed: None,
                devices: vec![DeviceId(0), DeviceId(1)],
            }];
            assert_ne!(rows(graph), rows(&other), "several images are an axis");
            let resized = resized(&plan, graph, &other).unwrap();
            assert_eq!(resized.splits, [Split { axis: rows(&other), ..plan.splits[0].clone() }]);
            divided(&other, &[], &resized.splits).unwrap();
        });
    }
}
