//! Generated tokens and their times, printed.

use edgecut_graph::units::{Bytes, Micros, counted};
use edgecut_session::run::generate::Generation;
use serde::Serialize;

use super::print::off;
use crate::{
    Outcome,
    format::{Format, print_csv, print_json},
    stdout::print_line,
};

/// A token as a row of CSV.
#[derive(Serialize)]
struct Row {
    token: u64,
    time_us: Micros,
}

/// Prints `generation`.
pub(super) fn print(generation: &Generation, format: Format) -> Outcome {
    let Generation { tokens, prompt_tokens, prefill_us, times_us, token_us, predicted, .. } = generation;
    match format {
        Format::Csv => {
            let times = std::iter::once(prefill_us).chain(times_us);
            let rows: Vec<Row> =
                tokens.iter().zip(times).map(|(token, time)| Row { token: *token, time_us: *time }).collect();
            print_csv(&rows)
        }
        Format::Json => print_json(generation),
        Format::Table => {
            print_line!("{}", tokens.iter().map(u64::to_string).collect::<Vec<_>>().join(","));
            let per_token = token_us.map_or(String::new(), |token| {
                let rate = 1e6 / token.median_us.0.max(f64::MIN_POSITIVE);
                let (median, p95) = (token.median_us, token.p95_us);
                let against = against(median, predicted.map(|predicted| predicted.token_us));
                format!("; a token: median {median} (p95 {p95}), {rate:.1}/s{against}")
            });
            let first = against(*prefill_us, predicted.and_then(|predicted| predicted.prefill_us));
            print_line!("prompt of {prompt_tokens}: {prefill_us}{first}{per_token}");
            if generation.exchanges > 0 {
                let bytes = Bytes(generation.exchanged_bytes);
                print_line!("{} transfers a token between servers, {bytes}", generation.exchanges);
            }
            if generation.is_equal == Some(true) {
                let near_ties = match generation.near_ties {
                    0 => String::new(),
                    count => format!(", but for {}", counted(count, "near tie")),
                };
                print_line!("the tokens are those of one device{near_ties}");
            }
            Ok(())
        }
    }
}

/// What was predicted of `measured`, and how far off that is.
fn against(measured: Micros, predicted: Option<Micros>) -> String {
    predicted.map_or(String::new(), |predicted| format!(", predicted {predicted} ({})", off(predicted, measured)))
}
