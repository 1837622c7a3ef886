//! `edgecut profile`: what every operator of a model costs on each device.

mod imported;
mod order;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use edgecut_graph::{
    Granularity,
    units::{Bytes, Micros},
};
use edgecut_profile::{MeasurementMode, ModelTime, OperatorTotal, ProfileRow, ProfileSummary};
use edgecut_session::{
    ModelOptions, ProfileOptions, Profiles, Site, error::Message, model::Binding, survey::DeviceProfile,
};
use serde::Serialize;

use crate::{
    Failure, Outcome,
    cluster_flag::{ClusterFlag, ThreadsFlag},
    engine::EngineFlags,
    flag_text::with_flags,
    format::{Format, print_csv, print_json},
    model::{self, ModelFlags},
    source_file::check_folder,
    stderr,
    stdout::print_line,
    table::{numbered, shortened, table},
};
use order::{Printed, RowOrder};

/// Measure every operator of a model, on this machine or on all devices of a cluster.
#[derive(clap::Args)]
pub struct Profile {
    /// An ONNX model or Relay text; with --import also a graph dump of TVM's debug executor
    model: Option<PathBuf>,

    #[command(flatten)]
    flags: ModelFlags,

    #[command(flatten)]
    cluster: ClusterFlag,

    /// Measure each distinct operator alone, or all of them while the model runs
    #[arg(long, value_enum, default_value = "isolated", help_heading = "Measuring")]
    mode: ModeFlag,

    /// Measure single operators, or the groups that TVM's rules fuse
    #[arg(long, value_enum, default_value = "fused", help_heading = "Measuring")]
    granularity: GranularityFlag,

    #[command(flatten)]
    threads: ThreadsFlag,

    #[command(flatten)]
    engine: EngineFlags,

    /// Also measure halves, quarters and eighths of operators
    ///
    /// Along every axis that an operator can be split along, the slowest operators first, for as much time again as the
    /// budget.
    #[arg(long, help_heading = "Measuring")]
    fractions: bool,

    /// Time to spend on each device and binding; what is precise to 2 % ends earlier
    #[arg(long, value_name = "TIME", default_value = "20s", help_heading = "Measuring")]
    budget: Micros,

    /// Folder for the profiles; one of the same model and device is continued
    #[arg(long, value_name = "DIR", default_value = "profiles")]
    output: PathBuf,

    /// Import times of EOP's CSV, TVM's debug executor or ONNX Runtime's profile instead
    ///
    /// From a CSV file of EOP's for MODEL, from a graph dump or an execution trace of TVM's debug executor, each found in the
    /// folder of the other, or from the JSON that an ONNX Runtime session of MODEL wrote (`enable_profiling`); repeat the flag for the CSV of its
    /// memory (`session.collect_node_memory_stats_to_file`) as another file. SERVER/DEVICE is the name of the device in the
    /// profile.
    #[arg(
        long, value_name = "FILE[=SERVER/DEVICE]", help_heading = "Measuring",
        conflicts_with_all = ["cluster", "inputs", "mode", "granularity", "threads", "budget", "fractions", "again"]
    )]
    import: Vec<String>,

    /// Measure again what was measured before
    #[arg(long, help_heading = "Measuring")]
    again: bool,

    /// The order of the printed operators
    #[arg(long, value_enum, default_value_t)]
    sort: RowOrder,

    /// Print the first N operators alone
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// How to print the result: CSV has the profile's rows
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ModeFlag {
    Isolated,
    InSitu,
}

/// [`Granularity`] on the command line.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum GranularityFlag {
    Op,
    Fused,
}

impl From<GranularityFlag> for Granularity {
    fn from(flag: GranularityFlag) -> Granularity {
        match flag {
            GranularityFlag::Op => Granularity::Op,
            GranularityFlag::Fused => Granularity::Fused,
        }
    }
}

/// The profiles of all devices for one binding of the model.
struct MeasuredProfiles {
    /// The binding, if it is one of several.
    binding: Option<Binding>,
    profiles: Profiles,
}

/// One device's profile as JSON.
#[derive(Serialize)]
struct Page<'a> {
    device: String,
    /// The sizes of unknown dimensions, if several bindings are profiled.
    #[serde(skip_serializing_if = "Option::is_none")]
    binding: Option<String>,
    rows: Vec<&'a ProfileRow>,
    /// Of shards of operators.
    fractions: &'a [ProfileRow],
    kinds: &'a [OperatorTotal],
    sum_us: f64,
    /// `null` where the device cannot compute the whole model.
    whole_us: Option<f64>,
}

impl Profile {
    pub fn run(self) -> Outcome {
        if !self.import.is_empty() {
            return imported::run(self.model.as_deref(), &self.flags, &self.import, &self.output, self.format);
        }
        let Some(model) = self.model.as_deref() else {
            return Err(Failure::BadInput("nothing to profile: give a model, or --import FILE".into()));
        };
        self.check()?;
        let options = self.flags.options_for(&self.engine);
        let bindings = options.bindings()?;
        let printed = Printed { order: self.sort, most: self.top.unwrap_or(usize::MAX) };
        let mut measured = Vec::with_capacity(bindings.len());
        for binding in &bindings {
            let options = options.with_binding(binding, &bindings);
            let several = (bindings.len() > 1).then(|| binding.clone());
            let profiles = self.measure(model, &options);
            let profiles = match several {
                None => profiles?,
                Some(_) => profiles.map_err(|error| error.at(format!("binding `{binding}`")))?,
            };
            let of_one = MeasuredProfiles { binding: several, profiles };
            if self.format == Format::Table {
                print_pages(&of_one, printed);
            }
            measured.push(of_one);
        }
        print(self.format, &mut measured, printed)?;
        let unwritten = measured.iter().find_map(|of_one| of_one.profiles.check_written().err());
        unwritten.map_or(Ok(()), Err)
    }

    /// Refuses flags that contradict each other.
    fn check(&self) -> Outcome {
        if self.output.extension().is_some_and(|extension| extension == "csv") && !self.output.is_dir() {
            let what = "profiles go into a folder; `--format csv` prints the rows, to be redirected into a file";
            return Err(Failure::BadInput(Message::from(format!("--output {}: {what}", self.output.display()))));
        }
        check_folder("output", &self.output)
    }

    /// Measures what the profiles of one binding lack.
    fn measure(&self, model: &Path, options: &ModelOptions) -> Result<Profiles, Failure> {
        let model = model::open(model, options)?;
        model.check_sizes()?;
        let site = Site::open(&self.cluster.options_with(&self.threads, &self.engine), &stderr::events())?;
        site.profile(&model, &self.options())
    }

    fn options(&self) -> ProfileOptions {
        ProfileOptions {
            mode: match self.mode {
                ModeFlag::Isolated => MeasurementMode::Isolated,
                ModeFlag::InSitu => MeasurementMode::InSitu,
            },
            granularity: self.granularity.into(),
            fractions: self.fractions,
            budget: self.budget,
            output: self.output.clone(),
            again: self.again,
        }
    }
}

/// Prints all profiles as CSV or JSON. Tables are printed after each binding, by [`print_pages`].
fn print(format: Format, measured: &mut [MeasuredProfiles], printed: Printed) -> Outcome {
    match format {
        Format::Csv => {
            for of_one in &mut *measured {
                let binding = of_one.binding.as_ref().map_or(String::new(), ToString::to_string);
                let profiles = of_one.profiles.devices.iter_mut();
                // All rows need the same columns, whichever file they come from.
                let rows = profiles.flat_map(|profile| profile.rows.iter_mut().chain(&mut profile.shards));
                rows.for_each(|row| row.binding.clone_from(&binding));
            }
            let profiles = measured.iter().flat_map(|of_one| &of_one.profiles.devices);
            let rows = profiles.flat_map(|profile| printed.of(&profile.rows).into_iter().chain(&profile.shards));
            print_csv(&rows.collect::<Vec<_>>())
        }
        Format::Json => {
            let of_all = measured.iter().flat_map(|of_one| {
                let profiles = of_one.profiles.devices.iter().zip(&of_one.profiles.summaries);
                profiles.map(|(profile, summary)| (&of_one.binding, profile, summary))
            });
            let page = |(binding, profile, summary): (&Option<Binding>, &'_ DeviceProfile, &'_ ProfileSummary)| {
                serde_json::to_value(Page {
                    device: profile.device.name.to_string(),
                    binding: binding.as_ref().map(ToString::to_string),
                    rows: printed.of(&profile.rows),
                    fractions: &profile.shards,
                    kinds: &summary.kinds,
                    sum_us: summary.sum.time.0,
                    whole_us: profile.whole.map(|whole| whole.time.0),
                })
            };
            let pages = of_all.map(page).collect::<Result<Vec<_>, _>>();
            print_json(&pages.map_err(Failure::failed)?)
        }
        Format::Table => Ok(()),
    }
}

fn print_pages(measured: &MeasuredProfiles, printed: Printed) {
    if let Some(binding) = &measured.binding {
        print_line!("binding {binding}\n");
    }
    for (profile, summary) in measured.profiles.devices.iter().zip(&measured.profiles.summaries) {
        print_line!("{}", page(profile, summary, printed));
    }
}

/// Names longer than this lose their middle.
const LONGEST_NAME: usize = 56;

/// One line a signature in the order of the model, then kinds, then the check.
fn page(profile: &DeviceProfile, summary: &ProfileSummary, printed: Printed) -> String {
    let rows = &profile.rows;
    let share = |time: f64| format!("{:.1} %", 100.0 * time / summary.sum.time.0.max(f64::MIN_POSITIVE));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    rows.iter().for_each(|row| *counts.entry(row.signature.as_str()).or_default() += 1);
    let has_energy = rows.iter().any(|row| row.energy_j.is_some());
    let header = [">id", "operator", "result", ">count", ">time", ">±", ">share", ">workspace", ">held", ">energy"];
    let mut costs = table(if has_energy { &header[..] } else { &header[..header.len() - 1] });
    let (shown, hidden) = printed.distinct(rows, &counts);
    for row in shown {
        let count = counts[row.signature.as_str()];
        let result = row.shapes.rsplit("->").next().unwrap_or_default();
        let mut line = vec![
            numbered(u32::try_from(row.id).ok()),
            shortened(&row.operator, LONGEST_NAME),
            shortened(result, 32),
            count.to_string(),
        ];
        match row.cost() {
            None => line.push(shortened(&with_flags(&row.note), LONGEST_NAME)),
            Some(cost) => {
                line.extend([
                    cost.time.median.to_string(),
                    cost.time.mad.to_string(),
                    share(cost.time.median.0 * count as f64),
                    cost.workspace.to_string(),
                    cost.held.to_string(),
                ]);
                line.extend(cost.energy.map(|energy| energy.run.to_string()));
            }
        }
        costs.add_row(line);
    }
    let mut kinds = table(["operator", ">count", ">time", ">share"]);
    for kind in &summary.kinds {
        let time = kind.time_us.to_string();
        kinds.add_row([shortened(&kind.operator, LONGEST_NAME), kind.count.to_string(), time, share(kind.time_us.0)]);
    }
    let device = &profile.device;
    let held: Bytes = rows.iter().filter_map(|row| row.held_bytes).sum();
    let threads = if device.threads == 1 { "one thread".to_string() } else { format!("{} threads", device.threads) };
    format!(
        "{} ({}), {threads}\n\n{costs}\n{}\n{kinds}\n\nsum of all {}, {held} held; {}",
        device.name,
        device.hardware,
        if hidden > 0 { format!("and {hidden} more\n") } else { String::new() },
        summary.sum.time,
        profile
            .whole
            .map_or("the whole model cannot be computed here".to_string(), |whole| check(&whole, &summary.sum))
    )
}

/// The sum of the parts against the whole.
fn check(whole: &ModelTime, sum: &ModelTime) -> String {
    let (wall, cpu) = whole.relative_difference(sum);
    let energy = sum.energy.zip(whole.energy);
    let energy = energy.map_or(String::new(), |(sum, whole)| format!("; energy {sum} against {whole} for the whole"));
    format!(
        "whole model {}: {:+.1} % (processor time {} against {}: {:+.1} %){energy}",
        whole.time,
        100.0 * wall,
        sum.cpu,
        whole.cpu,
        100.0 * cpu
    )
}
