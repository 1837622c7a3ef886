//! A query's tree as instructions for the search: choices and repetitions become jumps.

use super::{
    Query, QueryError,
    parse::{Body, Edge, Element, Kind, Often, Pattern, Sequence, Tree, key},
};

/// A query of more instructions is not searched for.
const MOST: usize = 4096;

/// One instruction. A state of the search stands at some operators: the ends of what is matched so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Instruction {
    /// Goes along the edge from all ends to one operator of this kind; without an edge, to one anywhere.
    Visit {
        edge: Option<Edge>,
        target: Target,
    },
    /// Wants what lies outside at the end of the edge.
    Outside {
        edge: Edge,
        kind: Kind,
        condition: Option<String>,
    },
    /// Goes on at the first place, or else at the second.
    Either(usize, usize),
    Jump(usize),
    /// Branches begin: remembers the ends.
    Fork,
    /// A branch is complete: puts its ends aside and goes back to where it began.
    Branch,
    /// All branches are complete: stands at the ends of all of them.
    Join,
    Accept,
}

/// An operator that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// `None` is any.
    pub name: Option<String>,
    pub condition: Option<String>,
    /// The place of its anchor.
    pub anchor: Option<usize>,
    pub taken: bool,
}

/// # Errors
/// If the query has too many instructions.
pub(super) fn compile(tree: &Tree) -> Result<Query, QueryError> {
    let mut compiler = Compiler { program: Vec::new(), anchors: Vec::new(), conditions: Vec::new() };
    for sequence in tree {
        compiler.sequence(sequence, None)?;
    }
    compiler.program.push(Instruction::Accept);
    let Compiler { program, anchors, conditions } = compiler;
    Ok(Query { program, anchors: anchors.len(), conditions })
}

struct Compiler {
    program: Vec<Instruction>,
    anchors: Vec<String>,
    conditions: Vec<String>,
}

impl Compiler {
    fn sequence(&mut self, sequence: &Sequence, edge: Option<Edge>) -> Result<(), QueryError> {
        self.element(&sequence.first, edge)?;
        sequence.rest.iter().try_for_each(|(edge, element)| self.element(element, Some(*edge)))
    }

    /// `edge` leads to the element, however often it is there.
    fn element(&mut self, element: &Element, edge: Option<Edge>) -> Result<(), QueryError> {
        if self.program.len() > MOST {
            let message = format!("the query is too long: its repetitions come to more than {MOST} steps");
            return Err(QueryError { message, span: element.span.clone() });
        }
        let again = edge.unwrap_or(Edge::PLAIN);
        match element.often {
            Often::Once => self.body(element, edge)?,
            Often::Times(times) => {
                self.body(element, edge)?;
                (1..times).try_for_each(|_| self.body(element, Some(again)))?;
            }
            Often::Optional => {
                let choice = self.hole();
                self.body(element, edge)?;
                self.program[choice] = Instruction::Either(choice + 1, self.program.len());
            }
            Often::Any | Often::Some => {
                if element.often == Often::Some {
                    self.body(element, edge)?;
                }
                let choice = self.hole();
                self.body(element, Some(again))?;
                self.program.push(Instruction::Jump(choice));
                self.program[choice] = Instruction::Either(choice + 1, self.program.len());
            }
        }
        Ok(())
    }

    fn body(&mut self, element: &Element, edge: Option<Edge>) -> Result<(), QueryError> {
        match &element.body {
            Body::Operator(pattern) => self.operator(pattern, edge),
            Body::Sequence(sequence) => return self.sequence(sequence, edge),
            Body::All(branches) => {
                self.program.push(Instruction::Fork);
                for branch in branches {
                    self.element(branch, edge)?;
                    self.program.push(Instruction::Branch);
                }
                self.program.push(Instruction::Join);
            }
            Body::Any(branches) => {
                let mut ends = Vec::new();
                for (index, branch) in branches.iter().enumerate() {
                    let last = index + 1 == branches.len();
                    let choice = (!last).then(|| self.hole());
                    self.element(branch, edge)?;
                    if !last {
                        ends.push(self.hole());
                    }
                    if let Some(choice) = choice {
                        self.program[choice] = Instruction::Either(choice + 1, self.program.len());
                    }
                }
                for end in ends {
                    self.program[end] = Instruction::Jump(self.program.len());
                }
            }
        }
        Ok(())
    }

    fn operator(&mut self, pattern: &Pattern, edge: Option<Edge>) {
        let condition = pattern.condition.clone();
        if let Some(name) = condition.as_ref().filter(|name| !self.conditions.contains(name)) {
            self.conditions.push(name.clone());
        }
        let name = match (&pattern.kind, edge) {
            (Kind::Named(name), _) => Some(name.clone()),
            (Kind::Nothing | Kind::Parameter | Kind::Input, Some(edge)) => {
                self.program.push(Instruction::Outside { edge, kind: pattern.kind.clone(), condition });
                return;
            }
            _ => None,
        };
        let anchor = pattern.anchor.as_ref().map(|_| self.anchor(key(pattern)));
        let target = Target { name, condition, anchor, taken: pattern.taken };
        self.program.push(Instruction::Visit { edge, target });
    }

    fn anchor(&mut self, key: String) -> usize {
        self.anchors.iter().position(|known| *known == key).unwrap_or_else(|| {
            self.anchors.push(key);
            self.anchors.len() - 1
        })
    }

    /// Makes room for an instruction that is known later.
    fn hole(&mut self) -> usize {
        self.program.push(Instruction::Accept);
        self.program.len() - 1
    }
}
