//! Flags that have no effect with an input or with another flag: refused with one message by every verb.

use edgecut_session::ineffective::without_effect;

use crate::{Outcome, config};

/// A flag as it is written, and whether it was given.
pub type Flag = (&'static str, bool);

/// Fails if any of `flags` was given, as none of them has an effect with `what`: an input or another flag.
///
/// Flags of the configuration file are defaults for all calls of a verb: they are not refused where they have no effect.
pub fn refuse(flags: &[Flag], what: &str) -> Outcome {
    let is_typed = |(flag, is_given): &&Flag| *is_given && !config::is_configured(flag);
    let typed: Vec<&str> = flags.iter().filter(is_typed).map(|(flag, _)| *flag).collect();
    without_effect(&typed, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_given_flags_are_named() {
        let cases: [(&[Flag], Option<&str>); 4] = [
            (&[], None),
            (&[("--a", false), ("--b", false)], None),
            (&[("--a", false), ("--b", true)], Some("--b has no effect with x.json")),
            (&[("--a", true), ("--b", true)], Some("--a, --b have no effect with x.json")),
        ];
        for (flags, expected) in cases {
            assert_eq!(refuse(flags, "x.json").err().map(|error| error.to_string()).as_deref(), expected);
        }
    }
}
