//! Text from others, such as names and messages that came over the network, as it may be printed: in one line, without
//! control characters, which forge lines of a log or steer a terminal.

use std::borrow::Cow;

/// `text` with escapes instead of what is not printed: `\n`, `\u{1b}`.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    match text.chars().all(is_printed) {
        true => Cow::Borrowed(text),
        false => {
            let one = |c: char| match is_printed(c) {
                true => c.to_string(),
                false => c.escape_default().to_string(),
            };
            Cow::Owned(text.chars().map(one).collect())
        }
    }
}

/// Whether a character appears where it stands. Marks of direction change the order of what follows.
fn is_printed(c: char) -> bool {
    let is_direction = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}') && !is_direction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_or_begins_a_line_is_escaped() {
        for (text, printed) in [
            ("Ampère 128×8 …", "Ampère 128×8 …"),
            ("a\nINFO b", "a\\nINFO b"),
            ("\u{1b}[2Jx\r\t", "\\u{1b}[2Jx\\r\\t"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("a\u{202e}b\u{2028}", "a\\u{202e}b\\u{2028}"),
        ] {
            assert_eq!(printable(text), printed);
        }
    }
}
