//! The configuration file: defaults of flags, for what one types every time.
//!
//! `cluster = "lab.toml"` is the cluster of all verbs that use one, `quiet = true` a flag of all verbs; a table `[plan]` has defaults of the
//! flags of `edgecut plan`, by their long names, `[memory.pack]` those of `edgecut memory pack`. They become clap's own defaults, so that
//! `--help` shows them. The command line is parsed without them first: a default that a flag there replaces or excludes is left out.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    ffi::OsString,
    ops::Range,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use clap::{Arg, ArgAction, ArgMatches, Command, builder::OsStr, error::ErrorKind, parser::ValueSource};
use edgecut_session::{error::Message, input::read_document};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::Failure;

/// The variable that names the file, instead of `edgecut/config.toml` in the folder for configurations.
const CONFIG: &str = "EDGECUT_CONFIG";

/// The variable that names the cluster file; it comes before that of the configuration file.
const CLUSTER: &str = "EDGECUT_CLUSTER";

/// Verbs that are about the program itself: the file does not matter to them, and cannot make them fail.
const OF_THE_PROGRAM: [&str; 2] = ["completions", "man"];

/// The cluster of the configuration file.
static CONFIGURED_CLUSTER: OnceLock<PathBuf> = OnceLock::new();

/// Long names of the called verb's flags whose values are those of the configuration file.
static CONFIGURED_FLAGS: OnceLock<BTreeSet<String>> = OnceLock::new();

/// The cluster file where `--cluster` is not given. An empty `EDGECUT_CLUSTER` is this machine alone.
pub fn default_cluster() -> Option<PathBuf> {
    match std::env::var_os(CLUSTER) {
        Some(path) => (!path.is_empty()).then(|| PathBuf::from(path)),
        None => CONFIGURED_CLUSTER.get().cloned(),
    }
}

/// Whether the value of `flag`, as in `--budget`, is that of the configuration file.
pub fn is_configured(flag: &str) -> bool {
    let name = flag.strip_prefix("--").unwrap_or(flag);
    CONFIGURED_FLAGS.get().is_some_and(|names| names.contains(name))
}

/// Names of the options of the libraries whose values are those of the configuration file.
pub fn configured_options() -> BTreeSet<String> {
    CONFIGURED_FLAGS.get().into_iter().flatten().map(|name| name.replace('-', "_")).collect()
}

/// `command` with the defaults that the configuration file has for what `arguments` call, if there is such a file.
///
/// # Errors
/// If the file cannot be read, or names something that is no flag, or a value that the flag does not take. Never for help.
pub fn configured(command: Command, arguments: &[OsString]) -> Result<Command, Failure> {
    match command.clone().try_get_matches_from(arguments) {
        Ok(matches) if matches.subcommand_name().is_some_and(|verb| OF_THE_PROGRAM.contains(&verb)) => Ok(command),
        Ok(matches) => with_file(command, Use::Call(&matches)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                Ok(with_file(command.clone(), Use::Help).unwrap_or(command))
            }
            // No default makes a wrong command line right: it is told when it is parsed to be run.
            _ => Ok(command),
        },
    }
}

/// `command` with the defaults of the file.
fn with_file(command: Command, usage: Use<'_>) -> Result<Command, Failure> {
    let Some((path, is_asked_for)) = place() else { return Ok(command) };
    let text = match read_document(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_asked_for => return Ok(command),
        Err(error) => return Err(Failure::unreadable(&path, &error)),
    };
    let Configured { command, cluster, names } =
        with_defaults(command, &text, usage).map_err(|wrong| wrong.failure(&path, &text))?;
    if let Some(cluster) = cluster {
        // Relative to the file, as paths in cluster files are.
        let cluster = path.parent().unwrap_or(Path::new("")).join(cluster);
        CONFIGURED_CLUSTER.get_or_init(|| cluster);
    }
    CONFIGURED_FLAGS.get_or_init(|| names);
    Ok(command)
}

/// Where the file is, and whether it must exist.
fn place() -> Option<(PathBuf, bool)> {
    if let Some(path) = std::env::var_os(CONFIG) {
        return (!path.is_empty()).then(|| (PathBuf::from(path), true));
    }
    let folder = |name: &str| std::env::var_os(name).filter(|path| Path::new(path).is_absolute()).map(PathBuf::from);
    let folder = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))?;
    Some((folder.join("edgecut/config.toml"), false))
}

/// What is wrong, and where.
#[derive(Debug)]
struct Wrong {
    message: String,
    span: Option<Range<usize>>,
}

impl Wrong {
    fn at<T>(value: &Spanned<T>, message: String) -> Wrong {
        Wrong { message, span: Some(value.span()) }
    }

    fn failure(self, path: &Path, text: &str) -> Failure {
        Failure::BadInput(Message::in_toml(self.message, path, text.to_string(), self.span))
    }
}

/// A command with the defaults of a file.
#[derive(Debug)]
struct Configured {
    command: Command,
    cluster: Option<String>,
    /// Long names of the called verb's flags that have their values of the file.
    names: BTreeSet<String>,
}

/// What of a file is used.
#[derive(Clone, Copy)]
enum Use<'a> {
    /// The flags of the verb that is called. These are the matches of the command line without the file.
    Call(&'a ArgMatches),
    /// The flags of all verbs, to be shown by `--help`; tables with mistakes are left out.
    Help,
    /// No flags: the names of verbs are checked, as those of a verb that is not called.
    Names,
}

impl<'a> Use<'a> {
    /// What is used of the table of a verb below.
    fn below(self, verb: &str) -> Use<'a> {
        match self {
            Use::Call(matches) => match matches.subcommand() {
                Some((called, matches)) if called == verb => Use::Call(matches),
                _ => Use::Names,
            },
            Use::Help | Use::Names => self,
        }
    }

    /// Whether `flag` is on the command line.
    fn is_typed(self, flag: &Arg) -> bool {
        let source = |matches: &ArgMatches| matches.value_source(flag.get_id().as_str());
        matches!(self, Use::Call(matches) if source(matches) == Some(ValueSource::CommandLine))
    }

    /// `result`, or the command as it was `before` if mistakes do not matter.
    fn or(self, before: Command, result: Result<Command, Wrong>) -> Result<Command, Wrong> {
        match self {
            Use::Help => Ok(result.unwrap_or(before)),
            Use::Call(_) | Use::Names => result,
        }
    }
}

type Key<'a> = Spanned<Cow<'a, str>>;
type Entry<'a> = (&'a Key<'a>, &'a Spanned<DeValue<'a>>);

/// `command` with the defaults in `text`.
fn with_defaults(command: Command, text: &str, usage: Use<'_>) -> Result<Configured, Wrong> {
    let table =
        DeTable::parse(text).map_err(|error| Wrong { message: error.message().to_string(), span: error.span() })?;
    let of_all: Vec<String> = command.get_arguments().filter_map(Arg::get_long).map(String::from).collect();
    let mut cluster = None;
    let mut entries = Vec::new();
    for (key, value) in table.get_ref() {
        match value.get_ref() {
            DeValue::String(path) if key.get_ref() == "cluster" => cluster = Some(path.to_string()),
            DeValue::Table(_) => entries.push((key, value)),
            _ if of_all.iter().any(|name| name == key.get_ref()) => entries.push((key, value)),
            _ if matches!(usage, Use::Help) => {}
            _ => {
                let flags: String = of_all.iter().map(|name| format!("{name} = true, ")).collect();
                let what = "or a table [VERB] with flags of a verb";
                let name = key.get_ref();
                return Err(Wrong::at(key, format!("`{name}`: expected cluster = \"FILE\", {flags}{what}")));
            }
        }
    }
    let mut defaults = Defaults { of_all, names: BTreeSet::new() };
    let command = defaults.of_entries(command, &entries, usage)?;
    Ok(Configured { command, cluster, names: defaults.names })
}

/// Gives commands their defaults.
struct Defaults {
    /// Long names of the flags of all verbs.
    of_all: Vec<String>,
    /// Long names of the called verb's flags that got a default.
    names: BTreeSet<String>,
}

impl Defaults {
    /// `command` with the defaults of its flags, and of those of the verbs below it.
    fn of_entries(&mut self, command: Command, entries: &[Entry<'_>], usage: Use<'_>) -> Result<Command, Wrong> {
        let is_flag = |(_, value): &&Entry<'_>| !matches!(value.get_ref(), DeValue::Table(_));
        let flags: Vec<Entry<'_>> = entries.iter().filter(is_flag).copied().collect();
        let mut command = usage.or(command.clone(), self.of_flags(command, &flags, usage))?;
        for (key, value) in entries {
            if let DeValue::Table(table) = value.get_ref() {
                command = usage.or(command.clone(), self.of_verb(command, key, table, usage))?;
            }
        }
        Ok(command)
    }

    /// `command` with defaults of the flags of the verb below it that is called `key`.
    fn of_verb(
        &mut self,
        command: Command,
        key: &Key<'_>,
        table: &DeTable<'_>,
        usage: Use<'_>,
    ) -> Result<Command, Wrong> {
        let name = key.get_ref();
        let Some(verb) = command.find_subcommand(name.as_ref()).cloned() else {
            let verbs: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
            let message = match verbs.as_slice() {
                [] => format!("`{name}`: `{}` has no verbs below it, only flags", command.get_name()),
                verbs => format!("`{name}` is no verb: expected one of {}", verbs.join(", ")),
            };
            return Err(Wrong::at(key, message));
        };
        let name = verb.get_name().to_string();
        let entries: Vec<Entry<'_>> = table.iter().collect();
        let verb = self.of_entries(verb, &entries, usage.below(&name))?;
        Ok(command.mut_subcommand(name, |_| verb))
    }

    /// `command` with defaults of its own flags, without those that the command line replaces or excludes.
    fn of_flags(&mut self, command: Command, flags: &[Entry<'_>], usage: Use<'_>) -> Result<Command, Wrong> {
        if matches!(usage, Use::Names) {
            return Ok(command);
        }
        let mut read: Vec<(&Key<'_>, &Arg, Vec<String>)> = Vec::new();
        for (key, value) in flags {
            let (flag, values) = self.read(&command, key, value)?;
            if values.is_empty() {
                continue;
            }
            if let Some((other, ..)) = read.iter().find(|(_, other, _)| excludes(&command, flag, other)) {
                let (name, other) = (key.get_ref(), other.get_ref());
                return Err(Wrong::at(key, format!("--{name} cannot be used with --{other}: leave one of them out")));
            }
            read.push((key, flag, values));
        }
        let typed: Vec<&Arg> = command.get_arguments().filter(|flag| usage.is_typed(flag)).collect();
        let is_left_out =
            |flag: &Arg| typed.iter().any(|typed| typed.get_id() == flag.get_id() || excludes(&command, flag, typed));
        read.retain(|(_, flag, _)| !is_left_out(flag));
        let mut with_defaults = command.clone();
        for (key, flag, values) in read {
            with_defaults = with_default(with_defaults, flag, values);
            if matches!(usage, Use::Call(matches) if matches.subcommand().is_none()) {
                self.names.insert(key.get_ref().to_string());
            }
        }
        Ok(with_defaults)
    }

    /// The flag of `command` that `key` names, and its values as the command line has them.
    fn read<'a>(
        &self,
        command: &'a Command,
        key: &Key<'_>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(&'a Arg, Vec<String>), Wrong> {
        let name = key.get_ref().as_ref();
        if name == "cluster" {
            // Here it would come before EDGECUT_CLUSTER and before the cluster of a plan, as if it were typed.
            return Err(Wrong::at(key, "`cluster` is that of all verbs: write it at the top of the file".to_string()));
        }
        let Some(flag) = command.get_arguments().find(|flag| flag.get_long() == Some(name)) else {
            let message = match self.of_all.iter().any(|of_all| of_all == name) {
                true => format!("`{name}` is a flag of all verbs: write it at the top of the file"),
                false => format!("`{name}`: `{} --help` has no flag --{name}", command.get_name()),
            };
            return Err(Wrong::at(key, message));
        };
        let values = texts(value)?;
        if matches!(flag.get_action(), ArgAction::SetTrue) && values != ["true"] {
            return Err(Wrong::at(value, format!("--{name} takes no value: expected {name} = true, or no such line")));
        }
        if !matches!(flag.get_action(), ArgAction::Append) && values.len() != 1 {
            return Err(Wrong::at(value, format!("--{name} takes one value, not {}", values.len())));
        }
        // What the flag does not take is told here, with its place, and not when the command line is read.
        let with_default = with_default(command.clone(), flag, values.clone());
        match with_default.try_get_matches_from([command.get_name()]) {
            Err(error) if matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) => {
                let text = error.to_string();
                let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
                Err(Wrong::at(value, line.to_string()))
            }
            _ => Ok((flag, values)),
        }
    }
}

/// `command` with these default values of `flag`.
fn with_default(command: Command, flag: &Arg, values: Vec<String>) -> Command {
    command.mut_arg(flag.get_id(), |flag| flag.default_values(values.into_iter().map(OsStr::from)))
}

/// Whether one of two flags of `command` cannot be used with the other, or says the opposite (`--no-replan`, `--replan`).
fn excludes(command: &Command, one: &Arg, other: &Arg) -> bool {
    let conflicts =
        |a: &Arg, b: &Arg| command.get_arg_conflicts_with(a).iter().any(|found| found.get_id() == b.get_id());
    // clap does not say which flags override each other: in this program those are always pairs of such names.
    let negates = |a: &Arg, b: &Arg| {
        a.get_long().and_then(|name| name.strip_prefix("no-")).is_some_and(|name| b.get_long() == Some(name))
    };
    [(one, other), (other, one)].into_iter().any(|(a, b)| conflicts(a, b) || negates(a, b))
}

/// A value as the command line has it; of an array, several.
fn texts(value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, Wrong> {
    match value.get_ref() {
        DeValue::Array(values) => values.iter().map(text).collect(),
        _ => Ok(vec![text(value)?]),
    }
}

/// A single value as the command line has it.
fn text(value: &Spanned<DeValue<'_>>) -> Result<String, Wrong> {
    Ok(match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Array(_) | DeValue::Datetime(_) | DeValue::Table(_) => {
            return Err(Wrong::at(value, "expected a string, a number, true, or an array of these".to_string()));
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches, Parser};

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(subcommand)]
        verb: Verb,
        #[arg(long, global = true, conflicts_with = "verbose")]
        quiet: bool,
        #[arg(long, global = true)]
        verbose: bool,
    }

    #[derive(clap::Subcommand)]
    enum Verb {
        Plan {
            #[arg(long, default_value_t = 3)]
            budget: u32,
            #[arg(long)]
            no_split: bool,
            #[arg(long, overrides_with = "no_replan")]
            replan: bool,
            #[arg(long, overrides_with = "replan")]
            no_replan: bool,
            #[arg(long, conflicts_with = "no_split")]
            ratios: Option<String>,
            #[arg(long)]
            pin: Vec<String>,
            #[arg(long)]
            cluster: Option<String>,
        },
        Show {
            #[arg(long)]
            wide: bool,
        },
    }

    /// The program with the defaults of `config` for a command line, and the long names of configured flags.
    fn program(config: &str, line: &str) -> Result<(Program, BTreeSet<String>), Wrong> {
        let alone = Program::command().try_get_matches_from(line.split(' ')).unwrap();
        let configured = with_defaults(Program::command(), config, Use::Call(&alone))?;
        let matches = configured.command.try_get_matches_from(line.split(' ')).unwrap();
        Ok((Program::from_arg_matches(&matches).unwrap(), configured.names))
    }

    fn plan(config: &str, line: &str) -> (u32, bool, Vec<String>) {
        match program(config, line).unwrap().0.verb {
            Verb::Plan { budget, no_split, pin, .. } => (budget, no_split, pin),
            Verb::Show { .. } => panic!("{line} is no plan"),
        }
    }

    #[test]
    fn flags_come_before_defaults_of_the_file() {
        let config = "[plan]\nbudget = 7\nno-split = true\npin = [\"a=b\", \"c=d\"]\n";
        assert_eq!(plan(config, "e plan"), (7, true, vec!["a=b".into(), "c=d".into()]));
        assert_eq!(plan(config, "e plan --budget 9 --pin x=y"), (9, true, vec!["x=y".into()]));
        assert_eq!(plan("", "e plan"), (3, false, vec![]));
        assert_eq!(plan("[plan]\npin = []\nbudget = [8]\n", "e plan"), (8, false, vec![]));
    }

    #[test]
    fn flags_exclude_defaults_that_conflict_with_them() {
        for (config, line, expected) in [
            ("no-split = true", "e plan", (true, false, false)),
            ("no-split = true", "e plan --ratios equal", (false, false, false)),
            ("ratios = \"equal\"", "e plan --no-split", (true, false, false)),
            ("replan = true", "e plan", (false, true, false)),
            ("replan = true", "e plan --no-replan", (false, false, true)),
            ("no-replan = true", "e plan --replan", (false, true, false)),
        ] {
            let (program, _) = program(&format!("[plan]\n{config}\n"), line).unwrap();
            let Verb::Plan { no_split, replan, no_replan, ratios, .. } = program.verb else { panic!("{line}") };
            assert_eq!((no_split, replan, no_replan), expected, "{config}: {line}");
            assert_eq!(ratios.is_some(), line.contains("--ratios"), "{config}: {line}");
        }
    }

    #[test]
    fn configured_flags_are_those_that_are_not_typed() {
        let config = "quiet = true\n[plan]\nbudget = 7\nreplan = true\n[show]\nwide = true\n";
        let names = |line: &str| program(config, line).unwrap().1.into_iter().collect::<Vec<_>>();
        assert_eq!(names("e plan"), ["budget", "replan"]);
        assert_eq!(names("e plan --budget 9 --no-replan"), Vec::<String>::new());
        assert_eq!(names("e show"), ["wide"]);
    }

    #[test]
    fn flags_of_all_verbs_are_at_the_top() {
        let said = |line: &str| {
            let program = program("quiet = true\n", line).unwrap().0;
            (program.quiet, program.verbose)
        };
        assert_eq!(said("e plan"), (true, false));
        assert_eq!(said("e plan --verbose"), (false, true));
        assert_eq!(said("e --verbose plan"), (false, true));
    }

    #[test]
    fn what_is_no_flag_is_told_with_its_place() {
        for (config, message, at) in [
            ("[plan]\nbudgets = 7\n", "has no flag --budgets", "budgets"),
            ("[plane]\nbudget = 7\n", "`plane` is no verb: expected one of plan, show", "plane"),
            ("[plan.x]\n", "`plan` has no verbs below it", "x"),
            ("[show.x]\n", "`show` has no verbs below it", "x"),
            ("[plan]\nbudget = \"x\"\n", "invalid value 'x' for '--budget <BUDGET>'", "\"x\""),
            ("[plan]\nbudget = [1, 2]\n", "--budget takes one value, not 2", "[1, 2]"),
            ("[plan]\nbudget = []\n", "--budget takes one value, not 0", "[]"),
            ("[plan]\nno-split = false\n", "--no-split takes no value", "false"),
            ("[plan]\ncluster = \"x\"\n", "`cluster` is that of all verbs: write it at the top", "cluster"),
            ("[plan]\nquiet = true\n", "`quiet` is a flag of all verbs: write it at the top", "quiet"),
            ("clusters = \"x\"\n", "expected cluster = \"FILE\", quiet = true, verbose = true, or a table", "clusters"),
        ] {
            let wrong = program(config, "e plan").map(|_| ()).unwrap_err();
            assert!(wrong.message.contains(message), "{config}: {}", wrong.message);
            assert_eq!(&config[wrong.span.unwrap()], at, "{config}");
        }
        for config in ["[plan]\nno-split = true\nratios = \"x\"\n", "[plan]\nno-replan = true\nreplan = true\n"] {
            let wrong = program(config, "e plan").map(|_| ()).unwrap_err();
            assert!(wrong.message.contains("cannot be used with --no-"), "{config}: {}", wrong.message);
        }
    }

    #[test]
    fn tables_of_other_verbs_do_not_matter() {
        assert!(program("[plan]\nbudgets = 7\n", "e show").is_ok());
        let help = with_defaults(Program::command(), "x = 1\n[plan]\nbudgets = 7\n[show]\nwide = true\n", Use::Help);
        let matches = help.unwrap().command.try_get_matches_from(["e", "show"]).unwrap();
        assert!(matches.subcommand().unwrap().1.get_flag("wide"));
    }
}
