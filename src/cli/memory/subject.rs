//! What `edgecut memory` places: a Relay model or a network of bare tensors, with sizes, times and sharing rules.

use std::path::{Path, PathBuf};

use crate::{
    cli::{
        Failure, file,
        kind::{self, Kind},
        model::ModelArguments,
    },
    graph::{Contracted, Granularity, Graph, Operator, OperatorId},
    memory::{
        Reuse, Sharing,
        meta::scratch::Inside,
        model::{Costs, Group},
        network::{InPlace, Network},
    },
    ops::{self, Alias, summary::flops},
    profile::{Item, Row, files, items, model::CostModel},
    relay::Params,
    units::{Bytes, Micros},
};

/// Where no profile tells: operations and bytes a microsecond, and what a call takes besides.
const FLOPS: f64 = 20e3;
const TRAFFIC: f64 = 10e3;
const CALL: f64 = 1.0;

/// A graph with all that placing it needs.
pub struct Subject {
    pub title: String,
    pub graph: Graph,
    /// Where the times come from.
    pub timed: String,
    /// FLOPs of all operators.
    pub flops: u64,
    /// What operators are called.
    pub names: Vec<String>,
    /// What is computed as one, in an order in which it can be.
    pub groups: Vec<Group>,
    /// Contents of parameters, as far as a file gives them.
    pub params: Params,
    reuse: Vec<Reuse>,
    workspace: Vec<Bytes>,
    time: Vec<Micros>,
}

/// What parts of groups cost: in proportion, and what a call takes besides.
pub struct InProportion;

impl Costs for InProportion {
    fn part(&self, _: &[OperatorId], whole: Micros, share: f64) -> Micros {
        Micros(CALL + (whole.0 - CALL).max(0.0) * share)
    }

    fn copy(&self, bytes: Bytes) -> Micros {
        Micros(CALL + 2.0 * bytes.0 as f64 / TRAFFIC)
    }
}

impl Subject {
    /// A model, with times from `profile`, else from a profile in `profiles/`, else estimated.
    pub fn model(arguments: &ModelArguments, profile: Option<&Path>, rule: InPlace) -> Result<Subject, Failure> {
        let model = arguments.load()?;
        model.check_sizes(&arguments.model)?;
        let graph = model.import.graph;
        let title = arguments.stem();
        let profile = profile.map(Path::to_path_buf).or_else(|| find(&title, &model.import.hash));
        let costs = match &profile {
            Some(path) => Some(CostModel::of(&rows(path)?)),
            None => None,
        };
        let estimated = "estimated from FLOPs and bytes: `edgecut profile MODEL --granularity op` measures them";
        let timed = profile.map_or(estimated.to_string(), |p| format!("from {}", p.display()));
        let single: Vec<Item> = graph.operators().map(|(id, _)| Item::new(&graph, vec![id])).collect();
        let time = |item: &Item| {
            let known = costs.as_ref().and_then(|costs| costs.cost(item)).map(|estimate| estimate.cost.time.median);
            known.unwrap_or_else(|| Micros(CALL + (item.flops as f64 / FLOPS).max(item.bytes.0 as f64 / TRAFFIC)))
        };
        let workspace = |item: &Item| costs.as_ref()?.measured(&item.signature).map(|cost| cost.workspace);
        let reuse = |operator: &Operator| match (ops::lookup(&operator.name).map(|def| def.alias), rule) {
            (Some(Alias::View), _) => Reuse::View,
            (Some(Alias::InPlace), InPlace::Any) => Reuse::InPlace,
            (Some(Alias::InPlace), InPlace::First) => Reuse::First,
            (Some(Alias::Joined), InPlace::Any) if ops::joins_in_a_row(&graph, operator) => Reuse::Join,
            _ => Reuse::Never,
        };
        let times: Vec<Micros> = single.iter().map(time).collect();
        let group = |item: Item| {
            // A group that was not measured as one takes what its operators take.
            let measured = costs.as_ref().and_then(|costs| costs.measured(&item.signature));
            let apart = || item.operators.iter().map(|id| times[id.0 as usize]).sum();
            let estimate = if costs.is_some() { apart() } else { time(&item) };
            let worked = |id: &OperatorId| !matches!(reuse(graph.operator(*id)), Reuse::Never | Reuse::Join);
            Group {
                time: measured.map_or(estimate, |cost| cost.time.median),
                workspace: measured.map_or(Bytes::ZERO, |cost| cost.workspace),
                in_place: item.operators.iter().all(worked),
                operators: item.operators,
            }
        };
        Ok(Subject {
            title,
            timed,
            groups: items(&graph, Granularity::Fused).into_iter().map(group).collect(),
            params: model.params,
            names: graph.operators().map(|(id, operator)| format!("{}_{}", operator.name, id.0)).collect(),
            reuse: graph.operators().map(|(_, operator)| reuse(operator)).collect(),
            workspace: single.iter().map(|item| workspace(item).unwrap_or_default()).collect(),
            time: times,
            flops: graph.operators().map(|(_, operator)| flops(&graph, operator)).sum(),
            graph,
        })
    }

    /// A network from a file; its operators take the same time each.
    pub fn network(path: &Path, rule: InPlace) -> Result<Subject, Failure> {
        let bytes = file::read(path)?;
        let network = Network::parse(&bytes).map_err(|error| kind::instead(path, &bytes, Kind::Graph, error))?;
        let ids: Vec<OperatorId> = network.graph.operators().map(|(id, _)| id).collect();
        let name = |(_, operator): (OperatorId, &crate::graph::Operator)| {
            operator.label.as_ref().unwrap_or(&operator.name).to_string()
        };
        let group = |id: &OperatorId| Group {
            operators: vec![*id],
            time: Micros(1.0),
            workspace: Bytes::ZERO,
            in_place: network.reuse(*id, rule) != Reuse::Never,
        };
        Ok(Subject {
            groups: ids.iter().map(group).collect(),
            params: Params::default(),
            title: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            timed: "not known: 1 µs each".to_string(),
            names: network.graph.operators().map(name).collect(),
            reuse: ids.iter().map(|&id| network.reuse(id, rule)).collect(),
            workspace: vec![Bytes::ZERO; ids.len()],
            time: vec![Micros(1.0); ids.len()],
            flops: 0,
            graph: network.graph,
        })
    }

    /// The same with groups of operators as one, each with what it needs inside; its time is its operators' together.
    pub fn contracted(&self, contracted: &Contracted, inside: &[Inside]) -> Subject {
        let operators = || contracted.graph.operators().zip(&contracted.members);
        let name = |((id, operator), members): ((OperatorId, &Operator), &Vec<OperatorId>)| match members.as_slice() {
            [single] => self.names[single.0 as usize].clone(),
            _ => format!("{}_{}", operator.name, id.0),
        };
        let time: Vec<Micros> = operators().map(|(_, members)| members.iter().map(|id| self.time(*id)).sum()).collect();
        let group = |((id, _), inside): ((OperatorId, &Operator), &Inside)| Group {
            operators: vec![id],
            time: time[id.0 as usize],
            workspace: inside.scratch,
            in_place: !matches!(inside.reuse, Reuse::Never | Reuse::Join),
        };
        Subject {
            title: self.title.clone(),
            timed: self.timed.clone(),
            flops: self.flops,
            names: operators().map(name).collect(),
            groups: contracted.graph.operators().zip(inside).map(group).collect(),
            params: self.params.clone(),
            reuse: inside.iter().map(|inside| inside.reuse).collect(),
            workspace: inside.iter().map(|inside| inside.scratch).collect(),
            time,
            graph: contracted.graph.clone(),
        }
    }

    pub fn time(&self, id: OperatorId) -> Micros {
        self.time[id.0 as usize]
    }

    pub fn parameters(&self) -> Bytes {
        self.graph.parameters().filter_map(|t| self.graph.tensor(t).ty.bytes()).sum()
    }

    /// Calls `with` with the rules of who shares bytes with whom.
    pub fn sharing<T>(&self, align: u64, with: impl FnOnce(&Sharing<'_>) -> T) -> T {
        let reuse = |id: OperatorId| self.reuse[id.0 as usize];
        let workspace = |id: OperatorId| self.workspace[id.0 as usize];
        with(&Sharing { reuse: &reuse, workspace: &workspace, align })
    }
}

/// A profile of single operators of a model below `profiles/`, the first by name.
fn find(stem: &str, hash: &str) -> Option<PathBuf> {
    let short: String = hash.chars().take(8).collect();
    let folder = Path::new("profiles").join(format!("{stem}-{short}"));
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).ok()?.filter_map(|e| Some(e.ok()?.path())).collect();
    files.retain(|path| path.to_string_lossy().ends_with("-op.csv"));
    files.sort();
    files.into_iter().next()
}

fn rows(path: &Path) -> Result<Vec<Row>, Failure> {
    let bytes = file::read(path)?;
    let rows = std::str::from_utf8(&bytes).map_err(|error| error.to_string()).and_then(files::parse);
    rows.map_err(|error| kind::instead(path, &bytes, Kind::Profile, error))
}
