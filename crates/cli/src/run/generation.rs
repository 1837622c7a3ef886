//! Generated tokens and their times, printed.

use edgecut_graph::units::{Bytes, Micros, counted};
use edgecut_session::run::generation::{Generation, Generations};
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
    sequence: usize,
    token: u64,
    time_us: Micros,
}

/// Prints `generations`; if it is only one, as that one alone.
pub(super) fn print(generations: &Generations, format: Format) -> Outcome {
    match (format, &generations.sequences[..]) {
        (Format::Csv, sequences) => {
            let rows: Vec<Row> =
                sequences.iter().enumerate().flat_map(|(number, sequence)| rows(number, sequence)).collect();
            print_csv(&rows)
        }
        (Format::Json, [generation]) => print_json(generation),
        (Format::Json, _) => print_json(generations),
        (Format::Table, sequences) => {
            sequences.iter().for_each(print_times);
            if let Some(Generation { exchanges: 1.., exchanged_bytes, .. }) = sequences.first() {
                let exchanges = sequences[0].exchanges;
                print_line!("{exchanges} transfers a token between servers, {}", Bytes(*exchanged_bytes));
            }
            if sequences.len() > 1 {
                print_throughput(generations);
            }
            if generations.is_equal() == Some(true) {
                let near_ties = match sequences.iter().map(|sequence| sequence.near_ties).sum() {
                    0 => String::new(),
                    count => format!(", but for {}", counted(count, "near tie")),
                };
                print_line!("the tokens are those of one device{near_ties}");
            }
            Ok(())
        }
    }
}

fn rows(sequence: usize, generation: &Generation) -> impl Iterator<Item = Row> {
    let times = std::iter::once(&generation.prefill_us).chain(&generation.times_us);
    generation.tokens.iter().zip(times).map(move |(token, time_us)| Row { sequence, token: *token, time_us: *time_us })
}

fn print_times(generation: &Generation) {
    let Generation { tokens, prompt_tokens, prefill_us, token_us, predicted, .. } = generation;
    if tokens.is_empty() {
        print_line!("none after the prompt of {prompt_tokens}: interrupted");
        return;
    }
    print_line!("{}", tokens.iter().map(u64::to_string).collect::<Vec<_>>().join(","));
    let per_token = token_us.map_or(String::new(), |token| {
        let rate = 1e6 / token.median_us.0.max(f64::MIN_POSITIVE);
        let (median, p95) = (token.median_us, token.p95_us);
        let against = against(median, predicted.map(|predicted| predicted.token_us));
        format!("; a token: median {median} (p95 {p95}), {rate:.1}/s{against}")
    });
    let first = against(*prefill_us, predicted.and_then(|predicted| predicted.prefill_us));
    print_line!("prompt of {prompt_tokens}: {prefill_us}{first}{per_token}");
}

fn print_throughput(generations: &Generations) {
    let Generations { sequences, at_a_time, elapsed_us, tokens_per_s, predicted_tokens_per_s } = generations;
    let predicted =
        predicted_tokens_per_s.map_or(String::new(), |rate| format!("; predicted {rate:.1}/s without prefill"));
    let tokens: usize = sequences.iter().map(|sequence| sequence.tokens.len()).sum();
    print_line!(
        "{} in {elapsed_us}, {at_a_time} at a time: {}, {tokens_per_s:.1}/s{predicted}",
        counted(sequences.len(), "sequence"),
        counted(tokens, "token")
    );
}

/// What was predicted of `measured`, and how far off that is.
fn against(measured: Micros, predicted: Option<Micros>) -> String {
    predicted.map_or(String::new(), |predicted| format!(", predicted {predicted} ({})", off(predicted, measured)))
}
