//! Options that have no effect with an input: refused with one message by every verb.

use std::collections::BTreeSet;

use crate::Error;

/// An option, and whether it is given.
pub(crate) type GivenOption = (&'static str, bool);

/// Refuses those of `options` that are given and are not `defaults`, because none of them has an effect with `what`.
///
/// # Errors
/// If there are any. The message names them.
pub(crate) fn refuse(options: &[GivenOption], defaults: &BTreeSet<String>, what: &str) -> Result<(), Error> {
    let is_wrong = |(name, is_given): &&GivenOption| *is_given && !defaults.contains(*name);
    let wrong: Vec<String> = options.iter().filter(is_wrong).map(|(name, _)| format!("option `{name}`")).collect();
    without_effect(&wrong, what)
}

/// Refuses the options that are given in `named`, because none of them has an effect with `what`: an input or another
/// option.
///
/// # Errors
/// If there are any.
pub fn without_effect(named: &[impl AsRef<str>], what: &str) -> Result<(), Error> {
    let named: Vec<&str> = named.iter().map(AsRef::as_ref).collect();
    let text = match named.as_slice() {
        [] => return Ok(()),
        [one] => format!("{one} has no effect with {what}"),
        several => format!("{} have no effect with {what}", several.join(", ")),
    };
    Err(Error::BadInput(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_options_are_refused_but_for_defaults() {
        let refused = |options: &[GivenOption], defaults: &[&str]| {
            let defaults = defaults.iter().map(ToString::to_string).collect();
            refuse(options, &defaults, "a model").err().map(|error| error.to_string())
        };
        let both = [("a", true), ("b", true)];
        assert_eq!(refused(&[], &[]), None);
        assert_eq!(refused(&[("a", false)], &[]), None);
        assert_eq!(refused(&both, &["a", "b"]), None);
        assert_eq!(refused(&both, &["a"]).as_deref(), Some("option `b` has no effect with a model"));
        assert_eq!(refused(&both, &[]).as_deref(), Some("option `a`, option `b` have no effect with a model"));
    }
}
