//! Schedules of a DLMO or MAGIS graph.

use std::fmt;

use edgecut_graph::units::Bytes;
use edgecut_session::memory::schedule::graph::{GraphFront, GraphSummary};

use crate::stdout::print_line;

pub(super) fn print_front(front: &GraphFront) {
    print_line!("{:>12} {:>7} {:>12} {:>9}", "peak", "", "time", "");
    for point in &front.points {
        print_line!(
            "{:>12} {:>6.1}% {:>12} {:>+8.2}%",
            point.peak_bytes.to_string(),
            100.0 * point.peak_ratio,
            point.time_us.to_string(),
            100.0 * (point.time_ratio - 1.0)
        );
    }
    print_line!("lower bounds: {} and {}", front.bound_peak_bytes, front.bound_time_us);
}

/// The figures of one schedule, as a table.
pub(super) struct SummaryTable<'a>(pub(super) &'a GraphSummary);

impl fmt::Display for SummaryTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SummaryTable(summary) = self;
        let share = |part: Bytes| 100.0 * part.0 as f64 / summary.original_peak_bytes.0 as f64;
        writeln!(f, "operators    {}", summary.operators)?;
        writeln!(f, "original     {}, {}", summary.original_peak_bytes, summary.original_time_us)?;
        if let Some(limit) = summary.limit_bytes {
            writeln!(f, "limit        {limit} ({:.1} % of the original peak)", share(limit))?;
        }
        if let Some(limit) = summary.limit_time_us {
            writeln!(f, "limit        {limit}")?;
        }
        let slower = 100.0 * (summary.time_us.0 / summary.original_time_us.0 - 1.0);
        writeln!(f, "peak         {} ({:.1} % of the original)", summary.peak_bytes, share(summary.peak_bytes))?;
        writeln!(f, "time         {} ({slower:+.2} %)", summary.time_us)?;
        writeln!(f, "lower bound  {}, {}", summary.bound_peak_bytes, summary.bound_time_us)?;
        writeln!(f, "gap          {:.2} %", 100.0 * summary.gap)?;
        writeln!(f, "run again    {} operators", summary.repeated)?;
        writeln!(f, "to the host  {} values", summary.stored)?;
        writeln!(
            f,
            "batch split  {}",
            if summary.parts == 1 { "no".into() } else { format!("{} parts", summary.parts) }
        )?;
        write!(f, "looked at    {} schedules", summary.schedules)
    }
}
