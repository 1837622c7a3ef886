//! `edgecut report costs`: how times grow with the size of operators, and how well each is predicted from the others.

use std::path::{Path, PathBuf};

use edgecut_profile::{FamilyError, growth::Pattern};
use edgecut_session::report::{DeviceCosts, costs};

use crate::{
    Outcome,
    format::{Format, print_csv, print_json, to_csv},
    source_file as file,
    stderr::status,
    stdout::print_line,
    table::{shortened, table},
};

/// The cost model of each device: how the times of operators of one family grow, and how well each is predicted from
/// the others.
#[derive(clap::Args)]
pub struct Costs {
    /// Profiles, or folders of them
    #[arg(required = true, value_name = "PROFILE")]
    profiles: Vec<PathBuf>,

    /// Also write the table to this file, as CSV
    #[arg(long, value_name = "FILE.csv")]
    output: Option<PathBuf>,

    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Costs {
    pub fn run(self) -> Outcome {
        self.output.as_deref().map_or(Ok(()), file::check_writable)?;
        let devices = costs(&self.profiles)?;
        let errors: Vec<&FamilyError> = devices.iter().flat_map(|device| &device.families).collect();
        match self.format {
            Format::Csv => print_csv(&errors)?,
            Format::Json => print_json(&errors)?,
            Format::Table => print_line!("{}", page(&devices)),
        }
        self.output.as_deref().map_or(Ok(()), |path| write(path, &errors))
    }
}

fn write(path: &Path, errors: &[&FamilyError]) -> Outcome {
    file::write(path, &to_csv(errors)?)?;
    status!("costs written to {}", path.display());
    Ok(())
}

fn page(devices: &[DeviceCosts]) -> String {
    let mut text = String::new();
    for DeviceCosts { device, families } in devices {
        let (name, engine, threads) = (device.device_name(), &device.engine, device.threads_text());
        text += &format!("{name} ({}), {engine}, {threads}\n\n", device.hardware);
        let columns =
            ["operators", "window", ">n", ">parts", "pattern", ">at least", "grows by", ">error", ">90 %", ">worst"];
        let mut lines = table(columns);
        for row in families {
            let share = |error: Option<f64>| error.map_or(String::new(), |e| format!("{:.1} %", 100.0 * e));
            lines.add_row([
                shortened(&row.operator, 56),
                row.window.clone(),
                row.n.to_string(),
                row.shards.to_string(),
                row.pattern.map_or("", pattern).to_string(),
                row.base_us.map_or(String::new(), |base| base.to_string()),
                growth(row),
                share(row.error_median),
                share(row.error_p90),
                share(row.error_worst),
            ]);
        }
        text += &format!("{lines}\n\n");
    }
    text + "error: median of |predicted − measured| / measured, each time predicted from the others of its family"
}

fn pattern(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Constant => "constant",
        Pattern::Affine => "affine",
        Pattern::Stepped => "stepped",
    }
}

/// The slope in words: `0.21 us/MFLOP`, with what a byte counts.
fn growth(row: &FamilyError) -> String {
    let Some(slope) = row.us_per_unit else { return String::new() };
    match row.flops_per_byte {
        None => format!("{:.3} us/MB", slope * 1e6),
        Some(0.0) => format!("{:.3} us/MFLOP", slope * 1e6),
        Some(ratio) => format!("{:.3} us/MFLOP, a byte as {ratio} FLOPs", slope * 1e6),
    }
}
