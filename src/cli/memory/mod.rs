//! `edgecut memory`: who lives when, where it lies, and how to make it fit.

mod arena;
mod away;
mod batch;
mod execute;
mod figures;
mod fit;
mod fuse;
mod neighbour;
mod place;
mod schedule;
mod spread;
mod subject;
mod traced;

use std::path::PathBuf;

use subject::Subject;

use crate::{
    cli::{
        Failure, Outcome, file,
        format::Format,
        model::{ModelArguments, ModelFlags},
    },
    memory::{
        arena::pools::Pool,
        network,
        workload::{Limit, Target},
    },
    report::memory::charts::Link,
    units::Bytes,
};

/// Place tensors in memory, and make programs fit into less of it; always with the lower bound.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("input").required(true).args(["model", "arena", "graph", "configs", "trace"])))]
pub struct Memory {
    /// Relay text, as TVM's `mod.astext()` prints it
    model: Option<PathBuf>,

    #[command(flatten)]
    flags: ModelFlags,

    /// Pack the buffers of this file (MiniMalloc's CSV: id, lower, upper, size, and alignment, offset if wanted)
    #[arg(long, value_name = "FILE.csv")]
    arena: Option<PathBuf>,

    /// Schedule this graph: DLMO's pattern.json, MAGIS's export; or place this network of bare tensors and operators
    #[arg(long, value_name = "FILE.json")]
    graph: Option<PathBuf>,

    /// Schedule many graphs: lines of `path limit`, paths from the file's folder
    #[arg(long, value_name = "FILE")]
    configs: Option<PathBuf>,

    /// Report the liveness of a traced PyTorch graph: its forward function as Python text
    #[arg(long, value_name = "FWD.py")]
    trace: Option<PathBuf>,

    /// Its backward function
    #[arg(long, value_name = "BWD.py", requires = "trace")]
    backward: Option<PathBuf>,

    /// Times of its kernels: lines of `0 0.125 ms`
    #[arg(long, value_name = "FILE", requires = "trace")]
    times: Option<PathBuf>,

    /// Write births, deaths and idle periods into this folder: as tables, and as the G10 liveness tool does
    #[arg(long, value_name = "FOLDER")]
    liveness: Option<PathBuf>,

    /// Count as the G10 tool does, quirks included
    #[arg(long, requires = "liveness")]
    g10_compat: bool,

    /// What G10's files are named after
    #[arg(long, value_name = "NAME", default_value = "run1")]
    run_name: String,

    /// Write figures into this folder: one HTML page, SVG (and PNG, if built with the feature `png`), a text map, counters
    /// for Perfetto, Aidge's memory_info.txt
    #[arg(long, value_name = "FOLDER")]
    figures: Option<PathBuf>,

    /// Draw into the figure of sizes and idle times what this link could carry there and back; may be given several
    /// times. If not given, the links of profiles/links.csv
    #[arg(long, value_name = "[NAME=]RATE", requires = "figures", value_parser = figures::link)]
    link: Vec<Link>,

    /// Write all names into the arena map, also where they do not fit
    #[arg(long)]
    display_names: bool,

    /// Print the arena as a map of 80 columns
    #[arg(long)]
    map: bool,

    /// Times and workspaces of a model's operators from this profile; else from one by operator in profiles/, else estimated
    #[arg(long, value_name = "FILE.csv")]
    profile: Option<PathBuf>,

    /// What every offset is a multiple of
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    align: u64,

    /// Fuse operators to meta-operators first, after the patterns of this file, else after those that are built in
    #[arg(long, value_name = "FILE.toml", num_args = 0..=1, conflicts_with_all = ["limit", "slowdown", "pareto", "run"])]
    fuse: Option<Option<PathBuf>>,

    /// Whose bytes an element-wise operator may overwrite
    #[arg(long, value_enum, default_value_t)]
    in_place: InPlace,

    /// Make the arena as small as possible (the default)
    #[arg(long, conflicts_with = "capacity")]
    minimize: bool,

    /// Find a packing that fits in this size; exit code 3 if none is found
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["limit", "slowdown", "pareto", "run"])]
    capacity: Option<Bytes>,

    /// A memory for the buffers of --arena, in order of preference: what does not fit goes to the next. The last one
    /// may be without a size, and takes the rest
    #[arg(long, value_name = "NAME[=SIZE]", requires = "arena", conflicts_with_all = ["capacity", "minimize"], value_parser = arena::pool)]
    pool: Vec<Pool>,

    /// The fastest schedule within this peak: a size, or a percentage of the original peak; exit code 3 if none is found
    #[arg(long, value_name = "SIZE|PERCENT", conflicts_with = "slowdown")]
    limit: Option<Limit>,

    /// The smallest schedule that takes at most so many times the original time
    #[arg(long, value_name = "FACTOR")]
    slowdown: Option<f64>,

    /// All schedules that no other one beats in both peak and time
    #[arg(long, conflicts_with_all = ["limit", "slowdown"])]
    pareto: bool,

    /// Tensors of a model may also lie on the nearest other server of this cluster meanwhile, at the link's cost
    #[arg(long, value_name = "FILE", requires = "model")]
    cluster: Option<PathBuf>,

    /// Run the schedule of a model on this machine's processor, or with --cluster on the agents of two servers; compare
    /// its results with the model's, and measure its memory and time against the model's
    #[arg(long, requires = "model", conflicts_with = "pareto")]
    run: bool,

    /// The same seed and effort give the same result
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Search from so many seeds, and print how far the results lie apart
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "graph", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,

    /// How long to search: millions of buffers (arena, 300 if not given; 30 take about a second) or of steps of
    /// schedules looked at (70 if not given; 20 take about a second)
    #[arg(long, value_name = "MILLIONS")]
    effort: Option<u64>,

    /// Write the result to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What stands where a model could.
#[derive(Clone, Copy, PartialEq)]
enum Input {
    Arena,
    /// Bare tensors and operators, placed as a model is.
    Network,
    Graph,
    Configs,
    Trace,
}

#[derive(Clone, Copy, Default, clap::ValueEnum)]
enum InPlace {
    /// Those of any operand that dies
    #[default]
    Any,
    /// Only the first operand's, if nobody else reads it
    First,
    Never,
}

impl InPlace {
    fn rule(self) -> network::InPlace {
        match self {
            InPlace::Any => network::InPlace::Any,
            InPlace::First => network::InPlace::First,
            InPlace::Never => network::InPlace::Never,
        }
    }
}

impl Memory {
    pub fn run(self) -> Outcome {
        if self.slowdown.is_some_and(|factor| factor.is_nan() || factor < 1.0) {
            let text = "--slowdown is a factor of 1 or more: 1.1 allows a tenth more time";
            return Err(Failure::BadInput(miette::Report::msg(text)));
        }
        if self.cluster.is_some() && !self.schedules() {
            let text = "--cluster is for schedules: give --limit, --slowdown or --pareto with it";
            return Err(Failure::BadInput(miette::Report::msg(text)));
        }
        if self.schedules() && (self.figures.is_some() || self.liveness.is_some() || self.map) {
            let text = "--figures, --liveness and --map show the model as it is: leave out --limit, --slowdown, --pareto and --run";
            return Err(Failure::BadInput(miette::Report::msg(text)));
        }
        for (flag, folder) in [("--figures", &self.figures), ("--liveness", &self.liveness)] {
            if let Some(file) = folder.as_deref().filter(|folder| folder.exists() && !folder.is_dir()) {
                let text = format!("{flag} {}: it is a file; name a folder", file.display());
                return Err(Failure::BadInput(miette::Report::msg(text)));
            }
        }
        self.check_flags()?;
        self.output.as_deref().map_or(Ok(()), file::check_place)?;
        let rule = self.in_place.rule();
        if let Some(model) = &self.model {
            let source = ModelArguments { model: model.clone(), flags: self.flags.clone() };
            let subject = Subject::model(&source, self.profile.as_deref(), rule)?;
            return self.place(&subject);
        }
        match (&self.arena, &self.graph, &self.configs, &self.trace) {
            (Some(file), ..) => arena::run(&self, file),
            (_, Some(file), ..) if fit::is_network(file)? => self.place(&Subject::network(file, rule)?),
            (_, Some(file), ..) => fit::run(&self, file),
            (.., Some(file), _) => batch::run(&self, file),
            (.., Some(file)) => traced::run(&self, file),
            // clap requires one of them.
            _ => Ok(()),
        }
    }

    /// Refuses flags that say nothing of what is to be placed or scheduled.
    fn check_flags(&self) -> Outcome {
        let (input, name) = match (&self.arena, &self.graph, &self.configs, &self.trace) {
            (Some(_), ..) => (Input::Arena, "--arena"),
            (_, Some(file), ..) if fit::is_network(file)? => (Input::Network, "--graph with a network"),
            (_, Some(_), ..) => (Input::Graph, "--graph with a program"),
            (.., Some(_), _) => (Input::Configs, "--configs"),
            (.., Some(_)) => (Input::Trace, "--trace"),
            _ => return Ok(()),
        };
        use Input::{Arena, Configs, Graph, Network, Trace};
        let flags: [(&str, bool, &[Input]); 18] = [
            ("--params", self.flags.params.is_some(), &[]),
            ("--inputs", self.flags.inputs.is_some(), &[]),
            ("--bind-dim", !self.flags.bind_dim.is_empty(), &[]),
            ("--profile", self.profile.is_some(), &[]),
            ("--cluster", self.cluster.is_some(), &[]),
            ("--run", self.run, &[]),
            ("--fuse", self.fuse.is_some(), &[Network]),
            ("--figures", self.figures.is_some(), &[Network]),
            ("--display-names", self.display_names, &[Network]),
            ("--map", self.map, &[Network]),
            ("--liveness", self.liveness.is_some(), &[Network, Trace]),
            ("--minimize", self.minimize, &[Network, Arena]),
            ("--capacity", self.capacity.is_some(), &[Network, Arena]),
            ("--limit", self.limit.is_some(), &[Network, Graph]),
            ("--slowdown", self.slowdown.is_some(), &[Network, Graph]),
            ("--pareto", self.pareto, &[Network, Graph]),
            ("--output", self.output.is_some(), &[Network, Arena, Graph, Configs]),
            ("--effort", self.effort.is_some(), &[Network, Arena, Graph, Configs]),
        ];
        let idle = flags.iter().filter(|(_, is_given, of)| *is_given && !of.contains(&input));
        let idle: Vec<&str> = idle.map(|(flag, ..)| *flag).collect();
        if idle.is_empty() {
            return Ok(());
        }
        let (flags, verb) = (idle.join(", "), if idle.len() == 1 { "says" } else { "say" });
        let what = format!("{flags} {verb} nothing of {name}: leave it out, or give a MODEL");
        Err(Failure::BadInput(miette::Report::msg(what)))
    }

    fn place(&self, subject: &Subject) -> Outcome {
        match &self.fuse {
            _ if self.schedules() => schedule::run(self, subject),
            Some(library) => fuse::run(self, subject, library.as_deref()),
            None => place::run(self, subject),
        }
    }

    /// Whether schedules are asked for, rather than an arena for everything once.
    fn schedules(&self) -> bool {
        self.target().is_some() || self.pareto || self.run
    }

    fn target(&self) -> Option<Target> {
        self.limit.map(Target::Limit).or(self.slowdown.map(Target::Slowdown))
    }

    fn effort(&self, default: u64) -> u64 {
        self.effort.unwrap_or(default).saturating_mul(1_000_000)
    }
}
