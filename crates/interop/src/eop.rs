//! Profiles of the EOP tool: CSV with one line per operator, identified by its number in the Relay module.
//!
//! Only name and mean time are used. Times are in nanoseconds, contrary to the tool's documentation; header lines may
//! occur anywhere in the file.

use std::collections::BTreeMap;

use edgecut_graph::units::Micros;

/// What an EOP profile says of one operator.
#[derive(Debug, Clone, PartialEq)]
pub struct EopRow {
    /// The operator's name, or `tuple`.
    pub name: String,
    pub time: Micros,
    /// Where the profile says so, counted from 1.
    pub line: usize,
}

/// An EOP profile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EopProfile {
    /// By number.
    pub rows: BTreeMap<usize, EopRow>,
    /// Whether it is of a GPU: its memory columns are called `cuda`.
    pub is_gpu: bool,
}

/// A line that is not valid in an EOP profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: `{found}` is not {expected}")]
pub struct EopError {
    pub line: usize,
    pub found: String,
    pub expected: &'static str,
}

const NAME: &str = "a_name";
const TIME: &str = "forward_fw_mean_time";

/// Reads a profile: what is said of each number, the last line of several.
///
/// # Errors
/// If a line has no name with a number, or no time.
pub fn read(text: &str) -> Result<EopProfile, EopError> {
    let mut found = EopProfile::default();
    // Where name and time stand, by the last header.
    let mut columns: Option<(usize, usize)> = None;
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let error = |found: &str, expected| EopError { line: index + 1, found: found.to_string(), expected };
        let place = |name: &str| cells.iter().position(|cell| *cell == name);
        if let Some(name) = place(NAME) {
            let time = place(TIME).ok_or_else(|| error(line, "a header with the column forward_fw_mean_time"))?;
            columns = Some((name, time));
            found.is_gpu |= cells.iter().any(|cell| cell.contains("cuda"));
            continue;
        }
        let (name, time) = columns.ok_or_else(|| error(line, "a header with the column a_name"))?;
        let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
        let (operator, number) = cell(name).rsplit_once('-').unwrap_or_default();
        let number = number.parse().map_err(|_| error(cell(name), "an operator's name, a dash and its number"))?;
        let nanoseconds = cell(time).parse::<f64>().ok().filter(|t| t.is_finite() && *t >= 0.0);
        let nanoseconds = nanoseconds.ok_or_else(|| error(cell(time), "a time in nanoseconds"))?;
        let (name, time) = (operator.to_string(), Micros(nanoseconds / 1e3));
        found.rows.insert(number, EopRow { name, time, line: index + 1 });
    }
    match found.rows.is_empty() {
        true => Err(EopError { line: 1, found: String::new(), expected: "a profile with one line per operator" }),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_may_repeat_and_columns_move() {
        let text = "a_name,x,forward_fw_mean_time\nnn.dense-20,1,21865.0\na_name,forward_fw_mean_time\ntuple-3,6.0\n";
        let EopProfile { rows, is_gpu } = read(text).unwrap();
        assert_eq!(rows[&20], EopRow { name: "nn.dense".into(), time: Micros(21.865), line: 2 });
        assert!(!is_gpu && read(&text.replace(",x,", ",x_cuda,")).unwrap().is_gpu);
        assert_eq!(rows[&3].time, Micros(0.006));
        for (bad, why) in [
            ("", "line 1: `` is not a profile"),
            ("a-1,5\n", "line 1: `a-1,5` is not a header"),
            ("a_name,forward_fw_mean_time\na,5\n", "line 2: `a` is not an operator's name"),
            ("a_name,forward_fw_mean_time\na-1,x\n", "line 2: `x` is not a time"),
        ] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
