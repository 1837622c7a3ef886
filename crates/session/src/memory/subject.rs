//! The input of placing and scheduling: a model or a network of bare tensors, with sizes, times and rules of storage
//! reuse.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
};

use edgecut_graph::{Granularity, InPlacePolicy};
use edgecut_interop::network::Network;
use edgecut_memory::problem::{GroupCost, MemoryProblem, ModelCosts};
use edgecut_profile::{Item, items, model::CostModel};
use edgecut_relay::Params;
use serde::{Deserialize, Deserializer};

use super::stored_profile::{find, rows};
use crate::{
    Error, Events, Model, ModelOptions,
    file_kind::{self as kind, FileKind},
    ineffective::{GivenOption, refuse},
    input as file,
    model::{
        contents::{Contents, engine_error},
        given::Given,
    },
    outputs::on_this_machine,
};

/// Default alignment of offsets.
const ALIGN: u64 = 64;
/// Maximum alignment of offsets.
const MAX_ALIGN: u64 = 1 << 32;

/// A network of bare tensors, in messages.
pub(super) const NETWORK: &str = "a network of bare tensors";

/// How a model or network is read, and rules for placing its tensors.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SubjectOptions {
    /// How a model is read.
    pub model: ModelOptions,
    /// A profile with times and workspaces of a model's operators. By default, that in the folder `profiles`; without
    /// one, times are estimated.
    pub profile: Option<PathBuf>,
    /// Operands that an element-wise operator may overwrite: `any` at its last use (the default), `first` alone and only
    /// if no other operator reads it, or `never`.
    #[serde(deserialize_with = "in_place")]
    pub in_place: Option<InPlacePolicy>,
    /// Alignment of offsets. By default, 64.
    pub align: Option<u64>,
    /// Names of options whose values are defaults, such as those of a configuration file. They are ignored where they
    /// have no effect. Other options without effect are errors.
    #[serde(skip)]
    pub defaults: BTreeSet<String>,
}

/// A memory problem with its title and the source of its times.
pub(super) struct MemorySubject {
    pub(super) title: String,
    pub(super) problem: MemoryProblem,
    pub(super) times: TimesSource,
    /// Contents of the parameters that a file provides.
    params: Params,
    /// Contents of inputs that a file provides.
    pub(super) given: Given,
}

/// Where the times of operators come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimesSource {
    /// The profile in this file.
    Profile(PathBuf),
    /// Estimates from FLOPs and bytes.
    Estimated,
    /// A network of bare tensors has none: its operators take 1 µs each.
    Unknown,
}

impl fmt::Display for TimesSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimesSource::Profile(path) => write!(f, "from {}", path.display()),
            TimesSource::Estimated => f.write_str("estimated from FLOPs and bytes"),
            TimesSource::Unknown => f.write_str("not known: 1 µs each"),
        }
    }
}

impl MemorySubject {
    /// The contents of the parameters of a run: those that a file provides, and those that are computed of parameters.
    pub(super) fn params_of_run(&self) -> Result<Params, Error> {
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

impl SubjectOptions {
    /// Checks the ranges of values.
    ///
    /// # Errors
    /// If the alignment is out of range.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self.align {
            Some(align) if !(1..=MAX_ALIGN).contains(&align) => {
                let what = format!("option `align={align}`: expected a number of bytes from 1 to {MAX_ALIGN}");
                Err(Error::BadInput(what.into()))
            }
            _ => Ok(()),
        }
    }

    /// Reads a model, or a network as JSON.
    pub(super) fn read(&self, input: &Path, events: &Events) -> Result<MemorySubject, Error> {
        let bytes = file::read(input)?;
        if !kind::is_json_object(&bytes) || !Network::is_one(&bytes) {
            return self.read_model(input, events);
        }
        refuse(&self.of_models(), &self.defaults, NETWORK)?;
        self.read_network(input, &bytes)
    }

    /// Reads a model, with times from the profile of the options, else from a profile in `profiles`, else estimated.
    pub(super) fn read_model(&self, input: &Path, events: &Events) -> Result<MemorySubject, Error> {
        let model = Model::open(input, &self.model)?;
        events.notices(&model.notices);
        model.check_sizes()?;
        let title = model.name();
        let profile = match &self.profile {
            Some(path) => Some(path.clone()),
            None => find(&title, &model.import.hash, &model.options.binding()?.to_string()),
        };
        let costs = profile.as_deref().map(|path| Ok::<_, Error>(CostModel::of(&rows(path)?))).transpose()?;
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
        let [operators, groups] = [Granularity::Op, Granularity::Fused]
            .map(|granularity| items(&graph, granularity).into_iter().map(group).collect());
        let costs = ModelCosts { operators, groups, is_profiled: costs.is_some() };
        Ok(MemorySubject {
            title,
            problem: MemoryProblem::of_model(&graph, costs, self.policy()),
            times: profile.map_or(TimesSource::Estimated, TimesSource::Profile),
            params: model.params,
            given: model.given,
        })
    }

    /// Reads a network from the content of the file `input`.
    pub(super) fn read_network(&self, input: &Path, bytes: &[u8]) -> Result<MemorySubject, Error> {
        let network =
            Network::parse(bytes).map_err(|error| kind::mismatch_error(input, bytes, FileKind::Graph, error))?;
        Ok(MemorySubject {
            title: input.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            problem: network.problem(self.policy()),
            times: TimesSource::Unknown,
            params: Params::default(),
            given: Given::default(),
        })
    }

    /// The options that have an effect on models only.
    pub(super) fn of_models(&self) -> Vec<GivenOption> {
        let model = &self.model;
        vec![
            ("params", model.params.is_some()),
            ("seed_parameters", !model.seed_parameters.is_empty()),
            ("bind_dim", !model.bind_dim.is_empty()),
            ("inputs", model.inputs.is_some()),
            ("profile", self.profile.is_some()),
        ]
    }

    /// All options.
    pub(super) fn all(&self) -> Vec<GivenOption> {
        let mut options = self.of_models();
        options.extend([("in_place", self.in_place.is_some()), ("align", self.align.is_some())]);
        options
    }

    pub(super) fn align(&self) -> u64 {
        self.align.unwrap_or(ALIGN)
    }

    fn policy(&self) -> InPlacePolicy {
        self.in_place.unwrap_or_default()
    }
}

fn in_place<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<InPlacePolicy>, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Rule {
        Any,
        First,
        Never,
    }
    Ok(Option::<Rule>::deserialize(deserializer)?.map(|rule| match rule {
        Rule::Any => InPlacePolicy::Any,
        Rule::First => InPlacePolicy::FirstOperand,
        Rule::Never => InPlacePolicy::Never,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::option_values;

    #[test]
    fn options_are_read_from_json() {
        let options: SubjectOptions =
            option_values::read(r#"{"model": {"bind_dim": 8}, "in_place": "first", "align": 1}"#).unwrap();
        assert_eq!((options.in_place, options.align()), (Some(InPlacePolicy::FirstOperand), 1));
        assert_eq!(options.of_models().iter().filter(|(_, is_given)| *is_given).count(), 1);
        for text in [r#"{"in_place": "all"}"#, r#"{"defaults": []}"#] {
            assert!(option_values::read::<SubjectOptions>(text).is_err(), "{text}");
        }
        assert!(SubjectOptions { align: Some(0), ..SubjectOptions::default() }.check().is_err());
    }
}
