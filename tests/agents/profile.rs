//! Profiles of small graphs on the real CPU engine: what is measured, in which order, and what is left out.
//! No time is asserted.

use std::{collections::HashSet, ops::ControlFlow};

use edgecut::{
    engine::{EngineId, TractEngine},
    graph::{DType, Granularity, Graph, Operator, Origin, TensorData, TensorId, TensorType},
    profile::{
        Measurement, MeasurementMode, ModelTime, ProfileRow, ProfileSummary, ProfiledDevice, Sampling, items,
        measure::{ProfileTarget, in_situ, isolated, whole_model},
    },
    units::Micros,
    values::seeded,
};

const QUICK: Sampling = Sampling { precision: 0.02, budget: Micros(0.0) };

/// relu → add(parameter) → relu → … over one shape, then the given operator.
fn chain(last: &str) -> Graph {
    let mut graph = Graph::new();
    let ty = TensorType::of(DType::F32, &[64, 64]);
    let mut at = graph.add_tensor("x", ty.clone(), Origin::Input);
    let bias = graph.add_tensor("bias", ty.clone(), Origin::Parameter);
    for name in ["nn.relu", "add", "nn.relu", "add", last] {
        let operands: Vec<TensorId> = if name == "add" { vec![at, bias] } else { vec![at] };
        let operator = Operator::new(name, operands);
        let id = graph.add_operator(operator, std::slice::from_ref(&ty));
        at = graph.operator(id).outputs[0];
    }
    graph.outputs.push(at);
    graph
}

/// Calls `body` with everything that is needed to measure `graph`.
fn with_subject<R>(graph: &Graph, granularity: Granularity, body: impl FnOnce(&ProfileTarget<'_>) -> R) -> R {
    let engine = TractEngine::new(1).unwrap();
    let items = items(graph, granularity);
    let content = |id: TensorId| seeded(&graph.tensor(id).name, &graph.tensor(id).ty).unwrap();
    let inputs: Vec<TensorData> = graph.inputs().map(content).collect();
    body(&ProfileTarget {
        engine: &engine,
        graph,
        items: &items,
        inputs: &inputs,
        parameter: &|id| Ok(content(id)),
        memory: None,
        energy: None,
        is_cancelled: &|| false,
    })
}

#[test]
fn each_signature_is_measured_once_in_model_order_and_known_ones_are_not() {
    with_subject(&chain("nn.relu"), Granularity::Op, |subject| {
        let mut found: Vec<Measurement> = Vec::new();
        let mut collect = |measured| {
            found.push(measured);
            ControlFlow::Continue(())
        };
        isolated(subject, &QUICK, &HashSet::new(), &mut collect).unwrap();
        assert_eq!(found.iter().map(|m| m.item).collect::<Vec<_>>(), [0, 1]);
        for measured in &found {
            let cost = measured.cost.as_ref().unwrap();
            assert!(cost.time.n >= 5 && cost.time.min.0 > 0.0 && cost.time.min <= cost.time.median);
        }
        let add = *found[1].cost.as_ref().unwrap();
        assert!(add.held.0 >= 64 * 64 * 4, "the parameter is held: {add:?}");
        assert!(add.workspace.0 < 64 * 64 * 4, "adding needs no tensor but its result: {add:?}");

        let known = HashSet::from([subject.items[0].signature.clone()]);
        let mut rest = Vec::new();
        let mut collect = |measured: Measurement| {
            rest.push(measured.item);
            ControlFlow::Continue(())
        };
        isolated(subject, &QUICK, &known, &mut collect).unwrap();
        assert_eq!(rest, [1]);
    });
}

#[test]
fn a_listener_ends_the_measuring() {
    with_subject(&chain("nn.relu"), Granularity::Op, |subject| {
        let mut count = 0;
        let mut stop = |_| {
            count += 1;
            ControlFlow::Break(())
        };
        isolated(subject, &QUICK, &HashSet::new(), &mut stop).unwrap();
        assert_eq!(count, 1);
    });
}

#[test]
fn what_the_engine_cannot_compute_is_reported_and_the_rest_is_measured() {
    with_subject(&chain("nn.unheard_of"), Granularity::Op, |subject| {
        let mut found = Vec::new();
        let mut collect = |measured| {
            found.push(measured);
            ControlFlow::Continue(())
        };
        isolated(subject, &QUICK, &HashSet::new(), &mut collect).unwrap();
        assert_eq!(found.iter().map(|m| m.cost.is_ok()).collect::<Vec<_>>(), [true, true, false]);
        assert!(found[2].cost.as_ref().unwrap_err().contains("nn.unheard_of"));
        assert!(in_situ(subject, &QUICK, &mut |_| ControlFlow::Continue(())).is_err());
        assert!(whole_model(subject, &QUICK, None).is_err());
    });
}

#[test]
fn in_its_place_every_item_is_measured_and_groups_count_as_one() {
    for (granularity, count) in [(Granularity::Op, 5), (Granularity::Fused, 1)] {
        with_subject(&chain("nn.relu"), granularity, |subject| {
            let engine = EngineId { name: "tract".to_string(), version: "1".to_string() };
            let (server, device) = ("local".to_string(), "cpu".to_string());
            let place = ProfiledDevice { server, device, hardware: "any".to_string(), engine, threads: 1 };
            let mut rows = Vec::new();
            let mut collect = |m: Measurement| {
                rows.push(ProfileRow::new(
                    &place,
                    MeasurementMode::InSitu,
                    granularity,
                    m.item,
                    &subject.items[m.item],
                    &m.cost,
                ));
                ControlFlow::Continue(())
            };
            in_situ(subject, &QUICK, &mut collect).unwrap();
            assert_eq!(rows.len(), count);
            assert_eq!(rows.iter().map(|r| r.flops).sum::<u64>(), 5 * 64 * 64);
            let summary = ProfileSummary::of(&rows);
            assert_eq!(summary.kinds.iter().map(|k| k.count).sum::<usize>(), count);
            assert!((summary.kinds.iter().map(|k| k.fraction).sum::<f64>() - 1.0).abs() < 1e-9);
            assert!(summary.kinds.windows(2).all(|k| k[0].time_us >= k[1].time_us));
            let cost = whole_model(subject, &QUICK, None).unwrap();
            assert!(ModelTime::from(&cost).relative_difference(&summary.sum).0.is_finite() && cost.time.n >= 5);
            let folder = tempfile::tempdir().unwrap();
            let profile = folder.path().join("p.csv");
            assert_eq!(ModelTime::read(&profile), None);
            let written = ModelTime { time: Micros(4.5), cpu: Micros(4.25), energy: None };
            summary.write(&profile, Some(written)).unwrap();
            assert_eq!(ModelTime::read(&profile), Some(written));
        });
    }
}
