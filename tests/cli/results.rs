//! Where results go: files, links, devices, FIFOs and stdout; and what is left of them when a disk is full or Ctrl-C comes.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::common::process::{edgecut, ending, run, signal, texts, within};
use edgecut::plan::Plan;

const PATIENCE: Duration = Duration::from_secs(120);

/// Verbs up to the path of their result, the extension that it needs, and whether they print something too.
const VERBS: [(&str, &str, bool); 9] = [
    ("plan m.relay --profile-budget 10ms --rehearse 0 --output", "json", true),
    ("run plan.json --repeat 1 --output", "json", true),
    ("run plan.json --repeat 1 --outputs", "npz", true),
    ("run plan.json --repeat 1 --trace", "json", true),
    ("run m.relay --outputs", "npz", true),
    ("memory place m.relay --output", "csv", true),
    ("memory pack buffers.csv --output", "csv", true),
    ("export m.relay --format dot --output", "dot", false),
    ("report plan.json --output", "html", false),
];

/// A folder with a model, its plan and a table of buffers.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("m.relay"), "def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }").unwrap();
    fs::write(here.join("buffers.csv"), "id,lower,upper,size\n0,0,2,8\n").unwrap();
    let (code, _, said) = run(here, "plan m.relay --profile-budget 10ms --rehearse 0");
    assert_eq!(code, Some(0), "{said}");
    folder
}

/// Every verb with its result at `name`, which gets the verb's extension.
fn all(here: &Path, name: &str, check: impl Fn(&str, &Path, bool, (Option<i32>, String, String))) {
    for (verb, extension, prints) in VERBS {
        let path = here.join(format!("{name}.{extension}"));
        let line = format!("{verb} {}", path.display());
        check(&line, &path, prints, run(here, &line));
    }
}

/// A link of each extension to `target`.
fn links(here: &Path, name: &str, target: impl Fn(&str) -> PathBuf) {
    for extension in ["json", "npz", "csv", "dot", "html"] {
        symlink(target(extension), here.join(format!("{name}.{extension}"))).unwrap();
    }
}

#[test]
fn devices_stay_and_a_full_disk_loses_nothing() {
    let folder = folder();
    let here = folder.path();
    links(here, "full", |_| "/dev/full".into());
    all(here, "full", |line, path, prints, (code, printed, said)| {
        assert_eq!(code, Some(1), "{line}: {said}");
        assert!(said.contains("cannot be written: No space left on device"), "{line}: {said}");
        assert_eq!(!printed.is_empty(), prints, "{line}: {printed}");
        assert!(path.is_symlink() && fs::metadata(path).unwrap().file_type().is_char_device(), "{line}");
    });
    links(here, "null", |_| "/dev/null".into());
    all(here, "null", |line, path, prints, (code, printed, said)| {
        assert_eq!(code, Some(0), "{line}: {said}");
        assert_eq!(!printed.is_empty(), prints, "{line}: {printed}");
        assert!(path.is_symlink() && fs::metadata(path).unwrap().file_type().is_char_device(), "{line}");
    });
    // What is printed is lost: the file is written all the same.
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    for (name, stdout) in [("a.json", Stdio::from(full)), ("b.json", Stdio::from(closed))] {
        let mut command = edgecut(here);
        command.args(["plan", "m.relay", "--profile-budget", "10ms", "--rehearse", "0", "--output", name]);
        let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(stdout).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        Plan::from_json(&fs::read(here.join(name)).unwrap()).unwrap();
    }
}

#[test]
fn links_and_fifos_stay_and_get_the_result() {
    let folder = folder();
    let here = folder.path();
    fs::create_dir(here.join("inside")).unwrap();
    links(here, "link", |extension| format!("inside/real.{extension}").into());
    all(here, "link", |line, path, _, (code, _, said)| {
        assert_eq!(code, Some(0), "{line}: {said}");
        let target = here.join("inside").join(path.file_name().unwrap().to_string_lossy().replace("link", "real"));
        assert!(path.is_symlink() && fs::metadata(&target).unwrap().len() > 0, "{line}");
        fs::remove_file(target).unwrap();
    });
    for (verb, extension, _) in VERBS {
        let fifo = here.join(format!("fifo.{extension}"));
        if !fifo.exists() {
            assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        }
        let path = fifo.clone();
        let reader = thread::spawn(move || fs::read(path).unwrap());
        let (code, _, said) = run(here, &format!("{verb} {}", fifo.display()));
        assert_eq!(code, Some(0), "{verb}: {said}");
        assert!(!reader.join().unwrap().is_empty(), "{verb}");
        assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo(), "{verb}");
    }
}

#[test]
fn a_dash_is_stdout_and_a_folder_is_no_file() {
    let folder = folder();
    let here = folder.path();
    for (verb, _, prints) in VERBS {
        let mut command = edgecut(here);
        command.args(verb.split_whitespace()).arg("-");
        let output = within(PATIENCE, command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{verb}: {said}");
        assert!(!output.stdout.is_empty() && (!prints || !said.is_empty()), "{verb}: {said}");
        if verb.starts_with("plan ") {
            Plan::from_json(&output.stdout).unwrap();
        }
        let (code, _, said) = run(here, &format!("{verb} {}", here.display()));
        assert_eq!((code, said.matches("is a folder: name a file in it").count()), (Some(2), 1), "{verb}: {said}");
    }
    assert!(!here.join("-").exists() && !here.join("-.csv").exists());
    let (code, _, said) = run(here, "run plan.json --repeat 1 --output - --outputs -");
    assert!(code == Some(2) && said.contains("two results cannot both go to stdout"), "{said}");
    let (code, _, said) = run(here, "profile m.relay --output -");
    assert!(code == Some(2) && said.contains("name a folder"), "{said}");
}

/// The code and the texts of a command that is interrupted, `delay` after it began to listen for that.
fn interrupted(here: &Path, line: &str, delay: Duration) -> (Option<i32>, String, String) {
    let mut command = edgecut(here);
    command.args(line.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = child.id();
    // Bit 1 of the caught signals is SIGINT.
    let listens = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0)
    };
    while !listens() {
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(delay);
    signal(pid, "INT");
    texts(ending(PATIENCE, child))
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_run_gives_out_what_is_finished() {
    let folder = folder();
    let here = folder.path();
    let (code, printed, said) = interrupted(here, "run m.relay --repeat 4000000000 --format json", Duration::ZERO);
    assert!(code == Some(0) && printed.contains("median_us"), "{said}");
    assert!(said.contains("the finished runs are reported") && said.contains("of 4000000000 runs"), "{said}");
    // Until then no run may have been finished: it ends with nothing, and the code of an interruption.
    let line = "run plan.json --repeat 1000000 --output runs.csv";
    let finished = (0..12).map(|step| interrupted(here, line, Duration::from_millis(50 << step)));
    let (_, printed, said) = finished
        .inspect(|(code, _, said)| assert!(matches!(code, Some(0 | 130)), "{code:?} {said}"))
        .find(|(code, ..)| *code == Some(0))
        .expect("a run is finished in time");
    assert!(printed.contains("latency: predicted") && said.contains("of 1000000 runs were finished"), "{said}");
    assert!(fs::read_to_string(here.join("runs.csv")).unwrap().lines().count() > 2);
}

#[test]
fn what_is_wrong_in_a_profile_is_bad_input() {
    let folder = folder();
    let here = folder.path();
    let made = fs::read_dir(here.join("profiles")).unwrap().map(|entry| entry.unwrap().path());
    let made = made.filter(|path| path.is_dir()).flat_map(|path| fs::read_dir(path).unwrap());
    let profile = made.map(|entry| entry.unwrap().path()).find(|path| path.to_string_lossy().ends_with("fused.csv"));
    let profile = profile.unwrap();
    let text = fs::read_to_string(&profile).unwrap();

    fs::write(here.join("p.csv"), text.replace("time_us_median,", "median,")).unwrap();
    let (code, _, said) = run(here, "plan m.relay --profile p.csv=s0/cpu");
    assert!(code == Some(2) && said.contains("p.csv: line 1: a profile needs a column `time_us_median`"), "{said}");

    fs::write(&profile, text.replace(",fused,", ",fussed,")).unwrap();
    for line in ["plan m.relay --profile-budget 10ms --rehearse 0", "profile m.relay --budget 10ms"] {
        let (code, _, said) = run(here, line);
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(said.contains("line 2") && said.contains("move the file away, or name another folder"), "{said}");
        assert!(!said.contains("--output"), "{line}: {said}");
    }
}
