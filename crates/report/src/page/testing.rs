//! Subjects made by hand, for the tests of sections.

use edgecut_agent::results::{GroupTime, Latencies, MemoryUse, Outcome, Scatter, TransferCost};
use edgecut_graph::{
    Granularity,
    units::{Bytes, Micros},
};
use edgecut_plan::{
    DeviceId, GroupId, Plan, TransferFormat,
    file::{Bound, DevicePlan, GroupPlan, MemoryPlan, ModelRef, Predicted, Source, Transfer, VERSION},
    problem::{Objective, Targets},
};
use edgecut_profile::{ProfileRow, reader};

/// Operators 0 and 1 on `a/cpu`, operator 1 on `b/cpu`.
pub(super) fn rows() -> Vec<ProfileRow> {
    let header = "server,device,hardware,engine,engine_version,threads,mode,granularity,id,operators,operator,signature,\
                  shapes,dtype,flops,bytes,n,time_us_median,time_us_mad,time_us_min,time_us_p95,cpu_us_median,\
                  workspace_bytes,output_bytes,parameter_bytes,held_bytes,disturbed,note";
    let row = |server: &str, id: usize, name: &str, time: f64, disturbed: f64| {
        format!(
            "{server},cpu,h,tract,1,1,isolated,fused,{id},{id},{name},000{id},s,f,1000,100,8,{time},0,1,2,1.5,0,4,0,0,{disturbed},"
        )
    };
    let rows = [row("a", 0, "nn.conv2d", 10.0, 0.25), row("a", 1, "tanh", 8.0, 0.0), row("b", 1, "tanh", 5.0, 0.0)];
    reader::parse(&format!("{header}\n{}\n", rows.join("\n"))).unwrap()
}

/// `a/cpu` computes groups 0 and 2, `b/cpu` group 1, which waits for a transfer.
pub(super) fn plan() -> Plan {
    let device = |server: &str, order: &[u32]| DevicePlan {
        server: server.into(),
        device: "cpu".into(),
        address: None,
        threads: Some(1),
        engine: None,
        hardware: None,
        memory_limit_bytes: Some(Bytes(1 << 20)),
        order: order.iter().map(|id| GroupId(*id)).collect(),
        busy_us: Micros(1.0),
        idle_w: None,
        memory: MemoryPlan::default(),
    };
    let group = |id: u32, name: &str, device: u32, start: f64, time: f64| GroupPlan {
        id: Some(id),
        part: String::new(),
        name: name.into(),
        layer: String::new(),
        operators: vec![],
        device: DeviceId(device),
        time_us: Micros(time),
        start_us: Micros(start),
        workspace_bytes: Bytes(0),
        energy_j: None,
        source: Source::Measured,
    };
    let transfer = Transfer {
        id: None,
        part: String::new(),
        tensor: edgecut_graph::TensorId(1),
        name: "x".into(),
        from: DeviceId(0),
        to: DeviceId(1),
        bytes: Bytes(64),
        format: TransferFormat::default(),
        sent_bytes: None,
        start_us: Micros(10.0),
        time_us: Micros(2.0),
        overhead_us: Micros(0.0),
    };
    Plan {
        version: VERSION,
        model: ModelRef { path: "m.relay".into(), ..ModelRef::default() },
        cluster: None,
        granularity: Granularity::Fused,
        objective: Objective::Latency,
        targets: Targets { latency: Some(Micros(20.0)), throughput: None },
        rules: Vec::new(),
        seed: 0,
        predicted: Predicted {
            latency_us: Micros(17.0),
            interval_us: Micros(11.0),
            throughput_per_s: 1e6 / 11.0,
            in_flight: 2,
            peak_bytes: Bytes(100),
            transfer_bytes: None,
            sent_bytes: None,
            energy_j: None,
        },
        bound: Bound { value: 15.0, by: "longest chain".into() },
        gap: 2.0 / 17.0,
        source: DeviceId(0),
        sink: DeviceId(1),
        devices: vec![device("a", &[0, 2]), device("b", &[1])],
        in_flight: None,
        transfer: TransferFormat::default(),
        splits: Vec::new(),
        states: Vec::new(),
        prefill: None,
        schedules: Vec::new(),
        groups: vec![
            group(0, "nn.conv2d", 0, 0.0, 10.0),
            group(1, "tanh", 1, 12.0, 5.0),
            group(2, "nn.relu", 0, 10.0, 1.0),
        ],
        transfers: vec![transfer],
        notes: vec!["a note".into()],
    }
}

/// What a run of [`plan`] took: group 1 twice as long, the transfer half as long again.
pub(super) fn outcome() -> Outcome {
    let plan = plan();
    let measured = [10.0, 10.0, 1.0];
    let groups = plan.groups.iter().enumerate().map(|(index, group)| GroupTime {
        group: index as u32,
        id: group.id,
        part: String::new(),
        name: group.name.clone(),
        layer: String::new(),
        device: plan.devices[group.device.0 as usize].device_name().to_string(),
        predicted_us: group.time_us,
        measured_us: Micros(measured[index]),
        measured_start_us: Some(group.start_us),
        scatter: Scatter::default(),
        predicted_workspace_bytes: Bytes(0),
        workspace_bytes: Bytes(0),
        predicted_energy_j: None,
    });
    let transfer = TransferCost {
        tensor: "x".into(),
        from: "a".into(),
        to: "b".into(),
        predicted_us: Some(Micros(2.0)),
        measured_us: Micros(3.0),
        ..TransferCost::default()
    };
    Outcome {
        latency: Latencies::of(&[Micros(22.0)]).unwrap(),
        predicted_latency_us: Micros(17.0),
        interval_us: None,
        predicted_interval_us: Micros(11.0),
        groups: groups.collect(),
        transfers: vec![transfer],
        memory: Vec::<MemoryUse>::new(),
        predicted_energy_j: None,
        energy: Vec::new(),
        load: vec![],
        engines: Vec::new(),
        outputs: None,
        binding: None,
        breakdown: None,
        clock_uncertainty_us: Micros(0.5),
    }
}
