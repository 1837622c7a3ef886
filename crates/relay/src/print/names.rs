//! Unique legal names of variables.

use std::collections::HashMap;

/// Assigns unique names that TVM can read.
#[derive(Default)]
pub(super) struct NameTable {
    taken: HashMap<String, u32>,
}

const KEYWORDS: [&str; 12] =
    ["let", "fn", "def", "if", "else", "type", "match", "extern", "free_var", "ref", "ref_read", "ref_write"];

impl NameTable {
    /// A name derived from `hint`: illegal characters are replaced, and a number is appended if the name is taken.
    pub fn give(&mut self, hint: &str) -> String {
        let mut name: String =
            hint.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '/' { c } else { '_' }).collect();
        // A trailing slash would merge with the next token, and `//` starts a comment.
        while name.ends_with('/') || name.contains("//") {
            name = name.trim_end_matches('/').replace("//", "/_");
        }
        let unreadable = !name.starts_with(|c: char| c.is_ascii_alphabetic())
            || KEYWORDS.contains(&name.as_str())
            || name.starts_with("inff")
            || name.starts_with("nanf");
        if unreadable {
            name.insert(0, 'v');
        }
        let mut unique = name.clone();
        if let Some(&count) = self.taken.get(&name) {
            let mut count = count;
            while self.taken.contains_key(&unique) {
                count += 1;
                unique = format!("{name}{count}");
            }
            self.taken.insert(name, count);
        }
        self.taken.insert(unique.clone(), 0);
        unique
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_legal_and_unique() {
        let mut names = NameTable::default();
        for (hint, name) in [
            ("x", "x"),
            ("x", "x1"),
            ("x", "x2"),
            ("p0", "p0"),
            ("p0", "p01"),
            ("", "v"),
            ("_", "v_"),
            ("1", "v1"),
            ("aten::conv.weight", "aten__conv_weight"),
            ("type", "vtype"),
            ("a//b/", "a/_b"),
        ] {
            assert_eq!(names.give(hint), name, "{hint}");
        }
    }
}
