//! The promises of `edgecut_fuzz` on mutated files: the bodies that libFuzzer runs, here on any toolchain.
//!
//! Real files are cut, flipped, doubled and spliced. `EDGECUT_FUZZ_SECONDS=600 EDGECUT_FUZZ=text cargo test --release
//! --test fuzz -- --nocapture` runs one body for ten minutes. A file that breaks a promise is kept, and its name told.

use std::{
    cell::RefCell,
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arbtest::{
    arbitrary::{self, Unstructured},
    arbtest,
};
use edgecut::{
    agent::protocol::{
        named_tensors::StreamedTensor,
        phase::Phase,
        profile::ProfileTask,
        recorded,
        run::{RunCommand, Start},
        setup::{Setup, Terminal, ValueId},
    },
    engine::{CountingAllocator, CpuClock},
    graph::{DType, Granularity, TensorType},
    ops,
    profile::{MeasurementMode, Sampling},
    values::seeded,
};
use edgecut_fuzz::{BODIES, receiver};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// What a body may allocate beyond a multiple of the file's size: tables, and what folding may make.
const FIXED_BYTES: u64 = 100 << 20;

/// Most bytes allocated for each byte of a file: two imports, two printed texts.
const BYTES_PER_BYTE: u64 = 1000;

/// Most processor time that a body may take on a file of at most some hundred kilobytes.
const LONGEST: Duration = Duration::from_secs(2);

/// Words that steer a mutated text into the corners of the format.
const WORDS: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    "=",
    ";",
    ",",
    ":",
    ".",
    "?",
    "->",
    "=>",
    "/*",
    "*/",
    "//",
    "\"",
    "\\x",
    "%0",
    "%1 = ",
    "%x",
    "%x.0",
    "%aten::x.1",
    "@main",
    "@f(",
    "let %x = ",
    "fn (%x) {",
    "fn [A](%x: A) -> A {",
    "def @f(",
    "if (True) {",
    "} else {",
    "match (%x) {",
    "match? (%x) {",
    "_ =>",
    "type T[A] { C(A), }",
    "extern type T",
    "free_var %x: float32;",
    "ref(",
    "ref_read(",
    "ref_write(",
    "meta[relay.Constant][0]",
    "meta[tir.SizeVar][0]",
    "meta[relay.attrs.ScanopAttrs][0]",
    "#[version = \"0.0.5\"]\n",
    "#[metadata]\n",
    "True",
    "None",
    "nanf",
    "-inff64",
    "0",
    "-1",
    "2",
    "1f",
    "1e-05f",
    "3f16",
    "7i64",
    "2147483648",
    "9223372036854775807",
    "-9223372036854775807i64",
    "1000000000000000000",
    "99999999999999999999",
    "Tensor[(2, 3), float32]",
    "Tensor[(",
    "), float32]",
    "int8x4",
    "Tensor[(1000000000000000000, 1000000000000000000), int64]",
    "bool",
    "float16",
    "(int32, (bool,))",
    "fn (int32) -> int32",
    "axis=",
    "axis=-1",
    "axis=[0, 0]",
    "newshape=[-4, 0, -1]",
    "strides=[0, 0]",
    "padding=[-1, 9]",
    "kernel_size=[0, 0]",
    "channels=0",
    "groups=0",
    "groups=3",
    "data_layout=\"NHWC16c\"",
    "kernel_layout=\"\"",
    "dtype=\"float32\"",
    "indices_or_sections=0",
    "Primitive=1",
    "Compiler=\"c\"",
    "/* ty=float32 */",
    "/* ty=(Tensor[(1), int8], bool) */",
    "{\"type_key\": \"",
    "\"attrs\": {",
    "\"data\": [",
    "\"keys\": [",
    "\"b64ndarrays\": [",
    "\"root\": ",
    "AAAA",
    "====",
    "\n\nlocation=",
    "\noffset=",
    "\nlength=",
    "../outside",
    "link",
    "up/",
];

/// Numbers that lengths, ranks and counts lie with.
const NUMBERS: [u64; 8] = [0, 1, 64, 65, 1 << 31, 1 << 60, i64::MAX as u64, u64::MAX];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files that mutations begin from: the committed corpus, and for text the models and parser cases as well.
fn corpus(body: &str) -> Vec<Vec<u8>> {
    let read = |folder: PathBuf| {
        let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.into_iter().filter(|path| path.is_file()).map(|path| std::fs::read(path).unwrap())
    };
    let mut files = made(body);
    let committed = root().join("fuzz/corpus").join(body);
    if committed.is_dir() {
        files.extend(read(committed));
    }
    if body == "text" {
        files.extend(read(root().join("models")).filter(|text| text.starts_with(b"#[version")));
        for line in include_str!("data/parser-cases.jsonl").lines() {
            let case: serde_json::Value = serde_json::from_str(line).unwrap();
            files.push(case["input"].as_str().unwrap().as_bytes().to_vec());
        }
    }
    assert!(!files.is_empty());
    files
}

/// Sequences of messages as clients and peers send them, a plan, and cluster files.
fn made(body: &str) -> Vec<Vec<u8>> {
    let ty = TensorType::of(DType::F32, &[4]);
    let content = || seeded("x", &ty).unwrap();
    match body {
        "commands" => {
            let setup = Setup {
                source: Some(Terminal { values: vec![ValueId(0)], partition: Some(0) }),
                streamed: vec![StreamedTensor { name: "w".into(), ty: ty.clone() }],
                ..receiver()
            };
            let all = [
                RunCommand::Setup(Arc::new(setup)),
                RunCommand::Parameter { index: 0, data: content() },
                RunCommand::Input { index: 0, data: content() },
                RunCommand::Connect,
                RunCommand::Start(Start { inference: 0, phase: Phase::Prefill, sequence: 1, continues: true }),
            ];
            vec![recorded::commands(all).unwrap()]
        }
        "task" => {
            let graph = receiver().partitions.remove(0).stages.remove(0).graph;
            let task = ProfileTask {
                device: "cpu".into(),
                threads: Some(1),
                engine: None,
                mode: MeasurementMode::Isolated,
                granularity: Granularity::Op,
                sampling: Sampling::default(),
                wait: None,
                items: true,
                whole: true,
                cache_flush: None,
                known: HashSet::new(),
                graph,
                streamed: vec![StreamedTensor { name: "x".into(), ty: ty.clone() }],
            };
            vec![recorded::task(task, [("x".into(), content())].into()).unwrap()]
        }
        "transfer" => {
            let whole = [0, 1].map(|inference| recorded::transfer(inference, 0, content().bytes())).concat();
            let halves = [0, 8].map(|at| recorded::transfer(0, 0, &content().bytes()[at..at + 8])).concat();
            vec![whole, halves]
        }
        "cluster" => {
            let files = std::fs::read_dir(root().join("cluster")).unwrap().map(|entry| entry.unwrap().path());
            let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
            files.map(|path| std::fs::read(path).unwrap()).collect()
        }
        _ => Vec::new(),
    }
}

fn mutated(u: &mut Unstructured<'_>, corpus: &[Vec<u8>]) -> arbitrary::Result<Vec<u8>> {
    let mut file = u.choose(corpus)?.clone();
    for _ in 0..u.int_in_range(1..=6)? {
        mutate(u, &mut file, corpus)?;
    }
    Ok(file)
}

/// A span of at most `most` bytes of `file`.
fn span(u: &mut Unstructured<'_>, file: &[u8], most: usize) -> arbitrary::Result<std::ops::Range<usize>> {
    let at = u.int_in_range(0..=file.len())?;
    let len = u.int_in_range(0..=most.min(file.len() - at))?;
    Ok(at..at + len)
}

fn mutate(u: &mut Unstructured<'_>, file: &mut Vec<u8>, corpus: &[Vec<u8>]) -> arbitrary::Result<()> {
    let at = u.int_in_range(0..=file.len())?;
    match u.int_in_range(0..=9)? {
        0 => file.truncate(at),
        1 => {
            let bit = 1 << u.int_in_range(0..=7)?;
            file.get_mut(at).into_iter().for_each(|byte| *byte ^= bit);
        }
        2 => drop(file.drain(span(u, file, 64)?)),
        3 => {
            let copy = file[span(u, file, 200)?].to_vec();
            file.splice(at..at, copy);
        }
        4 => {
            let other = u.choose(corpus)?;
            let copy = other[span(u, other, 200)?].to_vec();
            file.splice(at..at, copy);
        }
        5 => {
            let number = u.choose(&NUMBERS)?.to_le_bytes();
            let end = (at + 8).min(file.len());
            file.splice(at..end, number);
        }
        6 => drop(file.splice(at..at, u.choose(WORDS)?.bytes())),
        // A token becomes another one: the text stays grammatical more often than not.
        7 => drop(file.splice(token(file, at, b"_."), u.choose(WORDS)?.bytes())),
        8 => drop(file.splice(token(file, at, b""), u.int_in_range(-9..=9)?.to_string().into_bytes())),
        _ => {
            let operators: Vec<&str> = ops::all().map(|def| def.name).collect();
            file.splice(token(file, at, b"_."), u.choose(&operators)?.bytes());
        }
    }
    Ok(())
}

/// The run of letters, digits and `more` around `at`.
fn token(file: &[u8], at: usize, more: &[u8]) -> std::ops::Range<usize> {
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || more.contains(byte);
    let start = file[..at].iter().rposition(|byte| !inside(byte)).map_or(0, |before| before + 1);
    let end = file[at..].iter().position(|byte| !inside(byte)).map_or(file.len(), |after| at + after);
    start..end
}

/// Runs `body` on `file` and holds it to its time and memory.
fn hold(body: fn(&[u8]), file: &[u8]) {
    let before = CountingAllocator::live();
    CountingAllocator::reset_peak();
    let start = CpuClock::Thread.now();
    body(file);
    let (took, peak) = (CpuClock::Thread.now() - start, (CountingAllocator::peak() - before).0);
    assert!(took < LONGEST, "took {took:?}");
    assert!(peak <= FIXED_BYTES + BYTES_PER_BYTE * file.len() as u64, "{peak} bytes for a file of {}", file.len());
}

#[test]
fn no_file_breaks_a_promise() {
    let seconds = std::env::var("EDGECUT_FUZZ_SECONDS").map_or(1.0, |text| text.parse().unwrap());
    let wanted = std::env::var("EDGECUT_FUZZ").unwrap_or_default();
    for (name, body) in BODIES.into_iter().filter(|(name, _)| name.contains(&wanted)) {
        let corpus = corpus(name);
        corpus.iter().for_each(|file| hold(body, file));
        let (mut runs, last) = (0u64, RefCell::new(Vec::new()));
        let property = |u: &mut Unstructured<'_>| {
            *last.borrow_mut() = mutated(u, &corpus)?;
            runs += 1;
            hold(body, &last.borrow());
            Ok(())
        };
        let search = arbtest(property).size_max(4096).budget(Duration::from_secs_f64(seconds));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| search.run())) {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("finding-{name}"));
            std::fs::write(&path, &*last.borrow()).unwrap();
            eprintln!("{name}: the file that breaks the promise is {}", path.display());
            resume_unwind(panic);
        }
        println!("{name}: {runs} files of {} mutated, no finding", corpus.len());
    }
}
