//! The documents: their commands are run one after the other, and print what is shown, numbers aside.
//!
//! `EDGECUT_WRITE_DOCS=1 cargo test --release --test cli documents -- --test-threads 1` puts what they print now into the
//! files: in place of each line that is shown, and all of an output that has other lines.

mod transcript;

use std::{
    collections::BTreeSet,
    env, fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::PoisonError,
    thread,
    time::{Duration, Instant},
};

use crate::{
    common::process::{edgecut, within},
    discovery::ANNOUNCED,
};
use transcript::{ANY, Block, Step, blocks, matching};

const PATIENCE: Duration = Duration::from_secs(300);

/// The number of lines that are kept at both ends of an output when it is written; those in the middle are left out.
const SHOWN: (usize, usize) = (12, 8);

/// The documents whose commands are run, each in a folder of its own.
const RUN: &[&str] = &[
    "README.md",
    "docs/cluster.md",
    "docs/configuration.md",
    "docs/engines.md",
    "docs/guide.md",
    "docs/operations.md",
    "docs/report.md",
];

/// Blocks with commands that are not run here, by how they begin, and what does it or why nothing can.
const NOT_RUN: &[(&str, &str, &str)] = &[
    ("README.md", "cargo run --release", "it builds the program that is tested; .ci/run does"),
    ("docs/library.md", "cargo run --release --example quickstart", "it builds an example; .ci/run does, and runs it"),
    ("CONTRIBUTING.md", "cargo test --release", "the tests themselves, and what takes hours"),
    ("CONTRIBUTING.md", "cd crates/report/page", "needs Node.js; .ci/run builds the page"),
    ("docs/cluster.md", "# cluster/lab.sh up", "needs root; tests/lab.rs makes such a cluster"),
    ("docs/cluster.md", "# EDGECUT_LAB_RATE", "needs root and an hour"),
    (
        "docs/onnx.md",
        "edgecut inspect qwen2/",
        "needs a language model; tests/cli/decoder.rs generates with a small one",
    ),
    ("docs/gpu.md", "", "needs an NVIDIA GPU, or repeats tests"),
    (
        "docs/operations.md",
        "edgecut cluster init lab.toml",
        "needs Docker and Kubernetes; tests/cli/deployment.rs checks the manifests",
    ),
    ("docs/python.md", "pip install", "it builds the package; .ci/run does, and python/tests runs the rest"),
    (
        "docs/python.md",
        "python -m edgecut.onnxruntime",
        "needs the package; python/tests/test_programs.py runs programs",
    ),
    ("docs/results.md", "", "needs root and hours"),
];

/// A command in the background, which ends with this, also where the test fails.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The address at which the agent that a command starts listens.
fn listening(command: &str) -> Option<&str> {
    command.split_whitespace().skip_while(|word| *word != "--listen").nth(1)
}

/// Waits until the agent that a command starts accepts connections.
fn await_listener(command: &str) {
    let address = listening(command).unwrap_or_else(|| panic!("`{command}` listens nowhere"));
    let begin = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(begin.elapsed() < PATIENCE, "`{command}` does not listen");
        thread::sleep(Duration::from_millis(20));
    }
}

/// What a command prints on both streams; one that ends in `&` goes on in the background.
fn run(folder: &Path, command: &str, background: &mut Vec<Background>) -> Vec<String> {
    let path = Path::new(env!("CARGO_BIN_EXE_edgecut")).parent().unwrap();
    let path = format!("{}:{}", path.display(), env::var("PATH").unwrap());
    let settings = edgecut(folder);
    let mut shell = Command::new("sh");
    // Documents show what is printed where no device tells its energy, as on most machines.
    shell
        .current_dir(folder)
        .env("PATH", path)
        .env("EDGECUT_SYSFS", folder.join("sys"))
        .envs(settings.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(command) = command.strip_suffix('&') {
        shell.args(["-c", &format!("exec {command}")]).stdout(Stdio::null()).stderr(Stdio::null());
        background.push(Background(shell.spawn().unwrap()));
        await_listener(command);
        return Vec::new();
    }
    shell.args(["-c", &format!("exec 2>&1; {command}")]);
    let output = within(PATIENCE, shell);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{command}\n{text}");
    text.lines().map(|line| line.trim_end().to_string()).collect()
}

/// Whether this machine has what the command needs besides edgecut.
fn can_run(command: &str) -> bool {
    let succeeds = |command: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdout(Stdio::null()).stderr(Stdio::null());
        shell.status().is_ok_and(|status| status.success())
    };
    match command {
        _ if command.starts_with("openssl") => succeeds("openssl version"),
        _ if command.contains("onnxruntime") => succeeds("python3 -c 'import onnxruntime'"),
        _ => true,
    }
}

/// The output as a document shows it.
fn cut(printed: &[String]) -> Vec<String> {
    if printed.len() <= SHOWN.0 + SHOWN.1 + 1 {
        return printed.to_vec();
    }
    let (head, tail) = (&printed[..SHOWN.0], &printed[printed.len() - SHOWN.1..]);
    [head, &[ANY.to_string()], tail].concat()
}

/// The addresses at which agents of the document listen, and free ones of this machine in their place. They are below those that
/// the system hands out, so that no other socket gets one before the agent has it.
fn addresses(steps: &[&Step]) -> Vec<(String, String)> {
    let named = steps.iter().filter_map(|step| listening(&step.command)).map(str::to_string);
    let named: BTreeSet<String> = named.collect();
    let free = || {
        let mut tried = (0..1000).map(|_| TcpListener::bind(("127.0.0.1", fastrand::u16(10_000..32_000))));
        tried.find_map(Result::ok).expect("a free port")
    };
    // All are bound at once, so that none is taken twice.
    let sockets: Vec<(String, TcpListener)> = named.into_iter().map(|name| (name, free())).collect();
    sockets.into_iter().map(|(name, socket)| (name, socket.local_addr().unwrap().to_string())).collect()
}

/// The repository's files that the document's commands read, and the program where a build puts it.
fn prepare(folder: &Path, replaced: &dyn Fn(&str) -> String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::create_dir(folder.join("cluster")).unwrap();
    let cluster = fs::read_to_string(root.join("cluster/loopback.toml")).unwrap();
    fs::write(folder.join("cluster/loopback.toml"), replaced(&cluster)).unwrap();
    std::os::unix::fs::symlink(root.join("models"), folder.join("models")).unwrap();
    fs::create_dir(folder.join("target")).unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_edgecut")).parent().unwrap();
    std::os::unix::fs::symlink(built, folder.join("target/release")).unwrap();
}

/// Runs the commands of a document, and compares what they print with what it shows.
fn check(document: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = fs::read_to_string(&path).unwrap();
    let blocks = blocks(&text);
    let steps: Vec<&Step> = blocks
        .iter()
        .flat_map(|block| if let Block::Console(steps) = block { steps.as_slice() } else { &[] })
        .collect();
    assert!(!steps.is_empty(), "{document} has no commands");
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let mut replacements = addresses(&steps);
    replacements.push(("/sys/".to_string(), format!("{}/sys/", here.display())));
    let replaced = |text: &str| replacements.iter().fold(text.to_string(), |text, (from, to)| text.replace(from, to));
    prepare(here, &replaced);
    let (mut background, mut wrong) = (Vec::new(), Vec::new());
    let mut written: Vec<String> = text.lines().map(str::to_string).collect();
    for block in &blocks {
        let steps = match block {
            Block::File { name, content } => {
                fs::write(here.join(name), replaced(content)).unwrap();
                continue;
            }
            Block::Console(steps) => steps,
            Block::Shell { .. } => continue,
        };
        for Step { at, command, shown } in steps {
            if !can_run(command) {
                eprintln!("SKIPPED: {document}:{at}: `{command}`: this machine lacks what it needs");
                continue;
            }
            let printed = run(here, &replaced(command), &mut background);
            let original = |line: String| replacements.iter().fold(line, |line, (to, from)| line.replace(from, to));
            let printed: Vec<String> = printed.into_iter().map(original).collect();
            let now = match matching(shown, &printed) {
                Ok(lines) => lines.join("\n"),
                Err(line) => {
                    let said = printed.join("\n");
                    wrong.push(format!("{document}:{at}: `{command}` does not print `{line}`, but\n{said}"));
                    cut(&printed).join("\n")
                }
            };
            if !now.is_empty() {
                written[at - 1] = format!("{}\n{now}", written[at - 1]);
            }
            written[*at..][..shown.len()].fill("\0".to_string());
        }
    }
    drop(background);
    if env::var_os("EDGECUT_WRITE_DOCS").is_some() {
        written.retain(|line| line != "\0");
        fs::write(&path, written.join("\n") + "\n").unwrap();
    } else {
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    }
}

#[test]
fn readme() {
    check("README.md");
}

#[test]
fn cluster() {
    let _alone = ANNOUNCED.lock().unwrap_or_else(PoisonError::into_inner);
    check("docs/cluster.md");
}

#[test]
fn configuration() {
    check("docs/configuration.md");
}

#[test]
fn engines() {
    check("docs/engines.md");
}

#[test]
fn guide() {
    check("docs/guide.md");
}

#[test]
fn operations() {
    check("docs/operations.md");
}

#[test]
fn report() {
    check("docs/report.md");
}

#[test]
fn all_other_commands_are_known_and_why_they_are_not_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let of_folder = |folder: &str| {
        let names = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned()).filter(|name| name.ends_with(".md"));
        names.map(|name| format!("{folder}{name}")).collect::<Vec<_>>()
    };
    let mut used = BTreeSet::new();
    for document in of_folder("").into_iter().chain(of_folder("docs/")) {
        for block in blocks(&fs::read_to_string(root.join(&document)).unwrap()) {
            match block {
                Block::Console(_) => assert!(RUN.contains(&document.as_str()), "{document} is not run"),
                Block::Shell { at, first } => {
                    let known = NOT_RUN.iter().position(|(of, begin, _)| document == *of && first.starts_with(begin));
                    used.insert(known.unwrap_or_else(|| panic!("{document}:{at}: `{first}` is not run")));
                }
                Block::File { .. } => {}
            }
        }
    }
    assert_eq!(used.len(), NOT_RUN.len(), "some of NOT_RUN is gone: {used:?}");
}
