//! Tables for people: one line a row, numbers to the right. On a terminal that is too narrow, columns without content are left
//! out, text loses its middle, then columns are left out in the order of [`DROPPED`], text loses more, and columns are left out
//! from the right; they are named below the table. Never a device. Elsewhere nothing is cut.

use std::fmt;

use comfy_table::{CellAlignment, TableComponent, presets::NOTHING};

use edgecut_graph::units::Micros;

/// A table with a rule under its header.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug, Clone)]
struct Column {
    name: String,
    is_number: bool,
}

/// The columns that are left out first, the first ones before the others.
const DROPPED: [&str; 24] = [
    "std. errors",
    "±",
    "waited",
    "sent",
    "start",
    "caches",
    "window",
    "pattern",
    "predicted load",
    "predicted arena",
    "peak load",
    "held",
    "share",
    "result",
    "workspace",
    "engine",
    "predicted parameters",
    "parameters",
    "count",
    "id",
    "bytes",
    "predicted",
    "A",
    "limit",
];

/// Columns of devices, which are neither cut nor left out.
const DEVICES: [&str; 5] = ["device", "from", "to", "on A", "on B"];

/// Columns of addresses, which are not cut while a column can be left out instead.
const ADDRESSES: [&str; 1] = ["at"];

/// Text is not cut to less than this while a column in [`DROPPED`] can be left out instead.
const READABLE: usize = 16;

/// Text, and names of columns, are not cut to less than this while a column can be left out instead.
const SHORTEST: usize = 10;

/// Between columns.
const GAP: usize = 2;

/// An empty table. Columns whose name begins with `>` are of numbers, aligned to the right.
pub fn table<'a>(header: impl AsRef<[&'a str]>) -> Table {
    let column =
        |name: &&str| Column { name: name.trim_start_matches('>').to_string(), is_number: name.starts_with('>') };
    Table { columns: header.as_ref().iter().map(column).collect(), rows: Vec::new() }
}

impl Column {
    fn is_device(&self) -> bool {
        DEVICES.contains(&self.name.as_str())
    }

    /// Its place in the order in which columns are left out.
    fn rank(&self) -> usize {
        DROPPED.iter().position(|name| *name == self.name).unwrap_or(DROPPED.len())
    }
}

impl Table {
    /// A row is a line, whatever its cells hold.
    pub fn add_row<C: ToString>(&mut self, cells: impl IntoIterator<Item = C>) -> &mut Table {
        self.rows.push(cells.into_iter().map(|cell| cell.to_string().replace(['\n', '\r'], " ")).collect());
        self
    }

    /// The table in lines of at most `width` characters.
    fn fitted(&self, width: usize) -> String {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        if self.widths(&shown, width, |_| usize::MAX).is_none() {
            shown.retain(|column| self.columns[*column].is_device() || self.content(*column) > 0);
        }
        let mut dropped = Vec::new();
        let widths = loop {
            let next = self.next_dropped(&shown);
            let is_listed = next.is_some_and(|next| self.columns[shown[next]].rank() < DROPPED.len());
            let text = if is_listed { READABLE } else { SHORTEST };
            if let Some(widths) = self.widths(&shown, width, |column| self.shortest(column, text)) {
                break widths;
            }
            let Some(next) = next else {
                // Devices alone are left.
                break self.widths(&shown, width, |_| 1).unwrap_or_else(|| vec![1; shown.len()]);
            };
            dropped.push(self.columns[shown.remove(next)].name.as_str());
        };
        let mut text = self.drawn(&shown, |position, cell| shortened(cell, widths[position]));
        dropped.retain(|name| !name.is_empty());
        if !dropped.is_empty() {
            text += &format!("\n{}", wrapped(&format!("without {}", dropped.join(", ")), width));
        }
        let lines: Vec<String> = text.lines().map(|line| line.chars().take(width).collect()).collect();
        lines.join("\n")
    }

    /// The widths of the columns `shown`, the widest text cut until all of them fit into `width`; none may be narrower than
    /// `shortest`. `None` if they do not fit.
    fn widths(&self, shown: &[usize], width: usize, shortest: impl Fn(usize) -> usize) -> Option<Vec<usize>> {
        let mut widths: Vec<usize> = shown.iter().map(|column| self.content(*column).max(self.name(*column))).collect();
        let shortest: Vec<usize> = shown.iter().map(|column| shortest(*column)).collect();
        while widths.iter().sum::<usize>() + GAP * shown.len().saturating_sub(1) > width {
            let cuttable = (0..shown.len()).filter(|position| widths[*position] > shortest[*position]);
            let widest = cuttable.max_by_key(|position| (widths[*position], *position))?;
            widths[widest] -= 1;
        }
        Some(widths)
    }

    /// The width that a column can be cut to: `text` if it holds text. Numbers, devices and addresses are not cut;
    /// column names are.
    fn shortest(&self, column: usize, text: usize) -> usize {
        let (content, name) = (self.content(column), self.name(column));
        let of = &self.columns[column];
        let is_whole = of.is_number || of.is_device() || ADDRESSES.contains(&of.name.as_str());
        let content = if is_whole { content } else { content.min(text) };
        content.max(name.min(SHORTEST))
    }

    /// The position in `shown` of the column to leave out next: no device, and not the first column of text.
    fn next_dropped(&self, shown: &[usize]) -> Option<usize> {
        let name = self.columns.iter().position(|column| !column.is_number && !column.is_device());
        let positions = (0..shown.len()).filter(|position| {
            let column = shown[*position];
            !self.columns[column].is_device() && Some(column) != name
        });
        positions.min_by_key(|position| (self.columns[shown[*position]].rank(), std::cmp::Reverse(*position)))
    }

    /// The length of the longest cell of a column.
    fn content(&self, column: usize) -> usize {
        self.rows.iter().filter_map(|row| Some(row.get(column)?.chars().count())).max().unwrap_or(0)
    }

    fn name(&self, column: usize) -> usize {
        self.columns[column].name.chars().count()
    }

    /// The columns `shown` as text, with cells as `cut` makes them.
    fn drawn(&self, shown: &[usize], cut: impl Fn(usize, &str) -> String) -> String {
        let mut table = comfy_table::Table::new();
        table.load_preset(NOTHING).set_style(TableComponent::HeaderLines, '─');
        let cells = |cell: &dyn Fn(usize) -> String| {
            let cells = shown.iter().enumerate().map(|(position, column)| cut(position, &cell(*column)));
            cells.collect::<Vec<String>>()
        };
        table.set_header(cells(&|column| self.columns[column].name.clone()));
        for row in &self.rows {
            table.add_row(cells(&|column| row.get(column).cloned().unwrap_or_default()));
        }
        for (column, of) in table.column_iter_mut().zip(shown) {
            column.set_padding((0, GAP as u16));
            if self.columns[*of].is_number {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_string()).collect();
        lines.join("\n")
    }
}

/// A terminal that says it is narrower does not know its width, such as a serial console.
const MIN_WIDTH: u16 = 20;

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The width of the terminal, if there is one.
        match comfy_table::Table::new().width().filter(|width| *width >= MIN_WIDTH) {
            Some(width) => f.write_str(&self.fitted(width.into())),
            None => {
                let all: Vec<usize> = (0..self.columns.len()).collect();
                f.write_str(&self.drawn(&all, |_, cell| cell.to_string()))
            }
        }
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

/// `text` in lines of at most `width` characters, if its words are no longer.
fn wrapped(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => *line += &format!(" {word}"),
            _ => lines.push(word.to_string()),
        }
    }
    lines.join("\n")
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

    /// The lines of a plan's table at `width`.
    fn plan(width: usize) -> Vec<String> {
        let mut groups = table([">group", "operators", "device", ">start", ">time", ">workspace"]);
        let name = "nn.contrib_conv2d_NCHWc+nn.bias_add+nn.relu+nn.contrib_max_pool";
        groups.add_row(["#7", name, "edge-server-1/gpu0", "12.345 ms", "≈ 1.234 ms", "123.4 KiB"]);
        let lines: Vec<String> = groups.fitted(width).lines().map(str::to_string).collect();
        assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:#?}");
        assert!(lines[1].starts_with('─') && lines[2].starts_with("   #7"), "the header is one line: {lines:#?}");
        assert!(lines[2].contains("edge-server-1/gpu0"), "{lines:#?}");
        lines
    }

    #[test]
    fn narrow_terminals_cut_names_and_leave_columns_out() {
        let wide = plan(120);
        assert!(wide[0].starts_with("group  operators") && wide[0].ends_with("workspace"), "{wide:#?}");
        assert!(wide[2].contains('…') && wide.len() == 3, "{wide:#?}");
        assert!(plan(140)[2].contains("nn.relu+nn.contrib_max_pool"));
        let usual = plan(80);
        assert!(usual[0].contains("start") && usual[0].ends_with("workspace"), "{usual:#?}");
        assert!(usual[2].contains("  nn.co") && usual[2].contains('…'), "{usual:#?}");
        let narrow = plan(60);
        assert!(!narrow[0].contains("start") && narrow[0].contains("time"), "{narrow:#?}");
        assert_eq!(narrow[3], "without start, workspace", "{narrow:#?}");
        assert_eq!(plan(44)[3], "without start, workspace, time");
        assert_eq!(wrapped("without start, workspace, time", 20), "without start,\nworkspace, time");
    }

    #[test]
    fn the_most_informative_columns_stay() {
        let mut runs = table([">group", "operators", "device", ">predicted", ">measured", ">off", "note"]);
        runs.add_row(["#7", "nn.conv2d+nn.bias_add+nn.relu", "edge-1/cpu", "12.34 ms", "23.45 ms", "+90.0 %", ""]);
        let lines = |width| runs.fitted(width).lines().map(str::to_string).collect::<Vec<_>>();
        assert!(!lines(82)[0].contains("note") && lines(82).len() == 3, "a column without content: {:#?}", lines(82));
        let narrow = lines(60);
        assert!(narrow[0].ends_with("measured      off") && narrow[3] == "without predicted", "{narrow:#?}");

        let mut devices = table(["device", "at", "model", ">cores"]);
        devices.add_row(["edge-1/cpu", "192.168.100.200:7000", "Cortex-A72 r0p3 something", "4"]);
        assert!(devices.fitted(50).contains("192.168.100.200:7000"), "{}", devices.fitted(50));
    }
}
