//! How fast Relay files are imported, from bytes to typed graph, and how much memory that takes.
//!
//! Prints one line a file: size, the fastest and the median of many imports in MB/s, TVM's speed and how many times
//! faster the median is, and the most memory allocated at one time beyond the file itself. Reads the models of this
//! repository; where the folder `../shared/relay/models` is there, two large ones of it; and two generated files of
//! 100 MB, one of operators and one of constants. `cargo bench --bench import -- WORD` measures those of them whose
//! name contains the word, or the file that it is the path of.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use edgecut::{
    engine::CountingAllocator,
    graph::{DType, Graph, Operator, Origin, TensorType},
    relay::{self, ImportOptions},
    values::seeded,
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// How long each file is imported over and over.
const BUDGET: Duration = Duration::from_secs(2);

/// Size of a generated file.
const GENERATED: usize = 100_000_000;

/// TVM v0.14 reads text at about 1.5 MB/s, and a metadata section at 46 MB/s. These were measured once, on
/// another machine, and not by this benchmark.
const TVM_TEXT: f64 = 1.5;
const TVM_CONSTANTS: f64 = 46.0;

fn main() {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with("--")).unwrap_or_default();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<PathBuf> = relay_files(&root.join("models"));
    let shared = root.join("../shared/relay/models");
    let large = ["resnet152.relay", "resnet18_int8_const.relay"].map(|name| shared.join(name));
    files.extend(large.into_iter().filter(|file| file.exists()));
    if Path::new(&wanted).is_file() {
        files = vec![PathBuf::from(&wanted)];
    }
    println!(
        "{:<28} {:>10} {:>10} {:>8} {:>6} {:>7} {:>11} {:>6}",
        "file", "bytes", "best MB/s", "median", "TVM", "times", "peak bytes", "/file"
    );
    for file in files {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !file.to_string_lossy().contains(&wanted) {
            continue;
        }
        let tvm = if name.contains("const") { TVM_CONSTANTS } else { TVM_TEXT };
        match std::fs::read(&file) {
            Ok(bytes) => measure(&name, &bytes, tvm),
            Err(error) => eprintln!("{}: {error}", file.display()),
        }
    }
    if "generated_operators".contains(&wanted) {
        measure("generated_operators", operators().as_bytes(), TVM_TEXT);
    }
    if "generated_constants".contains(&wanted) {
        measure("generated_constants", constants().as_bytes(), TVM_CONSTANTS);
    }
}

fn relay_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "relay")).collect();
    files.sort();
    files
}

/// Residual blocks of a ResNet, as TVM prints them, one after the other.
fn operators() -> String {
    const MAP: &str = "Tensor[(1, 64, 56, 56), float32]";
    const CHANNELS: &str = "Tensor[(64), float32]";
    let (mut params, mut body) = (format!("%data: {MAP} /* ty={MAP} */"), String::new());
    let (mut last, mut next) = ("%data".to_string(), 0);
    for block in 0.. {
        if params.len() + body.len() >= GENERATED {
            break;
        }
        let weight = "Tensor[(64, 64, 3, 3), float32]";
        let _ = write!(params, ", %block{block}_conv_weight: {weight} /* ty={weight} */");
        for name in ["gamma", "beta", "moving_mean", "moving_var"] {
            let _ = write!(params, ", %block{block}_bn_{name}: {CHANNELS} /* ty={CHANNELS} */");
        }
        let [conv, norm, field, relu, sum] = [0, 1, 2, 3, 4].map(|at| format!("%{}", next + at));
        let _ = write!(
            body,
            "  {conv} = nn.conv2d({last}, %block{block}_conv_weight, padding=[1, 1, 1, 1], channels=64, \
             kernel_size=[3, 3]) /* ty={MAP} */;\n  {norm} = nn.batch_norm({conv}, %block{block}_bn_gamma, \
             %block{block}_bn_beta, %block{block}_bn_moving_mean, %block{block}_bn_moving_var, epsilon=2e-05f) \
             /* ty=({MAP}, {CHANNELS}, {CHANNELS}) */;\n  {field} = {norm}.0 /* ty={MAP} */;\n  {relu} = \
             nn.relu({field}) /* ty={MAP} */;\n  {sum} = add({relu}, {last}) /* ty={MAP} */;\n"
        );
        last = sum;
        next += 5;
    }
    format!("#[version = \"0.0.5\"]\ndef @main({params}) -> {MAP} {{\n{body}  {last}\n}}\n")
}

/// Additions of constants of 3 MB, which the metadata section holds.
fn constants() -> String {
    let ty = TensorType::of(DType::F32, &[768, 1024]);
    let mut graph = Graph::new();
    let mut sum = graph.add_tensor("x", ty.clone(), Origin::Input);
    for index in 0..GENERATED / (768 * 1024 * 4 * 4 / 3) {
        let Ok(data) = seeded(&format!("constant{index}"), &ty) else { continue };
        let constant = graph.add_tensor("constant", ty.clone(), Origin::Constant(data));
        let operator = Operator::new("add", [sum, constant]);
        let id = graph.add_operator(operator, std::slice::from_ref(&ty));
        sum = graph.operator(id).outputs[0];
    }
    graph.outputs.push(sum);
    relay::print::print_graph(&graph)
}

fn measure(name: &str, bytes: &[u8], tvm: f64) {
    let import = || relay::import(name, bytes, &ImportOptions::default()).map(std::hint::black_box);
    // The first import of the process fills the table of operators.
    if let Err(error) = import() {
        return eprintln!("{error}");
    }
    let before = CountingAllocator::live();
    CountingAllocator::reset_peak();
    drop(import());
    let peak = (CountingAllocator::peak() - before).0;
    let mut seconds = Vec::new();
    let start = Instant::now();
    while start.elapsed() < BUDGET || seconds.len() < 5 {
        let begin = Instant::now();
        let imported = import();
        seconds.push(begin.elapsed().as_secs_f64());
        drop(imported);
    }
    seconds.sort_by(f64::total_cmp);
    let speed = |seconds: f64| bytes.len() as f64 / 1e6 / seconds;
    let median = speed(seconds[seconds.len() / 2]);
    println!(
        "{name:<28} {:>10} {:>10.1} {median:>8.1} {tvm:>6.1} {:>6.0}x {peak:>11} {:>6.2}",
        bytes.len(),
        speed(seconds[0]),
        median / tvm,
        peak as f64 / bytes.len() as f64
    );
}
