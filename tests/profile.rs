//! Profiles of small graphs on the real CPU engine: what is measured, in which order, and what is left out.
//! No time is asserted.

use std::{collections::HashSet, ops::ControlFlow};

use edgecut::{
    engine::{CpuEngine, EngineId},
    graph::{Arg, Attrs, DType, Granularity, Graph, Operator, Origin, TensorData, TensorId, TensorType},
    profile::{
        Mode, Place, Row, Sampling, Summary, Whole, items,
        measure::{Measured, Subject, in_situ, isolated, whole},
    },
    units::Micros,
    values::seeded,
};

#[global_allocator]
static ALLOCATOR: edgecut::engine::CountingAllocator = edgecut::engine::CountingAllocator;

const QUICK: Sampling = Sampling { precision: 0.02, budget: Micros(0.0) };

/// relu → add(parameter) → relu → … over one shape, then the given operator.
fn chain(last: &str) -> Graph {
    let mut graph = Graph::new();
    let ty = TensorType::of(DType::F32, &[64, 64]);
    let mut at = graph.add_tensor("x", ty.clone(), Origin::Input);
    let bias = graph.add_tensor("bias", ty.clone(), Origin::Parameter);
    for name in ["nn.relu", "add", "nn.relu", "add", last] {
        let operands: Vec<TensorId> = if name == "add" { vec![at, bias] } else { vec![at] };
        let operator = Operator {
            name: name.into(),
            attrs: Attrs::new(),
            args: operands.into_iter().map(Arg::Tensor).collect(),
            outputs: Vec::new(),
            tuple_result: false,
            label: None,
            place: None,
        };
        let id = graph.add_operator(operator, std::slice::from_ref(&ty));
        at = graph.operator(id).outputs[0];
    }
    graph.outputs.push(at);
    graph
}

/// Calls `body` with everything that is needed to measure `graph`.
fn with_subject<R>(graph: &Graph, granularity: Granularity, body: impl FnOnce(&Subject<'_>) -> R) -> R {
    let engine = CpuEngine::new(1).unwrap();
    let items = items(graph, granularity);
    let content = |id: TensorId| seeded(&graph.tensor(id).name, &graph.tensor(id).ty).unwrap();
    let inputs: Vec<TensorData> = graph.inputs().map(content).collect();
    body(&Subject {
        engine: &engine,
        graph,
        items: &items,
        inputs: &inputs,
        parameter: &|id| Ok(content(id)),
        memory: None,
    })
}

#[test]
fn each_signature_is_measured_once_in_model_order_and_known_ones_are_not() {
    with_subject(&chain("nn.relu"), Granularity::Op, |subject| {
        let mut found: Vec<Measured> = Vec::new();
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
        assert!(add.workspace.0 < 64 * 64 * 4, "adding needs no tensor beside its result: {add:?}");

        let known = HashSet::from([subject.items[0].signature.clone()]);
        let mut rest = Vec::new();
        let mut collect = |measured: Measured| {
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
        assert!(whole(subject, &QUICK, None).is_err());
    });
}

#[test]
fn in_its_place_every_item_is_measured_and_groups_count_as_one() {
    for (granularity, count) in [(Granularity::Op, 5), (Granularity::Fused, 1)] {
        with_subject(&chain("nn.relu"), granularity, |subject| {
            let engine = EngineId { name: "tract".to_string(), version: "1".to_string() };
            let (server, device) = ("local".to_string(), "cpu".to_string());
            let place = Place { server, device, hardware: "any".to_string(), engine, threads: 1 };
            let mut rows = Vec::new();
            let mut collect = |m: Measured| {
                rows.push(Row::new(&place, Mode::InSitu, granularity, m.item, &subject.items[m.item], &m.cost));
                ControlFlow::Continue(())
            };
            in_situ(subject, &QUICK, &mut collect).unwrap();
            assert_eq!(rows.len(), count);
            assert_eq!(rows.iter().map(|r| r.flops).sum::<u64>(), 5 * 64 * 64);
            let summary = Summary::of(&rows);
            assert_eq!(summary.kinds.iter().map(|k| k.count).sum::<usize>(), count);
            assert!((summary.kinds.iter().map(|k| k.share).sum::<f64>() - 1.0).abs() < 1e-9);
            assert!(summary.kinds.windows(2).all(|k| k[0].time_us >= k[1].time_us));
            let cost = whole(subject, &QUICK, None).unwrap();
            assert!(Whole::from(&cost).off(&summary.sum).0.is_finite() && cost.time.n >= 5);
            let folder = tempfile::tempdir().unwrap();
            let profile = folder.path().join("p.csv");
            assert_eq!(Whole::read(&profile), None);
            let written = Whole { time: Micros(4.5), cpu: Micros(4.25) };
            summary.write(&profile, Some(written)).unwrap();
            assert_eq!(Whole::read(&profile), Some(written));
        });
    }
}
