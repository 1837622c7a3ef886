//! The arena as text in 80 columns: lines are ranges of steps, columns ranges of addresses.

use std::fmt::Write;

use super::layout::Layout;

/// Columns for addresses; the rest of a line of 80 is the step and the load.
const COLUMNS: u64 = 60;
/// Limit on the lines.
const MAX_LINES: u64 = 48;
const MARKS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The map: each character identifies the block at its address, `.` is free.
pub fn map(layout: &Layout) -> String {
    let end = layout.end();
    let lines = end.min(MAX_LINES);
    let height = layout.height.0.max(1);
    let mut text = format!("{:>6} {:>10} 0{:>width$}\n", "step", "load", layout.height, width = COLUMNS as usize - 1);
    for line in 0..lines {
        let step = line * end / lines;
        let load = layout.loads.iter().rev().find(|l| l.from <= step).map_or_else(Default::default, |l| l.bytes);
        let mut row = vec![b'.'; COLUMNS as usize];
        for (index, block) in layout.blocks.iter().enumerate().filter(|(_, b)| b.lower <= step && step < b.upper) {
            let column = |bytes: u64| (u128::from(bytes) * u128::from(COLUMNS) / u128::from(height)) as usize;
            let from = column(block.offset.0);
            let until = column((block.offset + block.size).0).clamp(from, COLUMNS as usize);
            row[from..until].fill(MARKS[index % MARKS.len()]);
        }
        let _ = writeln!(text, "{step:>6} {:>10} {}", load.to_string(), String::from_utf8_lossy(&row));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::layout::tests::layout;

    #[test]
    fn blocks_fill_their_columns() {
        let map = super::map(&layout());
        let rows: Vec<&str> = map.lines().skip(1).map(|line| &line[18..]).collect();
        let (a, b, free) = ("0".repeat(20), "1".repeat(40), ".".repeat(60));
        assert_eq!(rows, [format!("{a}{}", &free[..40]), format!("{a}{b}"), format!("{}{b}", &free[..20])]);
    }
}
