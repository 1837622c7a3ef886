//! Matches the patterns of a library in a graph and contracts the matches.

use serde::Serialize;

use super::library::Library;
use edgecut_graph::{ContractedGraph, ConvexGroups, Graph, query::SearchLimitExceeded};

/// A graph with meta-operators, and the matches of each pattern.
#[derive(Debug)]
pub struct Fused {
    pub contracted: ContractedGraph,
    /// For each pattern name, in the order of the library.
    pub uses: Vec<PatternMatches>,
}

/// The matches of one pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PatternMatches {
    pub name: String,
    pub matches: usize,
    /// Operators of the model in all matches.
    pub operators: usize,
}

/// A pattern whose search in this graph is too expensive.
#[derive(Debug, thiserror::Error)]
#[error("pattern `{name}`: {error}")]
pub struct FuseError {
    pub name: String,
    pub error: SearchLimitExceeded,
}

/// Contracts the matches pattern by pattern, in the order of the library. Later patterns see the meta-operators of
/// earlier ones as operators of that name. Matches of a single operator are ignored.
///
/// # Errors
/// If a pattern has too many alternatives to enumerate.
pub(crate) fn fuse(graph: &Graph, library: &Library) -> Result<Fused, FuseError> {
    let mut fused = Fused { contracted: ContractedGraph::whole(graph), uses: Vec::new() };
    for pattern in library.patterns() {
        let now = &fused.contracted.graph;
        let mut groups = ConvexGroups::new(now);
        let mut operators = 0;
        let sizes = &fused.contracted.members;
        let accept = &mut |members: &[edgecut_graph::OperatorId]| {
            let accepted = members.len() > 1 && groups.add(members);
            if accepted {
                operators += members.iter().map(|id| sizes[id.0 as usize].len()).sum::<usize>();
            }
            accepted
        };
        let holds = &|condition: &str, subject| library.holds(condition, now, subject);
        let name = pattern.name.to_string();
        pattern.query.find(now, holds, accept).map_err(|error| FuseError { name: name.clone(), error })?;
        let matches = groups.len();
        match fused.uses.iter_mut().find(|known| known.name == name) {
            Some(known) => (known.matches, known.operators) = (known.matches + matches, known.operators + operators),
            None => fused.uses.push(PatternMatches { name, matches, operators }),
        }
        if matches > 0 {
            let further = groups.contract(|_| pattern.name.clone());
            fused.contracted = fused.contracted.then(further);
        }
    }
    Ok(fused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{DType, Operator, OperatorId, Origin, TensorType};

    #[test]
    fn later_patterns_see_earlier_ones() {
        let library = Library::parse(
            "[[pattern]]\nname = \"Pair\"\nquery = \"a->b\"\n[[pattern]]\nname = \"Two\"\nquery = \"Pair->Pair\"\n\
             [[pattern]]\nname = \"Pair\"\nquery = \"Two->c\"\n[[pattern]]\nname = \"One\"\nquery = \"c\"\n",
        )
        .unwrap();
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[4]);
        let mut at = graph.add_tensor("x", ty.clone(), Origin::Input);
        for name in ["a", "b", "a", "b", "a", "c", "c"] {
            let operator = Operator::new(name, [at]);
            let id = graph.add_operator(operator, std::slice::from_ref(&ty));
            at = graph.operator(id).outputs[0];
        }
        graph.outputs.push(at);
        let fused = fuse(&graph, &library).unwrap();
        let names: Vec<&str> = fused.contracted.graph.operators().map(|(_, o)| o.name.as_str()).collect();
        assert_eq!(names, ["Two", "a", "c", "c"]);
        assert_eq!(fused.contracted.members[0], (0..4).map(OperatorId).collect::<Vec<_>>());
        let uses: Vec<_> = fused.uses.iter().map(|u| (u.name.as_str(), u.matches, u.operators)).collect();
        assert_eq!(uses, [("Pair", 2, 4), ("Two", 1, 4), ("One", 0, 0)]);
    }
}
