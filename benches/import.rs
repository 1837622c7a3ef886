//! How fast Relay files are imported, from bytes to typed graph, and how much memory that takes.
//!
//! Prints one line a file: size, the fastest and the median of many imports in MB/s, and the most memory
//! allocated at one time beyond the file itself. Reads the models of this repository, and where the folder
//! `../shared/relay/models` is there, two large ones of it.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use edgecut::{
    engine::CountingAllocator,
    relay::{self, ImportOptions},
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// How long each file is imported over and over.
const BUDGET: Duration = Duration::from_secs(2);

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<PathBuf> = relay_files(&root.join("models"));
    let shared = root.join("../shared/relay/models");
    let large = ["resnet152.relay", "resnet18_int8_const.relay"].map(|name| shared.join(name));
    files.extend(large.into_iter().filter(|file| file.exists()));
    println!("{:<28} {:>10} {:>10} {:>10} {:>12} {:>6}", "file", "bytes", "best MB/s", "median", "peak bytes", "/file");
    for file in files {
        match std::fs::read(&file) {
            Ok(bytes) => measure(&file, &bytes),
            Err(error) => eprintln!("{}: {error}", file.display()),
        }
    }
}

fn relay_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "relay")).collect();
    files.sort();
    files
}

fn measure(file: &Path, bytes: &[u8]) {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let import = || relay::import(&name, bytes, &ImportOptions::default()).map(std::hint::black_box);
    let before = CountingAllocator::live();
    CountingAllocator::reset_peak();
    if let Err(error) = import() {
        return eprintln!("{error}");
    }
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
    println!(
        "{name:<28} {:>10} {:>10.1} {:>10.1} {peak:>12} {:>6.2}",
        bytes.len(),
        speed(seconds[0]),
        speed(seconds[seconds.len() / 2]),
        peak as f64 / bytes.len() as f64
    );
}
