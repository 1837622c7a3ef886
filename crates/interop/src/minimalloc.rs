//! Packing problems in the CSV of MiniMalloc: one row a buffer.
//!
//! Columns by name, in any order: `id`, `lower`, `upper` (half open; a column `end` in its place is inclusive), `size`,
//! and if there `alignment`, `offset` (where the buffer must lie; empty or -1 for anywhere), `hint` (not used) and
//! `gaps`, which must be empty: a buffer here occupies its bytes throughout its lifetime. Other columns are kept.

use std::collections::HashMap;

use csv::{ReaderBuilder, StringRecord, Trim};

use edgecut_graph::units::Bytes;
use edgecut_memory::{Buffer, Packing};

/// A packing problem with the text it came from.
#[derive(Debug, Clone)]
pub struct BufferTable {
    pub buffers: Vec<Buffer>,
    header: StringRecord,
    rows: Vec<StringRecord>,
}

/// Why a file is not a valid packing problem.
#[derive(Debug, thiserror::Error)]
pub enum BufferTableError {
    #[error("line {line}: {source}")]
    Csv { line: u64, source: csv::Error },
    #[error(
        "line 1: no column `{column}` in the header `{header}`: expected id, lower, upper and size, with commas between"
    )]
    Missing { column: &'static str, header: String },
    #[error("line 1: there are two columns `{0}`")]
    Twice(&'static str),
    #[error("line {line}: {found} cells, where the header has {expected} columns")]
    Cells { line: u64, found: u64, expected: u64 },
    #[error("line {line}, column `{column}`: `{text}` is not a whole number from 0 to 2^63")]
    Number { line: u64, column: &'static str, text: String },
    #[error("line {line}, column `id`: `{id}` is the id of the buffer on line {first} already: expected another one")]
    Repeated { line: u64, id: String, first: u64 },
    #[error("line {line}, column `{column}`: {what}")]
    Value { line: u64, column: &'static str, what: String },
}

/// The columns that mean something here.
const COLUMNS: [&str; 8] = ["id", "lower", "upper", "end", "size", "alignment", "offset", "gaps"];

/// Other names of columns in files around.
const SYNONYMS: &[(&str, &str)] =
    &[("buffer", "id"), ("buffer_id", "id"), ("start", "lower"), ("begin", "lower"), ("align", "alignment")];

impl BufferTable {
    /// Reads the problem.
    ///
    /// # Errors
    /// With line and column, if a number is not one, a lifetime ends before it begins, or a column is missing.
    pub fn parse(text: &[u8]) -> Result<BufferTable, BufferTableError> {
        let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(text);
        let fault = |source: csv::Error| {
            let line = source.position().map_or(1, |p| p.line());
            match *source.kind() {
                csv::ErrorKind::UnequalLengths { expected_len: expected, len: found, .. } => {
                    BufferTableError::Cells { line, found, expected }
                }
                _ => BufferTableError::Csv { line, source },
            }
        };
        let header = reader.headers().map_err(fault)?.clone();
        let names: Vec<String> = header.iter().map(canonical).collect();
        let column = |name: &'static str| names.iter().position(|n| n == name);
        let shown = || header.iter().collect::<Vec<_>>().join(",");
        let required = |name: &'static str| {
            column(name).ok_or_else(|| BufferTableError::Missing { column: name, header: shown() })
        };
        let is_twice = |name: &&&str| names.iter().filter(|n| n == *name).count() > 1;
        if let Some(name) = COLUMNS.iter().find(is_twice) {
            return Err(BufferTableError::Twice(name));
        }
        let id = required("id")?;
        let (lower, size) = (required("lower")?, required("size")?);
        let (upper, inclusive) = match column("end") {
            Some(end) if column("upper").is_none() => (end, 1),
            _ => (required("upper")?, 0),
        };
        let mut table = BufferTable { buffers: Vec::new(), header: header.clone(), rows: Vec::new() };
        let mut lines: HashMap<String, u64> = HashMap::new();
        for row in reader.byte_records() {
            let row = StringRecord::from_byte_record_lossy(row.map_err(fault)?);
            let cells = Cells { row: &row, line: row.position().map_or(0, |p| p.line()) };
            if let Some(first) = lines.insert(cells.text(id).to_string(), cells.line) {
                return Err(BufferTableError::Repeated { line: cells.line, id: cells.text(id).to_string(), first });
            }
            let from = cells.number(lower, "lower")?;
            let to = cells.number(upper, "upper")?.saturating_add(inclusive);
            if to < from {
                return Err(cells.bad("upper", format!("the lifetime ends at {to} before it begins at {from}")));
            }
            let mut buffer = Buffer::new(from, to, Bytes(cells.number(size, "size")?));
            if let Some(at) = column("alignment").filter(|at| cells.filled(*at)) {
                buffer.align = cells.number(at, "alignment")?;
                if buffer.align == 0 {
                    return Err(cells.bad("alignment", "expected 1 or more".to_string()));
                }
            }
            if let Some(at) = column("offset").filter(|at| cells.filled(*at)) {
                buffer.fixed = Some(Bytes(cells.number(at, "offset")?));
            }
            if column("gaps").is_some_and(|at| cells.filled(at)) {
                let what = "gaps in a lifetime cannot be packed: give the parts as buffers of their own".to_string();
                return Err(cells.bad("gaps", what));
            }
            table.buffers.push(buffer);
            table.rows.push(row);
        }
        Ok(table)
    }

    /// The table as it was read, with the packing in the column `offset`.
    pub fn print(&self, packing: &Packing) -> String {
        self.clone().with_offsets(&packing.offsets).text()
    }

    /// The same with the names of pools in the column `pool`.
    pub fn print_pools(&self, offsets: &[Bytes], pools: &[&str]) -> String {
        self.clone().with("pool", pools.iter().map(|pool| pool.to_string())).with_offsets(offsets).text()
    }

    fn with_offsets(self, offsets: &[Bytes]) -> BufferTable {
        self.with("offset", offsets.iter().map(|offset| offset.0.to_string()))
    }

    /// The table with these cells in a column: in the one of that name, else in a new one.
    fn with(mut self, name: &str, cells: impl Iterator<Item = String>) -> BufferTable {
        let column = self.header.iter().position(|found| canonical(found) == name);
        let put = |record: &mut StringRecord, cell: &str| match column {
            Some(column) => {
                *record = record.iter().enumerate().map(|(at, old)| if at == column { cell } else { old }).collect();
            }
            None => record.push_field(cell),
        };
        put(&mut self.header, name);
        self.rows.iter_mut().zip(cells).for_each(|(row, cell)| put(row, &cell));
        self
    }

    fn text(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for record in std::iter::once(&self.header).chain(&self.rows) {
            // Writing to memory does not fail.
            let _ = writer.write_record(record);
        }
        String::from_utf8_lossy(&writer.into_inner().unwrap_or_default()).into_owned()
    }
}

/// The cells of one row, for reading and for pointing at.
struct Cells<'a> {
    row: &'a StringRecord,
    line: u64,
}

impl Cells<'_> {
    fn text(&self, at: usize) -> &str {
        self.row.get(at).unwrap_or_default()
    }

    fn filled(&self, at: usize) -> bool {
        !matches!(self.text(at), "" | "-1")
    }

    fn number(&self, at: usize, column: &'static str) -> Result<u64, BufferTableError> {
        let number = self.text(at).parse::<u64>().ok().filter(|n| *n <= 1 << 63);
        number.ok_or_else(|| BufferTableError::Number { line: self.line, column, text: self.text(at).to_string() })
    }

    fn bad(&self, column: &'static str, what: String) -> BufferTableError {
        BufferTableError::Value { line: self.line, column, what }
    }
}

fn canonical(name: &str) -> String {
    let name = name.trim_start_matches('\u{feff}').to_lowercase();
    SYNONYMS.iter().find(|(other, _)| *other == name).map_or(name, |(_, ours)| ours.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_memory::{PackOptions, check, pack};

    #[test]
    fn a_table_is_read_packed_and_printed() {
        let text = "id,lower,upper,size,alignment\nb1,0,3,4,1\nb2,3,9,4,8\nb3,0,9,4,1\n";
        let table = BufferTable::parse(text.as_bytes()).unwrap();
        let packing = pack(&table.buffers, &PackOptions::default()).unwrap();
        check::packing(&table.buffers, &packing).unwrap();
        let printed = table.print(&packing);
        assert_eq!(printed.lines().next(), Some("id,lower,upper,size,alignment,offset"));
        let again = BufferTable::parse(printed.as_bytes()).unwrap();
        let fixed: Vec<_> = again.buffers.iter().filter_map(|b| b.fixed).collect();
        assert_eq!(fixed, packing.offsets);
        assert_eq!(again.print(&packing), printed);
    }

    #[test]
    fn columns_of_results_are_written_once() {
        let table = BufferTable::parse(b"id,lower,upper,size,pool,offset\na,0,3,4,sram,\nb,0,3,4,dram,\n").unwrap();
        let printed = table.print_pools(&[Bytes(0), Bytes(0)], &["dram", "sram"]);
        assert_eq!(printed, "id,lower,upper,size,pool,offset\na,0,3,4,dram,0\nb,0,3,4,sram,0\n");
        let bare = BufferTable::parse(b"id,lower,upper,size\na,0,3,4\n").unwrap();
        assert_eq!(bare.print_pools(&[Bytes(8)], &["x"]), "id,lower,upper,size,pool,offset\na,0,3,4,x,8\n");
    }

    #[test]
    fn an_end_column_is_inclusive() {
        let table = BufferTable::parse(b"buffer_id,start,end,size\na,0,3,4\n").unwrap();
        assert_eq!(table.buffers, [Buffer::new(0, 4, Bytes(4))]);
    }

    #[test]
    fn faults_say_where_they_are() {
        let cases = [
            ("", "line 1: no column `id` in the header ``"),
            (
                "id,lower,size\n",
                "line 1: no column `upper` in the header `id,lower,size`: expected id, lower, upper and",
            ),
            ("id,lower,upper,size,start\n", "line 1: there are two columns `lower`"),
            ("id,lower,upper,size\na,0,3,4\nb,0,x,4\n", "line 3, column `upper`: `x` is not a whole number"),
            ("id,lower,upper,size\na,5,3,4\n", "line 2, column `upper`: the lifetime ends at 3 before it begins at 5"),
            ("id,lower,upper,size\na,5,3\n", "line 2: 3 cells, where the header has 4 columns"),
            (
                "id,lower,upper,size\na,0,3,4\nb,0,3,4\na,2,4,8\n",
                "line 4, column `id`: `a` is the id of the buffer on line 2 already",
            ),
            ("id,lower,upper,size,alignment\na,0,3,4,0\n", "line 2, column `alignment`: expected 1 or more"),
            ("id,lower,upper,size,gaps\na,0,3,4,1-2\n", "line 2, column `gaps`: gaps in a lifetime cannot be packed"),
        ];
        for (text, want) in cases {
            let found = BufferTable::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(found.starts_with(want), "{found}");
        }
    }
}
