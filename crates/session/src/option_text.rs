//! Options in messages of the libraries: ``option `threads` ``, or with a value ``option `threads=4` ``. Each interface
//! renders them in its own syntax, such as flags on the command line.

/// The name of an option, and its value if the text has one.
pub type NamedOption<'a> = (&'a str, Option<&'a str>);

/// Replaces the options in `text` by what `rendered` returns for their names and values. Options separated by `, ` are
/// rendered in one call.
///
/// The rest of `text` is unchanged.
pub fn render_options(text: &str, rendered: impl Fn(&[NamedOption<'_>]) -> String) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, first, after)) = next(rest) {
        out.push_str(before);
        let mut options = vec![first];
        rest = after;
        while let Some((", ", option, after)) = next(rest) {
            options.push(option);
            rest = after;
        }
        out.push_str(&rendered(&options));
    }
    out + rest
}

const BEGIN: &str = "option `";

/// The text before the next option, the option, and the text after it.
fn next(text: &str) -> Option<(&str, NamedOption<'_>, &str)> {
    let mut from = 0;
    loop {
        let at = from + text[from..].find(BEGIN)?;
        let (inside, after) = text[at + BEGIN.len()..].split_once('`')?;
        let (name, value) = inside.split_once('=').map_or((inside, None), |(name, value)| (name, Some(value)));
        if !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
            return Some((&text[..at], (name, value), after));
        }
        from = at + BEGIN.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_in_texts() {
        let flag = |options: &[(&str, Option<&str>)]| {
            let flag = |(name, value): &(&str, Option<&str>)| {
                format!("--{name}{}", value.map_or(String::new(), |v| format!(" {v}")))
            };
            options.iter().map(flag).collect::<Vec<_>>().join(" ")
        };
        for (text, expected) in [
            ("", ""),
            ("give option `inputs`", "give --inputs"),
            (
                "such as option `bind_dim=a=1`, option `bind_dim=b=2`, or none",
                "such as --bind_dim a=1 --bind_dim b=2, or none",
            ),
            (
                "the option `Odd Name` is one of the model, option `seed` is not",
                "the option `Odd Name` is one of the model, --seed is not",
            ),
            ("option `unclosed", "option `unclosed"),
        ] {
            assert_eq!(render_options(text, flag), expected);
        }
    }
}
