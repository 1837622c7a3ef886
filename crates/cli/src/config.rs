//! The configuration file: defaults of flags, for what one types every time.
//!
//! `cluster = "lab.toml"` is the cluster of all verbs that use one; a table `[plan]` has defaults of the flags of `edgecut plan`, by
//! their long names, `[memory.pack]` those of `edgecut memory pack`. They become clap's own defaults, so that `--help` shows them and flags
//! on the command line come first.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use clap::{ArgAction, Command, builder::OsStr, error::ErrorKind};
use miette::{LabeledSpan, NamedSource, Report, miette};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::Failure;

/// The variable that names the file, instead of `edgecut/config.toml` in the folder for configurations.
const CONFIG: &str = "EDGECUT_CONFIG";

/// The variable that names the cluster file; it comes before that of the configuration file.
const CLUSTER: &str = "EDGECUT_CLUSTER";

/// The cluster of the configuration file.
static CONFIGURED_CLUSTER: OnceLock<PathBuf> = OnceLock::new();

/// The cluster file where `--cluster` is not given. An empty `EDGECUT_CLUSTER` is this machine alone.
pub fn default_cluster() -> Option<PathBuf> {
    match std::env::var_os(CLUSTER) {
        Some(path) => (!path.is_empty()).then(|| PathBuf::from(path)),
        None => CONFIGURED_CLUSTER.get().cloned(),
    }
}

/// `command` with the defaults of the configuration file, if there is one.
///
/// # Errors
/// If the file cannot be read, or names something that is no flag, or a value that the flag does not take.
pub fn configured(command: Command) -> Result<Command, Failure> {
    let Some((path, is_asked_for)) = place() else { return Ok(command) };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_asked_for => return Ok(command),
        Err(error) => return Err(Failure::unreadable(&path.display().to_string(), &error)),
    };
    let (command, cluster) = with_defaults(command, &text).map_err(|wrong| wrong.failure(&path, &text))?;
    if let Some(cluster) = cluster {
        // Relative to the file, as paths in cluster files are.
        let cluster = path.parent().unwrap_or(Path::new("")).join(cluster);
        CONFIGURED_CLUSTER.get_or_init(|| cluster);
    }
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
        let labels: Vec<LabeledSpan> =
            self.span.map(|span| LabeledSpan::new_with_span(None, span)).into_iter().collect();
        let source = NamedSource::new(path.to_string_lossy(), text.to_string()).with_language("toml");
        let report: Report = miette!(labels = labels, "{}", self.message);
        Failure::BadInput(report.with_source_code(source))
    }
}

/// `command` with the defaults in `text`, and the cluster that it names.
fn with_defaults(command: Command, text: &str) -> Result<(Command, Option<String>), Wrong> {
    let table =
        DeTable::parse(text).map_err(|error| Wrong { message: error.message().to_string(), span: error.span() })?;
    let (mut command, mut cluster) = (command, None);
    for (key, value) in table.into_inner() {
        match value.get_ref() {
            DeValue::String(path) if key.get_ref() == "cluster" => cluster = Some(path.to_string()),
            DeValue::Table(table) => command = of_verb(command, &key, table)?,
            _ => {
                let what =
                    format!("`{}`: expected cluster = \"FILE\", or a table [VERB] with flags of a verb", key.get_ref());
                return Err(Wrong::at(&key, what));
            }
        }
    }
    Ok((command, cluster))
}

/// `command` with defaults of the flags of its verb `name`.
fn of_verb(command: Command, name: &Spanned<impl AsRef<str>>, flags: &DeTable<'_>) -> Result<Command, Wrong> {
    let verb = name.get_ref().as_ref();
    if command.find_subcommand(verb).is_none() {
        let verbs: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        return Err(Wrong::at(name, format!("`{verb}` is no verb: expected one of {}", verbs.join(", "))));
    }
    let mut wrong = None;
    let command = command.mut_subcommand(verb, |mut sub| {
        for (key, value) in flags {
            match flag(sub.clone(), key, value) {
                Ok(with) => sub = with,
                Err(error) => wrong = wrong.take().or(Some(error)),
            }
        }
        sub
    });
    wrong.map_or(Ok(command), Err)
}

/// `command` with a default of its flag `key`, or defaults of the verb below it that is called so.
fn flag(command: Command, key: &Spanned<impl AsRef<str>>, value: &Spanned<DeValue<'_>>) -> Result<Command, Wrong> {
    let name = key.get_ref().as_ref();
    if let DeValue::Table(table) = value.get_ref() {
        return of_verb(command, key, table);
    }
    let Some(found) = command.get_arguments().find(|flag| flag.get_long() == Some(name)) else {
        return Err(Wrong::at(key, format!("`{name}`: `{} --help` has no flag --{name}", command.get_name())));
    };
    let (id, is_switch) = (found.get_id().clone(), matches!(found.get_action(), ArgAction::SetTrue));
    let values = texts(value)?;
    if is_switch && values != ["true"] {
        return Err(Wrong::at(value, format!("--{name} takes no value: expected {name} = true, or no such line")));
    }
    let command = command.mut_arg(id, |flag| flag.default_values(values.into_iter().map(OsStr::from)));
    // What the flag does not take is told here, with its place, and not when the command line is read.
    match command.clone().try_get_matches_from([command.get_name()]) {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            Err(Wrong::at(value, line.to_string()))
        }
        _ => Ok(command),
    }
}

/// A value as the command line has it; of an array, several.
fn texts(value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, Wrong> {
    Ok(match value.get_ref() {
        DeValue::String(text) => vec![text.to_string()],
        DeValue::Integer(number) => vec![number.to_string()],
        DeValue::Float(number) => vec![number.to_string()],
        DeValue::Boolean(flag) => vec![flag.to_string()],
        DeValue::Array(values) => values.iter().map(texts).collect::<Result<Vec<_>, _>>()?.concat(),
        DeValue::Datetime(_) | DeValue::Table(_) => {
            return Err(Wrong::at(value, "expected a string, a number, true, or an array of these".to_string()));
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    enum Verb {
        Plan {
            #[arg(long, default_value_t = 3)]
            budget: u32,
            #[arg(long)]
            no_split: bool,
            #[arg(long)]
            pin: Vec<String>,
        },
    }

    fn parse(config: &str, line: &str) -> Result<(u32, bool, Vec<String>), String> {
        let (command, _) =
            with_defaults(<Verb as clap::CommandFactory>::command(), config).map_err(|wrong| wrong.message)?;
        let matches = command.try_get_matches_from(line.split(' ')).map_err(|error| error.to_string())?;
        let Verb::Plan { budget, no_split, pin } = <Verb as clap::FromArgMatches>::from_arg_matches(&matches).unwrap();
        Ok((budget, no_split, pin))
    }

    #[test]
    fn flags_come_before_defaults_of_the_file() {
        let config = "[plan]\nbudget = 7\nno-split = true\npin = [\"a=b\", \"c=d\"]\n";
        assert_eq!(parse(config, "e plan").unwrap(), (7, true, vec!["a=b".into(), "c=d".into()]));
        assert_eq!(parse(config, "e plan --budget 9 --pin x=y").unwrap(), (9, true, vec!["x=y".into()]));
        assert_eq!(parse("", "e plan").unwrap(), (3, false, vec![]));
    }

    #[test]
    fn what_is_no_flag_is_told_with_its_place() {
        for (config, message, at) in [
            ("[plan]\nbudgets = 7\n", "has no flag --budgets", "budgets"),
            ("[plane]\nbudget = 7\n", "`plane` is no verb: expected one of plan", "plane"),
            ("[plan]\nbudget = \"x\"\n", "invalid value 'x' for '--budget <BUDGET>'", "\"x\""),
            ("[plan]\nno-split = false\n", "--no-split takes no value", "false"),
            ("clusters = \"x\"\n", "expected cluster = \"FILE\"", "clusters"),
        ] {
            let wrong = with_defaults(<Verb as clap::CommandFactory>::command(), config).unwrap_err();
            assert!(wrong.message.contains(message), "{config}: {}", wrong.message);
            assert_eq!(&config[wrong.span.unwrap()], at, "{config}");
        }
    }
}
