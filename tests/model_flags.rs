//! How every verb reads its model: sizes of unknown dimensions, inputs that select branches, and files that are no model.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use edgecut::{
    graph::{DType, TensorData},
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_edgecut"));
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
    for verb in ["inspect", "export --format relay", "memory", "run", "profile --budget 10ms"] {
        folder.refuses(&format!("{verb} m.relay"), "give the content with `--inputs FILE.npz`");
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
    folder.succeeds("run fixed.relay --bind-dim 8");
    folder.refuses("inspect m.relay --bind-dim c:0=4", "no unknown dimension `c:0`");
    folder.refuses("inspect m.relay --bind-dim c:0=4", "its unknown dimensions are a:0, b.0:1");
    folder.refuses("run m.relay --bind-dim a:1=4", "its unknown dimensions are a:0, b.0:1");
    folder.refuses("memory fixed.relay --bind-dim a:0=4", "it has no unknown dimension");
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
    for (line, part) in [
        ("inspect plan.json", "this is a plan"),
        ("profile plan.json", "this is a plan"),
        ("plan plan.json", "this is a plan"),
        ("memory plan.json", "this is a plan"),
        ("inspect plan.csv", "this is CSV"),
        ("run plan.csv", "this is CSV"),
        ("run cluster.toml", "this is TOML"),
        ("plan cluster.toml", "this is TOML"),
        ("inspect object.json", "this is JSON"),
        ("run object.json", "object.json: not a plan"),
        ("export object.json --format dot", "object.json: not a plan"),
        ("run w.params", "this is a parameter file"),
        ("inspect x.npz", "this is an .npz"),
        ("run hello.relay", "the file says only `hello`"),
        ("run empty.relay", "the file says nothing"),
        ("memory binary.relay", "no UTF-8 text"),
        ("inspect folder.relay", "folder.relay: Is a directory"),
        ("run folder.relay", "folder.relay: Is a directory"),
        ("export folder.relay --format dot", "folder.relay: Is a directory"),
        ("inspect missing.relay", "missing.relay: No such file"),
        ("run m.relay --params plan.json", "plan.json: parameter file"),
        ("run m.relay --params folder.relay", "folder.relay: Is a directory"),
        ("run m.relay --inputs plan.json", "plan.json"),
        ("run m.relay --inputs folder.relay", "folder.relay"),
        ("run m.relay --inputs x.npz", "the model declares float32[4]"),
        ("plan m.relay --cluster plan.json", "plan.json"),
        ("plan m.relay --cluster folder.relay", "folder.relay"),
        ("memory m.relay --limit banana", "`banana` is not a size"),
    ] {
        folder.refuses(line, part);
    }
    let shown = String::from_utf8_lossy(&folder.edgecut("inspect binary.relay").stderr).into_owned();
    assert!(!shown.contains('\x1b'), "a file's control characters reach the terminal: {shown:?}");
}
