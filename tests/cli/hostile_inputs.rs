//! Files of a wrong kind or size, links, archives and folders that mean harm, through the real binary: nothing hangs,
//! nothing is read that should not be, and nothing is run.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::common::process::{edgecut, model, texts, within};
use edgecut::{
    graph::{DType, TensorType},
    values::{seeded, write_npz},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Address space in which what is refused in time is refused.
const MEMORY_KIB: u64 = 2 << 20;

/// Runs the program in `folder` in limited memory: its exit code and what it printed to stderr.
fn limited(folder: &Path, line: &str) -> (Option<i32>, String) {
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_edgecut")]).args(line.split(' '));
    command.current_dir(folder).env("EDGECUT_CONFIG", "").env_remove("EDGECUT_CLUSTER");
    let (code, _, stderr) = texts(within(PATIENCE, command));
    (code, stderr)
}

#[track_caller]
fn refused(folder: &Path, line: &str, part: &str) {
    let (code, stderr) = limited(folder, line);
    assert_eq!(code, Some(2), "{line}: {stderr}");
    // Messages are wrapped to the width of a terminal.
    let message = stderr.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
    assert!(message.contains(part), "{line}: {stderr}");
}

/// A folder with a small model of one input `x`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.relay"), "def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }").unwrap();
    folder
}

#[test]
fn what_is_no_regular_file_is_refused_and_never_waited_for() {
    let folder = folder();
    let made = Command::new("mkfifo").arg(folder.path().join("fifo")).status();
    assert!(made.unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
    File::create(folder.path().join("sparse")).unwrap().set_len(1 << 42).unwrap();
    let cluster = "[[server]]\nname = \"a\"\naddress = \"127.0.0.1:1\"\n[tls]\nca = \"fifo\"\ncert = \"fifo\"\n\
                   key = \"fifo\"\n";
    fs::write(folder.path().join("c.toml"), cluster).unwrap();
    for (name, part) in [
        ("fifo", "it is a FIFO, expected a regular file"),
        ("socket", "it is a socket"),
        ("sparse", "its size is 4096.00 GiB"),
    ] {
        for line in
            ["inspect", "run m.relay --inputs", "run m.relay --params", "plan m.relay --cluster", "run", "report"]
        {
            refused(folder.path(), &format!("{line} {name}"), part);
        }
        refused(folder.path(), &format!("plan m.relay --profile {name} --profile {name}"), part);
    }
    refused(folder.path(), "plan m.relay --cluster c.toml", "it is a FIFO");
    refused(folder.path(), "inspect /dev/zero", "it is a device");
}

#[test]
fn a_model_may_come_through_a_pipe() {
    let folder = folder();
    let mut command = edgecut(folder.path());
    command.args(["inspect", "/dev/stdin"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let text = fs::read(folder.path().join("m.relay")).unwrap();
    child.stdin.take().unwrap().write_all(&text).unwrap();
    let (code, _, stderr) = texts(child.wait_with_output().unwrap());
    assert_eq!(code, Some(0), "{stderr}");
}

#[test]
fn arrays_are_refused_before_they_are_inflated() {
    let folder = folder();
    // A thousand times as large as the archive, of which only the header may be read.
    let script = "import zipfile, sys\n\
         def npz(name, array, header, count):\n    \
             header = header.encode().ljust(118) + b'\\n'\n    \
             with zipfile.ZipFile(name, 'w', zipfile.ZIP_DEFLATED) as archive:\n        \
                 with archive.open(array + '.npy', 'w', force_zip64=True) as file:\n            \
                     file.write(b'\\x93NUMPY\\x01\\x00' + len(header).to_bytes(2, 'little') + header)\n            \
                     for _ in range(count): file.write(bytes(1 << 20))\n\
         shape = lambda n: \"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }\" % n\n\
         npz('name.npz', 'in_y', shape(64 << 20), 256)\n\
         npz('shape.npz', 'in_x', shape(64 << 20), 256)\n\
         npz('large.npz', 'in_x', shape(1 << 50), 1)\n\
         npz('longer.npz', 'in_x', shape(4), 256)\n\
         npz('shorter.npz', 'in_x', shape(4), 0)\n\
         npz('nested.npz', 'in_x', \"{'descr': \" + '[' * 60, 0)\n";
    let made = Command::new("python3").args(["-c", script]).current_dir(folder.path()).status();
    assert!(made.unwrap().success());
    for (name, part) in [
        ("name", "the model declares no %y"),
        ("shape", "the model declares float32[4], float32[67108864] was given"),
        ("large", "its arrays take"),
        ("longer", "needs 16 bytes, the file has 17 or more"),
        ("shorter", "needs 16 bytes, the file has 0"),
        ("nested", "an array of records"),
    ] {
        refused(folder.path(), &format!("run m.relay --inputs {name}.npz"), part);
    }
    let x = seeded("x", &TensorType::of(DType::F32, &[4])).unwrap();
    write_npz(&folder.path().join("good.npz"), [("in_x".to_string(), &x)]).unwrap();
    assert_eq!(limited(folder.path(), "run m.relay --inputs good.npz").0, Some(0));
}

/// A field of a protocol buffer that holds bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 1 << 14);
    let length = [content.len() as u8 & 0x7f | 0x80, (content.len() >> 7) as u8];
    [&[number << 3 | 2][..], &length, content].concat()
}

/// A field that holds a small number.
fn number(field: u8, value: u8) -> Vec<u8> {
    vec![field << 3, value]
}

/// A model that adds its initializer to `x`, a vector of 4: the initializer lies at `location`.
fn external_model(location: &str) -> Vec<u8> {
    let entry = field(13, &[field(1, b"location"), field(2, location.as_bytes())].concat());
    let tensor = [number(1, 4), number(2, 1), field(8, b"w"), entry, number(14, 1)].concat();
    let shape = field(2, &field(1, &number(1, 4)));
    let value = |name: &[u8]| [field(1, name), field(2, &field(1, &[number(1, 1), shape.clone()].concat()))].concat();
    let add = [field(1, b"x"), field(1, b"w"), field(2, b"y"), field(4, b"Add")].concat();
    let graph = [field(1, &add), field(2, b"g"), field(5, &tensor), field(11, &value(b"x")), field(12, &value(b"y"))];
    [number(1, 8), field(7, &graph.concat()), field(8, &number(2, 17))].concat()
}

#[test]
fn external_data_lies_in_the_folder_of_the_model() {
    use std::os::unix::fs::symlink;
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("model");
    fs::create_dir(&folder).unwrap();
    fs::write(place.path().join("secret"), [7; 16]).unwrap();
    fs::write(folder.join("data"), [0; 16]).unwrap();
    symlink("data", folder.join("inside")).unwrap();
    symlink("../secret", folder.join("outside")).unwrap();
    symlink("..", folder.join("up")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.join("fifo")).status().unwrap().success());
    let model = |location: &str| fs::write(folder.join("m.onnx"), external_model(location)).unwrap();
    for location in ["data", "inside"] {
        model(location);
        let (code, stderr) = limited(&folder, "run m.onnx --outputs out.npz");
        assert_eq!(code, Some(0), "{location}: {stderr}");
    }
    fs::remove_file(folder.join("out.npz")).unwrap();
    for (location, part) in [
        ("outside", "secret, outside of the model's folder"),
        ("up/secret", "secret, outside of the model's folder"),
        ("../secret", "must lie in the folder of the model"),
        ("fifo", "it is a FIFO"),
        ("/dev/zero", "must lie in the folder of the model"),
    ] {
        model(location);
        refused(&folder, "run m.onnx --outputs out.npz", part);
        assert!(!folder.join("out.npz").exists(), "{location}");
    }
}

#[test]
fn nothing_is_run_or_loaded_from_the_current_folder() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let marker = path("was-run");
    let python = format!("open({:?}, 'w')\n", marker.to_str().unwrap());
    fs::create_dir_all(path("onnxruntime/capi")).unwrap();
    for name in ["onnxruntime/__init__.py", "importlib.py", "sitecustomize.py", "usercustomize.py", "os.py"] {
        fs::write(path(name), &python).unwrap();
    }
    for name in ["onnxruntime/capi/libonnxruntime.so", "libonnxruntime.so"] {
        fs::write(path(name), "not a library").unwrap();
    }
    fs::write(path("python3"), format!("#!/bin/sh\n: > {}\n", marker.display())).unwrap();
    fs::set_permissions(path("python3"), fs::Permissions::from_mode(0o755)).unwrap();
    let paths = std::env::var("PATH").unwrap();
    for (variable, value) in [
        ("PYTHONPATH", String::new()),
        ("PYTHONPATH", ".".to_string()),
        ("PYTHONPATH", ":onnxruntime/..".to_string()),
        ("PATH", format!(":.:{paths}")),
        ("LD_LIBRARY_PATH", ".".to_string()),
    ] {
        for line in ["devices", "run m.relay --engine onnxruntime"] {
            let mut command = edgecut(folder.path());
            command.args(line.split(' ')).env_remove("ORT_DYLIB_PATH").env(variable, &value);
            let (_, stdout, stderr) = texts(within(PATIENCE, command));
            assert!(!marker.exists(), "{variable}={value}: {line}");
            let output = stdout + &stderr;
            assert!(
                !output.contains("invalid ELF") && !output.contains("file too short"),
                "{variable}={value}: {output}"
            );
        }
    }
}

#[test]
fn a_folder_full_of_links_reads_as_the_files_they_lead_to() {
    let folder = folder();
    std::os::unix::fs::symlink(model("squeezenet_v1.1"), folder.path().join("linked.relay")).unwrap();
    assert_eq!(limited(folder.path(), "inspect linked.relay").0, Some(0));
}
