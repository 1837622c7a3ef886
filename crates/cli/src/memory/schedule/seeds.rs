//! `--seeds`: how far the results of several seeds scatter.

use edgecut_session::memory::schedule::seeds::{SeedRow, SeedScatter};

use crate::stdout::print_line;

pub(super) fn print(rows: &[SeedRow]) {
    print_line!("{:>6} {:>9} {:>9}", "seed", "peak", "time");
    for row in rows {
        match (row.peak_ratio, row.time_ratio) {
            (Some(peak), Some(time)) => {
                print_line!("{:>6} {:>8.2}% {:>+8.2}%", row.seed, 100.0 * peak, 100.0 * (time - 1.0))
            }
            _ => print_line!("{:>6} {:>9} {:>9}", row.seed, "-", "-"),
        }
    }
    for (name, scatter) in [
        ("peak", SeedScatter::of(rows.iter().filter_map(|row| Some(100.0 * row.peak_ratio?)))),
        ("time", SeedScatter::of(rows.iter().filter_map(|row| Some(100.0 * (row.time_ratio? - 1.0))))),
    ] {
        if let Some(SeedScatter { minimum, median, maximum }) = scatter {
            print_line!("{name}: least {minimum:.2} %, median {median:.2} %, most {maximum:.2} %");
        }
    }
}
