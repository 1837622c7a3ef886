//! How every verb reads its model: sizes of unknown dimensions, inputs that select branches, and files that are no model.

use std::{
    path::{Path, PathBuf},
    process::Output,
};

use crate::common::process::program;
use edgecut::{
    graph::{DType, TensorData},
    plan::{DeviceId, Plan},
    relay::Params,
    values::write_npz,
};

/// A folder with what the command line names.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// Runs `edgecut` with the words of `line` in this folder.
    fn edgecut(&self, line: &str) -> Output {
        let words = line.split_whitespace();
        let mut command = program();
        command.args(words).current_dir(self.0.path()).env("NO_COLOR", "1").output().unwrap()
    }

    #[track_caller]
    fn succeeds(&self, line: &str) -> String {
        let output = self.edgecut(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Asserts exit code 2 and that the message, however it is wrapped, contains `part`.
    #[track_caller]
    fn refuses(&self, line: &str, part: &str) {
        let output = self.edgecut(line);
        let message = String::from_utf8_lossy(&output.stderr).replace('│', " ");
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(2), "{line}: {message}");
        assert!(message.contains(part), "{line}: `{part}` is not in: {message}");
    }
}

fn scalar(path: &Path, name: &str, truth: bool) {
    let data = TensorData::new(DType::Bool, [], vec![u8::from(truth)]).unwrap();
    write_npz(path, [(name.to_string(), &data)]).unwrap();
}

#[test]
fn every_verb_takes_the_branch_that_inputs_select() {
    let folder = Folder::new();
    folder.write(
        "m.relay",
        "def @main(%c: bool, %x: Tensor[(4), float32]) { if (%c) { nn.relu(nn.relu(%x)) } else { tanh(%x) } }",
    );
    scalar(&folder.path("yes.npz"), "in_c", true);
    scalar(&folder.path("no.npz"), "in_c", false);
    scalar(&folder.path("other.npz"), "in_d", true);
    for verb in [
        "inspect",
        "export --format relay",
        "memory place",
        "memory schedule --effort 1",
        "memory liveness",
        "run",
        "profile --budget 10ms",
    ] {
        folder.refuses(&format!("{verb} m.relay"), "give the content with --inputs");
        folder.succeeds(&format!("{verb} m.relay --inputs yes.npz"));
        folder.refuses(&format!("{verb} m.relay --inputs other.npz"), "`%c`");
    }
    assert_eq!(folder.succeeds("inspect m.relay --format csv --inputs yes.npz").matches("nn.relu").count(), 2);
    assert_eq!(folder.succeeds("inspect m.relay --format csv --inputs no.npz").matches("tanh").count(), 1);
    // The plan remembers what selected its branch.
    folder.refuses("plan m.relay --profile-budget 10ms", "--inputs");
    folder.succeeds("plan m.relay --profile-budget 10ms --inputs yes.npz");
    folder.succeeds("run plan.json --repeat 1");
    assert!(folder.succeeds("export plan.json --format dot").contains("nn.relu"));
}

#[test]
fn sizes_are_for_dimensions_that_are_unknown() {
    let folder = Folder::new();
    folder.write(
        "m.relay",
        "def @main(%a: Tensor[(?, 3), float32], %b: (Tensor[(2, ?), float32], float32)) { (add(%a, %a), %b.0) }",
    );
    folder.write("fixed.relay", "def @main(%a: Tensor[(2, 3), float32]) { nn.relu(%a) }");
    folder.succeeds("run m.relay --bind-dim a:0=4 --bind-dim b.0:1=5");
    for verb in ["run", "profile", "plan", "memory place"] {
        folder.refuses(&format!("{verb} m.relay"), "the sizes of dimensions `a:0`, `b.0:1` are not known");
    }
    folder.refuses("run m.relay --bind-dim a:0=4", "the size of dimension `b.0:1` is not known");
    let inspected = folder.succeeds("inspect m.relay");
    assert!(inspected.contains("give sizes with --bind-dim of `a:0`, `b.0:1`"), "{inspected}");
    folder.succeeds("run fixed.relay --bind-dim 8");
    folder.refuses("inspect m.relay --bind-dim c:0=4", "no unknown dimension `c:0`");
    folder.refuses("inspect m.relay --bind-dim c:0=4", "its unknown dimensions are a:0, b.0:1");
    folder.refuses("run m.relay --bind-dim a:1=4", "its unknown dimensions are a:0, b.0:1");
    folder.refuses("memory place fixed.relay --bind-dim a:0=4", "it has no unknown dimension");
    // The plan remembers the sizes.
    folder.succeeds("plan m.relay --bind-dim 6 --profile-budget 10ms");
    folder.succeeds("run plan.json --repeat 1");
    folder.succeeds("export plan.json --format relay --output parts");
    let module = std::fs::read_dir(folder.path("parts")).unwrap().map(|entry| entry.unwrap().path());
    let module = module.filter(|path| path.extension().is_some_and(|e| e == "relay")).min().unwrap();
    assert!(std::fs::read_to_string(module).unwrap().contains("Tensor[(6, 3), float32]"));
}

#[test]
fn files_of_other_kinds_are_told_by_what_they_are() {
    let folder = Folder::new();
    folder.write("m.relay", "def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }");
    folder.succeeds("plan m.relay --profile-budget 10ms");
    folder.write("cluster.toml", "[[server]]\nname = \"edge\"\n");
    folder.write("object.json", "{}");
    folder.write("hello.relay", "hello\n");
    folder.write("empty.relay", "");
    folder.write("binary.relay", b"\x7fELF\x02\x01\x01\x00\x1b[31m\xff\xfe");
    folder.write("w.params", Params::default().write());
    scalar(&folder.path("x.npz"), "in_x", true);
    std::fs::create_dir(folder.path("folder.relay")).unwrap();
    scalar(&folder.path("out.npz"), "out_0", true);
    scalar(&folder.path("bare.npz"), "x", true);
    let weight = TensorData::new(DType::Bool, [], vec![1]).unwrap();
    folder.write("other.params", Params::from_iter([("a.weight".to_string(), weight)]).write());
    folder.write("links.csv", "from,from_address,to,to_address,latency_us,bytes_per_us,fit_error,largest_bytes,n\n");
    folder.write("manifest.json", "{\"version\": 1, \"blake3\": \"\", \"modules\": [], \"outputs\": []}");
    folder.write("workload.json", "{\"maxFPGAs\": 1, \"maxCPUs\": 1, \"maxSizePerFPGA\": 1, \"edges\": []}");
    folder.write("buffers.csv", "id,lower,upper,size\n0,5,2,8\n");
    folder.write("program.json", "{\"data\": [], \"code\": []}");
    folder.write("configs", "# graphs\nmissing.json 40%\n");
    folder.write("dump.json", "{\"nodes\": [], \"arg_nodes\": [], \"heads\": []}");
    for (line, part) in [
        ("inspect plan.json", "this is a plan"),
        ("profile plan.json", "this is a plan"),
        ("plan plan.json", "this is a plan"),
        ("memory place plan.json", "this is a plan"),
        ("inspect plan.csv", "this is CSV"),
        ("run plan.csv", "this is CSV"),
        ("run cluster.toml", "this is TOML"),
        ("plan cluster.toml", "this is TOML"),
        ("inspect object.json", "this is JSON"),
        ("run object.json", "object.json: not a plan"),
        ("export object.json --format dot", "object.json: not a plan"),
        ("run w.params", "this is a parameter file"),
        ("inspect x.npz", "this is an .npz"),
        ("run hello.relay", "the file contains only `hello`"),
        ("run empty.relay", "the file is empty"),
        ("memory place binary.relay", "this is a program or a shared library"),
        ("inspect folder.relay", "folder.relay: a folder without genai_config.json"),
        ("run folder.relay", "folder.relay: a folder without genai_config.json"),
        ("export folder.relay --format dot", "folder.relay: a folder without genai_config.json"),
        ("inspect missing.relay", "missing.relay: No such file"),
        ("run m.relay --params plan.json", "plan.json: parameter file"),
        ("run m.relay --params folder.relay", "folder.relay: Is a directory"),
        ("run m.relay --inputs plan.json", "plan.json"),
        ("run m.relay --inputs folder.relay", "folder.relay"),
        ("run m.relay --inputs x.npz", "the model declares float32[4]"),
        ("plan m.relay --cluster plan.json", "plan.json"),
        ("plan m.relay --cluster folder.relay", "folder.relay"),
        ("memory schedule m.relay --limit banana", "`banana` is not a size"),
        ("run m.relay --inputs plan.json", "not an .npz file, as `numpy.savez` writes them: this is a plan"),
        ("run m.relay --inputs out.npz", "it has no array `in_…` for an input, only `out_0`"),
        ("run m.relay --inputs bare.npz", "the array for an input `x` is named `in_x`"),
        ("run m.relay --params other.params", "none of its parameters (`a.weight`) is one of this model (`x`, …)"),
        ("run m.relay --params m.relay", "this is Relay text"),
        ("plan m.relay --cluster object.json", "object.json: not a cluster file: this is JSON"),
        ("inspect object.json", "expected an ONNX model, or Relay text"),
        ("plan m.relay --cluster plan.csv", "not a cluster file: this is CSV, the rows of a plan"),
        ("plan m.relay --profile plan.json --profile plan.json", "not a profile: this is a plan"),
        ("plan m.relay --profile plan.csv", "not a profile: this is CSV, the rows of a plan"),
        ("plan m.relay --profile links.csv", "not a profile: this is CSV, a table of measured links"),
        ("profile --import plan.json", "not a profile: this is a plan"),
        ("plan m.relay --profile nosuch.csv", "nosuch.csv: No such file"),
        ("profile m.relay --output nosuch.csv", "profiles go into a folder"),
        ("profile --import m.relay", "not a profile: this is Relay text"),
        ("profile --import hello.relay", "neither a graph dump nor an execution trace"),
        ("run m.relay --inputs hello.relay", "hello.relay: expected an .npz file, as `numpy.savez` writes them"),
        ("memory place m.relay --figures plan.json", "--figures plan.json: several files are written: name a folder"),
        ("memory schedule plan.json", "not a graph to be scheduled"),
        ("memory pack plan.csv", "not a table of buffers: this is CSV, the rows of a plan"),
        ("memory place m.relay --fuse cluster.toml", "not a library of patterns: this is TOML; name a model"),
        ("memory schedule --configs configs", "configs:2: missing.json: No such file"),
        // What is of the right kind is told what is wrong in it.
        ("workload workload.json", "workload.json: not a device-placement workload: missing field `nodes`"), // JSON
        (
            "memory pack buffers.csv",
            "buffers.csv: line 2, column `upper`: the lifetime ends at 2 before it begins at 5",
        ),
        (
            "memory schedule program.json --limit 50%",
            "program.json: not a valid DLMO graph: missing field `outputs` at line 1",
        ),
        ("plan m.relay --output folder.relay", "folder.relay is a folder: name a file in it"),
        ("run plan.json --trace folder.relay", "folder.relay is a folder: name a file in it"),
        ("memory place m.relay --profile plan.csv", "not a profile: this is CSV, the rows of a plan"),
        ("run manifest.json", "this is the manifest.json of exported modules"),
        ("run dump.json", "this is a graph dump of TVM's"),
    ] {
        folder.refuses(line, part);
    }
    let shown = String::from_utf8_lossy(&folder.edgecut("inspect binary.relay").stderr).into_owned();
    assert!(!shown.contains('\x1b'), "a file's control characters reach the terminal: {shown:?}");
    assert!(!folder.path("nosuch.csv").exists(), "what is refused makes no folder");
}

#[test]
fn flags_that_say_nothing_of_the_input_are_refused() {
    let folder = Folder::new();
    folder.write("m.relay", "def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }");
    folder.write("u.relay", "def @main(%x: Tensor[(?), float32]) { nn.relu(%x) }");
    folder.write("buffers.csv", "id,lower,upper,size\n0,0,2,8\n");
    let workload = "{\"maxFPGAs\": 1, \"maxCPUs\": 1, \"maxSizePerFPGA\": 9, \"nodes\": [{\"id\": 0, \"supportedOnFpga\": 1, \
                    \"cpuLatency\": 2, \"fpgaLatency\": 1, \"size\": 1, \"isBackwardNode\": 0}], \"edges\": []}"; // JSON
    folder.write("w.json", workload);
    for (line, part) in [
        ("run m.relay --trace t.json", "--trace has no effect with a model"),
        ("run m.relay --no-check --throughput", "--throughput, --no-check have no effect with a model"),
        (
            "plan m.relay --profile p.csv=a/cpu --threads 2 --estimate",
            "--threads, --estimate have no effect with profiles that are files",
        ),
        ("plan m.relay --estimate --rehearse 2", "--rehearse has no effect with --estimate"),
        ("plan m.relay --throughput nan", "`nan` is not a number of results a second"),
        ("plan m.relay --throughput=-2", "expected one above 0"),
        ("plan m.relay --memory 8", "`8` is not a size: expected a number with one of the units"),
        ("plan u.relay", "such as --bind-dim x:0=1"),
        ("profile u.relay", "such as --bind-dim x:0=1"),
        ("run u.relay", "such as --bind-dim x:0=1"),
        ("memory place u.relay", "such as --bind-dim x:0=1"),
    ] {
        let output = folder.edgecut(line);
        let message = String::from_utf8_lossy(&output.stderr).replace(['│', '\n'], " ");
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(2), "{line}: {message}");
        assert!(message.contains(part), "{line}: `{part}` is not in: {message}");
    }
    assert!(!folder.path("profiles").exists(), "nothing is measured for what is refused");
    let printed = folder.succeeds("workload w.json --format json --output out.json");
    assert_eq!(std::fs::read_to_string(folder.path("out.json")).unwrap(), printed);
}

#[test]
fn a_closed_output_pipe_ends_the_program() {
    let folder = Folder::new();
    folder.write("m.relay", "def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }");
    folder.write("buffers.csv", "id,lower,upper,size\n0,0,2,8\n");
    folder.succeeds("plan m.relay --profile-budget 10ms --rehearse 0");
    let command = |line: &str| {
        let mut command = program();
        command.args(line.split_whitespace()).current_dir(folder.path("."));
        command
    };
    for line in [
        "inspect m.relay --format csv",
        "export m.relay --format dot",
        "memory pack buffers.csv --format csv",
        "memory place m.relay --format json",
        "operators",
        "devices --format csv",
        "run plan.json --repeat 1",
    ] {
        // The reader has closed the pipe: no message.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(line).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line}");
        // The disk is full: with the reason.
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command(line).stdout(full).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{line}: {message}");
        assert!(message.contains("stdout cannot be written: No space left on device"), "{line}: {message}");
    }
}

#[test]
fn what_is_banned_from_a_device_runs_elsewhere() {
    let folder = Folder::new();
    folder.write(
        "m.relay",
        "def @main(%x: Tensor[(64, 256), float32], %w: Tensor[(256, 256), float32]) {
            %0 = nn.softmax(nn.dense(%x, %w, units=256)); tanh(nn.softmax(nn.dense(%0, %w, units=256))) }",
    );
    for (line, part) in [
        ("plan m.relay --ban nn.dense", "--ban nn.dense: expected GROUP=SERVER/DEVICE"),
        (
            "plan m.relay --ban conv*=local/cpu",
            "no group, operator or layer is called `conv*`; the model has nn.dense, nn.softmax",
        ),
        ("plan m.relay --ban nn.dense=other/cpu", "unknown device other/cpu; the cluster has local/cpu"),
        ("plan m.relay --pin nn.dense=other/cpu", "unknown device other/cpu; the cluster has local/cpu"),
        ("plan m.relay --ban tanh=local/cpu", "nn.softmax+tanh has no device left to run on: --ban tanh=local/cpu"),
    ] {
        folder.refuses(line, part);
    }
    assert!(!folder.path("profiles").exists(), "nothing is measured before that is known");
    folder.succeeds("profile m.relay --budget 50ms");
    let made = std::fs::read_dir(folder.path("profiles")).unwrap().next().unwrap().unwrap().path();
    let mut profiles = std::fs::read_dir(made).unwrap().map(|entry| entry.unwrap().path());
    let profile = profiles.find(|path| path.to_string_lossy().ends_with("fused.csv")).unwrap();
    std::fs::copy(profile, folder.path("p.csv")).unwrap();
    // The measurements stand for two devices of one server, which exchange tensors for free.
    let two = "plan m.relay --profile p.csv=a/cpu --profile p.csv=a/gpu0";
    let on = |plan: &Plan, name: &str| -> Vec<String> {
        let named = plan.groups.iter().filter(|group| group.name.split('[').next() == Some(name));
        named.map(|group| plan.devices[group.device.0 as usize].device.clone()).collect()
    };
    for objective in ["latency", "throughput", "memory"] {
        folder.succeeds(&format!("{two} --objective {objective} --ban nn.dense=a/cpu --ban tanh=a/gpu0"));
        let plan = Plan::from_json(&std::fs::read(folder.path("plan.json")).unwrap()).unwrap();
        assert!(on(&plan, "nn.dense").iter().all(|device| device == "gpu0"), "{objective}");
        assert!(on(&plan, "nn.softmax+tanh").iter().all(|device| device == "cpu"), "{objective}");
        assert_eq!(plan.rules.len(), 2);
    }
    folder.succeeds(&format!("{two} --pareto --ban nn.dense=a/cpu --output front"));
    let first = Plan::from_json(&std::fs::read(folder.path("front/plan-1.json")).unwrap()).unwrap();
    assert!(on(&first, "nn.dense").iter().all(|device| device == "gpu0"));
    // Without the ban both devices share the products.
    folder.succeeds(two);
    let plan = Plan::from_json(&std::fs::read(folder.path("plan.json")).unwrap()).unwrap();
    assert!(on(&plan, "nn.dense").iter().any(|device| device == "cpu"));
    assert!(!plan.splits.is_empty());

    // What it splits is split again, over devices of the same names, wherever they stand in the list.
    folder.succeeds(
        "plan m.relay --profile p.csv=a/gpu0 --profile p.csv=a/cpu --like plan.json --ratios equal --output like.json",
    );
    let like = Plan::from_json(&std::fs::read(folder.path("like.json")).unwrap()).unwrap();
    let named = |plan: &Plan| -> Vec<(u32, Vec<String>)> {
        let name = |d: &DeviceId| plan.devices[d.0 as usize].device.clone();
        plan.splits.iter().map(|split| (split.operator.0, split.devices.iter().map(name).collect())).collect()
    };
    assert_eq!(named(&like), named(&plan));
    folder.write("other.relay", "def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }");
    for (line, part) in [
        ("plan m.relay --like plan.json", "it splits over a/cpu, which does not exist; available: local/cpu"),
        ("plan other.relay --like plan.json", "it is a plan of m.relay, which is not the file that is planned now"),
        ("plan m.relay --like m.relay", "not a plan, as `edgecut plan` writes them: this is Relay text"),
        ("plan m.relay --like plan.json --granularity op", "give --granularity"),
    ] {
        folder.refuses(line, part);
    }
}
