//! ONNX Runtime's statistics of memory: CSV with a line per kernel, as the session option
//! `session.collect_node_memory_stats_to_file` writes it and `session.resource_cuda_partitioning_settings` reads it.
//!
//! The form is that of `core/framework/resource_accountant.cc`: names are not quoted, lines that begin with `#` are comments, and
//! the last line of a name counts.

use std::{collections::BTreeMap, fmt::Write};

use edgecut_graph::units::Bytes;
use edgecut_profile::reader::truncated;

/// The first line.
const HEADER: &str = "#name,input_sizes,initializers_sizes,total_dynamic_sizes,total_temp_allocations";

/// What the statistics say of one kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelMemory {
    /// The name in the model, or else the kind, an underscore and a hash.
    pub name: String,
    /// What it reads, of values that no kernel before it has read or allocated.
    pub inputs: Bytes,
    /// The weights among these, where the provider distinguishes them.
    pub initializers: Bytes,
    /// Results that were allocated while it ran.
    pub dynamic: Bytes,
    /// The sum of its other allocations.
    pub temporary: Bytes,
}

/// A line that is not valid in such statistics.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrtMemoryError {
    #[error("line {line}: `{found}` is not {expected}")]
    Line { line: usize, found: String, expected: &'static str },
    #[error(
        "it has no lines: run the session once with the session option `session.collect_node_memory_stats_to_file`"
    )]
    Empty,
}

/// Whether a text begins as such statistics do.
pub fn is_ort_memory(text: &str) -> bool {
    text.starts_with(HEADER)
}

/// Reads statistics: by name, in alphabetical order.
///
/// # Errors
/// If a line is not a name and four sizes, or there is none.
pub fn read(text: &str) -> Result<Vec<KernelMemory>, OrtMemoryError> {
    let mut found: BTreeMap<&str, KernelMemory> = BTreeMap::new();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    for (index, line) in lines {
        let error = |found: &str, expected| OrtMemoryError::Line { line: index + 1, found: truncated(found), expected };
        // A name may contain commas: they are not quoted.
        let mut cells = line.rsplitn(5, ',');
        let mut size = || {
            let cell = cells.next().unwrap_or_default().trim();
            cell.parse().map(Bytes).map_err(|_| error(cell, "a size in bytes"))
        };
        let (temporary, dynamic, initializers, inputs) = (size()?, size()?, size()?, size()?);
        let name = cells.next().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| error(line, "a name and four sizes in bytes, separated by commas"))?;
        found.insert(name, KernelMemory { name: name.to_string(), inputs, initializers, dynamic, temporary });
    }
    if found.is_empty() { Err(OrtMemoryError::Empty) } else { Ok(found.into_values().collect()) }
}

/// Writes statistics as ONNX Runtime reads them. A name with a comma or a line break cannot be written: its kernel is left out.
pub fn write<'k>(kernels: impl IntoIterator<Item = &'k KernelMemory>) -> String {
    let mut text = format!("{HEADER}\n");
    for kernel in kernels.into_iter().filter(|kernel| is_writable(&kernel.name)) {
        let KernelMemory { name, inputs, initializers, dynamic, temporary } = kernel;
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name},{},{},{},{}", inputs.0, initializers.0, dynamic.0, temporary.0);
    }
    text
}

/// Whether ONNX Runtime reads a line with this name as it was written.
pub fn is_writable(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('#') && !name.contains([',', '\n', '\r'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        // By onnxruntime 1.32.0.
        let text =
            format!("{HEADER}\nfc_15003383113984073248,104,0,256,0\nconv2_11019874060684852726,74752,0,65536,131072\n");
        let read_once = read(&text).unwrap();
        assert_eq!(read_once.len(), 2);
        assert_eq!((read_once[0].name.as_str(), read_once[0].temporary), ("conv2_11019874060684852726", Bytes(131072)));
        assert_eq!((read_once[1].inputs, read_once[1].dynamic), (Bytes(104), Bytes(256)));
        assert_eq!(read(&write(&read_once)).unwrap(), read_once);
        let comma = KernelMemory { name: "a,b_1".into(), ..read_once[0].clone() };
        assert_eq!(write([&comma]), format!("{HEADER}\n"));
        assert_eq!(read(&format!("{HEADER}\na,b_1,1,2,3,4\nk,5,6,7,8\nk,6,6,6,6\n")).unwrap()[1].inputs, Bytes(6));
    }

    #[test]
    fn lines_that_are_wrong_are_named() {
        for (lines, why) in [
            ("a,1,2,3,4\nb,1,2,x,4\n", "line 3: `x` is not a size in bytes"),
            ("a,1,2,3\n", "line 2: `a` is not a size in bytes"),
            (",1,2,3,4\n", "line 2: `,1,2,3,4` is not a name and four sizes"),
            ("a,1,2,3,-4\n", "line 2: `-4` is not a size"),
            ("a,1,2,3,99999999999999999999\n", "line 2: `99999999999999999999` is not a size"),
            ("", "it has no lines"),
        ] {
            let error = read(&format!("{HEADER}\n{lines}")).unwrap_err().to_string();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
