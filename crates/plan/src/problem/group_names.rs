//! What the groups of a model are called: by number, by what they compute, by the unique names of their operators, by layer.
//!
//! Numbers and unique names follow from the model and from what a group is (operators or fused groups): they are the same
//! in every profile, plan and run of the model, whatever is split.

use std::collections::BTreeMap;

use wildmatch::WildMatch;

use edgecut_graph::{Graph, OperatorId};

/// The names of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupNames {
    /// Its number, and the column `id` of files.
    pub id: u32,
    /// The names of its operators, joined by `+`; other groups may have the same.
    pub kind: String,
    /// The unique name of each operator.
    pub operators: Vec<String>,
    pub layers: Vec<String>,
}

/// How far a name may be from the one that was meant, in edits.
const MOST_EDITS: usize = 3;
/// Limit on the length of names that are compared.
const MAX_NAME: usize = 64;

impl GroupNames {
    /// The names of `groups` of the model `graph`, whose kinds are `kinds`.
    pub fn of(graph: &Graph, groups: &[Vec<OperatorId>], kinds: &[String]) -> Vec<GroupNames> {
        let names = |((id, operators), kind): ((u32, &Vec<OperatorId>), &String)| GroupNames {
            id,
            kind: kind.clone(),
            operators: operators.iter().map(|id| graph.unique_name(*id).to_string()).collect(),
            layers: graph.layers(operators).into_iter().map(str::to_string).collect(),
        };
        (0u32..).zip(groups).zip(kinds).map(names).collect()
    }

    /// The number as it is printed and typed: `#7`.
    pub fn number(&self) -> String {
        format!("#{}", self.id)
    }

    /// What messages call it: its number, and the unique name of its first operator.
    pub fn label(&self) -> String {
        label(self.id, self.operators.first().map(String::as_str))
    }

    /// The layers, joined by `+`.
    pub fn layer(&self) -> String {
        self.layers.join("+")
    }

    /// Everything that the group may be called.
    pub fn all(&self) -> Vec<String> {
        let kinds = std::iter::once(self.kind.as_str()).chain(self.kind.split('+'));
        let more = self.operators.iter().chain(&self.layers).map(String::as_str);
        std::iter::once(self.number()).chain(kinds.chain(more).map(str::to_string)).collect()
    }

    /// Whether `pattern` (`*` and `?` as in file names) matches one of the names.
    pub fn is_called(&self, pattern: &str) -> bool {
        let pattern = WildMatch::new(pattern);
        self.all().iter().any(|name| pattern.matches(name))
    }
}

/// What messages call group `id`, whose first operator has this unique name.
pub(crate) fn label(id: u32, operator: Option<&str>) -> String {
    operator.map_or_else(|| format!("#{id}"), |operator| format!("#{id} {operator}"))
}

/// The unique name that was probably meant by `pattern`, which none of `groups` is called: that of the operator of the
/// same number, else the most similar name of all.
pub(crate) fn meant<'g>(pattern: &str, groups: &'g [GroupNames]) -> Option<String> {
    let number = |name: &'g str| name.rsplit_once('_').and_then(|(_, number)| number.parse::<u32>().ok());
    let numbered = pattern.rsplit_once('_').and_then(|(_, number)| number.parse::<u32>().ok());
    let mut operators = groups.iter().flat_map(|group| &group.operators);
    if let Some(same) = operators.find(|name| numbered.is_some() && number(name) == numbered) {
        return Some(same.clone());
    }
    if pattern.len() > MAX_NAME {
        return None;
    }
    let most = (pattern.len() / 4 + 1).min(MOST_EDITS);
    let mut distances: BTreeMap<String, usize> = BTreeMap::new();
    for name in groups.iter().flat_map(GroupNames::all).filter(|name| name.len() <= MAX_NAME && !name.starts_with('#'))
    {
        distances.entry(name).or_insert_with_key(|name| strsim::levenshtein(pattern, name));
    }
    let near = distances.into_iter().filter(|(_, edits)| *edits <= most);
    near.min_by_key(|(_, edits)| *edits).map(|(name, _)| name)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Three groups: a convolution with its activation, and two products.
    pub(crate) fn three() -> Vec<GroupNames> {
        let group = |id, kind: &str, operators: &[&str], layers: &[&str]| GroupNames {
            id,
            kind: kind.to_string(),
            operators: operators.iter().map(ToString::to_string).collect(),
            layers: layers.iter().map(ToString::to_string).collect(),
        };
        vec![
            group(0, "nn.conv2d+nn.relu", &["nn.conv2d_0", "nn.relu_1"], &["conv0"]),
            group(1, "nn.dense", &["nn.dense_2"], &["fc1"]),
            group(2, "nn.softmax", &["nn.softmax_3"], &[]),
        ]
    }

    #[test]
    fn a_group_is_called_by_number_kind_operator_and_layer() {
        let groups = three();
        let called = |pattern: &str| -> Vec<u32> {
            groups.iter().filter(|group| group.is_called(pattern)).map(|group| group.id).collect()
        };
        for (pattern, want) in [
            ("#1", &[1][..]),
            ("#?", &[0, 1, 2]),
            ("#10", &[]),
            ("nn.relu", &[0]),
            ("nn.relu_1", &[0]),
            ("nn.conv2d+nn.relu", &[0]),
            ("fc1", &[1]),
            ("nn.*", &[0, 1, 2]),
            ("nn.relu_2", &[]),
        ] {
            assert_eq!(called(pattern), want, "{pattern}");
        }
    }

    #[test]
    fn messages_name_a_group_by_its_number_and_first_operator() {
        assert_eq!(three()[0].label(), "#0 nn.conv2d_0");
        assert_eq!(label(7, None), "#7");
    }

    #[test]
    fn what_was_meant_is_the_operator_of_that_number_or_a_similar_name() {
        for (pattern, want) in [
            ("nn.bias_2", Some("nn.dense_2")),
            ("nn.dens", Some("nn.dense")),
            ("nn.conv2_9", Some("nn.conv2d")),
            ("fc2", Some("fc1")),
            ("image.resize2d", None),
        ] {
            assert_eq!(meant(pattern, &three()).as_deref(), want, "{pattern}");
        }
    }
}
