//! External data: models whose tensors are in other files, with arbitrary entries.
//!
//! The model is in a folder with files, links and a FIFO, next to a file outside that must not be opened. An input is
//! text: lines `key=value` are the entries of one tensor, an empty line begins the next.

use std::{fs, io, path::Path};

use edgecut_graph::Origin;
use edgecut_onnx as onnx;

/// The content of the files that a model may read, byte by byte.
const INSIDE: u8 = 0x11;
/// The content of the file outside, byte by byte.
const OUTSIDE: u8 = 0xa5;
/// The length of each file.
const LENGTH: usize = 4096;
/// The length of a file with a hole, larger than any memory.
const SPARSE_LENGTH: u64 = 1 << 42;
/// Limit on the bytes of external data that are read.
const MAX_EXTERNAL_BYTES: u64 = 1 << 16;

/// A model with external data is imported with bytes of its own folder, or rejected with a message of bounded length.
/// The file outside is not opened; an import never waits for a FIFO, and never reads more than the limit.
pub fn external(bytes: &[u8]) {
    // Without a temporary folder there is nothing to test.
    let Ok(place) = folder() else { return };
    let file = place.path().join("model/model.onnx");
    let was_opened = watch_opening(&place.path().join("outside"));
    let evaluate = |_: &edgecut_graph::Graph, _: &onnx::Content<'_>| Err("nothing is evaluated".to_string());
    let options = onnx::ImportOptions {
        file: Some(&file),
        max_external_bytes: MAX_EXTERNAL_BYTES,
        ..onnx::ImportOptions::new(&evaluate)
    };
    match onnx::import("file", bytes::Bytes::from(model(bytes)), &options) {
        Ok(imported) => {
            for (_, tensor) in imported.graph.tensors() {
                if let Origin::Constant(data) = &tensor.origin {
                    assert!(!data.bytes().contains(&OUTSIDE), "{} is read from outside", tensor.name);
                    assert!(data.bytes().len() as u64 <= MAX_EXTERNAL_BYTES);
                }
            }
        }
        Err(error) => assert!(error.to_string().len() < 10_000, "{error}"),
    }
    assert!(was_opened.is_none_or(|was_opened| !was_opened()), "the file outside of the model's folder was opened");
}

/// A temporary folder with `outside` and the folder of the model.
fn folder() -> io::Result<tempfile::TempDir> {
    let place = tempfile::tempdir()?;
    let path = |name: &str| place.path().join(name);
    fs::create_dir_all(path("model/inner"))?;
    fs::write(path("outside"), [OUTSIDE; LENGTH])?;
    for name in ["model/model.onnx", "model/data", "model/inner/data"] {
        fs::write(path(name), [INSIDE; LENGTH])?;
    }
    fs::File::create(path("model/sparse"))?.set_len(SPARSE_LENGTH)?;
    #[cfg(unix)]
    for (target, link) in
        [("inner/data", "inside"), ("../outside", "link"), ("..", "up"), ("link", "chain"), ("loop", "loop")]
    {
        std::os::unix::fs::symlink(target, path("model").join(link))?;
    }
    #[cfg(target_os = "linux")]
    rustix::fs::mkfifoat(rustix::fs::CWD, path("model/fifo"), rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    Ok(place)
}

/// Returns a function that reports whether the file at `path` was opened since this call; `None` where the system
/// cannot.
#[cfg(target_os = "linux")]
fn watch_opening(path: &Path) -> Option<impl Fn() -> bool + use<>> {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let events = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
    add_watch(&events, path, WatchFlags::OPEN).ok()?;
    Some(move || rustix::io::read(&events, &mut [0u8; 512]).is_ok_and(|count| count > 0))
}

#[cfg(not(target_os = "linux"))]
fn watch_opening(_: &Path) -> Option<fn() -> bool> {
    None
}

/// A model that adds each tensor of `bytes` to its input.
fn model(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let mut graph = vec![bytes_field(2, b"g"), bytes_field(11, &value("x", 1))];
    for (index, tensor) in text.split("\n\n").enumerate() {
        let entries: Vec<(&str, &str)> = tensor.lines().filter_map(|line| line.split_once('=')).collect();
        let length = entries.iter().find(|(key, _)| *key == "length").and_then(|(_, value)| value.parse().ok());
        let length = length.unwrap_or(LENGTH as u64);
        let (weight, result) = (format!("w{index}"), format!("y{index}"));
        let entry = |(key, value): &(&str, &str)| {
            let entry = [bytes_field(1, key.as_bytes()), bytes_field(2, value.as_bytes())].concat();
            bytes_field(EXTERNAL_DATA, &entry)
        };
        let declared = [number_field(1, length), number_field(2, UINT8), bytes_field(8, weight.as_bytes())].concat();
        let external = entries.iter().flat_map(entry).collect();
        graph.push(bytes_field(5, &[declared, external, number_field(DATA_LOCATION, 1)].concat()));
        let operands = [bytes_field(1, b"x"), bytes_field(1, weight.as_bytes())].concat();
        let add = [operands, bytes_field(2, result.as_bytes()), bytes_field(4, b"Add")].concat();
        graph.push(bytes_field(1, &add));
        graph.push(bytes_field(12, &value(&result, length)));
    }
    let operator_set = number_field(2, 17);
    [number_field(1, 8), bytes_field(7, &graph.concat()), bytes_field(8, &operator_set)].concat()
}

/// ONNX's element type of bytes, and the fields of a tensor that say where its content is.
const UINT8: u64 = 2;
const EXTERNAL_DATA: u64 = 13;
const DATA_LOCATION: u64 = 14;

/// The `ValueInfoProto` of a list of bytes.
fn value(name: &str, length: u64) -> Vec<u8> {
    let shape = bytes_field(2, &bytes_field(1, &number_field(1, length)));
    let ty = bytes_field(1, &[number_field(1, UINT8), shape].concat());
    [bytes_field(1, name.as_bytes()), bytes_field(2, &ty)].concat()
}

/// A field of a protocol buffer that holds a number.
fn number_field(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

/// A field of a protocol buffer that holds bytes: text or a message.
fn bytes_field(number: u64, content: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_inside_is_read_and_nothing_else() {
        let constants = |entries: &str| {
            let place = folder().unwrap();
            let file = place.path().join("model/model.onnx");
            let evaluate = |_: &edgecut_graph::Graph, _: &onnx::Content<'_>| Err(String::new());
            let options = onnx::ImportOptions {
                file: Some(&file),
                max_external_bytes: MAX_EXTERNAL_BYTES,
                ..onnx::ImportOptions::new(&evaluate)
            };
            let imported = onnx::import("file", bytes::Bytes::from(model(entries.as_bytes())), &options);
            let graph = imported.map_err(|error| error.to_string())?.graph;
            let is_constant = |origin: &Origin| matches!(origin, Origin::Constant(data) if data.bytes()[0] == INSIDE);
            Ok::<usize, String>(graph.tensors().filter(|(_, tensor)| is_constant(&tensor.origin)).count())
        };
        let two = "location=data\noffset=1\nlength=9\n\nlocation=inside\n";
        assert_eq!(constants(two), Ok(2));
        for (location, part) in [
            ("link", "outside of the model's folder"),
            ("chain", "outside of the model's folder"),
            ("up/outside", "outside of the model's folder"),
            ("../outside", "must lie in the folder"),
            ("fifo", "FIFO"),
            ("sparse\nlength=4398046511104", "of external data are read"),
        ] {
            let error = constants(&format!("location={location}\n")).unwrap_err();
            assert!(error.contains(part), "{location}: {error}");
            external(format!("location={location}\n").as_bytes());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn opening_the_file_outside_is_seen() {
        let place = folder().unwrap();
        let path = place.path().join("outside");
        let Some(was_opened) = watch_opening(&path) else { return };
        assert!(!was_opened());
        fs::read(&path).unwrap();
        assert!(was_opened());
    }
}
