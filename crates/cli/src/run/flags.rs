//! The flags of `edgecut run`.

use std::{path::PathBuf, str::FromStr};

use crate::{
    cluster_flag::{ClusterFlag, ThreadsFlag},
    engine::EngineFlags,
    format::Format,
    model::ModelFlags,
};

/// Run a model on this machine, or a plan on its agents, and report how long it took.
#[derive(clap::Args)]
pub struct Run {
    /// An ONNX model, Relay text, the folder of a decoder, or a plan.json
    #[arg(value_name = "MODEL|PLAN")]
    pub(super) input: PathBuf,

    #[command(flatten)]
    pub(super) flags: ModelFlags,

    /// Pad inputs with zeros to the smallest binding that holds them, and crop outputs
    ///
    /// Of the bindings of a plan or of --bind-dim, the smallest that holds the inputs is run; without this flag, the smallest with
    /// exactly their shapes. Zeros are appended along each axis. Outputs are cropped to their sizes without padding, if the model
    /// accepts the unpadded sizes. They may still depend on the padding, such as near the border of an image.
    #[arg(long, hide_short_help = true, help_heading = "Model")]
    pub(super) pad_inputs: bool,

    /// The plan's model, if it is not where the plan says
    #[arg(long, value_name = "FILE", help_heading = "Plans")]
    pub(super) model: Option<PathBuf>,

    #[command(flatten)]
    pub(super) cluster: ClusterFlag,

    /// Write the results to this file, as `out_0`, `out_1`, …
    #[arg(long, value_name = "FILE.npz")]
    pub(super) outputs: Option<PathBuf>,

    #[command(flatten)]
    pub(super) threads: ThreadsFlag,

    #[command(flatten)]
    pub(super) engine: EngineFlags,

    /// Generate tokens with a decoder, after those of --prompt-ids
    ///
    /// Each token is computed from those before. Reports the times of the prompt and of a token. Those of a plan are compared with
    /// those of one device.
    #[arg(long, value_name = "TOKENS", help_heading = "Generation", requires = "prompt_ids")]
    pub(super) generate: Option<usize>,

    /// Token ids of the prompt; repeat the flag for another sequence
    #[arg(long, value_name = "ID,ID,…", help_heading = "Generation", requires = "generate", hide_short_help = true)]
    pub(super) prompt_ids: Vec<TokenIds>,

    /// Number of sequences in flight, at most 64, pipelined through the devices of a plan [default: one for each prompt, at most as many as
    /// the plan has inputs in flight]
    ///
    /// With more sequences than prompts, prompts are taken in turn.
    #[arg(
        long,
        value_name = "N",
        help_heading = "Generation",
        requires = "generate",
        value_parser = clap::value_parser!(u32).range(1..),
        hide_short_help = true
    )]
    pub(super) sequences: Option<u32>,

    /// Draw each token from the N with the largest logits
    #[arg(
        long,
        value_name = "N",
        help_heading = "Generation",
        default_value_t = 1,
        requires = "generate",
        hide_short_help = true
    )]
    pub(super) top_k: usize,

    /// The seed of these draws
    #[arg(
        long,
        value_name = "N",
        help_heading = "Generation",
        default_value_t = 0,
        requires = "generate",
        hide_short_help = true
    )]
    pub(super) seed: u64,

    /// Number of timed runs [default: 1 of a model, 10 of a plan]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) repeat: Option<u32>,

    /// Keep several inputs in flight, and time the results
    #[arg(long, help_heading = "Plans")]
    pub(super) throughput: bool,

    /// Plan again when an agent is lost, for the servers that answer, and go on
    ///
    /// The default with --repeat, --throughput and --generate once there is a result or a token. By the measurements in the folder of --profile. What was measured
    /// before is printed first.
    #[arg(long, help_heading = "Plans", overrides_with = "no_replan")]
    pub(super) replan: bool,

    /// Stop when an agent is lost
    #[arg(long, help_heading = "Plans", overrides_with = "replan")]
    pub(super) no_replan: bool,

    /// Folder of the profiles that the plan was made of
    #[arg(long, value_name = "DIR", help_heading = "Plans", default_value = "profiles")]
    pub(super) profile: PathBuf,

    /// Do not compare the outputs with those of one device
    #[arg(long, help_heading = "Plans")]
    pub(super) no_check: bool,

    /// Print where the latency goes on each device: computing, handling, transfers, waiting, gaps
    ///
    /// The times of a device add up to the latency. JSON always has them, except with --throughput. With `--format csv` they are
    /// printed instead of the groups.
    #[arg(long, help_heading = "Plans", conflicts_with = "throughput", hide_short_help = true)]
    pub(super) breakdown: bool,

    /// Write predicted and measured times as a trace: FILE.json for Chrome, else for Perfetto
    ///
    /// Perfetto (ui.perfetto.dev) opens both. Devices and links are groups of tracks, with counters of memory and rates.
    #[arg(long, value_name = "FILE.json|FILE.pftrace", help_heading = "Plans")]
    pub(super) trace: Option<PathBuf>,

    /// Append what was predicted and measured to this file: each inference, group, transfer and device
    #[arg(long, value_name = "FILE.csv|FILE.json", help_heading = "Plans")]
    pub(super) output: Option<PathBuf>,

    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

/// The numbers of tokens, with commas between them.
#[derive(Debug, Clone)]
pub(super) struct TokenIds(pub Vec<u64>);

impl FromStr for TokenIds {
    type Err = String;

    fn from_str(text: &str) -> Result<TokenIds, String> {
        let id = |id: &str| id.trim().parse().map_err(|_| format!("`{id}` is not the number of a token"));
        text.split(',').map(id).collect::<Result<_, _>>().map(TokenIds)
    }
}
