//! Suggestions for misspelt names.

/// Maximum length of compared names, since the cost is quadratic.
const MAX_NAME: usize = 64;

/// The name in `known` with the smallest edit distance to `name`, if it is at most 2.
pub(super) fn closest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    if name.len() > MAX_NAME {
        return None;
    }
    let most = name.len() / 4 + 1;
    let near = known.map(|known| (strsim::levenshtein(name, known), known));
    near.filter(|(edits, _)| *edits <= most.min(2)).min().map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_names_find_their_operator() {
        let known = ["nn.relu", "nn.conv2d", "nn.conv3d", "add", "abs"];
        for (name, want) in [
            ("nn.rellu", Some("nn.relu")),
            ("nn.conv2", Some("nn.conv2d")),
            ("ad", Some("add")),
            ("nn.softmax", None),
            ("", None),
        ] {
            assert_eq!(closest(name, known.into_iter()), want, "{name}");
        }
    }
}
