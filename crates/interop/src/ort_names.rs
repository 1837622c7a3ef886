//! Names of ONNX Runtime's kernels, joined to the operators of a graph.
//!
//! ONNX Runtime fuses operators and inserts others before it runs a model. A kernel's name is one of the model's, one that was
//! derived from it by an ending (`conv1_nchwc`), or a new one (`ReorderInput`).

use std::collections::HashMap;

use edgecut_graph::OperatorId;

/// Bytes of the longest name that is looked for at the beginning of another: each separator of a name costs a look-up.
const LONGEST: usize = 4096;

/// The operators of a graph by the names that kernels for them have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OrtNames(HashMap<String, Vec<OperatorId>>);

/// What a kernel's name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named<'n> {
    /// It is that of these operators; none for what was computed when the model was read.
    Same(&'n [OperatorId]),
    /// It begins with that of these operators.
    Derived(&'n [OperatorId]),
    /// The model has no such name.
    New,
}

impl Named<'_> {
    /// The operator that the kernel's figures count for: the first, whose group has the others in it.
    pub(super) fn operator(self) -> Option<OperatorId> {
        match self {
            Named::Same(operators) | Named::Derived(operators) => operators.first().copied(),
            Named::New => None,
        }
    }
}

impl OrtNames {
    /// Adds the operators of `name`, unless it is empty or known.
    pub fn add(&mut self, name: &str, operators: &[OperatorId]) {
        if !name.is_empty() && !self.0.contains_key(name) {
            self.0.insert(name.to_string(), operators.to_vec());
        }
    }

    /// Adds one operator to those of `name`.
    pub fn extend(&mut self, name: &str, operator: OperatorId) {
        self.0.entry(name.to_string()).or_default().push(operator);
    }

    /// The operators of exactly this name.
    pub fn of(&self, name: &str) -> Option<&[OperatorId]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// What the name of a kernel says: the longest name that it begins with, up to a separator.
    pub fn find(&self, kernel: &str) -> Named<'_> {
        if let Some(operators) = self.of(kernel) {
            return Named::Same(operators);
        }
        let separators =
            kernel.char_indices().take_while(|(at, _)| *at <= LONGEST).filter(|(_, c)| !c.is_alphanumeric());
        let ends: Vec<usize> = separators.map(|(at, _)| at).collect();
        let mut ends = ends.into_iter().rev();
        ends.find_map(|end| self.of(&kernel[..end])).map_or(Named::New, Named::Derived)
    }

    /// The same for a name in statistics of memory, which ends in an underscore and a hash of the names of values. Where
    /// these were changed, the name before it counts.
    pub(super) fn find_hashed(&self, kernel: &str) -> Named<'_> {
        if let Some(operators) = self.of(kernel) {
            return Named::Same(operators);
        }
        match kernel.rsplit_once('_') {
            Some((name, hash)) if !name.is_empty() && hash.bytes().all(|c| c.is_ascii_digit()) => self.find(name),
            _ => self.find(kernel),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_with_endings_and_hashes() {
        let mut names = OrtNames::default();
        let [conv, relu] = [OperatorId(0), OperatorId(1)];
        names.extend("/conv1/Conv", conv);
        names.extend("r_1", relu);
        names.add("r_1", &[conv]);
        names.add("Relu_17", &[relu]);
        names.add("", &[relu]);
        assert_eq!(names.find("/conv1/Conv"), Named::Same(&[conv]));
        assert_eq!(names.find("/conv1/Conv_nchwc"), Named::Derived(&[conv]));
        assert_eq!(names.find("r_1_nchwc"), Named::Derived(&[relu]));
        assert_eq!(names.find("ReorderInput"), Named::New);
        assert_eq!(names.find("/conv10/Conv"), Named::New);
        assert_eq!(names.find_hashed("Relu_17"), Named::Same(&[relu]));
        assert_eq!(names.find_hashed("/conv1/Conv_99"), Named::Same(&[conv]));
        assert_eq!(names.find_hashed("r_1_nchwc_99"), Named::Derived(&[relu]));
        assert_eq!(names.find_hashed("_99"), Named::New);
    }
}
