//! Renders options in messages of the libraries as flags.

use edgecut_session::option_text::render_options;

/// `text` with options replaced by flags. Flags with values can be copied into a shell; names alone stay a list.
pub fn with_flags(text: &str) -> String {
    render_options(text, |options| {
        let separator = if options.iter().all(|(_, value)| value.is_none()) { ", " } else { " " };
        options.iter().map(|(name, value)| flag(name, *value)).collect::<Vec<_>>().join(separator)
    })
}

fn flag(name: &str, value: Option<&str>) -> String {
    let flag = format!("--{}", name.replace('_', "-"));
    value.map_or(flag.clone(), |value| format!("{flag} {}", quoted(value)))
}

/// `text` as one word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_.:=/-+%#,@".contains(c);
    match !text.starts_with('#') && text.chars().all(is_plain) {
        true => text.to_string(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_can_be_copied() {
        for (text, expected) in [
            ("give option `inputs`", "give --inputs"),
            (
                "such as option `bind_dim=batch=1`, option `bind_dim=it's + 1=1`, option `bind_dim=z:0=1`",
                r"such as --bind-dim batch=1 --bind-dim 'it'\''s + 1=1' --bind-dim z:0=1",
            ),
            ("option `pin=#7=a/cpu`", "--pin '#7=a/cpu'"),
            ("option `inputs`, option `bind_dim` have no effect", "--inputs, --bind-dim have no effect"),
        ] {
            assert_eq!(with_flags(text), expected);
        }
    }
}
