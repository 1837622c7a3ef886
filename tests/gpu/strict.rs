//! Calls of the driver, NVRTC, cuBLAS and cuDNN on a machine without them: fake libraries (`driver.c`, `nvrtc.c`, `cublas.c`,
//! `cudnn.c`) compute in main memory, as late as allowed, and check every call against NVIDIA's documentation. The suite, the
//! program and the package of both run on them in processes of their own.

use std::{
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

/// A library by its source and its name.
type Library = (&'static str, &'static str);

const DRIVER: Library = ("driver", "libcuda.so.1");
const NVRTC: Library = ("nvrtc", "libnvrtc.so.12");
const CUBLAS: Library = ("cublas", "libcublas.so.12");
const CUDNN: Library = ("cudnn", "libcudnn.so.9");
const ALL: [Library; 4] = [DRIVER, NVRTC, CUBLAS, CUDNN];

/// A folder with these libraries, and nothing else.
fn libraries(which: &[Library]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    for (source, library) in which {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/gpu/{source}.c"));
        let output = Command::new(&compiler)
            .args(["-std=gnu11", "-O3", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"])
            .arg(format!("-Wl,-soname,{library}"))
            .arg("-o")
            .args([&folder.path().join(library), &source])
            .arg("-ldl")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    folder
}

/// A program that finds the libraries of `folder`, and others only where this machine has them.
fn with(folder: &Path, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", folder).env("EDGECUT_CODE", folder);
    command
}

/// What it printed, of both kinds.
fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs tests of this suite by a driver of these settings; everything must be called as it wants, and given back.
fn suite(tests: &[&str], settings: &[(&str, &str)], which: &[Library]) -> String {
    let folder = libraries(which);
    let mut command = with(folder.path(), &std::env::current_exe().unwrap());
    command.args(["--exact", "--include-ignored", "--nocapture", "--test-threads", "1"]).args(tests);
    let output = command.envs(settings.iter().copied()).output().unwrap();
    let text = printed(&output);
    let summary: Vec<&str> = text.lines().filter(|line| line.starts_with("driver: ")).collect();
    println!("{}", text.lines().filter(|line| !line.starts_with("test ")).collect::<Vec<_>>().join("\n"));
    assert!(output.status.success(), "{text}");
    assert!(!text.contains("REFUSED") && !summary.is_empty(), "{text}");
    for line in summary {
        assert!(line.ends_with("left: 0 regions, 0 streams, 0 events"), "{line}");
    }
    text
}

const OPERATORS: &str = "operators_on_the_gpu_compute_what_tvm_computes";

#[test]
fn operators_call_driver_and_libraries_as_documented() {
    let text = suite(&[OPERATORS, "copies_cost_what_a_line_says"], &[], &ALL);
    assert!(text.contains("Main memory, compute 9.0"), "{text}");
    let convolutions = text.lines().filter_map(|line| line.strip_prefix("cudnn: ")?.strip_suffix(" convolutions"));
    assert!(convolutions.map(|count| count.parse::<usize>().unwrap()).sum::<usize>() >= 10, "{text}");
}

/// A GPU whose driver has no memory pools, on a machine without cuBLAS and cuDNN.
#[test]
#[cfg_attr(gpu_driver, ignore = "finds the libraries of this machine's GPU")]
fn operators_run_without_memory_pools_and_cublas() {
    suite(&[OPERATORS], &[("EDGECUT_CARD_POOLS", "0"), ("EDGECUT_CASES", "nn_,conv")], &[DRIVER, NVRTC]);
}

#[test]
#[cfg_attr(gpu_driver, ignore = "finds the libraries of this machine's GPU")]
fn convolutions_are_products_without_cudnn() {
    suite(&[OPERATORS], &[("EDGECUT_CASES", "conv")], &[DRIVER, NVRTC, CUBLAS]);
}

#[test]
fn a_full_gpu_recovers() {
    let text = suite(&["a_full_gpu_recovers"], &[("EDGECUT_CARD_BYTES", "268435456")], &ALL);
    assert!(text.contains("recovered"), "{text}");
}

#[test]
fn plans_over_cpu_and_gpu_run() {
    let text = suite(&["a_plan_over_cpu_and_gpu_runs_as_predicted"], &[], &ALL);
    assert!(text.contains("small: gpu0: predicted"), "{text}");
}

/// Whether `edgecut devices` offers a GPU with these libraries and driver settings, and its notes.
fn notes(which: &[Library], settings: &[(&str, &str)]) -> (bool, Vec<String>) {
    let folder = libraries(which);
    let mut command = with(folder.path(), Path::new(env!("CARGO_BIN_EXE_edgecut")));
    let output = command.args(["devices", "--format", "json"]).envs(settings.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let gpu = told["devices"].as_array().unwrap().iter().any(|device| device["device"] == "local/gpu0");
    let notes = told["notes"].as_array().unwrap().iter().map(|note| note["note"].as_str().unwrap().to_string());
    (gpu, notes.collect())
}

#[test]
#[cfg_attr(gpu_driver, ignore = "finds the libraries of this machine's GPU")]
fn devices_reports_what_is_missing_and_how_to_install_it() {
    let case = |libraries: &[Library], settings: &[(&str, &str)], offered: bool, expected: &[&str]| {
        let (gpu, notes) = notes(libraries, settings);
        assert_eq!(gpu, offered, "{libraries:?} {settings:?}: {notes:?}");
        assert_eq!(notes.len(), expected.len(), "{libraries:?} {settings:?}: {notes:?}");
        for (note, part) in notes.iter().zip(expected) {
            assert!(note.contains(part), "{libraries:?} {settings:?}: {note}");
        }
    };
    let packages = ["nvidia-cuda-nvrtc-cu12", "nvidia-cublas-cu12", "nvidia-cudnn-cu12"];
    // As on a machine that has no GPU.
    case(&[], &[], false, &["libcuda.so.1"]);
    case(&[DRIVER], &[], false, &packages);
    case(&[DRIVER, CUBLAS, CUDNN], &[], false, &["no GPU: NVRTC cannot be loaded"]);
    case(&[DRIVER, NVRTC, CUDNN], &[], true, &["cuBLAS cannot be loaded, so matrices"]);
    case(&[DRIVER, NVRTC, CUBLAS], &[], true, &["cuDNN cannot be loaded, so convolutions"]);
    case(&ALL, &[], true, &[]);
    let stopped = "no GPU: the NVIDIA driver cannot be initialised: the driver does not fit (error 803)";
    case(&ALL, &[("EDGECUT_CARD_INIT", "803")], false, &[stopped]);
    case(&ALL, &[("EDGECUT_CARDS", "0")], false, &["no GPU: the NVIDIA driver finds no GPU"]);
    let old = "no GPU: the NVIDIA driver supports CUDA 11.4, but 12.0 is required";
    case(&ALL, &[("EDGECUT_CARD_VERSION", "11040")], false, &[old]);
}

/// A GPU whose memory another process takes meanwhile: every operator that fits is measured, the others have a note.
#[test]
fn out_of_memory_is_an_error_of_the_operator() {
    let folder = libraries(&ALL);
    let model = "#[version = \"0.0.5\"]\ndef @main(%x: Tensor[(64, 64), float32], %w: Tensor[(64, 64), float32], \
                 %a: Tensor[(1, 64), float32]) {\n  %0 = nn.dense(%x, %w, units=64);\n  %1 = nn.relu(%0);\n  \
                 %2 = repeat(%1, repeats=4096, axis=0);\n  %3 = add(%2, %a);\n  sum(%3, axis=[0])\n}\n";
    std::fs::write(folder.path().join("m.relay"), model).unwrap();
    let mut command = with(folder.path(), Path::new(env!("CARGO_BIN_EXE_edgecut")));
    let arguments = "profile m.relay --granularity op --budget 200ms --format csv --output profiles";
    // The link is measured with 64 MiB; what is repeated takes as much, and twice where it is added to.
    let output = command
        .args(arguments.split(' '))
        .current_dir(folder.path())
        .env("EDGECUT_CARD_BYTES", (65 << 20).to_string())
        .env("EDGECUT_CARD_FREE", (1 << 30).to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let mut rows = csv::Reader::from_reader(&output.stdout[..]);
    let header = rows.headers().unwrap().clone();
    let place = |name: &str| header.iter().position(|column| column == name).unwrap();
    let (device, operator, note) = (place("device"), place("operator"), place("note"));
    let rows: Vec<csv::StringRecord> = rows.records().map(Result::unwrap).collect();
    let on_card = |name: &str| {
        rows.iter()
            .find(|row| &row[device] == "gpu0" && &row[operator] == name)
            .unwrap_or_else(|| panic!("no row of {name}"))
    };
    assert_eq!((&on_card("nn.dense")[note], &on_card("nn.relu")[note]), ("", ""));
    assert!(rows.iter().all(|row| &row[device] == "gpu0" || row[note].is_empty()));
    let failed = &on_card("add")[note];
    println!("add: {failed}");
    assert!(failed.contains("of GPU memory: out of memory"), "{failed}");
}

/// A folder of links to this system's programs but for compilers, as a machine without a toolchain has them.
fn programs_without_compilers() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let is_compiler = |name: &str| {
        ["cc", "c89", "c99", "c++", "g++", "gcc", "clang", "cargo", "rustc"].contains(&name)
            || ["gcc-", "clang-", "x86_64-linux-gnu-g"].iter().any(|start| name.starts_with(start))
    };
    for system in ["/usr/bin", "/bin"] {
        for entry in std::fs::read_dir(system).unwrap().map(Result::unwrap) {
            let name = entry.file_name();
            if !is_compiler(&name.to_string_lossy()) {
                // The same program in both folders is linked once.
                let _ = std::os::unix::fs::symlink(entry.path(), folder.path().join(name));
            }
        }
    }
    folder
}

/// Runs `run.sh` of a package with nothing in the environment but these variables, and gives what it printed.
fn run_package(package: &Path, out: &Path, seconds: &str, variables: &[(&str, &Path)]) -> (bool, String, Duration) {
    let began = Instant::now();
    let mut command = Command::new("/usr/bin/env");
    command.arg("-i").args(variables.iter().map(|(name, value)| format!("{name}={}", value.display())));
    let output = command.arg(package.join("run.sh")).arg(out).arg(seconds).output().unwrap();
    (output.status.success(), printed(&output), began.elapsed())
}

/// The package of the program and this suite: made, moved, and run without this repository, a toolchain and an environment.
#[test]
#[ignore = "packs this checkout with Git and Python"]
fn a_package_runs_on_a_bare_machine() {
    let folder = tempfile::tempdir().unwrap();
    let (packed, package) = (folder.path().join("packed"), folder.path().join("package"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster/gpu.sh");
    let mut packing = Command::new(script);
    // Cargo sets these for a test. Build scripts that read them (ring's) would run again, and what depends on them be compiled.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text == "OUT_DIR" || text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            packing.env_remove(&name);
        }
    }
    let output = packing.arg("--pack").arg(&packed).output().unwrap();
    println!("{}", printed(&output));
    assert!(output.status.success(), "{}", printed(&output));
    std::fs::rename(&packed, &package).unwrap();
    let programs = programs_without_compilers();
    let path = ("PATH", programs.path());

    // Without a GPU: one line, soon.
    let (passed, text, took) = run_package(&package, &folder.path().join("none"), "60", &[path]);
    assert!(!passed && took < Duration::from_secs(20), "{took:?}: {text}");
    assert!(text.lines().count() <= 2 && text.contains("no GPU: "), "{text}");

    // On the fake driver, whose NVRTC needs a compiler that is in no folder of programs.
    let fakes = libraries(&ALL);
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "/usr/bin/cc".into());
    let out = folder.path().join("out");
    let variables = [
        path,
        ("LD_LIBRARY_PATH", fakes.path()),
        ("EDGECUT_CODE", fakes.path()),
        ("CC", Path::new(&compiler)),
        ("STEPS", Path::new("^(devices|operator cases|out of memory|copies)")),
    ];
    // The steps that are short with loops in place of a GPU.
    let (_, text, _) = run_package(&package, &out, "300", &variables);
    println!("{text}");
    let figures = std::fs::read_to_string(out.join("figures.txt")).unwrap();
    let steps: Vec<&str> = figures.lines().filter_map(|line| line.strip_prefix("== ")).collect();
    for step in ["devices", "operator cases", "out of memory", "copies"] {
        assert!(steps.iter().any(|line| line.starts_with(step) && line.contains(": passed")), "{step}: {figures}");
    }
    assert_eq!(steps.len(), 4, "{figures}");
    assert!(std::fs::read_dir(&out).unwrap().count() <= 8, "{out:?}");
}
