//! `edgecut profile`: what every operator of a model costs on each device.

mod imported;
mod order;

use std::{collections::BTreeMap, path::PathBuf};

use serde::Serialize;

use crate::{
    Failure, Outcome,
    busy::busy,
    caller::notice,
    cluster_flag::{ClusterFlag, ThreadsFlag, reach_all, runtime},
    engine::EngineFlags,
    format::{Format, print_csv, print_json},
    model::{ModelArguments, ModelFlags},
    source_file::check_folder,
    stdout::print_line,
    survey::{profiles, unwritten},
    table::{numbered, shortened, table},
};
use edgecut_cluster::{
    EnergyMetering,
    agent::Fleet,
    survey::{DeviceProfile, MissingPolicy, SurveyRequest},
};
use edgecut_graph::{
    Granularity,
    units::{Bytes, Micros},
};
use edgecut_ops::passes::bindings::Binding;
use edgecut_profile::{DevicePower, MeasurementMode, ModelTime, OperatorTotal, ProfileRow, ProfileSummary, Sampling};
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

    /// Import the times of EOP's CSV or of TVM's debug executor instead
    ///
    /// From a CSV file of EOP's for MODEL, or from a graph dump or an execution trace of TVM's debug executor, each
    /// found in the folder of the other. SERVER/DEVICE is the name of the device in the profile.
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

/// The profiles of all devices for one binding of the model, with their summaries.
pub struct MeasuredProfiles {
    /// The binding, if it is one of several.
    pub binding: Option<Binding>,
    pub profiles: Vec<DeviceProfile>,
    pub summaries: Vec<ProfileSummary>,
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
        let bindings = self.flags.bindings()?;
        let printed = Printed { order: self.sort, most: self.top.unwrap_or(usize::MAX) };
        let mut measured = Vec::with_capacity(bindings.len());
        for binding in &bindings {
            let flags = self.flags.with_binding(binding, &bindings);
            let several = (bindings.len() > 1).then(|| binding.clone());
            let of_one = match several {
                None => self.measure_with(flags)?,
                Some(_) => self.measure_with(flags).map_err(|error| error.at(format!("binding `{binding}`")))?,
            };
            let of_one = MeasuredProfiles { binding: several, ..of_one };
            if self.format == Format::Table {
                print_pages(&of_one, printed);
            }
            measured.push(of_one);
        }
        print(self.format, &mut measured, printed)?;
        let profiles: Vec<DeviceProfile> = measured.into_iter().flat_map(|of_one| of_one.profiles).collect();
        unwritten(&profiles).map_or(Ok(()), Err)
    }

    /// Measures what the profiles of the only binding lack, and warns of unreliable times.
    pub fn measure(&self) -> Result<MeasuredProfiles, Failure> {
        self.flags.binding()?;
        self.measure_with(self.flags.clone())
    }

    fn measure_with(&self, flags: ModelFlags) -> Result<MeasuredProfiles, Failure> {
        let Some(model) = self.model.clone() else {
            return Err(Failure::BadInput(miette::Report::msg("nothing to profile: give a model, or --import FILE")));
        };
        let source = ModelArguments { model, flags: flags.for_engine(&self.engine) };
        if self.fractions && matches!(self.mode, ModeFlag::InSitu) {
            let what = "--fractions are measured alone: there are none in their place, with --mode in-situ";
            return Err(Failure::BadInput(miette::Report::msg(what)));
        }
        if self.output.extension().is_some_and(|extension| extension == "csv") && !self.output.is_dir() {
            let what = "profiles go into a folder; `--format csv` prints the rows, to be redirected into a file";
            return Err(Failure::BadInput(miette::Report::msg(format!("--output {}: {what}", self.output.display()))));
        }
        check_folder("--output", &self.output)?;
        let model = source.load()?;
        model.check_sizes(&source.model)?;
        let graph = &model.import.graph;
        let contents = model.contents(graph)?;
        let cluster = self.cluster.read_with(&self.threads, &self.engine)?;
        let survey = SurveyRequest {
            graph,
            model: &source.stem(),
            model_hash: &model.import.hash,
            binding: source.flags.profiled_binding()?,
            mode: match self.mode {
                ModeFlag::Isolated => MeasurementMode::Isolated,
                ModeFlag::InSitu => MeasurementMode::InSitu,
            },
            granularity: self.granularity.into(),
            sampling: Sampling { budget: self.budget, ..Sampling::default() },
            whole: true,
            shard_budget: self.fractions.then_some(self.budget),
            remeasure: self.again,
            missing: MissingPolicy::Measure,
            folder: &self.output,
            contents: contents.given(),
        };
        let profiles = runtime()?.block_on(async {
            let fleet = reach_all(&cluster).await?;
            log_energy(&fleet);
            let inventory = fleet.inventory(&cluster, Vec::new());
            profiles(&fleet, &cluster, &inventory, &survey).await
        })?;
        let summaries: Vec<ProfileSummary> = profiles.iter().map(|profile| ProfileSummary::of(&profile.rows)).collect();
        for (profile, summary) in profiles.iter().zip(&summaries) {
            warn(profile, summary);
        }
        Ok(MeasuredProfiles { binding: None, profiles, summaries })
    }
}

/// What tells the energy of each device, or why nothing does: logged with `--verbose` alone, as most machines tell none.
fn log_energy(fleet: &Fleet) {
    for (server, _, told) in fleet.connected() {
        for device in &told.devices {
            match &device.energy {
                EnergyMetering::Source(source) => tracing::info!("energy of {server}/{}: {source}", device.name),
                EnergyMetering::Absent(why) => tracing::info!("no energy of {server}/{}: {why}", device.name),
                EnergyMetering::Unknown => {}
            }
        }
    }
}

/// Prints all profiles as CSV or JSON. Tables are printed after each binding, by [`print_pages`].
fn print(format: Format, measured: &mut [MeasuredProfiles], printed: Printed) -> Outcome {
    match format {
        Format::Csv => {
            for of_one in &mut *measured {
                let binding = of_one.binding.as_ref().map_or(String::new(), ToString::to_string);
                let profiles = of_one.profiles.iter_mut();
                // All rows need the same columns, whichever file they come from.
                let rows = profiles.flat_map(|profile| profile.rows.iter_mut().chain(&mut profile.shards));
                rows.for_each(|row| row.binding.clone_from(&binding));
            }
            let profiles = measured.iter().flat_map(|of_one| &of_one.profiles);
            let rows = profiles.flat_map(|profile| printed.of(&profile.rows).into_iter().chain(&profile.shards));
            print_csv(&rows.collect::<Vec<_>>())
        }
        Format::Json => {
            let of_all = measured.iter().flat_map(|of_one| {
                let profiles = of_one.profiles.iter().zip(&of_one.summaries);
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
    for (profile, summary) in measured.profiles.iter().zip(&measured.summaries) {
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
            None => line.push(shortened(&row.note, LONGEST_NAME)),
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

/// A sum of operators that differs from the whole model by more than this fraction is warned about.
const MOST_DIFFERENCE: f64 = 0.1;

/// Warnings about the figures, on stderr.
fn warn(profile: &DeviceProfile, summary: &ProfileSummary) {
    let device = &profile.device.name;
    if profile.unmeasured_shards > 0 {
        notice!(
            "{} shards are not measured yet on {device}: run the command again to continue",
            profile.unmeasured_shards
        );
    }
    if summary.missing > 0 {
        notice!("{} operators cannot be computed on {device}; the column `note` says why", summary.missing);
    }
    if let Some(whole) = profile.whole {
        let (wall, _) = whole.relative_difference(&summary.sum);
        if wall.abs() > MOST_DIFFERENCE {
            let (than, else_because) = match wall > 0.0 {
                true => ("more", "operators are faster together"),
                false => ("less", "operators are slower together, as where they take the caches from each other"),
            };
            notice!(
                "the operators of the model take {} one by one on {device}, {:.0} % {than} than the {} of the whole: \
                 something else used the machine meanwhile, or {else_because}; --again measures again",
                summary.sum.time,
                100.0 * wall.abs(),
                whole.time
            );
        }
    }
    let loads: Vec<f64> = profile.rows.iter().filter_map(|row| row.load).collect();
    let load = loads.iter().sum::<f64>() / loads.len().max(1) as f64;
    if let Some(busy) = busy([(device.server.as_str(), load)]) {
        notice!(
            "{busy} while it was measured: times may be too long; measure again with --again when the machine is idle"
        );
    }
    if summary.disturbed > 0 {
        notice!(
            "{} times on {device} are not to be trusted: other processes took the processor during most samples; \
             measure again with --again when the machine is idle",
            summary.disturbed
        );
    }
    if let Some(warning) = DevicePower::of(&profile.rows).and_then(|power| power.warning(&device.to_string())) {
        notice!("{warning}");
    }
}
