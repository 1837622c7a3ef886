//! Planning on agents from beginning to end.

use edgecut_plan::{Candidate, Goal, Plan, PlanRequest, no_plan::Shortage, planner, split};

use super::{
    agents::PilotAgents, candidates::keeps_memory, error::PlanningError, options::PilotOptions, progress::PlanEvent,
    replan::Replanner, runner::PilotRunner,
};
use crate::request::shards::Shards;

/// A plan, and what it is judged by.
#[derive(Debug, Clone)]
pub struct PilotPlan<'a> {
    pub candidate: Candidate,
    /// At the costs that are known now.
    pub request: PlanRequest<'a>,
}

/// The plan for `request`, whose costs are those of profiles: shards that candidates ask for are measured and added to
/// `shards`, then candidates are run, as far as `options` say. Targets on times are judged by what is known last: a plan
/// that misses them by its profiles is run all the same. Where an agent fails, the best plan so far is returned, with a
/// note.
///
/// # Errors
/// If there is no plan.
pub fn plan_on_agents<'a>(
    agents: &PilotAgents<'_>,
    request: &PlanRequest<'a>,
    shards: &mut Shards<'_>,
    options: &PilotOptions,
    progress: &dyn Fn(PlanEvent),
) -> Result<PilotPlan<'a>, PlanningError> {
    let known = request.with_shards(shards.costs());
    // Costs of profiles prove nothing of times that are measured in runs.
    let is_final = |shortage: &Shortage| options.rounds == 0 || !shortage.is_of_time();
    if planner::proof(&known)?.iter().any(is_final) {
        return Ok(PilotPlan { candidate: planner::plan(&known)?, request: known });
    }
    let stop = request.goal.search.stop;
    let searched = request.with_stop(stop.earlier(options.search_share));
    let mut replanner = Replanner { agents, options, progress, request: &searched, shards };
    let (mut first, request) = replanner.plan()?;
    let request = request.with_stop(stop);
    let is_short = !first.solution.missed.is_empty() && (options.rounds == 0 || !keeps_memory(&first));
    if is_short && searched.goal.search.stop.is_over() && !stop.is_requested() {
        // Without a plan there is nothing to run, so the search gets the remaining time.
        first = planner::nearest(&request)?;
    }
    piloted(&mut replanner, first, request)
}

/// `other` for `request`: its splits, devices and orders, of which the shards are measured, and which is run as far as `options`
/// say.
///
/// # Errors
/// If it is not of this model and these devices, or misses limits or targets.
pub fn adopt_on_agents<'a>(
    agents: &PilotAgents<'_>,
    request: &PlanRequest<'a>,
    shards: &mut Shards<'_>,
    options: &PilotOptions,
    progress: &dyn Fn(PlanEvent),
    other: &Plan,
) -> Result<PilotPlan<'a>, PlanningError> {
    // Nothing else is looked for.
    let fixed = request.with_goal(Goal { like: Some(other.splits.clone()), ..request.goal.clone() });
    let mut replanner = Replanner { agents, options, progress, request: &fixed, shards };
    let (adopted, known) = replanner.adopted(other)?;
    let PilotPlan { candidate, request: known } = piloted(&mut replanner, adopted, known)?;
    Ok(PilotPlan { candidate, request: known.with_goal(request.goal.clone()) })
}

/// `first`, of `request`, or what pilot runs show to be better.
fn piloted<'a>(
    replanner: &mut Replanner<'_, 'a, '_>,
    first: Candidate,
    request: PlanRequest<'a>,
) -> Result<PilotPlan<'a>, PlanningError> {
    let Replanner { agents, options, progress, .. } = *replanner;
    if options.rounds == 0 || !keeps_memory(&first) {
        return Ok(PilotPlan { candidate: split::met(&request, first)?, request });
    }
    let attempts = first.attempts.clone();
    let piloted = PilotRunner { agents, options, progress, request: &request }.run(first.clone());
    let (candidate, known) = match piloted {
        Err(PlanningError::Pilot(why)) if why.is_of_agent() => {
            progress(PlanEvent::AgentFailed(why.to_string()));
            let mut candidate = split::met(&request, first)?;
            candidate.notes.push(format!("no pilot run: {why}"));
            return Ok(PilotPlan { candidate, request });
        }
        piloted => piloted?,
    };
    let (candidate, request) = replanner.measure_memory(candidate, &known, request);
    // Others that ran were found for other requests, so that their attempts say nothing of this one.
    Ok(PilotPlan { candidate: Candidate { attempts, ..candidate }, request })
}

#[cfg(test)]
mod tests {
    use std::{
        cell::RefCell,
        collections::BTreeMap,
        path::Path,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        time::Duration,
    };

    use tokio::runtime::Runtime;

    use edgecut_engine::energy::EnergySource;
    use edgecut_graph::{
        DeviceName, Granularity, Graph,
        units::{Bytes, Micros, Watts},
    };
    use edgecut_plan::{
        CostSource, Stop, TransferFormat,
        file::ModelRef,
        problem::{Objective, Targets},
        search::Options,
        split::ratios::Ratios,
    };
    use edgecut_profile::{CacheFlush, Sampling};
    use edgecut_relay::{ImportOptions, import};

    use super::{super::candidates::add_alternatives, *};
    use crate::{
        request::{DeviceRows, ModelGroups, PlanSettings},
        survey::{DeviceProfile, SurveyRequest, survey},
    };
    use edgecut_agent::{
        Cluster, Endpoint, Inventory, Shutdown,
        client::Fleet,
        server::{Host, HostOptions, OfferedGpus, serve},
    };

    const MODEL: &str = "#[version = \"0.0.5\"]
def @main(%x: Tensor[(1, 8, 32, 32), float32], %w1: Tensor[(16, 8, 3, 3), float32], %w2: Tensor[(16, 16, 3, 3), float32]) {
  %0 = nn.conv2d(%x, %w1, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]);
  %1 = nn.relu(%0);
  nn.conv2d(%1, %w2, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3])
}
";

    /// Agents in this process, and all that plans are made from.
    struct Lab {
        runtime: Runtime,
        cluster: Cluster,
        fleet: Fleet,
        inventory: Inventory,
        surveyed: Vec<DeviceProfile>,
        folder: tempfile::TempDir,
        sampling: Sampling,
        shutdown: Shutdown,
    }

    impl Lab {
        fn address(&self, device: &DeviceName) -> Option<Endpoint> {
            self.cluster.server(&device.server).map(|server| server.endpoint.clone())
        }
    }

    impl Drop for Lab {
        fn drop(&mut self) {
            self.shutdown.request();
        }
    }

    /// The agent embedded in this process, or several behind sockets with links of one speed and these limits on memory;
    /// profiles of `graph` on them.
    fn lab(graph: &Graph, agents: &[Option<Bytes>]) -> Lab {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (folder, shutdown) = (tempfile::tempdir().unwrap(), Shutdown::new());
        let sampling = Sampling { budget: Micros(2e5), ..Sampling::default() };
        let mut wanted = SurveyRequest::new(graph, "model", "0123456789abcdef", folder.path());
        wanted.sampling = sampling;
        let (cluster, fleet, inventory, surveyed) = runtime.block_on(async {
            let cluster = match agents.len() {
                1 => Cluster::embedded(),
                _ => served(agents, &shutdown).await,
            };
            let fleet = Fleet::connect(&cluster).await.unwrap();
            let inventory = fleet.inventory(&cluster, cluster.links.clone());
            let surveyed = survey(&fleet, &cluster, &inventory, &wanted, &|_| {}).await.unwrap();
            (cluster, fleet, inventory, surveyed)
        });
        Lab { runtime, cluster, fleet, inventory, surveyed, folder, sampling, shutdown }
    }

    /// Starts agents `s0`, `s1`, … on free ports.
    async fn served(limits: &[Option<Bytes>], shutdown: &Shutdown) -> Cluster {
        let mut text = String::new();
        for (index, memory) in limits.iter().enumerate() {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            text += &format!("[[server]]\nname = \"s{index}\"\naddress = \"{address}\"\n");
            let options = HostOptions {
                name: format!("s{index}").into(),
                threads: Some(1),
                memory: *memory,
                gpus: OfferedGpus::None,
                ..HostOptions::default()
            };
            let host: Arc<Host> = Host::start(options, shutdown.child()).unwrap();
            tokio::spawn(async move { serve(listener, host).await.unwrap() });
        }
        for from in 0..limits.len() {
            for to in (0..limits.len()).filter(|to| *to != from) {
                let cost = "latency = \"1us\"\nrate = \"1000Gbit/s\"";
                text += &format!("[[link]]\nfrom = \"s{from}\"\nto = \"s{to}\"\n{cost}\n");
            }
        }
        Cluster::parse(&text, Path::new("")).unwrap()
    }

    fn settings() -> PlanSettings {
        PlanSettings {
            model: ModelRef::default(),
            cluster: None,
            objective: Objective::Latency,
            targets: Targets::default(),
            transfer: TransferFormat::Exact,
            memory: None,
            rules: Vec::new(),
            may_split: true,
            ratios: Ratios::Tuned,
            halo: None,
            like: None,
            fits_memory: true,
            search: Options { budget: Some(300), cut_off: None, ..Options::default() },
        }
    }

    /// What is widest takes 4 MiB, and can be computed in parts.
    const WIDE: &str = "#[version = \"0.0.5\"]
def @main(%x: Tensor[(1, 4, 128, 128), float32], %w1: Tensor[(64, 4, 1, 1), float32], %w2: Tensor[(8, 64, 1, 1), float32]) {
  %0 = nn.conv2d(%x, %w1, channels=64, kernel_size=[1, 1]);
  %1 = nn.relu(%0);
  %2 = nn.max_pool2d(%1, pool_size=[3, 3], strides=[4, 4], padding=[1, 1, 1, 1]);
  nn.conv2d(%2, %w2, channels=8, kernel_size=[1, 1])
}
";

    /// Six layers with weights of 1 MiB each.
    fn layers() -> String {
        let weights: Vec<String> = (0..6).map(|layer| format!("%w{layer}: Tensor[(512, 512), float32]")).collect();
        let mut text = format!(
            "#[version = \"0.0.5\"]\ndef @main(%x: Tensor[(1, 512), float32], {}) {{\n  %0 = nn.dense(%x, %w0, units=512);\n",
            weights.join(", ")
        );
        for layer in 1..5 {
            text += &format!("  %{layer} = nn.dense(%{}, %w{layer}, units=512);\n", layer - 1);
        }
        text + "  nn.dense(%4, %w5, units=512)\n}\n"
    }

    #[test]
    fn where_memory_is_short_a_plan_of_whole_groups_is_run_too() {
        let graph = import("model", WIDE.as_bytes(), &ImportOptions::default()).unwrap().graph;
        let model = ModelGroups::of(&graph, Granularity::Fused);
        let lab = lab(&graph, &[None]);
        let profiles: Vec<DeviceRows> = lab.surveyed.iter().map(DeviceRows::from).collect();
        let settings = PlanSettings { memory: Some(Bytes(3 << 20)), ..settings() };
        let request = settings.request(&model, &lab.inventory, &profiles, |_| None).unwrap();
        let mut candidates = Vec::new();
        add_alternatives(&request, &PilotOptions::default(), &mut candidates);
        let [candidate] = &candidates[..] else { panic!("{} candidates", candidates.len()) };
        assert!(candidate.is_scheduled() && candidate.splits.is_empty() && keeps_memory(candidate));
    }

    #[test]
    fn the_time_limit_begins_again_where_agents_refuse_what_was_found_within_it() {
        let graph = import("model", layers().as_bytes(), &ImportOptions::default()).unwrap().graph;
        let model = ModelGroups::of(&graph, Granularity::Fused);
        let lab = lab(&graph, &[Some(Bytes(5 << 19)), None]);
        let profiles: Vec<DeviceRows> = lab.surveyed.iter().map(DeviceRows::from).collect();
        let settings =
            PlanSettings { objective: Objective::Memory, memory: Some(Bytes(9 << 19)), may_split: false, ..settings() };
        let mut request = settings.request(&model, &lab.inventory, &profiles, |device| lab.address(device)).unwrap();
        // More than the agent has. By this objective each device gets three layers, and this one holds two.
        request.instance_mut().network.devices[0].memory = settings.memory;
        let first = planner::nearest(&request).unwrap();
        assert!(first.solution.missed.is_empty());
        let given = BTreeMap::new();
        let pilot = PilotAgents { fleet: &lab.fleet, cluster: &lab.cluster, given: &given, runtime: &lab.runtime };
        let (events, options) =
            (RefCell::new(Vec::new()), PilotOptions { run_time: Micros(2e4), ..PilotOptions::default() });
        let request = request.with_stop(Stop::after(Duration::from_secs(600)).earlier(0.0));
        let progress = |event| events.borrow_mut().push(event);
        let runner = PilotRunner { agents: &pilot, options: &options, progress: &progress, request: &request };
        let (found, _) = runner.run(first).unwrap();
        assert_eq!(found.costs, CostSource::PilotRun);
        assert!(!found.uses_one_device());
        let refused = |event: &PlanEvent| matches!(event, PlanEvent::PilotRefused { .. });
        assert!(events.borrow().iter().any(refused), "{:?}", events.borrow());
        assert!(events.borrow().contains(&PlanEvent::LimitRestarted), "{:?}", events.borrow());
    }

    #[test]
    fn the_fastest_that_ran_is_chosen_once_planning_is_stopped() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let graph = import("model", layers().as_bytes(), &ImportOptions::default()).unwrap().graph;
        let model = ModelGroups::of(&graph, Granularity::Fused);
        let lab = lab(&graph, &[None, None]);
        let profiles: Vec<DeviceRows> = lab.surveyed.iter().map(DeviceRows::from).collect();
        let settings = PlanSettings { may_split: false, ..settings() };
        let request = settings.request(&model, &lab.inventory, &profiles, |device| lab.address(device)).unwrap();
        // By memory each device gets some of the layers, and what passes between them takes longer than predicted.
        let halves = request.with_goal(Goal { objective: Objective::Memory, ..request.goal.clone() });
        let first = planner::nearest(&halves).unwrap();
        assert!(!first.uses_one_device());
        let given = BTreeMap::new();
        let pilot = PilotAgents { fleet: &lab.fleet, cluster: &lab.cluster, given: &given, runtime: &lab.runtime };
        let options = PilotOptions { run_time: Micros(2e4), ..PilotOptions::default() };
        let runs = RefCell::new(Vec::new());
        let progress = |event| {
            let PlanEvent::PilotRun { devices, time, .. } = event else { return };
            runs.borrow_mut().push((devices, time));
            STOP.store(runs.borrow().len() == 2, Ordering::Relaxed);
        };
        let request = request.with_stop(Stop::new(None, &STOP));
        let runner = PilotRunner { agents: &pilot, options: &options, progress: &progress, request: &request };
        let (found, _) = runner.run(first).unwrap();
        let runs = runs.into_inner();
        assert_eq!(runs.len(), 2, "{runs:?}");
        let value =
            |(devices, time): &(usize, Micros)| time.0 * if *devices == 1 { 1.0 } else { options.second_device_gain };
        let (devices, time) = runs.iter().min_by(|a, b| value(a).total_cmp(&value(b))).unwrap();
        assert_eq!(found.uses_one_device(), *devices == 1, "{runs:?}");
        assert!(found.notes.iter().any(|note| note.starts_with(&format!("pilot run: {time} "))), "{:?}", found.notes);
    }

    #[test]
    fn a_model_is_planned_by_agents_in_this_process() {
        let graph = import("model", MODEL.as_bytes(), &ImportOptions::default()).unwrap().graph;
        let model = ModelGroups::of(&graph, Granularity::Fused);
        for agents in [1, 2] {
            let lab = lab(&graph, &vec![None; agents]);
            let profiles: Vec<DeviceRows> = lab.surveyed.iter().map(DeviceRows::from).collect();
            let request = settings().request(&model, &lab.inventory, &profiles, |device| lab.address(device)).unwrap();
            let displaced = CacheFlush::working_set(&graph);
            let mut shards =
                Shards::open(lab.folder.path(), &lab.surveyed, &model.items, lab.sampling, displaced).unwrap();
            let given = BTreeMap::new();
            let pilot = PilotAgents { fleet: &lab.fleet, cluster: &lab.cluster, given: &given, runtime: &lab.runtime };
            let events = RefCell::new(Vec::new());
            let mut planned = |options: &PilotOptions| {
                plan_on_agents(&pilot, &request, &mut shards, options, &|event| events.borrow_mut().push(event))
                    .unwrap()
            };
            let bare = planned(&PilotOptions::none());
            assert_eq!(bare.candidate.costs, CostSource::Profile);
            assert!(events.borrow().iter().any(|event| matches!(event, PlanEvent::Found(_))));
            assert!(!events.borrow().iter().any(|event| matches!(event, PlanEvent::PilotRun { .. })));
            events.borrow_mut().clear();
            assert!(planned(&PilotOptions::none()).candidate.is_same(&bare.candidate), "all is measured");
            assert!(!events.borrow().iter().any(|event| matches!(event, PlanEvent::ShardsMeasured(_))));

            let options = PilotOptions { rounds: 2, run_time: Micros(2e4), turns: 1, ..PilotOptions::default() };
            let piloted = planned(&options);
            assert_eq!(piloted.candidate.costs, CostSource::PilotRun);
            let plan = piloted.candidate.to_plan(&piloted.request).unwrap();
            assert!(plan.notes.iter().any(|note| note.starts_with("pilot run: ")), "{:?}", plan.notes);
            let is_run = |event: &&PlanEvent| matches!(event, PlanEvent::PilotRun { .. });
            let count = events.borrow().iter().filter(is_run).count();
            assert!(count >= 2, "a round, and a turn: {count}");
            let limits = plan.devices.iter().map(|device| device.memory_limit_bytes.unwrap_or(Bytes::ZERO));
            assert!(limits.into_iter().all(|limit| limit > Bytes::ZERO));
        }
    }

    #[test]
    fn pilot_runs_by_energy_keep_the_power_of_profiles() {
        const WATTS: [f64; 2] = [50.0, 5.0];
        const IDLE: f64 = 1.0;
        let graph = import("model", MODEL.as_bytes(), &ImportOptions::default()).unwrap().graph;
        let model = ModelGroups::of(&graph, Granularity::Fused);
        let lab = lab(&graph, &[None; 2]);
        let mut profiles: Vec<DeviceRows> = lab.surveyed.iter().map(DeviceRows::from).collect();
        for (profile, watts) in profiles.iter_mut().zip(WATTS) {
            for row in &mut profile.rows {
                row.energy_j = row.time_us_median.map(|time| Watts(IDLE + watts).during(time));
                (row.idle_w, row.energy_source) = (Some(Watts(IDLE)), Some(EnergySource::External));
            }
        }
        let settings = PlanSettings { objective: Objective::Energy, ..settings() };
        let request = settings.request(&model, &lab.inventory, &profiles, |device| lab.address(device)).unwrap();
        let mut shards =
            Shards::open(lab.folder.path(), &lab.surveyed, &model.items, lab.sampling, CacheFlush::working_set(&graph))
                .unwrap();
        let given = BTreeMap::new();
        let pilot = PilotAgents { fleet: &lab.fleet, cluster: &lab.cluster, given: &given, runtime: &lab.runtime };
        let options = PilotOptions { rounds: 2, run_time: Micros(2e4), ..PilotOptions::default() };
        let piloted = plan_on_agents(&pilot, &request, &mut shards, &options, &|_| {}).unwrap();
        assert_eq!(piloted.candidate.costs, CostSource::PilotRun);
        let plan = piloted.candidate.to_plan(&piloted.request).unwrap();
        assert!(plan.devices[0].order.is_empty() && !plan.devices[1].order.is_empty(), "{:?}", plan.groups);
        let busy: Micros = plan.groups.iter().map(|group| group.time_us).sum();
        let real = Watts(2.0 * IDLE).during(plan.predicted.latency_us) + Watts(WATTS[1]).during(busy);
        let stated = plan.predicted.energy_j.unwrap();
        assert!((stated - real).0.abs() < 1e-9 * real.0, "{stated} for {real}");
    }
}
