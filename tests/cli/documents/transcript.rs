//! Blocks of a document: files, and commands with what they print.

use std::{iter::Peekable, str::Lines};

/// What stands for any number of lines, and in a line for any text.
pub const ANY: &str = "…";

/// A fenced block of a document.
#[derive(Debug, PartialEq)]
pub enum Block {
    /// ```` ```toml lab.toml ````: the content of a file of that name.
    File { name: String, content: String },
    /// ```` ```console ````: commands of a user after `$`.
    Console(Vec<Step>),
    /// Any other with commands of a shell: ```` ```sh ````, of root after `#`, or after `$` in another language.
    Shell { at: usize, first: String },
}

/// A command and what it prints.
#[derive(Debug, PartialEq)]
pub struct Step {
    /// The line of the document after the command, from 0.
    pub at: usize,
    /// Of several lines, if those after the first begin with `> `.
    pub command: String,
    pub shown: Vec<String>,
}

/// The lines of a block that begins, to its end.
fn content<'a>(lines: &mut Peekable<impl Iterator<Item = (usize, &'a str)>>) -> Vec<(usize, &'a str)> {
    let within: Vec<_> = std::iter::from_fn(|| lines.next_if(|(_, line)| !line.starts_with("```"))).collect();
    lines.next();
    within
}

/// The steps of a block of the language `console`.
fn steps(lines: &[(usize, &str)]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (at, line) in lines {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { at: at + 1, command: command.to_string(), shown: Vec::new() });
        } else if let Some(step) = steps.last_mut() {
            match line.strip_prefix("> ").filter(|_| step.shown.is_empty() && step.command.ends_with('\\')) {
                Some(more) => {
                    step.command = format!("{}\n{more}", step.command);
                    step.at = at + 1;
                }
                None => step.shown.push(line.to_string()),
            }
        }
    }
    steps
}

/// The blocks of a document.
pub fn blocks(text: &str) -> Vec<Block> {
    let lines: Lines<'_> = text.lines();
    let mut lines = lines.enumerate().peekable();
    let mut blocks = Vec::new();
    while let Some((at, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let within = content(&mut lines);
        let first = within.first().map_or("", |(_, line)| *line).to_string();
        match info.split_once(' ') {
            Some((_, name)) => {
                let content = within.iter().map(|(_, line)| format!("{line}\n")).collect();
                blocks.push(Block::File { name: name.to_string(), content });
            }
            None if info == "console" && first.starts_with("$ ") => blocks.push(Block::Console(steps(&within))),
            None if ["console", "sh"].contains(&info) || first.starts_with("$ ") => {
                blocks.push(Block::Shell { at: at + 1, first })
            }
            None => {}
        }
    }
    blocks
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

/// The printed line for each shown one, in order, where a line of dots stands for any number of lines and is itself; or the
/// first shown line that is not printed.
pub fn matching<'a>(shown: &'a [String], printed: &'a [String]) -> Result<Vec<&'a str>, &'a str> {
    let mut rest = printed.iter();
    let (mut may_skip, mut matched) = (false, Vec::with_capacity(shown.len()));
    for line in shown {
        // Of the lines that are skipped, some may be empty, such as the one that is shown before the next.
        if line.trim() == ANY || (may_skip && line.is_empty()) {
            may_skip = true;
            matched.push(line.as_str());
            continue;
        }
        let is_wanted = |printed: &&String| is_shown(line, &shape(printed));
        let found = if may_skip { rest.find(is_wanted) } else { rest.next().filter(is_wanted) };
        // A line that is shown in part stays so.
        matched.push(found.map(|found| if line.contains(ANY) { line } else { found }).ok_or(line.as_str())?);
        may_skip = false;
    }
    Ok(matched)
}

#[test]
fn blocks_are_files_commands_and_others() {
    let text = "a\n```toml lab.toml\nx = 1\n```\n```console\n$ a \\\n> b\n1\n$ c &\n```\n```console\n# root\n```\n```sh\nd\n```\n```text\nx\n```\n```text\n$ e\n```\n";
    let step = |at, command: &str, shown: &[&str]| Step {
        at,
        command: command.into(),
        shown: shown.iter().map(ToString::to_string).collect(),
    };
    let shell = |at, first: &str| Block::Shell { at, first: first.into() };
    let wanted = [
        Block::File { name: "lab.toml".into(), content: "x = 1\n".into() },
        Block::Console(vec![step(7, "a \\\nb", &["1"]), step(9, "c &", &[])]),
        shell(11, "# root"),
        shell(14, "d"),
        shell(20, "$ e"),
    ];
    assert_eq!(blocks(text), wanted);
}

#[test]
fn lines_are_compared_by_their_words() {
    assert_eq!(shape("  #3  nn.relu  12.5 us   3.0 KiB (+1.2 %)"), "nn.relu");
    assert_eq!(shape("latency 3.2 ms, throughput 30.2/s"), "latency throughput ./s");
    let lines = |text: &str| text.lines().map(str::to_string).collect::<Vec<_>>();
    for (shown, printed, matched) in [
        ("a 1\n…\nd 2", "a 5\nb\nc\nd 9\ne", Ok(vec!["a 5", "…", "d 9"])),
        ("a … d\ne …", "a 1 b d\ne", Ok(vec!["a … d", "e …"])),
        ("a … d", "a 1 b", Err("a … d")),
        ("a 1\nc", "a 5\nb\nc", Err("c")),
    ] {
        let (shown, printed) = (lines(shown), lines(printed));
        assert_eq!(matching(&shown, &printed), matched);
    }
}
