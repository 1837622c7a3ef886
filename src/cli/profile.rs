//! `edgecut profile`: what every operator of a model costs on this machine.

use std::{
    collections::BTreeMap,
    io::Write,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{
    Failure, Outcome,
    contents::{Contents, engine_failure},
    format::Format,
    model::ModelArguments,
};
use crate::{
    engine::{CpuEngine, Engine},
    graph::Granularity,
    profile::{
        Item, Key, Kind, Mode, Place, Row, Sampling, Store, StoreError, Summary, Whole, items,
        measure::{Measured, Subject, in_situ, isolated, whole},
    },
    units::{Bytes, Micros},
};

/// Measure every operator of a model on this machine.
#[derive(clap::Args)]
pub struct Profile {
    #[command(flatten)]
    model: ModelArguments,

    /// Take inputs from this .npz file: an array `in_<name>` for each; absent ones are generated from their names
    #[arg(long, value_name = "FILE.npz")]
    inputs: Option<PathBuf>,

    /// Measure each distinct operator alone, or all in their places while the model runs
    #[arg(long, value_enum, default_value = "isolated")]
    mode: ModeFlag,

    /// Measure each operator, or what TVM's fusion rules would compile into one kernel
    #[arg(long, value_enum, default_value = "fused")]
    granularity: GranularityFlag,

    /// Threads that compute
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,

    /// Time to spend on measuring; what is precise to 2 % earlier ends earlier
    #[arg(long, value_name = "TIME", default_value = "20s")]
    budget: Micros,

    /// Folder for the profile; what is there of the same model and device is continued
    #[arg(long, value_name = "DIR", default_value = "profiles")]
    output: PathBuf,

    /// Measure anew what has been measured before
    #[arg(long)]
    again: bool,

    /// What to print: costs by operator, the profile's rows, or both as JSON
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
pub(super) enum GranularityFlag {
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

/// What is printed as JSON.
#[derive(Serialize)]
struct Page<'a> {
    rows: &'a [Row],
    kinds: &'a [Kind],
    sum_us: f64,
    whole_us: f64,
}

impl Profile {
    pub fn run(self) -> Outcome {
        let model = self.model.load()?;
        let graph = &model.import.graph;
        let contents = Contents::open(graph, self.inputs.as_deref(), &model.params)?;
        let inputs = contents.inputs().map_err(engine_failure)?;
        let engine = CpuEngine::new(self.threads.into()).map_err(Failure::failed)?;
        let mode = match self.mode {
            ModeFlag::Isolated => Mode::Isolated,
            ModeFlag::InSitu => Mode::InSitu,
        };
        let granularity = self.granularity.into();
        let items = items(graph, granularity);
        let stem = self.model.model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let key = Key { model: stem, model_hash: model.import.hash.clone(), place: place(&engine), mode, granularity };
        let mut store = Store::open(&self.output, &key).map_err(Failure::bad_input)?;
        if self.again {
            store.clear().map_err(Failure::failed)?;
        }
        let parameter = |id| contents.of(id);
        let subject = Subject { engine: &engine, graph, items: &items, inputs: &inputs, parameter: &parameter };
        let sampling = Sampling { budget: self.budget, ..Sampling::default() };
        let measured = measure_here(&subject, &sampling, mode, &mut store)?;
        let (path, rows) = store.finish().map_err(Failure::failed)?;
        let known = if measured { None } else { Whole::read(&path) };
        let whole = match known {
            Some(whole) => whole,
            None => Whole::from(&whole(&subject, &sampling).map_err(engine_failure)?),
        };
        let summary = Summary::of(&rows);
        summary.write(&path, Some(whole)).map_err(Failure::failed)?;
        let text = match self.format {
            Format::Table => table(&rows, &items, &summary, whole),
            Format::Csv => std::fs::read_to_string(&path).map_err(Failure::failed)?,
            Format::Json => {
                let (sum_us, whole_us) = (summary.sum.time.0, whole.time.0);
                let page = Page { rows: &rows, kinds: &summary.kinds, sum_us, whole_us };
                serde_json::to_string_pretty(&page).map_err(Failure::failed)? + "\n"
            }
        };
        std::io::stdout().write_all(text.as_bytes()).map_err(Failure::failed)?;
        tell(&path, measured, &summary);
        Ok(())
    }
}

/// Measures what the store has no row of. Returns whether there was anything.
pub(super) fn measure_here(
    subject: &Subject<'_>,
    sampling: &Sampling,
    mode: Mode,
    store: &mut Store,
) -> Result<bool, Failure> {
    store.complete(subject.items).map_err(Failure::failed)?;
    if store.rows().len() == subject.items.len() {
        return Ok(false);
    }
    let known = store.known();
    let left = subject.items.len() - store.rows().len();
    let bar = ProgressBar::new(left as u64).with_style(
        ProgressStyle::with_template("{elapsed:>4} measuring {pos}/{len} {wide_msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let mut failure: Option<StoreError> = None;
    let mut each = |measured: Measured| {
        let before = store.rows().len();
        match store.record(subject.items, &measured) {
            Ok(()) => {
                bar.inc((store.rows().len() - before) as u64);
                bar.set_message(subject.items.get(measured.item).map_or(String::new(), |item| item.name.clone()));
                ControlFlow::Continue(())
            }
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        }
    };
    let result = match mode {
        Mode::Isolated => isolated(subject, sampling, &known, &mut each),
        Mode::InSitu => in_situ(subject, sampling, &mut each),
    };
    bar.finish_and_clear();
    result.map_err(engine_failure)?;
    failure.map_or(Ok(true), |error| Err(Failure::failed(error)))
}

/// This machine's processor.
pub(super) fn place(engine: &CpuEngine) -> Place {
    let hardware = sysinfo::System::new().map(|mut system| {
        system.refresh_cpu_list(sysinfo::CpuRefreshKind::nothing());
        let model = system.cpus().first().map_or("", |cpu| cpu.brand()).trim();
        format!("{model}, {} cores", system.cpus().len())
    });
    Place {
        server: "local".to_string(),
        device: "cpu".to_string(),
        hardware: hardware.unwrap_or_else(|_| "unknown processor".to_string()),
        engine: engine.id(),
        threads: engine.threads(),
    }
}

/// One line a signature in the order of the model, then kinds, then the check.
fn table(rows: &[Row], items: &[Item], summary: &Summary, whole: Whole) -> String {
    let share = |time: f64| format!("{:.1} %", 100.0 * time / summary.sum.time.0.max(f64::MIN_POSITIVE));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    rows.iter().for_each(|row| *counts.entry(row.signature.as_str()).or_default() += 1);
    let mut costs = Table::new();
    costs.load_preset(UTF8_HORIZONTAL_ONLY);
    costs.set_header(["id", "operator", "shapes", "count", "time", "±", "share", "workspace", "held"]);
    for (row, item) in rows.iter().zip(items) {
        let Some(count) = counts.remove(row.signature.as_str()) else { continue };
        let shapes = item.shapes.replace("->", "\n→ ");
        let Some(cost) = row.cost() else {
            costs.add_row([row.id.to_string(), row.operator.clone(), shapes, count.to_string(), row.note.clone()]);
            continue;
        };
        costs.add_row([
            row.id.to_string(),
            row.operator.replace('+', "\n+ "),
            shapes,
            count.to_string(),
            cost.time.median.to_string(),
            cost.time.mad.to_string(),
            share(cost.time.median.0 * count as f64),
            cost.workspace.to_string(),
            cost.held.to_string(),
        ]);
    }
    let mut kinds = Table::new();
    kinds.load_preset(UTF8_HORIZONTAL_ONLY).set_header(["kind", "count", "time", "share"]);
    for kind in &summary.kinds {
        let time = Micros(kind.time_us).to_string();
        kinds.add_row([kind.operator.clone(), kind.count.to_string(), time, share(kind.time_us)]);
    }
    for table in [&mut costs, &mut kinds] {
        let numbers = ["count", "time", "±", "share", "workspace", "held"];
        let headers: Vec<String> =
            table.header().into_iter().flat_map(|r| r.cell_iter()).map(|c| c.content()).collect();
        for (column, header) in table.column_iter_mut().zip(headers) {
            if numbers.contains(&header.as_str()) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    let (wall, cpu) = whole.off(&summary.sum);
    let held: Bytes = rows.iter().filter_map(|row| row.held_bytes).map(Bytes).sum();
    format!(
        "{costs}\n\n{kinds}\n\nsum of all {}, whole model {}: {:+.1} % (processor time {} against {}: {:+.1} %); {held} held\n",
        summary.sum.time,
        whole.time,
        100.0 * wall,
        summary.sum.cpu,
        whole.cpu,
        100.0 * cpu
    )
}

/// What a person should know beside the figures, on stderr.
fn tell(path: &Path, measured: bool, summary: &Summary) {
    let how = if measured { "written to" } else { "unchanged, read from" };
    eprintln!("profile {how} {}", path.display());
    if summary.missing > 0 {
        eprintln!("{} operators cannot be computed here; the column `note` says why", summary.missing);
    }
    if summary.disturbed > 0 {
        eprintln!(
            "{} times are not to be trusted: other processes took the processor during most samples; \
             measure again with --again when the machine is quiet",
            summary.disturbed
        );
    }
}
