//! Examples of every verb, which its `--help` ends with, and the usual path through them, which `edgecut --help` begins with.

use clap::Command;

/// What a command does, and the command. What follows `|` or `>` is the shell's.
type Example = (&'static str, &'static str);

/// From a model to a report.
const USUAL_PATH: [Example; 5] = [
    ("what is in a model, and what is not supported", "edgecut inspect model.onnx"),
    ("measure its operators", "edgecut profile model.onnx"),
    ("decide where they run", "edgecut plan model.onnx"),
    ("run the plan, and compare it with what was predicted", "edgecut run plan.json --output results.json"),
    ("one page of all that", "edgecut report profiles plan.json results.json"),
];

/// By verb.
const EXAMPLES: &[(&str, [Example; 3])] = &[
    (
        "inspect",
        [
            ("Operators, shapes, costs and memory", "edgecut inspect resnet18.onnx"),
            (
                "With a size for the dimension that the file calls `batch`",
                "edgecut inspect bert.onnx --bind-dim batch=1",
            ),
            (
                "A row for each operator, for a spreadsheet",
                "edgecut inspect resnet18.relay --format csv > operators.csv",
            ),
        ],
    ),
    (
        "profile",
        [
            ("On this machine, into the folder profiles", "edgecut profile resnet18.onnx"),
            (
                "On all devices of a cluster, at most a minute each",
                "edgecut profile m.onnx --cluster lab.toml --budget 60s",
            ),
            (
                "Measure everything again and print the ten slowest operators",
                "edgecut profile resnet18.onnx --again --sort time --top 10",
            ),
        ],
    ),
    (
        "plan",
        [
            ("The fastest plan over the servers of a cluster", "edgecut plan resnet18.onnx --cluster lab.toml"),
            (
                "Within 512 MiB on each device, and 40 ms for each input",
                "edgecut plan m.onnx --cluster lab.toml --memory 512MiB --latency 40ms",
            ),
            ("From profiles alone: nothing is measured or run", "edgecut plan m.onnx --estimate --rehearse 0"),
        ],
    ),
    (
        "run",
        [
            ("A model on this machine", "edgecut run resnet18.onnx --inputs in.npz --outputs out.npz"),
            ("A plan on its agents, 20 times, with a trace", "edgecut run plan.json --repeat 20 --trace run.pftrace"),
            ("A plan as a stream of 1000 inputs", "edgecut run plan.json --throughput --repeat 1000"),
        ],
    ),
    (
        "memory",
        [
            ("The smallest arena for a model's tensors", "edgecut memory place resnet18.onnx"),
            ("The fastest schedule within 40 % of the peak", "edgecut memory schedule resnet18.onnx --limit 40% --run"),
            ("When tensors are live and idle", "edgecut memory liveness resnet18.onnx"),
        ],
    ),
    (
        "memory place",
        [
            ("The order with the lowest peak, and the smallest arena", "edgecut memory place resnet18.onnx"),
            ("With figures as HTML and SVG", "edgecut memory place resnet18.onnx --figures figures"),
            ("Exit with code 3 if the arena is larger", "edgecut memory place resnet18.onnx --capacity 4MiB"),
        ],
    ),
    (
        "memory schedule",
        [
            ("Every schedule that no other beats in peak and time", "edgecut memory schedule resnet18.onnx"),
            ("The fastest within 40 % of the peak, and run it", "edgecut memory schedule m.onnx --limit 40% --run"),
            (
                "The same with tensors that wait on a neighbour",
                "edgecut memory schedule m.onnx --cluster lab.toml --limit 40%",
            ),
        ],
    ),
    (
        "memory pack",
        [
            ("The smallest arena", "edgecut memory pack buffers.csv --output packed.csv"),
            ("Within 1 MiB, else exit code 3", "edgecut memory pack buffers.csv --capacity 1MiB"),
            ("In two memories", "edgecut memory pack buffers.csv --pool sram=256KiB --pool dram"),
        ],
    ),
    (
        "memory liveness",
        [
            ("Births, deaths and idle periods as tables", "edgecut memory liveness m.onnx --output liveness"),
            ("Of a PyTorch trace", "edgecut memory liveness --trace fwd.py --backward bwd.py --times times.txt"),
            (
                "With the definitions and files of the G10 tool",
                "edgecut memory liveness m.onnx --g10-compat --output g10",
            ),
        ],
    ),
    (
        "workload",
        [
            ("The assignment with the lowest latency", "edgecut workload bert.json"),
            ("The assignment with the highest throughput", "edgecut workload bert.json --objective throughput"),
            ("The same result on any machine", "edgecut workload bert.json --budget 1000000 --output assignment.json"),
        ],
    ),
    (
        "export",
        [
            ("Relay text as ONNX", "edgecut export resnet18.relay --format onnx --output resnet18.onnx"),
            ("The graph as a picture", "edgecut export resnet18.onnx --format dot | dot -Tsvg > graph.svg"),
            ("A plan for Ray Serve", "edgecut export plan.json --format ray --output serve"),
        ],
    ),
    (
        "report",
        [
            ("A plan with the profiles that it was made of", "edgecut report profiles plan.json"),
            ("With the results of runs", "edgecut report profiles plan.json results.json --output lab.html"),
            ("How the times of operators grow", "edgecut report costs profiles"),
        ],
    ),
    (
        "report costs",
        [
            ("Of all devices in the folder profiles", "edgecut report costs profiles"),
            ("Also as a file", "edgecut report costs profiles --output costs.csv"),
            ("As JSON, for a program", "edgecut report costs profiles --format json"),
        ],
    ),
    (
        "compare",
        [
            ("Two profiles, operator by operator", "edgecut compare before/profiles after/profiles"),
            ("Two plans", "edgecut compare plan.json other.json --top 5"),
            (
                "Two runs: only statistically significant differences",
                "edgecut compare monday.json tuesday.json --significant",
            ),
        ],
    ),
    (
        "operators",
        [
            ("All operators", "edgecut operators"),
            ("Those of convolution", "edgecut operators | grep conv"),
            ("One by one on a screen", "edgecut operators | less"),
        ],
    ),
    (
        "devices",
        [
            ("Of this machine", "edgecut devices"),
            ("Of a cluster, with its links", "edgecut devices --cluster lab.toml"),
            ("After the network has changed", "edgecut devices --cluster lab.toml --measure"),
        ],
    ),
    (
        "cluster",
        [
            ("Find agents that were started with --mdns", "edgecut cluster discover lab.toml"),
            ("Make certificates for a cluster file", "edgecut cluster init lab.toml"),
            ("Check that all servers can be used", "edgecut cluster check lab.toml"),
        ],
    ),
    (
        "cluster check",
        [
            ("A row for each server", "edgecut cluster check lab.toml"),
            ("In a script: exit code 1 if anything is wrong", "edgecut cluster check lab.toml -q > check.txt"),
            ("As JSON, for a monitor", "edgecut cluster check lab.toml --format json"),
        ],
    ),
    (
        "cluster discover",
        [
            ("Print the agents on the local network", "edgecut cluster discover"),
            ("Add them to a cluster file", "edgecut cluster discover lab.toml"),
            ("Look for longer, on a slow network", "edgecut cluster discover lab.toml --for 10s"),
        ],
    ),
    (
        "cluster init",
        [
            ("Certificates for all servers and one operator", "edgecut cluster init lab.toml"),
            ("For two operators", "edgecut cluster init lab.toml --operator operator --operator ann"),
            ("New ones, for 90 days", "edgecut cluster init lab.toml --renew --days 90"),
        ],
    ),
    (
        "cluster revoke",
        [
            ("An operator's", "edgecut cluster revoke lab.toml ann"),
            ("Those of two servers", "edgecut cluster revoke lab.toml camera box"),
            ("Of an authority elsewhere", "edgecut cluster revoke lab.toml ann --certs /etc/edgecut/certs"),
        ],
    ),
    (
        "agent",
        [
            ("For this machine alone", "edgecut agent"),
            ("With one thread and 512 MiB", "edgecut agent --name box --threads 1 --memory 512MiB"),
            (
                "For other machines",
                "edgecut agent --listen 0.0.0.0:7600 --tls-cert box.pem --tls-key box.key \\\n    \
                 --client-ca ca.pem --crl revoked.pem --metrics 127.0.0.1:9600",
            ),
        ],
    ),
    (
        "completions",
        [
            ("For this shell", "edgecut completions bash > edgecut.bash"),
            ("For zsh", "edgecut completions zsh > _edgecut"),
            ("For fish", "edgecut completions fish > edgecut.fish"),
        ],
    ),
    (
        "man",
        [
            ("Read it", "edgecut man | man -l -"),
            ("A page for each command", "edgecut man --output man1"),
            ("Where man looks for it", "edgecut man --output /usr/local/share/man/man1"),
        ],
    ),
];

/// `root` with the examples in its help and in that of its verbs.
pub(crate) fn with_examples(root: Command) -> Command {
    let about = root.get_about().map(ToString::to_string).unwrap_or_default();
    let steps = USUAL_PATH.map(|(what, command)| format!("\n  # {what}\n  {command}")).concat();
    let root = root.long_about(format!("{about}\n\nThe usual path, with --cluster lab.toml on agents:{steps}"));
    EXAMPLES.iter().fold(root, |root, (verb, examples)| {
        let lines = examples.map(|(what, command)| format!("\n  # {what}\n  {command}")).concat();
        with_text(root, &verb.split(' ').collect::<Vec<_>>(), format!("Examples:{lines}"))
    })
}

/// `command` with `text` at the end of the help of the verb at `path`.
fn with_text(command: Command, path: &[&str], text: String) -> Command {
    match path {
        [] => command.after_long_help(text),
        [verb, path @ ..] => command.mut_subcommand(verb, |command| with_text(command, path, text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verbs below `command`, as they are called.
    fn verbs(command: &Command, path: &str, found: &mut Vec<String>) {
        for verb in command.get_subcommands() {
            let path = format!("{path} {}", verb.get_name()).trim_start().to_string();
            found.push(path.clone());
            verbs(verb, &path, found);
        }
    }

    #[test]
    fn every_verb_has_examples() {
        let mut all = Vec::new();
        verbs(&crate::command(), "", &mut all);
        all.sort_unstable();
        let mut with: Vec<&str> = EXAMPLES.iter().map(|(verb, _)| *verb).collect();
        with.sort_unstable();
        assert_eq!(with, all);
    }

    #[test]
    fn examples_are_commands() {
        let of_verbs = EXAMPLES.iter().flat_map(|(verb, examples)| examples.map(|example| (*verb, example)));
        for (verb, (what, text)) in of_verbs.chain(USUAL_PATH.map(|example| ("", example))) {
            let own = text.split(['|', '>']).next().unwrap_or_default().replace('\\', "");
            if let Err(error) = crate::command().try_get_matches_from(own.split_whitespace()) {
                panic!("{verb}: {text}: {error}");
            }
            let is_of_verb = own.contains(verb.split(' ').next().unwrap_or_default());
            assert!(is_of_verb, "{verb}: {text}");
            for line in text.lines().chain([what]) {
                assert!(line.chars().count() <= 76, "{verb}: {line}");
            }
        }
    }

    #[test]
    fn help_shows_them() {
        let help = |path: &[&str]| {
            let mut command = crate::command();
            let verb = path.iter().fold(&mut command, |command, verb| command.find_subcommand_mut(verb).unwrap());
            verb.render_long_help().to_string()
        };
        assert!(help(&["cluster", "init"]).contains("Examples:\n  # Certificates for all servers"));
        let root = help(&[]);
        assert!(root.find("edgecut inspect model.onnx") < root.find("Usage:"), "{root}");
    }
}
