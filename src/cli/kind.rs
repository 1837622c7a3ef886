//! What kind of file stands where a model should: told only when the file is no Relay text.

use crate::plan::Plan;

/// What the file is and what it is for, if it is of a kind that edgecut knows besides Relay text.
pub fn of(bytes: &[u8]) -> Option<&'static str> {
    const PARAMS: [u8; 8] = 0xF7E5_8D4F_0504_9CB7_u64.to_le_bytes();
    if bytes.starts_with(&PARAMS) {
        return Some("this is a parameter file; name a model, and this file with --params");
    }
    if bytes.starts_with(b"PK\x03\x04") {
        return Some("this is an .npz or another zip archive; name a model, and contents of its inputs with --inputs");
    }
    if is_json_object(bytes) {
        return Some(match Plan::from_json(bytes) {
            Ok(_) => "this is a plan; `edgecut run` and `edgecut export` take one, here a model is needed",
            Err(_) => "this is JSON; expected Relay text, as `mod.astext()` prints it",
        });
    }
    let text = std::str::from_utf8(bytes).ok()?;
    if text.parse::<toml::Table>().is_ok_and(|table| !table.is_empty()) {
        return Some("this is TOML; name a model, and a cluster file with --cluster");
    }
    let first = text.lines().next()?;
    let is_header =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-. ".contains(&b));
    let is_csv = first.contains(',') && first.split(',').all(is_header);
    is_csv.then_some("this is CSV; expected Relay text, as `mod.astext()` prints it")
}

/// Whether the file begins as a JSON object does, and no Relay text: a block `{ … }` begins with an expression.
pub fn is_json_object(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii_start();
    text.strip_prefix(b"{").is_some_and(|rest| matches!(rest.trim_ascii_start().first(), Some(b'"' | b'}')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_files_are_told_apart() {
        for (bytes, part) in [
            (&b"PK\x03\x04...."[..], "zip"),
            (b"\xb7\x9c\x04\x05\x4f\x8d\xe5\xf7....", "parameter"),
            (b" {\"version\": 1}", "JSON"),
            (b"{}", "JSON"),
            (b"[[server]]\nname = \"edge\"\n", "TOML"),
            (b"kind,time_us\n1,2\n", "CSV"),
        ] {
            assert!(of(bytes).is_some_and(|kind| kind.contains(part)), "{part}");
        }
        for text in ["", "hello", "def @main(%x: int32) {\n  add(%x, 1)\n}", "{ let %x = 1; %x }", "add(1, 2)"] {
            assert_eq!(of(text.as_bytes()), None, "{text}");
        }
    }
}
