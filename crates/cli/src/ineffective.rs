//! Flags that have no effect with an input or with another flag: refused with one message by every verb.

use edgecut_session::error::Message;

use crate::{Failure, Outcome, config};

/// A flag as it is written, and whether it was given.
pub type Flag = (&'static str, bool);

/// Fails if any of `flags` was given, as none of them has an effect with `what`: an input or another flag.
///
/// Flags of the configuration file are defaults for all calls of a verb: they are not refused where they have no effect.
pub fn refuse(flags: &[Flag], what: &str) -> Outcome {
    let typed: Vec<Flag> = flags.iter().filter(|(flag, _)| !config::is_configured(flag)).copied().collect();
    message(&typed, what).map_or(Ok(()), |text| Err(Failure::BadInput(Message::from(text))))
}

fn message(flags: &[Flag], what: &str) -> Option<String> {
    let given: Vec<&str> = flags.iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| *flag).collect();
    match given.as_slice() {
        [] => None,
        [flag] => Some(format!("{flag} has no effect with {what}")),
        flags => Some(format!("{} have no effect with {what}", flags.join(", "))),
    }
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
            assert_eq!(message(flags, "x.json").as_deref(), expected);
        }
    }
}
