//! Flags for the input of `edgecut memory`: a model or a network of bare tensors, and rules for placing its tensors.

use std::path::PathBuf;

use edgecut_graph::InPlacePolicy;
use edgecut_session::memory::SubjectOptions;

use crate::{config::configured_options, ineffective::Flag, model::ModelFlags};

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

impl SubjectFlags {
    /// The options of these flags.
    pub fn options(&self) -> SubjectOptions {
        SubjectOptions {
            model: self.model.options(),
            profile: self.profile.clone(),
            in_place: self.in_place.map(InPlacePolicy::from),
            align: self.align,
            defaults: configured_options(),
        }
    }

    /// All flags of the group.
    pub fn all(&self) -> Vec<Flag> {
        let mut flags = self.model.given().to_vec();
        flags.extend([
            ("--profile", self.profile.is_some()),
            ("--in-place", self.in_place.is_some()),
            ("--align", self.align.is_some()),
        ]);
        flags
    }
}

impl From<InPlace> for InPlacePolicy {
    fn from(flag: InPlace) -> InPlacePolicy {
        match flag {
            InPlace::Any => InPlacePolicy::Any,
            InPlace::First => InPlacePolicy::FirstOperand,
            InPlace::Never => InPlacePolicy::Never,
        }
    }
}
