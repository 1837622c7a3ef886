//! Tables for people: one line a row, numbers to the right.

use std::fmt;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Row, TableComponent, presets::NOTHING};

use edgecut_graph::units::Micros;

/// A table with a rule under its header. On a terminal that is too narrow for it, columns of text are cut and those of numbers
/// are not; elsewhere nothing is cut.
#[derive(Debug, Clone)]
pub struct Table(comfy_table::Table);

/// An empty table. Columns whose name begins with `>` are of numbers, aligned to the right.
pub fn table<'a>(header: impl AsRef<[&'a str]>) -> Table {
    let header = header.as_ref();
    let mut table = comfy_table::Table::new();
    table.load_preset(NOTHING).set_style(TableComponent::HeaderLines, '─').set_truncation_indicator("…");
    table.set_header(header.iter().map(|name| name.trim_start_matches('>')));
    for (column, name) in table.column_iter_mut().zip(header) {
        column.set_padding((0, 2));
        if name.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    Table(table)
}

impl Table {
    /// A row is a line, whatever its cells hold.
    pub fn add_row(&mut self, cells: impl Into<Row>) -> &mut Table {
        let mut row = cells.into();
        row.max_height(1);
        self.0.add_row(row);
        self
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = self.0.clone();
        if table.is_tty() {
            table.set_content_arrangement(ContentArrangement::Dynamic);
        }
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_string()).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Tables of more groups than this leave out those that take a smaller share of the time than [`SMALL`].
pub const MANY_GROUPS: usize = 48;
pub const SMALL: f64 = 0.005;

/// The number of a group, as flags take it; empty for what belongs to no group of the model.
pub fn numbered(id: Option<u32>) -> String {
    id.map_or(String::new(), |id| format!("#{id}"))
}

/// A line on the groups that a table leaves out; empty if it has all of them.
pub fn small(groups: usize, time: Micros) -> String {
    match groups {
        0 => String::new(),
        _ => format!("and {groups} groups of less than {} % each, {time} together\n", 100.0 * SMALL),
    }
}

/// `text` cut to `most` characters, in the middle: kernels' names differ at both ends.
pub fn shortened(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_string();
    }
    let kept = most.saturating_sub(1);
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    let chars: Vec<char> = text.chars().collect();
    format!("{}…{}", String::from_iter(&chars[..head]), String::from_iter(&chars[length - tail..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_lines() {
        let mut table = table(["name", ">time"]);
        table.add_row(["a", "12.5 us"]).add_row(["longer", "3 us"]);
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "name       time");
        assert!(lines[1].starts_with("─────"), "{lines:?}");
        assert_eq!(&lines[2..], ["a       12.5 us", "longer     3 us"]);
    }

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(shortened("conv+relu", 9), "conv+relu");
        assert_eq!(shortened("nn.conv2d+nn.relu", 9), "nn.c…relu");
    }
}
