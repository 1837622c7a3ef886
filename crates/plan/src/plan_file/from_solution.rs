//! The plan file of a solution: where its groups run and when, its transfers, and the figures that it predicts.

use super::file::{Bound, DevicePlan, GroupPlan, MemoryPlan, ModelRef, Plan, Predicted, Source, Transfer, VERSION};
use crate::{
    judge::{
        solution::Solution,
        task_graph::{ReplicaId, ReplicaOrigin, TaskGraph},
    },
    problem::{Handling, Problem},
};
use edgecut_graph::{
    Granularity,
    units::{Bytes, Micros},
};

impl Plan {
    /// The plan file of `solution`, without splits and schedules.
    pub fn new(problem: &Problem, solution: &Solution, model: ModelRef, granularity: Granularity, seed: u64) -> Plan {
        let evaluation = &solution.evaluation;
        let (work, times) = (&evaluation.task_graph, &evaluation.timeline);
        let groups = problem.group_ids().zip(&evaluation.placement.devices).map(|(id, device)| GroupPlan {
            id: None,
            part: String::new(),
            layer: String::new(),
            name: problem.group(id).name.clone(),
            operators: problem.group(id).operators.clone(),
            device: *device,
            time_us: Micros::ZERO,
            start_us: Micros::ZERO,
            workspace_bytes: Bytes::ZERO,
            energy_j: None,
            source: Source::Measured,
        });
        let mut groups: Vec<GroupPlan> = groups.collect();
        for (job, (start, finish)) in work.tasks.iter().zip(times.starts.iter().zip(&times.finishes)) {
            let group = &mut groups[job.group.0 as usize];
            let handling = problem.device(job.device).handling;
            // The difference of two sums would not be exactly the time where nothing else takes any.
            let time = if handling == Handling::default() { job.cost.time } else { *finish - *start };
            (group.start_us, group.time_us, group.workspace_bytes) = (*start, time, job.cost.workspace);
            group.energy_j = problem.knows_energy().then(|| job.cost.energy_above_idle());
        }
        let (in_flight, interval) = solution.sustained(problem).unwrap_or((1, evaluation.latency()));
        let mut plan = Plan {
            version: VERSION,
            states: model.states.clone(),
            model,
            cluster: None,
            granularity,
            objective: problem.objective,
            targets: problem.targets,
            rules: Vec::new(),
            seed,
            predicted: Predicted {
                latency_us: evaluation.latency(),
                interval_us: interval,
                throughput_per_s: if interval.0 > 0.0 { 1e6 / interval.0 } else { 0.0 },
                in_flight,
                peak_bytes: evaluation.peak(),
                transfer_bytes: None,
                sent_bytes: None,
                energy_j: problem.knows_energy().then_some(evaluation.energy),
            },
            bound: Bound { value: solution.bound.value, by: solution.bound.by.to_string() },
            gap: solution.gap(),
            source: problem.source,
            sink: problem.sink,
            devices: devices(problem, solution),
            in_flight: solution.in_flight,
            transfer: problem.transfer_format(),
            splits: Vec::new(),
            prefill: None,
            schedules: Vec::new(),
            groups,
            transfers: transfers(problem, solution),
            notes: Vec::new(),
        };
        if !plan.transfer.is_exact() {
            let crossing = plan.transfers.iter().filter(|transfer| plan.is_between_servers(transfer));
            let (bytes, sent) = crossing.fold(Default::default(), |(bytes, sent): (Bytes, Bytes), transfer| {
                (bytes + transfer.bytes, sent + transfer.sent())
            });
            (plan.predicted.transfer_bytes, plan.predicted.sent_bytes) = (Some(bytes), Some(sent));
        }
        plan.notes = plan.left_out(problem);
        plan
    }

    /// Devices that the plan does not use, and why that is no loss.
    fn left_out(&self, problem: &Problem) -> Vec<String> {
        let idle = self.devices.iter().filter(|d| d.order.is_empty() && problem.devices.len() > 1);
        idle.map(|d| format!("{}/{} is left out: no placement that uses it was found better", d.server, d.device))
            .collect()
    }
}

fn devices(problem: &Problem, solution: &Solution) -> Vec<DevicePlan> {
    let evaluation = &solution.evaluation;
    let figures = evaluation
        .memory
        .iter()
        .zip(&solution.arenas)
        .zip(evaluation.loads.devices.iter().zip(&evaluation.task_graph.sequences));
    let devices =
        problem.devices.iter().zip(figures).map(|(device, ((account, arena), (busy, sequence)))| DevicePlan {
            server: device.server.clone(),
            device: device.name.clone(),
            address: device.address.clone(),
            threads: device.threads,
            engine: device.engine.clone(),
            hardware: device.hardware.clone(),
            memory_limit_bytes: device.memory,
            order: sequence.iter().map(|job| evaluation.task_graph.task(*job).group).collect(),
            busy_us: *busy,
            idle_w: device.idle,
            memory: MemoryPlan {
                parameter_bytes: account.parameters,
                state_bytes: problem.states_of(sequence.iter().map(|job| evaluation.task_graph.task(*job).group)),
                load_bytes: account.load,
                arena_bytes: *arena,
                workspace_bytes: account.workspace,
            },
        });
    devices.collect()
}

fn transfers(problem: &Problem, solution: &Solution) -> Vec<Transfer> {
    let (work, times) = (&solution.evaluation.task_graph, &solution.evaluation.timeline);
    let sender = |work: &TaskGraph, from: ReplicaId| work.replica(from).device;
    let sent =
        work.replicas.iter().zip(times.births.iter().zip(&times.arrivals)).filter_map(|(piece, (start, end))| {
            let ReplicaOrigin::Transfer { from, link } = piece.origin else { return None };
            let tensor = problem.tensor(piece.tensor);
            let link = link.map(|link| problem.link(link));
            let format =
                link.filter(|_| tensor.activation.is_some()).map(|link| link.coding.format).unwrap_or_default();
            let sent = link.map(|link| link.carried_bytes(tensor));
            Some(Transfer {
                id: None,
                part: String::new(),
                tensor: tensor.graph,
                name: tensor.name.clone(),
                from: sender(work, from),
                to: piece.device,
                bytes: piece.bytes,
                format,
                sent_bytes: (!format.is_exact()).then_some(sent).flatten(),
                start_us: *start,
                time_us: link.map_or(*end - *start, |link| link.time(tensor)),
                overhead_us: link.map_or(Micros::ZERO, |link| link.overhead),
            })
        });
    let mut transfers: Vec<Transfer> = sent.collect();
    transfers.sort_by(|a, b| a.start_us.0.total_cmp(&b.start_us.0).then((a.tensor, a.to).cmp(&(b.tensor, b.to))));
    transfers
}
