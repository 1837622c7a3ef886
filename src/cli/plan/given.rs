//! A model planned with profiles that are given as files: nothing is measured, and no agent is asked.
//!
//! The devices are those that the files are of, in their order; transfers between devices of one server are free.

use std::path::{Path, PathBuf};

use miette::Report;

use super::{
    Plan,
    finish::{Found, finish, options, within_memory},
    like, rules,
};
use crate::{
    cli::{
        Failure, Outcome,
        cluster::link_table,
        given::{Source, Subject, rows},
        profile::GranularityFlag,
    },
    cluster::{DeviceKind, DeviceName, DeviceSpec, Inventory, Link},
    graph::{Granularity, OperatorId},
    plan::{
        DeviceId,
        file::ModelRef,
        fitted::Fitted,
        problem::Targets,
        split::{self, Sampled, Task, Ways},
    },
    profile::{Row, items, model::CostModel},
    run::{
        costs::Costs,
        network,
        shards::{expect, tell},
    },
    units::Bytes,
};

/// Whether profiles were named, and not a folder of them.
pub(super) fn is_given(arguments: &Plan) -> bool {
    let is_file = |text: &String| {
        let path = Path::new(text);
        let is_named_so = path.extension().is_some_and(|extension| extension == "csv" || extension == "json");
        Source::parse(text).device.is_some() || path.is_file() || (is_named_so && !path.is_dir())
    };
    arguments.profile.len() > 1 || arguments.profile.iter().any(is_file)
}

/// Plans the model at `path`.
pub(super) fn run(arguments: &Plan, path: &Path) -> Outcome {
    let bad = |what: String| Failure::BadInput(Report::msg(what));
    let idle = arguments.idle(&[]);
    if !idle.is_empty() {
        let what = "the profiles are given as files, so that nothing is measured or run: leave out";
        return Err(bad(format!("{what} {}", idle.join(", "))));
    }
    let subject = Subject::open(path, &arguments.flags)?;
    let mut sources: Vec<Source> = arguments.profile.iter().map(|text| Source::parse(text)).collect();
    if !is_given(arguments) {
        // A dump, with its trace beside it.
        sources = vec![Source { path: path.to_path_buf(), device: None }];
    }
    if let Subject::Relay { model, path, .. } = &subject {
        model.check_sizes(path)?;
    }
    let rows = rows(&sources, &subject)?;
    let granularity = granularity(&rows).map_err(bad)?;
    if matches!(arguments.granularity, GranularityFlag::Op) && granularity != Granularity::Op {
        return Err(bad("--granularity op: the profiles are of fused groups".to_string()));
    }
    let graph = subject.graph();
    let items = items(graph, granularity);
    let names: Vec<String> = items.iter().map(|item| item.name.clone()).collect();
    let rules = rules::rules(arguments, &names)?;
    let devices = devices(&rows);

    let mut costs = Costs::of(&items);
    let mut sampled = Sampled::default();
    for (id, device) in (0u32..).map(DeviceId).zip(&devices) {
        let (shares, whole): (Vec<Row>, Vec<Row>) =
            rows.iter().filter(|row| is_of(row, device)).cloned().partition(|row| row.share().is_some());
        if whole.iter().all(|row| items.get(row.id).is_none_or(|item| !row.is_of(item))) {
            let what =
                "the profile has no row of this model's operators: is it of another model, or read with other sizes?";
            return Err(bad(format!("{}: {what}", device.name)));
        }
        let known = whole.iter().chain(&shares);
        expect(&items, id, &CostModel::of(known), &mut sampled);
        tell(&items, id, &shares, &mut sampled);
        costs.add(&device.name.to_string(), &whole, &shares).map_err(Failure::bad_input)?;
    }
    let inventory = inventory(arguments, devices)?;
    rules::check(&rules, &names, &inventory)?;
    let like = like::splits(arguments, subject.hash(), granularity, &inventory)?;
    let mut network = network(&inventory, |_| None, arguments.memory)
        .map_err(|e| bad(format!("{e}: give it in a file as `--links`, or in that of `--cluster`")))?;
    // A file of measurements does not say what memory its device has.
    for device in &mut network.devices {
        device.memory = device.memory.filter(|memory| memory.0 < u64::MAX);
    }
    let groups: Vec<Vec<OperatorId>> = items.iter().map(|item| item.operators.clone()).collect();
    // Kernels of a dump are known by name alone: nobody knows how to split them.
    let whole = arguments.no_split || matches!(subject, Subject::Dump { .. });
    let mut task = Task {
        ways: if whole { Ways::none(graph, &groups) } else { Ways::of(graph, &groups) },
        names,
        costs: costs.rows,
        network,
        objective: arguments.objective,
        targets: Targets { latency: arguments.latency, throughput: arguments.throughput },
        shards: &sampled,
    };
    rules::apply(&rules, &mut task);
    let options = options(arguments);
    let answer = match &like {
        Some(splits) => split::plan_like(&task, &options, arguments.ratios, splits),
        None => split::plan_from(&task, &options, arguments.ratios, None),
    };
    let Fitted { answer, schedules } = within_memory(arguments, &task, answer, &options)?;
    let inputs = arguments.flags.inputs.as_ref().filter(|_| subject.is_selected());
    let reference = ModelRef {
        path: path.display().to_string(),
        blake3: subject.hash().to_string(),
        bind_dims: arguments.flags.bind_dim.clone(),
        inputs: inputs.map(|inputs| inputs.display().to_string()),
    };
    let threads = inventory.devices.iter().map(|device| Some(device.threads)).collect();
    let dumped =
        "the model is a graph dump, which names kernels and has none: this plan can be looked at, not run or exported";
    let notes = matches!(subject, Subject::Dump { .. }).then(|| dumped.to_string()).into_iter().collect();
    let estimated = costs.estimated;
    let found = Found {
        task: &task,
        answer,
        schedules,
        is_measured: false,
        sampled: &sampled,
        estimated,
        reference,
        rules,
        threads,
        notes,
    };
    finish(arguments, &options, granularity, found)
}

/// What all rows are of.
fn granularity(rows: &[Row]) -> Result<Granularity, String> {
    let first = rows.first().ok_or("the profiles have no rows")?.granularity;
    match rows.iter().find(|row| row.granularity != first) {
        Some(_) => Err("the profiles are of operators and of fused groups: give those of one granularity".to_string()),
        None => Ok(first),
    }
}

/// The devices of the rows, as they come.
fn devices(rows: &[Row]) -> Vec<DeviceSpec> {
    let mut devices: Vec<DeviceSpec> = Vec::new();
    for row in rows {
        if devices.iter().any(|device| is_of(row, device)) {
            continue;
        }
        devices.push(DeviceSpec {
            name: DeviceName::new(row.server.as_str(), row.device.as_str()),
            kind: if row.device.starts_with("gpu") { DeviceKind::Gpu } else { DeviceKind::Cpu },
            hardware: row.hardware.clone(),
            engine: format!("{} {}", row.engine, row.engine_version),
            threads: row.threads as u32,
            memory: Bytes(u64::MAX),
            host_link: None,
        });
    }
    devices
}

fn is_of(row: &Row, device: &DeviceSpec) -> bool {
    (row.server.as_str(), row.device.as_str()) == (device.name.server.as_str(), device.name.device.as_str())
}

/// The devices with links from the cluster file, else from the table of links. Inputs start where that file says, else
/// at the first device.
fn inventory(arguments: &Plan, devices: Vec<DeviceSpec>) -> Result<Inventory, Failure> {
    let first = devices.first().map(|device| device.name.server.clone()).unwrap_or_default();
    let mut inventory = Inventory { devices, links: Vec::new(), source: first.clone(), sink: first };
    if arguments.cluster.path().is_some() {
        let cluster = arguments.cluster.read()?;
        for device in &mut inventory.devices {
            let server = cluster.server(&device.name.server);
            let limit = server.and_then(|server| server.memory_for(&device.name.device));
            device.memory = limit.unwrap_or(device.memory);
        }
        inventory.links = cluster.links;
        (inventory.source, inventory.sink) = (cluster.source, cluster.sink);
    }
    let table: Option<&PathBuf> = arguments.links.as_ref();
    if let Some(path) = table {
        let rows = link_table(path)?.rows;
        let is_new = |link: &Link| inventory.links.iter().all(|l| (&l.from, &l.to) != (&link.from, &link.to));
        let new: Vec<Link> = rows.iter().map(|row| row.link()).filter(is_new).collect();
        inventory.links.extend(new);
    }
    Ok(inventory)
}
