//! Patterns of tensor names. `*` matches any text, `?` matches any character, and all other characters match
//! themselves.

use std::{convert::Infallible, fmt, str::FromStr};

/// A pattern of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern(String);

impl FromStr for NamePattern {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<NamePattern, Infallible> {
        Ok(NamePattern(text.to_string()))
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl NamePattern {
    /// Whether the pattern matches all of `name`. After a mismatch, the last `*` takes one more character.
    pub(crate) fn is_match(&self, name: &str) -> bool {
        let (pattern, name): (Vec<char>, Vec<char>) = (self.0.chars().collect(), name.chars().collect());
        let (mut at, mut read) = (0, 0);
        // The last `*`, and the first character that it does not match.
        let mut last: Option<(usize, usize)> = None;
        while read < name.len() {
            match pattern.get(at) {
                Some('*') => {
                    last = Some((at, read));
                    at += 1;
                }
                Some(c) if *c == '?' || *c == name[read] => {
                    at += 1;
                    read += 1;
                }
                _ => match last {
                    Some((star, taken)) => {
                        last = Some((star, taken + 1));
                        at = star + 1;
                        read = taken + 1;
                    }
                    None => return false,
                },
            }
        }
        pattern[at..].iter().all(|c| *c == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name, expected) in [
            ("w", "w", true),
            ("w", "w2", false),
            ("*", "", true),
            ("*.weight", "layer.0.weight", true),
            ("*.weight", "layer.0.weights", false),
            ("onnx::Conv_?", "onnx::Conv_7", true),
            ("onnx::Conv_?", "onnx::Conv_77", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("[x]*", "[x].y", true),
        ] {
            assert_eq!(pattern.parse::<NamePattern>().unwrap().is_match(name), expected, "{pattern} {name}");
        }
    }
}
