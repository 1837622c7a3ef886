//! docs/guide.md: its commands are run one after the other, and print what it shows, numbers aside.
//!
//! `EDGECUT_WRITE_GUIDE=1 cargo test --release --test cli guide` puts what they print now into the file.

use std::{
    env, fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::common::process::{edgecut, within};

const PATIENCE: Duration = Duration::from_secs(300);

/// The number of lines that are kept at both ends of an output when it is written; those in the middle are left out.
const SHOWN: (usize, usize) = (12, 8);

/// What stands for any number of lines, and in a line for any text.
const ANY: &str = "…";

/// A command of the guide and what it prints.
struct Step {
    /// The line of the file, from 0.
    at: usize,
    command: String,
    shown: Vec<String>,
}

/// The steps in the blocks of the language `console`: lines after `$` are commands.
fn steps(text: &str) -> Vec<Step> {
    let (mut steps, mut in_console): (Vec<Step>, bool) = (Vec::new(), false);
    for (at, line) in text.lines().enumerate() {
        match line.strip_prefix("$ ") {
            _ if line.starts_with("```") => in_console = line == "```console",
            _ if !in_console => {}
            Some(command) => steps.push(Step { at, command: command.to_string(), shown: Vec::new() }),
            None => {
                if let Some(step) = steps.last_mut() {
                    step.shown.push(line.to_string());
                }
            }
        }
    }
    steps
}

/// A line without what differs from run to run: numbers, units, how wide columns are.
fn shape(line: &str) -> String {
    let units = ["ns", "us", "ms", "s", "B", "KiB", "MiB", "GiB", "kB/s", "MB/s", "GB/s", "%"];
    let word = |word: &str| {
        let digits = |c: char| c.is_ascii_digit() || ".,+-−#".contains(c);
        let bare = word.trim_matches(|c: char| "()[]:;,".contains(c));
        match bare.trim_matches(digits) {
            "" if !bare.is_empty() => String::new(),
            unit if units.contains(&unit) => String::new(),
            _ if word.chars().all(|c| c == '─') => String::new(),
            _ => word.chars().filter(|c| !c.is_ascii_digit()).collect(),
        }
    };
    let words: Vec<String> = line.split_whitespace().map(word).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// Whether a printed line is as shown.
fn is_shown(shown: &str, printed: &str) -> bool {
    let pieces: Vec<String> = shown.split(ANY).map(shape).collect();
    let [first, rest @ ..] = &pieces[..] else { return false };
    if rest.is_empty() {
        return *first == printed;
    }
    let Some(mut left) = printed.strip_prefix(first.as_str()) else { return false };
    rest.iter().all(|piece| left.find(piece.as_str()).map(|at| left = &left[at + piece.len()..]).is_some())
}

/// The first shown line that is not printed, in order; a line of dots skips any number.
fn missing<'a>(shown: &'a [String], printed: &[String]) -> Option<&'a str> {
    let mut rest = printed.iter().map(|line| shape(line));
    let mut may_skip = false;
    for line in shown {
        // Of the lines that are skipped, some may be empty, such as the one that is shown before the next.
        if line.trim() == ANY || (may_skip && line.is_empty()) {
            may_skip = true;
            continue;
        }
        let mut is_wanted = |printed: String| is_shown(line, &printed);
        let is_there = if may_skip { rest.any(is_wanted) } else { rest.next().is_some_and(&mut is_wanted) };
        if !is_there {
            return Some(line);
        }
        may_skip = false;
    }
    None
}

/// A command in the background, which ends with this, also where the test fails.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a command prints on both streams; one that ends in `&` goes on in the background.
fn run(folder: &Path, command: &str, background: &mut Vec<Background>) -> Vec<String> {
    let path = Path::new(env!("CARGO_BIN_EXE_edgecut")).parent().unwrap();
    let path = format!("{}:{}", path.display(), env::var("PATH").unwrap());
    let settings = edgecut(folder);
    let mut shell = Command::new("sh");
    shell
        .current_dir(folder)
        .env("PATH", path)
        .envs(settings.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(command) = command.strip_suffix('&') {
        shell.args(["-c", &format!("exec {command}")]).stdout(Stdio::null()).stderr(Stdio::null());
        background.push(Background(shell.spawn().unwrap()));
        return Vec::new();
    }
    shell.args(["-c", &format!("{command} 2>&1")]);
    let output = within(PATIENCE, shell);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{command}\n{text}");
    text.lines().map(|line| line.trim_end().to_string()).collect()
}

/// The output as the guide shows it.
fn cut(printed: Vec<String>) -> Vec<String> {
    if printed.len() <= SHOWN.0 + SHOWN.1 + 1 {
        return printed;
    }
    let (head, tail) = (&printed[..SHOWN.0], &printed[printed.len() - SHOWN.1..]);
    [head, &[ANY.to_string()], tail].concat()
}

/// Free ports in place of those of the guide, whose agents may be running.
fn ports() -> Vec<(String, String)> {
    let sockets: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let port =
        |(of, socket): (u16, &TcpListener)| (format!("127.0.0.1:760{of}"), socket.local_addr().unwrap().to_string());
    (1..).zip(&sockets).map(port).collect()
}

#[test]
fn commands_of_the_guide_print_what_it_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("docs/guide.md");
    let text = fs::read_to_string(&path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let ports = ports();
    let replaced = |text: &str| ports.iter().fold(text.to_string(), |text, (from, to)| text.replace(from, to));
    fs::create_dir(here.join("cluster")).unwrap();
    let cluster = fs::read_to_string(root.join("cluster/loopback.toml")).unwrap();
    fs::write(here.join("cluster/loopback.toml"), replaced(&cluster)).unwrap();
    std::os::unix::fs::symlink(root.join("models"), here.join("models")).unwrap();
    let (mut background, mut wrong) = (Vec::new(), Vec::new());
    let mut written: Vec<String> = text.lines().map(str::to_string).collect();
    let steps = steps(&text);
    assert!(steps.len() > 10, "{} commands", steps.len());
    for step in steps.iter() {
        let printed = run(here, &replaced(&step.command), &mut background);
        if step.command.ends_with('&') {
            thread::sleep(Duration::from_secs(1));
        }
        if let Some(line) = missing(&step.shown, &printed) {
            let printed = printed.join("\n");
            wrong.push(format!(
                "docs/guide.md:{}: `{}` does not print `{line}`, but\n{printed}",
                step.at + 1,
                step.command
            ));
        }
        let back = ports.iter().fold(cut(printed).join("\n"), |text, (to, from)| text.replace(from, to));
        written[step.at] =
            if back.is_empty() { written[step.at].clone() } else { format!("{}\n{back}", written[step.at]) };
        written[step.at + 1..][..step.shown.len()].fill("\0".to_string());
    }
    drop(background);
    if env::var_os("EDGECUT_WRITE_GUIDE").is_some() {
        written.retain(|line| line != "\0");
        fs::write(&path, written.join("\n") + "\n").unwrap();
    } else {
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    }
}

#[test]
fn shapes_are_of_words_alone() {
    assert_eq!(shape("  #3  nn.relu  12.5 us   3.0 KiB (+1.2 %)"), "nn.relu");
    assert_eq!(shape("latency 3.2 ms, throughput 30.2/s"), "latency throughput ./s");
    let lines = |text: &str| text.lines().map(str::to_string).collect::<Vec<_>>();
    assert_eq!(missing(&lines("a 1\n…\nd 2"), &lines("a 5\nb\nc\nd 9\ne")), None);
    assert_eq!(missing(&lines("a … d\ne …"), &lines("a 1 b d\ne")), None);
    assert_eq!(missing(&lines("a … d"), &lines("a 1 b")), Some("a … d"));
    assert_eq!(missing(&lines("a 1\nc"), &lines("a 5\nb\nc")), Some("c"));
}
