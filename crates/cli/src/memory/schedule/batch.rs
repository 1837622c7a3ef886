//! `--configs`: many graphs, each under its limit, one row of results for each.

use edgecut_session::memory::schedule::batch::BatchRow;

use crate::stdout::print_line;

pub(super) fn print(rows: &[BatchRow]) {
    print_line!("{:<40} {:>12} {:>9} {:>9}", "graph", "limit", "peak", "time");
    for row in rows {
        let figures = match (row.opt_simul_memory, row.opt_simul_latency) {
            (Some(peak), Some(latency)) => {
                let share = 100.0 * peak as f64 / row.ori_simul_memory.max(1) as f64;
                format!("{share:>8.1}% {:>+8.2}%", 100.0 * (latency / row.ori_simul_latency - 1.0))
            }
            _ => format!("{:>9} {:>9}", "-", "-"),
        };
        print_line!("{:<40} {:>12} {figures}", row.name, row.limit().to_string());
    }
}
