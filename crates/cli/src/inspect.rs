//! `edgecut inspect`: what is in a model.

use serde::Serialize;

use super::{
    Failure, Outcome,
    format::{Format, print_all},
    model::{self, ModelArguments},
    table::table,
};
use edgecut_graph::{Graph, Type};
use edgecut_session::{
    Model, ModelOptions,
    model::{
        TypeChecks,
        guessed::{BindDim, GuessedSize},
        options,
        summary::{Summary, Tensor, summarise},
    },
    sharding::{ShardingSummary, sharded_model},
};

/// Show a model's operators, shapes, costs and memory, and what is not supported.
#[derive(clap::Args)]
pub struct Inspect {
    #[command(flatten)]
    model: ModelArguments,

    /// How to print the result: CSV has a row an operator
    #[arg(long, value_enum, default_value_t)]
    format: Format,

    /// Accept only what TVM's own parser accepts
    #[arg(long, help_heading = "Relay")]
    strict: bool,

    /// Calls of functions of another compiler (`Compiler="…"`)
    #[arg(long, value_enum, default_value_t = External::Keep, help_heading = "Relay")]
    external: External,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum External {
    Keep,
    Inline,
}

#[derive(Serialize)]
struct Page<'a> {
    model: &'a str,
    blake3: &'a str,
    #[serde(flatten)]
    summary: &'a Summary,
    /// Sizes of unknown dimensions that were guessed, as `--bind-dim` takes them.
    #[serde(skip_serializing_if = "<[BindDim]>::is_empty")]
    guessed_dims: &'a [BindDim],
    types_checked: usize,
    types_disagreeing: usize,
    /// The multi-device annotations of an ONNX file.
    #[serde(skip_serializing_if = "<[ShardingSummary]>::is_empty")]
    sharding: &'a [ShardingSummary],
}

impl Inspect {
    /// The model that the flags say.
    fn open(&self) -> Result<Model, Failure> {
        let external = match self.external {
            External::Keep => options::External::Keep,
            External::Inline => options::External::Inline,
        };
        let options = ModelOptions { strict: self.strict, external, guess_dims: true, ..self.model.flags.options() };
        model::open(&self.model.model, &options)
    }

    pub fn run(self) -> Outcome {
        let model = self.open()?;
        let sharding = sharded_model(&model)?.map(ShardingSummary::of).unwrap_or_default();
        let text = match self.format {
            Format::Table => page(&model, &sharding),
            Format::Csv => csv(&model.import.graph).map_err(Failure::failed)?,
            Format::Json => json(&model, &sharding).map_err(Failure::failed)?,
        };
        print_all(text.as_bytes())
    }
}

/// One row for each operator, in program order, types as in TVM's tables.
fn csv(graph: &Graph) -> Result<String, std::io::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(["index", "op", "arg_types", "out_type"])?;
    for (id, operator) in graph.operators() {
        let args: Vec<String> = graph.arg_types(operator).iter().map(Type::to_string).collect();
        let out = graph.result_type(operator).to_string();
        writer.write_record([&id.0.to_string(), operator.name.as_str(), &args.join("|"), &out])?;
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn json(model: &Model, sharding: &[ShardingSummary]) -> Result<String, serde_json::Error> {
    let import = &model.import;
    let page = Page {
        model: &import.name,
        blake3: &import.hash,
        summary: &summarise(&import.graph),
        guessed_dims: &model.guessed,
        types_checked: import.checks.checked,
        types_disagreeing: import.checks.mismatches.len(),
        sharding,
    };
    serde_json::to_string_pretty(&page).map(|text| text + "\n")
}

fn page(model: &Model, sharding: &[ShardingSummary]) -> String {
    let summary = summarise(&model.import.graph);
    let mut kinds = table(["operator", ">count", ">MFLOP", ">share", ">output", "not supported"]);
    for kind in &summary.kinds {
        let share = 100.0 * kind.flops as f64 / summary.flops.max(1) as f64;
        kinds.add_row([
            kind.op.clone(),
            kind.count.to_string(),
            format!("{:.2}", kind.flops as f64 / 1e6),
            format!("{share:.1} %"),
            kind.output_bytes.to_string(),
            match (&kind.unsupported, &kind.kept_as_read) {
                (Some(reason), _) => reason.clone(),
                (None, Some(reason)) => format!("by ONNX Runtime only: {reason}"),
                (None, None) => String::new(),
            },
        ]);
    }
    let list = |tensors: &[Tensor]| {
        let shown = tensors.iter().take(8).map(|t| format!("{} {}", t.name, t.ty));
        let more = tensors.len().checked_sub(9).map(|more| format!("and {} more", more + 1));
        shown.chain(more).collect::<Vec<_>>().join(", ")
    };
    let parameters = &summary.parameters;
    let unsupported: usize = summary.kinds.iter().filter(|k| k.unsupported.is_some()).map(|k| k.count).sum();
    let mut lines = vec![
        format!("{kinds}\n"),
        format!("model        {} (blake3 {})", model.import.name, &model.import.hash[..16]),
        format!("inputs       {}", list(&summary.inputs)),
        format!("outputs      {}", list(&summary.outputs)),
        format!("operators    {}, {:.3} GFLOP", summary.operators, summary.flops as f64 / 1e9),
        format!(
            "parameters   {} tensors, {:.3} M elements, {} ({} in the file)",
            parameters.tensors,
            parameters.elements as f64 / 1e6,
            parameters.bytes,
            parameters.constants
        ),
        format!("outputs of all operators together {}", summary.output_bytes),
        type_checks(&model.import.checks),
    ];
    lines.extend(sharding.iter().map(|one| format!("sharding     {one}")));
    lines.extend(guessed(model));
    lines.extend(unknown(model, summary.unknown_shapes));
    if unsupported > 0 {
        lines.push(format!("unsupported  {unsupported} operators can be planned from estimates, but not run"));
    }
    lines.join("\n") + "\n"
}

/// The guessed sizes of dimensions, and where the dimensions occur.
fn guessed(model: &Model) -> Option<String> {
    let of = |GuessedSize { bind, places }: GuessedSize| {
        let more = if places.len() > GUESSED_PLACES { ", …" } else { "" };
        match places.is_empty() {
            true => bind,
            false => format!("{bind} ({}{more})", places[..places.len().min(GUESSED_PLACES)].join(", ")),
        }
    };
    let all: Vec<String> = model.guessed_sizes().into_iter().map(of).collect();
    (!all.is_empty()).then(|| {
        format!("guessed      {}: set other sizes with --bind-dim, or --context for a decoder", all.join(", "))
    })
}

/// Places of a guessed dimension that are listed.
const GUESSED_PLACES: usize = 3;

/// That `count` tensors have unknown dimensions, and by which of the inputs they may be known.
fn unknown(model: &Model, count: usize) -> Option<String> {
    let dims = model.unknown_dims_text();
    let which = if dims.is_empty() { String::new() } else { format!(" of {dims}") };
    let what = format!("{count} tensors have unknown dimensions, counted as nothing");
    (count > 0).then(|| format!("unknown      {what}: give sizes with --bind-dim{which}"))
}

fn type_checks(checks: &TypeChecks) -> String {
    let mut text =
        format!("types        {} stated types checked, {} disagree", checks.checked, checks.mismatches.len());
    for disagreement in checks.mismatches.iter().take(5) {
        let place = disagreement.place;
        text += &format!(
            "\n             {}:{}: the file says {}, inferred: {}",
            place.line, place.column, disagreement.stated, disagreement.inferred
        );
    }
    text
}
