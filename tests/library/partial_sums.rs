//! Plans whose partial sums pass from layer to layer: through biases and residual sums, and through norms that each device computes.

use std::ops::Range;

use crate::{
    common::card::in_file,
    split_models::{FEED_FORWARD, NORMS},
    split_plan::{assert_near, checked, computed, model, network, on_request, with_budget},
};
use edgecut::{
    graph::{Granularity, Graph, Operator, OperatorId},
    plan::{
        Goal, Instance, Plan, PlanRequest, divided,
        file::Split,
        problem::{Cost, Objective},
        split::{SplitOptions, solve, split_option::ResultLayout},
    },
    profile::items,
    units::{Bytes, Micros},
};

/// What the second of two dense layers leaves to be added up passes through its bias and its residual sum: nothing is exchanged
/// between the two.
#[test]
fn a_pair_of_dense_layers_exchanges_nothing_inside() {
    let graph = model(FEED_FORWARD);
    let items = items(&graph, Granularity::Op);
    let groups = vec![0..3, 3..8, 8..9]
        .into_iter()
        .map(|range: Range<usize>| items[range].iter().flat_map(|item| item.operators.clone()).collect::<Vec<_>>());
    let groups: Vec<Vec<OperatorId>> = groups.collect();
    let options = SplitOptions::of(&graph, &groups);
    let summed =
        options.group(1).iter().find(|option| option.layout == ResultLayout::Partial).expect("a sum with its epilogue");
    assert_eq!(summed.size, 2048, "{summed:?}");
    assert!(
        options.group(2).iter().all(|option| option.layout != ResultLayout::Partial),
        "an activation is not linear"
    );
    let cost = |time: f64| Some(Cost { time: Micros(time), workspace: Bytes(1024), ..Cost::default() });
    let costs = [500.0, 500.0, 1.0].map(|time| vec![cost(time); 2]).to_vec();
    let names = ["first", "second", "last"].map(Into::into).to_vec();
    let mut network = network(&[1.0; 2], 100.0);
    network.links.iter_mut().for_each(|link| link.cost.latency = Micros(20.0));
    let request = with_budget(&PlanRequest::new(Instance::new(options, names, costs, network), Goal::default()), 2_000);
    let found = checked(&graph, solve(&request, None).unwrap());
    assert!(found.solution.value() < 1001.0 / 1.6, "{}", found.solution.value());
    let second = &found.choices[&1];
    assert_eq!(
        request.instance.split_option(1, second.option).unwrap().layout,
        ResultLayout::Partial,
        "{:?}",
        found.choices
    );
    assert_near(&computed(&found.expanded.graph), &computed(&graph));
    // The offsets are added once, by the shard that reads them.
    let adds = |graph: &Graph| graph.operators().filter(|(_, operator)| operator.name == "nn.bias_add").count();
    assert_eq!(adds(&found.expanded.graph), 1 + second.fractions.len(), "{:?}", found.splits);
    // A plan file whose first layer is cut elsewhere is refused.
    let mut splits = found.splits.clone();
    splits.retain(|split| graph.operator(split.operator).name != "nn.dense");
    let refused = divided(&graph, &[], &splits).unwrap_err().to_string();
    assert!(refused.contains("which is not split into as many partial sums"), "{refused}");
}

/// A norm of one row cannot be split. Each of three devices adds up the partial sums before it for itself: one exchange instead of a
/// gathering and a broadcast.
#[test]
fn norms_between_dense_layers_are_replicated() {
    let graph = model(NORMS);
    on_request(&graph, &[1_000.0; 3], 1_000.0, Objective::Latency, |request| {
        let request = with_budget(&request, 4_000);
        let options = &request.instance.split_options;
        let norms = (0..options.groups.len())
            .filter(|group| options.groups[*group].iter().any(|id| graph.operator(*id).name == "nn.layer_norm"));
        let norms: Vec<usize> = norms.collect();
        for norm in &norms {
            let [option] = options.group(*norm) else { panic!("{:?}", options.group(*norm)) };
            assert_eq!(option.layout, ResultLayout::Replicated);
            assert!(!options.is_divisible(*norm));
        }
        let found = checked(&graph, solve(&request, None).unwrap());
        assert!(found.choices.contains_key(&norms[1]), "{:?}", found.choices);
        let read = Plan::from_json(in_file(&graph, &found, Granularity::Fused).to_json().unwrap().as_bytes()).unwrap();
        assert_eq!(divided(&graph, &[], &read.splits).unwrap().graph, found.expanded.graph);
        assert_near(&computed(&found.expanded.graph), &computed(&graph));
        // On each device there is a norm, which the product after it there reads.
        let evaluation = &found.solution.evaluation;
        let device_of = |id: OperatorId| {
            let mut groups = found.expanded.problem.groups.iter().zip(&evaluation.placement.devices);
            groups.find(|(group, _)| group.operators.contains(&id)).map(|(_, device)| *device)
        };
        let made = &found.expanded.graph;
        let reads = made.operators().filter(|(_, operator)| operator.name == "nn.dense").flat_map(|(id, operator)| {
            // The first norm reads an input.
            let reads_sum = move |norm: &Operator| norm.operands().any(|operand| made.producer(operand).is_some());
            let by_norm = move |id: &OperatorId| {
                let norm = made.operator(*id);
                norm.name == "nn.layer_norm" && reads_sum(norm)
            };
            let producers = operator.operands().filter_map(|tensor| made.producer(tensor)).filter(by_norm);
            producers.map(move |norm| (device_of(norm), device_of(id)))
        });
        let reads: Vec<_> = reads.collect();
        assert!(reads.len() == 3 && reads.iter().all(|(norm, dense)| norm == dense), "{reads:?}");
        // Like this plan; and not with other numbers of replicas than positions.
        let like = Goal { like: Some(found.splits.clone()), ..request.goal.clone() };
        assert_eq!(solve(&request.with_goal(like), None).unwrap().splits, found.splits);
        let mut splits = found.splits.clone();
        let of_norm = |split: &&mut Split| graph.operator(split.operator).name == "nn.layer_norm";
        splits.iter_mut().find(of_norm).unwrap().cuts = vec![0, 1, 3];
        let refused = divided(&graph, &[], &splits).unwrap_err().to_string();
        assert!(refused.contains("nn.layer_norm"), "{refused}");
    });
}
