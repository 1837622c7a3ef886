//! What was measured of a model, printed.

use edgecut_session::run::whole_model::ModelLatency;

use crate::{
    Outcome,
    format::{Format, print_csv, print_json},
    stdout::print_line,
};

/// Prints `latency`.
pub(super) fn print(latency: &ModelLatency, format: Format) -> Outcome {
    let ModelLatency { model, engine, threads, fallbacks, runs, median_us, min_us, p95_us, .. } = latency;
    let ModelLatency { held_bytes, peak_bytes, binding, .. } = latency;
    match format {
        Format::Csv => print_csv(std::slice::from_ref(latency)),
        Format::Json => {
            let mut page = serde_json::json!({
                "model": model,
                "engine": engine,
                "threads": threads,
                "fallbacks": fallbacks,
                "latency": { "runs": runs, "median_us": median_us, "min_us": min_us, "p95_us": p95_us },
                "memory": { "held_bytes": held_bytes, "peak_bytes": peak_bytes },
            });
            if let Some(binding) = binding {
                page["binding"] = binding.as_str().into();
            }
            print_json(&page)
        }
        Format::Table => {
            let threads = if *threads == 1 { "one thread".to_string() } else { format!("{threads} threads") };
            let times = match runs {
                1 => median_us.to_string(),
                n => format!("median {median_us} of {n} runs (min {min_us}, p95 {p95_us})"),
            };
            let binding = binding.as_ref().map_or(String::new(), |binding| format!(" ({binding})"));
            print_line!("{model}{binding}: {times} on {threads}, {engine}");
            Ok(())
        }
    }
}
