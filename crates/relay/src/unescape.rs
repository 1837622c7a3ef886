//! Unescapes strings in attributes, which TVM's printer escapes, but its parser does not unescape.

use std::borrow::Cow;

/// Undoes the printer's escapes: `\"`, `\\`, `\n`, `\r`, `\t` and `\xHH`, which are bytes of UTF-8.
pub(super) fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let (unescaped, used) = match (byte, tail) {
            (b'\\', [b'x', high, low, ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 4),
                _ => (byte, 1),
            },
            (b'\\', [escaped @ (b'"' | b'\\'), ..]) => (*escaped, 2),
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b't', ..]) => (b'\t', 2),
            _ => (byte, 1),
        };
        bytes.push(unescaped);
        rest = rest.get(used..).unwrap_or_default();
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn escapes_are_undone_and_others_stay() {
        for (text, want) in [("NCHW", "NCHW"), (r#"a\"b\\c\n"#, "a\"b\\c\n"), (r"\xC3\xA9\q\x", "é\\q\\x")] {
            assert_eq!(unescape(text), want);
        }
    }
}
