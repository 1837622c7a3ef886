//! Scaling of run time and peak memory: runs `edgecut` on inputs that double four times, and fits `size^a`.
//!
//! A row is a command and what grows in its input, with the smallest size. Its columns are wall-clock time (the least of three
//! calls) and peak resident memory, both less those of `edgecut --version`, and the exponents fitted to the largest three
//! sizes. `cargo bench --bench growth -- WORD` measures the rows whose name contains the word.

use std::{
    fmt::Write as _,
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

/// Each size is twice the one before.
const SIZES: u32 = 5;
const CALLS: usize = 3;
/// Sizes that exponents are fitted to: at small ones constants weigh most.
const FITTED: usize = 3;

/// What one call took.
#[derive(Clone, Copy)]
struct Usage {
    seconds: f64,
    mib: f64,
}

/// One row of the table.
struct Growth {
    /// What grows, and its smallest size.
    what: &'static str,
    first: u64,
    command: &'static str,
    /// Writes an input of a size into a folder, and returns the arguments of the program.
    input: fn(&Path, u64) -> Vec<String>,
}

const ROWS: [Growth; 9] = [
    Growth { what: "operators", first: 4_000, command: "inspect", input: |at, size| on_chain(at, size, "inspect") },
    Growth { what: "external MiB", first: 128, command: "inspect", input: |at, size| on_weights(at, size, true) },
    Growth { what: "embedded MiB", first: 16, command: "inspect", input: |at, size| on_weights(at, size, false) },
    Growth {
        what: "operators",
        first: 500,
        command: "memory place",
        input: |at, size| on_chain(at, size, "memory place --effort 1"),
    },
    Growth {
        what: "operators",
        first: 250,
        command: "memory schedule",
        input: |at, size| on_chain(at, size, "memory schedule --slowdown 1.5 --effort 1"),
    },
    Growth { what: "buffers", first: 20_000, command: "memory pack", input: on_buffers },
    Growth {
        what: "operators",
        first: 500,
        command: "run",
        input: |at, size| on_chain(at, size, "run --engine tract --threads 1"),
    },
    Growth {
        what: "operators",
        first: 250,
        command: "export --format onnx",
        input: |at, size| on_chain(at, size, "export --format onnx --output m.onnx"),
    },
    Growth { what: "tokens", first: 16, command: "run --generate", input: on_tokens },
];

fn main() {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with("--")).unwrap_or_default();
    let folder = tempfile::tempdir().expect("a folder for inputs");
    let Some(idle) = least(folder.path(), &["--version".to_string()]) else { return };
    println!("{:<22} {:<16} {:>50} {:>50} {:>6} {:>6}", "command", "grows", "seconds", "MiB", "time", "memory");
    for Growth { what, first, command, input } in ROWS {
        if !format!("{command} {what}").contains(&wanted) {
            continue;
        }
        let sizes: Vec<u64> = (0..SIZES).map(|step| first << step).collect();
        let mut found: Vec<(f64, Usage)> = Vec::new();
        for size in &sizes {
            let arguments = input(folder.path(), *size);
            let Some(Usage { seconds, mib }) = least(folder.path(), &arguments) else { break };
            let usage = Usage { seconds: (seconds - idle.seconds).max(1e-4), mib: (mib - idle.mib).max(0.1) };
            found.push((*size as f64, usage));
        }
        let listed = |of: fn(&Usage) -> f64, digits: usize| {
            let values: Vec<String> = found.iter().map(|(_, usage)| format!("{:.digits$}", of(usage))).collect();
            values.join(" ")
        };
        let exponent = |of: fn(&Usage) -> f64| {
            let points: Vec<(f64, f64)> = found.iter().map(|(size, usage)| (*size, of(usage))).collect();
            fitted(&points).map_or("-".to_string(), |exponent| format!("{exponent:.2}"))
        };
        println!(
            "{command:<22} {:<16} {:>50} {:>50} {:>6} {:>6}",
            format!("{what} {first}"),
            listed(|usage| usage.seconds, 3),
            listed(|usage| usage.mib, 1),
            exponent(|usage| usage.seconds),
            exponent(|usage| usage.mib)
        );
    }
}

/// The exponent of the last [`FITTED`] points, by least squares of their logarithms.
fn fitted(points: &[(f64, f64)]) -> Option<f64> {
    let last: Vec<(f64, f64)> = points.iter().rev().take(FITTED).map(|(x, y)| (x.ln(), y.ln())).collect();
    let n = last.len() as f64;
    let (x, y) = (last.iter().map(|p| p.0).sum::<f64>() / n, last.iter().map(|p| p.1).sum::<f64>() / n);
    let spread: f64 = last.iter().map(|p| (p.0 - x).powi(2)).sum();
    (last.len() == FITTED).then(|| last.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>() / spread)
}

/// The least of several calls; `None`, with a line that says why, if one fails.
fn least(folder: &Path, arguments: &[String]) -> Option<Usage> {
    let mut least: Option<Usage> = None;
    for _ in 0..CALLS {
        let now = called(folder, arguments)?;
        least =
            Some(least.map_or(now, |before| Usage {
                seconds: before.seconds.min(now.seconds),
                mib: before.mib.min(now.mib),
            }));
    }
    least
}

#[expect(clippy::zombie_processes, reason = "wait4 waits for it, and says what it used")]
fn called(folder: &Path, arguments: &[String]) -> Option<Usage> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_edgecut"));
    let said = folder.join("stderr");
    let stderr = File::create(&said).expect("a file for messages");
    command.args(arguments).current_dir(folder).stdout(Stdio::null()).stderr(stderr);
    // A child's peak begins with that of its parent.
    let _only_linux = fs::write("/proc/self/clear_refs", "5");
    let begin = Instant::now();
    let child = command.spawn().expect("the program starts");
    let mut status = 0;
    // SAFETY: all bytes zero are a valid `rusage`, which has numbers only.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the child is not waited for elsewhere, and both pointers are to locals of the right types.
    let ended = unsafe { libc::wait4(child.id() as libc::pid_t, &mut status, 0, &mut usage) };
    let seconds = begin.elapsed().as_secs_f64();
    if ended < 0 || status != 0 {
        let said = fs::read_to_string(said).unwrap_or_default();
        let why = said.lines().find(|line| line.contains('×')).unwrap_or_default();
        eprintln!("edgecut {}: {why}", arguments.join(" "));
        return None;
    }
    Some(Usage { seconds, mib: usage.ru_maxrss as f64 / 1024.0 })
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_string).collect()
}

/// `line` with a Relay model of about `operators` operators: dense layers with residual connections.
fn on_chain(folder: &Path, operators: u64, line: &str) -> Vec<String> {
    let mut text = "#[version = \"0.0.5\"]\ndef @main(%x: Tensor[(8, 64), float32]".to_string();
    let blocks = operators / 4;
    (0..blocks).for_each(|block| write!(text, ", %w{block}: Tensor[(64, 64), float32]").expect("memory"));
    text += ") {\n";
    let mut last = "%x".to_string();
    for block in 0..blocks {
        let [dense, relu, tanh, sum] = [0, 1, 2, 3].map(|n| format!("%{}", 4 * block + n));
        writeln!(text, "  {dense} = nn.dense({last}, %w{block}, units=64);").expect("memory");
        writeln!(text, "  {relu} = nn.relu({dense});\n  {tanh} = tanh({relu});").expect("memory");
        writeln!(text, "  {sum} = add({last}, {tanh});").expect("memory");
        last = sum;
    }
    writeln!(text, "  nn.relu({last})\n}}").expect("memory");
    fs::write(folder.join("m.relay"), text).expect("the input is written");
    let mut arguments = words(line);
    let verb = if line.starts_with("memory") { 2 } else { 1 };
    arguments.insert(verb, "m.relay".to_string());
    arguments
}

/// MiniMalloc's CSV of buffers as a network has them: most live shortly, some long.
fn on_buffers(folder: &Path, buffers: u64) -> Vec<String> {
    let mut rng = fastrand::Rng::with_seed(buffers);
    let mut text = "id,lower,upper,size\n".to_string();
    for id in 0..buffers {
        let lives = if rng.u32(0..20) == 0 { rng.u64(20..400) } else { rng.u64(1..6) };
        writeln!(text, "{id},{id},{},{}", id + lives, 64 * rng.u64(1..4096)).expect("memory");
    }
    fs::write(folder.join("b.csv"), text).expect("the input is written");
    words("memory pack --effort 1 b.csv")
}

/// `run --generate` with a number of tokens.
fn on_tokens(_: &Path, tokens: u64) -> Vec<String> {
    let decoder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/onnx/decoders/qwen2_tiny_int4");
    let mut arguments = words("run MODEL --engine tract --threads 1 --context 512 --prompt-ids 3,5,7 --generate");
    arguments[1] = decoder.to_string_lossy().into_owned();
    arguments.push(tokens.to_string());
    arguments
}

/// `inspect` with an ONNX model of sixteen matrix products with `mib` MiB of weights, external or not.
fn on_weights(folder: &Path, mib: u64, is_external: bool) -> Vec<String> {
    const LAYERS: u64 = 16;
    const WIDTH: u64 = 1024;
    let inner = (mib << 20) / (LAYERS * WIDTH * 4);
    let bytes = WIDTH * inner * 4;
    let mut graph = Vec::new();
    let mut last = "x".to_string();
    for layer in 0..LAYERS {
        let (weight, result) = (format!("w{layer}"), format!("y{layer}"));
        let mut node = Vec::new();
        field(&mut node, 1, last.as_bytes());
        field(&mut node, 1, weight.as_bytes());
        field(&mut node, 2, result.as_bytes());
        field(&mut node, 4, b"MatMul");
        field(&mut graph, 1, &node);
        let shape = if layer % 2 == 0 { [WIDTH, inner] } else { [inner, WIDTH] };
        let mut tensor = Vec::new();
        shape.iter().for_each(|size| number(&mut tensor, 1, *size));
        number(&mut tensor, 2, 1);
        field(&mut tensor, 8, weight.as_bytes());
        if is_external {
            for (key, value) in [
                ("location", "w.bin".to_string()),
                ("offset", (layer * bytes).to_string()),
                ("length", bytes.to_string()),
            ] {
                let mut entry = Vec::new();
                field(&mut entry, 1, key.as_bytes());
                field(&mut entry, 2, value.as_bytes());
                field(&mut tensor, 13, &entry);
            }
            number(&mut tensor, 14, 1);
        } else {
            field(&mut tensor, 9, &vec![0; bytes as usize]);
        }
        field(&mut graph, 5, &tensor);
        last = result;
    }
    field(&mut graph, 2, b"weights");
    field(&mut graph, 11, &value_info("x", [1, WIDTH]));
    field(&mut graph, 12, &value_info(&last, [1, WIDTH]));
    let mut model = Vec::new();
    number(&mut model, 1, 8);
    let mut opset = Vec::new();
    number(&mut opset, 2, 17);
    field(&mut model, 8, &opset);
    field(&mut model, 7, &graph);
    fs::write(folder.join("w.onnx"), model).expect("the input is written");
    if is_external {
        // All zeros, and no blocks of the disk.
        let file = File::create(folder.join("w.bin")).expect("the input is written");
        file.set_len(LAYERS * bytes).expect("the input is written");
    }
    words("inspect w.onnx")
}

fn value_info(name: &str, shape: [u64; 2]) -> Vec<u8> {
    let [mut info, mut kind, mut tensor, mut sizes] = [const { Vec::new() }; 4];
    for size in shape {
        let mut dimension = Vec::new();
        number(&mut dimension, 1, size);
        field(&mut sizes, 1, &dimension);
    }
    number(&mut tensor, 1, 1);
    field(&mut tensor, 2, &sizes);
    field(&mut kind, 1, &tensor);
    field(&mut info, 1, name.as_bytes());
    field(&mut info, 2, &kind);
    info
}

/// A field of Protocol Buffers with bytes.
fn field(message: &mut Vec<u8>, tag: u64, bytes: &[u8]) {
    varint(message, tag << 3 | 2);
    varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

/// A field of Protocol Buffers with a number.
fn number(message: &mut Vec<u8>, tag: u64, value: u64) {
    varint(message, tag << 3);
    varint(message, value);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}
