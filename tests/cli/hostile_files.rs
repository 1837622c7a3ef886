//! Malicious or damaged files, through the real binary: an error with
//! exit code 2 within two seconds of processor time and one more for every 10 MB, in memory that the file's size bounds.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use edgecut::{
    graph::{DType, TensorType},
    relay::Params,
    values::seeded,
};

/// Nesting that a recursive reader would not survive.
const DEEP: usize = 1_000_000;

/// Address space for the process itself: its text, its threads' stacks, its libraries.
const BASE_BYTES: usize = 1 << 30;

/// Most memory for each byte of the file.
const BYTES_PER_BYTE: usize = 100;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

/// What a run of the binary did.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    /// User and system time together, and what it may be.
    cpu: Duration,
    most: Duration,
    stderr: String,
}

/// Runs `edgecut` with these arguments in an address space bounded by the size of `file`.
fn edgecut(file: &Path, arguments: &[&str]) -> Ran {
    let bytes = std::fs::metadata(file).unwrap().len();
    let bound = BASE_BYTES + BYTES_PER_BYTE * bytes as usize;
    let most = Duration::from_secs_f64(2.0 + bytes as f64 / 1e7);
    // The shell's `times` tells the processor time of its children after the command.
    let script = format!("ulimit -v {}; \"$@\"; code=$?; times >&2; exit $code", bound / 1024);
    let start = Instant::now();
    let output = Command::new("sh")
        .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_edgecut")])
        .args(arguments)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(start.elapsed() < Duration::from_secs(60), "{arguments:?} took {:?}", start.elapsed());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut lines: Vec<&str> = stderr.lines().collect();
    let children = lines.pop().unwrap_or_default();
    lines.pop();
    let cpu = children.split_whitespace().map(seconds).sum();
    Ran { code: output.status.code(), cpu, most, stderr: lines.join("\n") }
}

/// `0m1.250s`, as shells print times.
fn seconds(text: &str) -> Duration {
    let (minutes, rest) = text.split_once('m').unwrap();
    let seconds: f64 = rest.trim_end_matches('s').parse().unwrap();
    Duration::from_secs_f64(minutes.parse::<f64>().unwrap() * 60.0 + seconds)
}

/// Asserts that the file is refused as promised, with a message that has `part` in it.
#[track_caller]
fn refused(file: &Path, part: &str) {
    let ran = edgecut(file, &["inspect", file.to_str().unwrap()]);
    assert_refused(&ran, part);
}

#[track_caller]
fn assert_refused(ran: &Ran, part: &str) {
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.cpu < ran.most, "{ran:?}");
    assert!(ran.stderr.contains(part), "`{part}` is not in the message: {ran:?}");
    assert!(!ran.stderr.contains("panicked"), "{ran:?}");
    assert!(ran.stderr.len() < 4000, "{} bytes of message", ran.stderr.len());
}

#[test]
fn nesting_costs_memory_and_never_the_stack() {
    let folder = Folder::new();
    let main = |inside: &str| format!("def @main(%x: float32, %c: bool) {{\n{inside}\n}}\n");
    let refuse = |name: &str, inside: String, part: &str| refused(&folder.write(name, main(&inside)), part);
    refuse("open-parentheses", "(".repeat(DEEP), "expected");
    refuse("parentheses", "(".repeat(DEEP) + "%y" + &")".repeat(DEEP), "`%y` is not defined");
    refuse("lets", (0..DEEP).map(|i| format!("let %a{i} = ")).collect(), "expected");
    refuse("let-chain", (0..DEEP).map(|i| format!("let %a{i} = 1f;\n")).collect::<String>() + "%y", "`%y`");
    refuse("ifs", "if (%c) {".repeat(DEEP), "expected");
    refuse("if-conditions", "if (".repeat(DEEP), "expected");
    refuse("functions", "fn (%a) {".repeat(DEEP), "nested deeper");
    refuse("called-functions", "(fn () {".repeat(DEEP) + "%x" + &"})()".repeat(DEEP), "nested deeper");
    refuse("blocks", "{".repeat(DEEP), "expected");
    refuse("calls", "abs(".repeat(DEEP), "expected");
    refuse("infix", "1f + (".repeat(DEEP), "expected");
    refuse("tuples", "(%x, ".repeat(DEEP), "expected");
    refuse("matches", "match ((".repeat(DEEP), "expected");
    refuse("references", "ref(".repeat(DEEP), "expected");
    refuse("comments", "/* ".repeat(DEEP), "does not end");
    refuse("types", format!("let %a: {}int32", "(".repeat(DEEP)), "nested deeper");
    refuse("function-types", format!("let %a: {}", "fn () -> ".repeat(DEEP)), "nested deeper");
    refuse("attributes", format!("sum(%x, axis={}", "[".repeat(DEEP)), "nested deeper");
    refuse("patterns", format!("match (%x) {{ {}", "(".repeat(DEEP)), "nested deeper");
    let nested = "(%x,".repeat(DEEP) + &")".repeat(DEEP);
    refuse("projection-of-deep-tuple", format!("abs({nested})"), "abs");
}

#[test]
fn long_lists_are_read_in_time_in_proportion() {
    let folder = Folder::new();
    let main = |inside: &str| format!("def @main(%x: Tensor[(2), float32]) {{\n{inside}\n}}\n");
    let many = DEEP / 10;
    let list = |item: &dyn Fn(usize) -> String| (0..many).map(item).collect::<Vec<_>>().join(", ");
    refused(&folder.write("projections", main(&format!("%x{}", ".0".repeat(DEEP)))), "not a tuple");
    refused(&folder.write("dotted-name", main(&format!("%x{}", ".a".repeat(DEEP)))), "expected a tuple index");
    refused(&folder.write("operands", main(&format!("add({})", list(&|_| "%x".into())))), "takes 2 operands");
    for (name, inside) in [
        ("attributes", format!("sum(%x, {})", list(&|at| format!("k{at}=0")))),
        ("attribute-values", format!("sum(%x, axis=[{}])", list(&|_| "0".into()))),
        ("tuple", format!("concatenate(({}), axis=0)", list(&|_| "%x".into()))),
        ("same-let", "let %a = %x;\n".repeat(many) + "%a"),
        (
            "shared",
            (1..many).fold("%0 = add(%x, %x);\n".into(), |text: String, at| {
                text + &format!("%{at} = add(%{0}, %{0});\n", at - 1)
            }) + "%5",
        ),
        (
            "functions",
            "%0 = fn (%a: Tensor[(2), float32]) { abs(%a) };\n".to_string()
                + &(1..many).map(|at| format!("%{at} = %0(%x);\n")).collect::<String>()
                + "%5",
        ),
    ] {
        let file = folder.write(name, main(&inside));
        let ran = edgecut(&file, &["inspect", "--format", "csv", file.to_str().unwrap()]);
        assert!(matches!(ran.code, Some(0 | 2)) && ran.cpu < ran.most, "{name}: {ran:?}");
    }
    let globals: String = (0..many).map(|at| format!("def @f{at}(%x: int8) {{ @f{}(%x) }}\n", at + 1)).collect();
    let text = format!("{globals}def @f{many}(%x: int8) {{ abs(%x) }}\ndef @main(%x: int8) {{ @f0(%x) }}\n");
    let file = folder.write("globals", text);
    assert_eq!(edgecut(&file, &["inspect", file.to_str().unwrap()]).code, Some(0));
    let types: String = (0..many).map(|at| format!("type T{at} {{ C{at} }}\n")).collect();
    let file = folder.write("types", types + &main("%x"));
    let ran = edgecut(&file, &["inspect", file.to_str().unwrap()]);
    assert!(ran.code == Some(0) && ran.cpu < ran.most, "{ran:?}");
}

#[test]
fn tensors_of_many_dimensions_are_refused() {
    let folder = Folder::new();
    let wide = format!("Tensor[({}), float32]", vec!["1"; 10_000].join(", "));
    let refuse = |text: String| refused(&folder.write("wide.relay", text), "dimensions");
    refuse(format!("def @main(%x: {wide}) {{ abs(%x) }}"));
    refuse(format!("def @main(%x: float32) {{ meshgrid(({})) }}", vec!["%x"; 10_000].join(", ")));
    let expand: String = (1..1000).map(|at| format!("%{at} = expand_dims(%{}, axis=0);\n", at - 1)).collect();
    refuse(format!("def @main(%x: float32) {{ %0 = abs(%x);\n{expand}%999 }}"));
}

#[test]
fn whole_deep_programs_are_read() {
    let folder = Folder::new();
    let main = |inside: &str| format!("def @main(%x: float32) {{\n{inside}\n}}\n");
    let deep = DEEP / 10;
    for (name, inside) in [
        ("parentheses", "(".repeat(deep) + "%x" + &")".repeat(deep)),
        ("calls", "abs(".repeat(deep) + "%x" + &")".repeat(deep)),
        ("ifs", "if (True) {".repeat(deep) + "%x" + &"} else { %x }".repeat(deep)),
        ("comments", "/*".repeat(deep) + &"*/".repeat(deep) + "%x"),
        ("lets", (0..deep).map(|i| format!("let %a{i} = %x;\n")).collect::<String>() + "%x"),
    ] {
        let file = folder.write(name, main(&inside));
        let ran = edgecut(&file, &["inspect", "--format", "csv", file.to_str().unwrap()]);
        assert_eq!(ran.code, Some(0), "{name}: {}", &ran.stderr[..ran.stderr.len().min(500)]);
    }
}

#[test]
fn values_that_share_their_parts_stay_small() {
    let folder = Folder::new();
    let wide = |of: &str| format!("({})", vec![of; 60].join(", "));
    let mut body = format!("  %0 = {} /* ty=int32 */;\n", wide("%x"));
    (1..12).for_each(|at| body += &format!("  %{at} = {} /* ty=int32 */;\n", wide(&format!("%{}", at - 1))));
    refused(&folder.write("tuples.relay", format!("def @main(%x: int32) {{\n{body}  %11\n}}\n")), "out of proportion");
    let calls: String = (1..64).map(|at| format!("def @f{at}(%x: int32) {{ @f{0}(@f{0}(%x)) }}\n", at - 1)).collect();
    let text = format!("def @f0(%x: int32) {{ abs(%x) }}\n{calls}def @main(%x: int32) {{ @f63(%x) }}\n");
    refused(&folder.write("calls.relay", text), "out of proportion");
}

#[test]
fn buffers_that_all_overlap_are_packed_in_memory_in_proportion() {
    let folder = Folder::new();
    let rows: String = (0..10_000).map(|id| format!("{id},0,1,{}\n", id % 9 + 1)).collect();
    let file = folder.write("buffers.csv", format!("id,lower,upper,size\n{rows}"));
    let ran = edgecut(&file, &["memory", "pack", file.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn sizes_that_no_memory_holds_are_only_numbers() {
    let folder = Folder::new();
    let huge = "Tensor[(1000000000, 1000000000), float32]";
    let text = format!("def @main(%x: {huge}) -> {huge} {{ nn.relu(%x) }}\n");
    let file = folder.write("huge.relay", &text);
    let ran = edgecut(&file, &["inspect", file.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_refused(&edgecut(&file, &["run", file.to_str().unwrap()]), "");
    for inside in [
        "zeros(shape=[1000000000, 1000000000], dtype=\"float32\")",
        "ones(shape=[1000000000000000000], dtype=\"int8\")",
        "full(1f, shape=[1000000000, 1000000000, 1000000000], dtype=\"float32\")",
        "arange(0f, 1e+18f, 1f)",
        "tile(%x, reps=[1000000000, 1000000000])",
        "repeat(%x, repeats=1000000000000000000, axis=0)",
        "broadcast_to(%x, shape=[1000000000, 1000000000, 3])",
        "one_hot(%i, 1f, 0f, depth=2147483647, axis=-1, dtype=\"float32\")",
        "nn.pad(%x, 0f, pad_width=[[0, 1000000000000000000]])",
    ] {
        let text = format!("def @main(%x: Tensor[(3), float32], %i: Tensor[(1000000000), int32]) {{ {inside} }}\n");
        let file = folder.write("made.relay", &text);
        let ran = edgecut(&file, &["inspect", file.to_str().unwrap()]);
        assert!(matches!(ran.code, Some(0 | 2)), "{inside}: {ran:?}");
        let ran = edgecut(&file, &["run", file.to_str().unwrap()]);
        assert!(matches!(ran.code, Some(1 | 2)), "{inside}: {ran:?}");
        assert!(!ran.stderr.contains("panicked"), "{inside}: {ran:?}");
    }
}

#[test]
fn parameter_files_that_lie_are_refused() {
    let folder = Folder::new();
    let model =
        folder.write("m.relay", "def @main(%x: Tensor[(3), float32], %w: Tensor[(3), float32]) { add(%x, %w) }");
    let tensor = seeded("w", &TensorType::of(DType::F32, &[3])).unwrap();
    let params: Params = [("w".to_string(), tensor)].into_iter().collect();
    let whole = params.write();
    let run = |bytes: &[u8]| {
        let file = folder.write("m.params", bytes);
        edgecut(&model, &["run", model.to_str().unwrap(), "--params", file.to_str().unwrap()])
    };
    assert_eq!(run(&whole).code, Some(0));
    for len in [0, 7, 8, 24, 33, whole.len() / 2, whole.len() - 1] {
        assert_refused(&run(&whole[..len]), "parameter file");
    }
    // The counts and lengths of the format: how many names, how long each, how many tensors, the record's header.
    for at in [16, 24, 33, 41 + 24, 41 + 32, 41 + 40] {
        for lie in [u64::MAX, 1 << 62, 1 << 40] {
            let lying = [&whole[..at], &lie.to_le_bytes(), &whole[at + 8..]].concat();
            assert_refused(&run(&lying), "parameter file");
        }
    }
}

const SECTION: &str = r#"{"root": 1, "nodes": [{"type_key": ""}, {"type_key": "Map", "keys": ["relay.Constant"], "data": [2]},
{"type_key": "Array", "data": [3]}, {"type_key": "relay.Constant", "attrs": {"data": "0"}}],
"b64ndarrays": ["P6G0lvBAXt0AAAAAAAAAAAEAAAAAAAAAAQAAAAIgAQACAAAAAAAAAAgAAAAAAAAAAACAPwAAAEA="]}"#;

/// An attribute that is an array of two arrays, each the same array of two arrays, and so on: 2^60 values.
fn doubling() -> String {
    let arrays: Vec<String> =
        (4..64).map(|at| format!("{{\"type_key\": \"Array\", \"data\": [{0}, {0}]}}", at + 1)).collect();
    format!(
        "def @main(%x: Tensor[(2), float32]) {{ sum(%x, axis=meta[Array][0]) }}\n#[metadata]\n{{\"root\": 1, \"nodes\": \
         [{{\"type_key\": \"\"}}, {{\"type_key\": \"Map\", \"keys\": [\"Array\"], \"data\": [2]}}, {{\"type_key\": \"Array\", \
         \"data\": [4]}}, {{\"type_key\": \"\"}}, {}, {{\"type_key\": \"IntImm\", \"attrs\": {{\"value\": \"1\"}}}}]}}\n",
        arrays.join(", ")
    )
}

#[test]
fn metadata_that_lies_is_refused() {
    let folder = Folder::new();
    let head = "def @main(%x: Tensor[(2), float32]) { add(%x, meta[relay.Constant][0]) }\n#[metadata]\n";
    let write = |section: &str| folder.write("m.relay", format!("{head}{section}\n"));
    let whole = write(SECTION);
    assert_eq!(edgecut(&whole, &["inspect", whole.to_str().unwrap()]).code, Some(0));
    for (from, to) in [
        ("\"root\": 1", "\"root\": 9"),
        ("\"root\": 1", "\"root\": 18446744073709551615"),
        ("\"data\": [2]", "\"data\": [99]"),
        ("\"data\": [2]", "\"data\": []"),
        ("\"data\": [3]", "\"data\": [1000000000000]"),
        ("\"data\": \"0\"", "\"data\": \"7\""),
        ("\"data\": \"0\"", "\"data\": \"-1\""),
        // The rank, then the shape, then the payload's length: 2^31, 2^62, 2^62.
        ("AQAAAAIgAQAC", "AAAAgAIgAQAC"),
        ("AQACAAAAAAAAAAgA", "AQAAAAAAAAAAQAgA"),
        ("AAgAAAAAAAAAAACA", "AAAAAAAAAABAAACA"),
        ("AEA=", "AEA"),
        ("P6G0", "P6G1"),
        ("P6G0", "P6G\\u0000"),
    ] {
        assert!(SECTION.contains(from), "{from}");
        refused(&write(&SECTION.replacen(from, to, 1)), "");
    }
    refused(&write(&"[".repeat(DEEP)), "metadata");
    let (keys, places): (Vec<String>, Vec<&str>) = (0..10_000).map(|at| (format!("\"k{at}\""), "2")).unzip();
    let shared = format!(
        "{{\"root\": 1, \"nodes\": [{{\"type_key\": \"\"}}, {{\"type_key\": \"Map\", \"keys\": [{}], \"data\": [{}]}}, \
         {{\"type_key\": \"Array\", \"data\": [{}]}}]}}",
        keys.join(","),
        places.join(","),
        places.join(",")
    );
    refused(&write(&shared), "it has no");
    refused(&folder.write("doubling.relay", doubling()), "expand");
    refused(&write(&"{\"root\": {\"a\":".repeat(DEEP)), "metadata");
    refused(&write(&format!("{{\"root\": 1, \"more\": {}", "[".repeat(DEEP))), "metadata");
}

#[test]
fn a_model_cut_anywhere_is_refused_at_its_end() {
    let folder = Folder::new();
    let model = include_str!("../../models/squeezenet_v1.1.relay");
    // In the header, in a name, in a type, in a comment, in a number, behind an operator, in a call, before the end.
    let inside = |part: &str, more: usize| model.find(part).unwrap_or_else(|| panic!("{part}")) + more;
    let cuts = [
        inside("#[version", 12),
        inside("def @main", 3),
        inside("@main(%", 7),
        inside("Tensor[(1, 3", 10),
        inside("/* ty=", 9),
        inside("nn.conv2d", 4),
        inside("nn.conv2d(", 10),
        inside("strides=[", 9),
        inside("kernel_size=", 12),
        inside(" = nn.max_pool2d", 2),
        model.trim_end().len() - 1,
    ];
    for cut in cuts {
        refused(&folder.write("cut.relay", &model[..cut]), "cut.relay");
    }
    for cut in (1..model.trim_end().len() - 1).step_by(1 + model.len() / 40) {
        refused(&folder.write("cut.relay", &model[..cut]), "cut.relay");
    }
}

#[test]
fn files_that_are_no_text_are_refused() {
    let folder = Folder::new();
    refused(&folder.write("empty.relay", b""), "empty.relay");
    refused(&folder.write("zeros.relay", vec![0u8; 1 << 20]), "zeros.relay");
    refused(
        &folder.write(
            "binary.relay",
            (0..1 << 20).map(|i: u32| (i.wrapping_mul(2654435761) >> 24) as u8).collect::<Vec<u8>>(),
        ),
        "binary file",
    );
    refused(&folder.write("one-line.relay", "x ".repeat(1 << 20)), "one-line.relay");
    refused(
        &folder.write("quotes.relay", format!("def @main() {{ cast(1f, dtype=\"{}", "a".repeat(1 << 20))),
        "does not end",
    );
    refused(&folder.write("name.relay", format!("def @main() {{ %{} }}", "a".repeat(1 << 20))), "defined here");
    refused(&folder.write("number.relay", format!("def @main() {{ {} }}", "9".repeat(1 << 20))), "int64");
}
