//! Names of layers: what the framework that a model comes from calls the place of an operator.

use crate::{Graph, OperatorId, Origin};

/// Ends of parameters' names; what stands before one of them is the layer's name.
const PARAMETERS: [&str; 9] =
    ["moving_mean", "moving_var", "running_mean", "running_var", "weight", "kernel", "bias", "gamma", "beta"];

impl Graph {
    /// The layer of an operator: as the model says, else what its parameters are named after (`conv0` of
    /// `conv0_weight`). `None` if neither says anything.
    pub fn layer(&self, id: OperatorId) -> Option<&str> {
        let operator = self.operator(id);
        let is_weight = |origin: &Origin| matches!(origin, Origin::Parameter | Origin::Constant(_));
        let owner = || {
            let operands = operator.operands().map(|tensor| self.tensor(tensor));
            operands.filter(|tensor| is_weight(&tensor.origin)).find_map(|tensor| owner(&tensor.name))
        };
        operator.layer.as_deref().or_else(owner)
    }

    /// The layers of `operators`, each once, in their order.
    pub fn layers(&self, operators: &[OperatorId]) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for layer in operators.iter().filter_map(|id| self.layer(*id)) {
            if !found.contains(&layer) {
                found.push(layer);
            }
        }
        found
    }

    /// The name of an operator that no other has: that of its first result, `nn.conv2d_9` for operator 9.
    pub fn unique_name(&self, id: OperatorId) -> &str {
        let operator = self.operator(id);
        operator.outputs.first().map_or(operator.name.as_str(), |output| self.tensor(*output).name.as_str())
    }
}

/// The layer that a parameter is named after.
fn owner(parameter: &str) -> Option<&str> {
    let stem = |end: &&str| parameter.strip_suffix(*end)?.strip_suffix(['_', '.']);
    PARAMETERS.iter().find_map(stem).filter(|stem| !stem.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Operator, TensorId, TensorType};

    #[test]
    fn a_layer_is_what_the_model_says_or_what_owns_the_parameters() {
        let ty = TensorType::of(DType::F32, &[4]);
        let mut graph = Graph::new();
        let mut parameter = |name: &str| graph.add_tensor(name, ty.clone(), Origin::Parameter);
        let (weight, mean) = (parameter("stage1_conv1_weight"), parameter("aten::batch_norm_1.running_mean"));
        let (bare, plain) = (parameter("weight"), parameter("p0"));
        let mut add = |operands: &[TensorId], layer: Option<&str>| {
            let operator = Operator::new("add", operands.iter().copied()).with_layer(layer.map(Into::into));
            graph.add_operator(operator, std::slice::from_ref(&ty))
        };
        let all = [
            add(&[weight, weight], None),
            add(&[mean, weight], None),
            add(&[mean], Some("aten::norm_0")),
            add(&[bare, plain], None),
            add(&[plain, weight], None),
        ];
        let layers: Vec<Option<&str>> = all.iter().map(|id| graph.layer(*id)).collect();
        let conv = Some("stage1_conv1");
        assert_eq!(layers, [conv, Some("aten::batch_norm_1"), Some("aten::norm_0"), None, conv]);
        assert_eq!(graph.layers(&all), ["stage1_conv1", "aten::batch_norm_1", "aten::norm_0"]);
        assert_eq!(graph.unique_name(all[2]), "add_2");
    }
}
