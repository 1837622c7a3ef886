//! The input of `edgecut memory`: a model or a network of bare tensors, with sizes, times and rules of storage reuse.

use edgecut_session::{
    file_kind::{self as kind, FileKind},
    model::{
        contents::{Contents, engine_error},
        given::Given,
    },
    outputs::on_this_machine,
};
use std::path::{Path, PathBuf};

use edgecut_graph::{Granularity, InPlacePolicy};
use edgecut_interop::network::Network;
use edgecut_memory::problem::{GroupCost, MemoryProblem, ModelCosts};
use edgecut_profile::{Item, ProfileRow, items, model::CostModel, reader};
use edgecut_relay::Params;

use crate::{
    Failure,
    ineffective::{self, Flag},
    model::{ModelArguments, ModelFlags},
    source_file,
};

/// Default alignment of offsets.
const ALIGN: u64 = 64;

/// Flags for reading a model or network, and rules for placing its tensors.
#[derive(clap::Args, Debug, Clone)]
pub struct SubjectFlags {
    #[command(flatten)]
    model: ModelFlags,

    /// Times and workspaces of operators; by default from profiles/, else estimated
    #[arg(long, value_name = "FILE.csv", help_heading = "Model")]
    profile: Option<PathBuf>,

    /// Operands that an element-wise operator may overwrite: any, first, never
    #[arg(long, value_enum, hide_possible_values = true, value_name = "RULE", help_heading = "Placement")]
    in_place: Option<InPlace>,

    /// Alignment of offsets [default: 64]
    #[arg(
        long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=1 << 32),
        help_heading = "Placement"
    )]
    align: Option<u64>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum InPlace {
    /// Any operand at its last use (the default)
    Any,
    /// Only the first operand, if no other operator reads it
    First,
    Never,
}

/// A memory problem with its title and the source of its times.
pub struct Subject {
    pub title: String,
    pub problem: MemoryProblem,
    /// Source of the times, as text for reports.
    pub times: String,
    /// Contents of the parameters that a file provides.
    pub params: Params,
    /// Contents of inputs that a file provides.
    pub given: Given,
}

impl Subject {
    /// The contents of the parameters of a run: those that a file provides, and those that are computed of parameters.
    pub fn params_of_run(&self) -> Result<Params, Failure> {
        let MemoryProblem { graph, prologue, derived, .. } = &self.problem;
        let given = self.params.iter().map(|(name, data)| (name.to_string(), data.clone()));
        if derived.is_empty() {
            return Ok(given.collect());
        }
        let contents = Contents::new(prologue, Given::default(), &self.params)?;
        let computed = on_this_machine(prologue, &contents, &[]).map_err(engine_error)?;
        let names = derived.iter().map(|id| graph.tensor(*id).name.to_string());
        Ok(given.chain(names.zip(computed)).collect())
    }
}

impl SubjectFlags {
    /// Reads a Relay model, or a network as JSON.
    pub fn read(&self, input: &Path) -> Result<Subject, Failure> {
        let bytes = source_file::read(input)?;
        if !kind::is_json_object(&bytes) || !Network::is_one(&bytes) {
            return self.read_model(input);
        }
        ineffective::refuse(&self.of_models(), "a network of bare tensors")?;
        self.read_network(input, &bytes)
    }

    /// A model, with times from `--profile`, else from a profile in `profiles/`, else estimated.
    pub fn read_model(&self, input: &Path) -> Result<Subject, Failure> {
        let arguments = ModelArguments { model: input.to_path_buf(), flags: self.model.clone() };
        let model = arguments.open()?;
        model.check_sizes()?;
        let title = model.name();
        let profile = match &self.profile {
            Some(path) => Some(path.clone()),
            None => find(&title, &model.import.hash, &model.options.binding()?.to_string()),
        };
        let costs = profile.as_deref().map(|path| Ok::<_, Failure>(CostModel::of(&rows(path)?))).transpose()?;
        let graph = model.import.graph;
        let group = |item: Item| GroupCost {
            measured: costs
                .as_ref()
                .and_then(|costs| costs.measured(&item.signature))
                .map(|c| (c.time.median, c.workspace)),
            estimated: costs.as_ref().and_then(|costs| costs.cost(&item)).map(|estimate| estimate.cost.time.median),
            flops: item.flops,
            bytes: item.bytes,
            operators: item.operators,
        };
        let operators = graph.operators().map(|(id, _)| group(Item::new(&graph, vec![id]))).collect();
        let groups = items(&graph, Granularity::Fused).into_iter().map(group).collect();
        let costs = ModelCosts { operators, groups, is_profiled: costs.is_some() };
        let estimated = "estimated from FLOPs and bytes; `edgecut profile MODEL --granularity op` measures them";
        Ok(Subject {
            title,
            problem: MemoryProblem::of_model(&graph, costs, self.policy()),
            times: profile.map_or(estimated.to_string(), |path| format!("from {}", path.display())),
            params: model.params,
            given: model.given,
        })
    }

    /// A network from a file; its operators take 1 µs each.
    pub fn read_network(&self, input: &Path, bytes: &[u8]) -> Result<Subject, Failure> {
        let network =
            Network::parse(bytes).map_err(|error| kind::mismatch_error(input, bytes, FileKind::Graph, error))?;
        Ok(Subject {
            title: input.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            problem: network.problem(self.policy()),
            times: "not known: 1 µs each".to_string(),
            params: Params::default(),
            given: Given::default(),
        })
    }

    /// The flags that have an effect on models only.
    pub fn of_models(&self) -> Vec<Flag> {
        let mut flags = self.model.given().to_vec();
        flags.push(("--profile", self.profile.is_some()));
        flags
    }

    /// All flags of the group.
    pub fn all(&self) -> Vec<Flag> {
        let mut flags = self.of_models();
        flags.extend([("--in-place", self.in_place.is_some()), ("--align", self.align.is_some())]);
        flags
    }

    pub fn align(&self) -> u64 {
        self.align.unwrap_or(ALIGN)
    }

    fn policy(&self) -> InPlacePolicy {
        match self.in_place {
            None | Some(InPlace::Any) => InPlacePolicy::Any,
            Some(InPlace::First) => InPlacePolicy::FirstOperand,
            Some(InPlace::Never) => InPlacePolicy::Never,
        }
    }
}

/// A per-operator profile of the model in `profiles/`: that of the binding `label`, else the one without a binding, else that of
/// another binding. Of several candidates, the first by name.
fn find(stem: &str, hash: &str, label: &str) -> Option<PathBuf> {
    let short: String = hash.chars().take(8).collect();
    let folder = Path::new("profiles").join(format!("{stem}-{short}"));
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).ok()?.filter_map(|e| Some(e.ok()?.path())).collect();
    let is_own = |path: &Path| path.to_string_lossy().ends_with("-op.csv");
    files.retain(|path| {
        let name = path.to_string_lossy();
        let is_of_binding = ["-isolated-op-", "-in-situ-op-"].iter().any(|part| name.contains(part));
        is_own(path) || (is_of_binding && name.ends_with(".csv") && !name.ends_with(".summary.csv"))
    });
    files.sort_by_cached_key(|path| (!is_own(path), path.clone()));
    let is_of_label = |path: &&PathBuf| {
        !is_own(path) && rows(path).is_ok_and(|rows| rows.first().is_some_and(|row| row.binding == label))
    };
    files.iter().find(is_of_label).or(files.first()).cloned()
}

fn rows(path: &Path) -> Result<Vec<ProfileRow>, Failure> {
    let bytes = source_file::read(path)?;
    let rows = std::str::from_utf8(&bytes).map_err(|error| error.to_string()).and_then(reader::parse);
    rows.map_err(|error| kind::mismatch_error(path, &bytes, FileKind::Profile, error))
}
