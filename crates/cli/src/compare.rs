//! `edgecut compare`: two profiles, two plans or two runs, row by row.

use std::path::PathBuf;

use crate::{
    Failure, Outcome,
    format::{Format, print_csv, print_json, to_csv},
    source_file as file,
    stderr::{self, status},
    stdout::print_line,
    table::{numbered, shortened, table},
};
use edgecut_graph::units::{Bytes, Joules, Micros};
use edgecut_session::compare::{ComparedKind, Comparison, ComparisonRow, SIGNIFICANT, Unit, compare};

/// Compare two profiles, two plans or the results of two runs, operator by operator
///
/// Differences of measured times are told in standard errors, from the scatter of both sides. What a file is, its content says.
#[derive(clap::Args)]
pub struct Compare {
    /// A profile or a folder of them, plan.json, or results of `run --output`
    a: PathBuf,

    /// Another one of the same kind
    b: PathBuf,

    /// Print the N largest differences of each kind [default: 20 in a table]
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Leave out differences of measured times that may be chance
    #[arg(long)]
    significant: bool,

    /// Also write all rows to this file, as CSV
    #[arg(long, short, value_name = "FILE.csv")]
    output: Option<PathBuf>,

    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Rows of each kind in a table.
const TOP: usize = 20;

impl Compare {
    pub fn run(self) -> Outcome {
        self.output.as_deref().map_or(Ok(()), file::check_writable)?;
        let mut comparison = compare(&self.a, &self.b, &stderr::events())?;
        let all = self.output.as_ref().map(|path| Ok::<_, Failure>((path, to_csv(&comparison.rows)?))).transpose()?;
        if self.significant {
            comparison.rows.retain(|row| row.is_significant != Some(false));
        }
        let most = self.top.unwrap_or(if self.format == Format::Table { TOP } else { usize::MAX });
        let hidden = comparison.keep(most);
        match self.format {
            Format::Csv => print_csv(&comparison.rows)?,
            Format::Json => print_json(&comparison)?,
            Format::Table => print_line!("{}", page(&comparison, hidden)),
        }
        if let Some((path, rows)) = all {
            file::write(path, &rows)?;
            status!("comparison written to {}", path.display());
        }
        Ok(())
    }
}

fn page(comparison: &Comparison, hidden: usize) -> String {
    let mut text = format!("A  {}\nB  {}\n\n", comparison.a, comparison.b);
    let mut lines = table(["", ">id", "name", "on A", "on B", ">A", ">B", ">B/A", ">std. errors", ""]);
    for row in &comparison.rows {
        lines.add_row([
            kind(row.kind).to_string(),
            numbered(row.id),
            shortened(&named(row), 48),
            row.device_a.clone(),
            if row.device_b == row.device_a && !row.device_a.is_empty() {
                "\"".to_string()
            } else {
                row.device_b.clone()
            },
            amount(row.unit, row.a),
            amount(row.unit, row.b),
            row.ratio.map_or(String::new(), |ratio| format!("{ratio:.3}")),
            row.z.map_or(String::new(), |z| format!("{z:+.1}")),
            row.is_significant.map_or("", |is| if is { "" } else { "may be chance" }).to_string(),
        ]);
    }
    text += &format!("{lines}\n");
    if hidden > 0 {
        text += &format!("and {hidden} more: --top N, or --format csv\n");
    }
    if comparison.rows.iter().any(|row| row.z.is_some()) {
        text += &format!(
            "within {SIGNIFICANT} standard errors a difference may be chance; what changed between the two measurements as a whole, such as the clock of a processor, is not in them\n"
        );
    }
    comparison.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    text.truncate(text.trim_end().len());
    text
}

fn kind(kind: ComparedKind) -> &'static str {
    match kind {
        ComparedKind::Whole => "whole",
        ComparedKind::Operators => "operators",
        ComparedKind::Device => "device",
        ComparedKind::Group => "group",
        ComparedKind::Transfer => "transfer",
    }
}

/// A group with its part.
fn named(row: &ComparisonRow) -> String {
    if row.part.is_empty() { row.name.clone() } else { format!("{}[{}]", row.name, row.part) }
}

fn amount(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Us => Micros(value).to_string(),
        Unit::Bytes => Bytes(value as u64).to_string(),
        Unit::J => Joules(value).to_string(),
    }
}
