//! Compiles a query's syntax tree to the matcher's instructions: alternatives and repetitions become jumps.

use super::{
    error::QueryError,
    parse::{Body, Edge, Element, Kind, OperatorPattern, Repetition, Sequence, Tree, key, parse},
    program::{Instruction, Query, Target},
};

/// Maximum number of instructions of a query.
const MAX_INSTRUCTIONS: usize = 4096;

impl Query {
    /// # Errors
    /// If `text` is not a query; the error has the position.
    pub fn parse(text: &str) -> Result<Query, QueryError> {
        compile(&parse(text)?)
    }
}

/// # Errors
/// If the query has too many instructions.
fn compile(tree: &Tree) -> Result<Query, QueryError> {
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

    /// `edge` leads to the element.
    fn element(&mut self, element: &Element, edge: Option<Edge>) -> Result<(), QueryError> {
        if self.program.len() > MAX_INSTRUCTIONS {
            let message =
                format!("the query is too long: repetitions expand to more than {MAX_INSTRUCTIONS} instructions");
            return Err(QueryError::new(element.span.clone(), message));
        }
        let again = edge.unwrap_or(Edge::PLAIN);
        match element.repetition {
            Repetition::Once => self.body(element, edge)?,
            Repetition::Times(times) => {
                self.body(element, edge)?;
                (1..times).try_for_each(|_| self.body(element, Some(again)))?;
            }
            Repetition::Optional => {
                let choice = self.placeholder();
                self.body(element, edge)?;
                self.program[choice] = Instruction::Either(choice + 1, self.program.len());
            }
            Repetition::Any | Repetition::Some => {
                if element.repetition == Repetition::Some {
                    self.body(element, edge)?;
                }
                let choice = self.placeholder();
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
                    let choice = (!last).then(|| self.placeholder());
                    self.element(branch, edge)?;
                    if !last {
                        ends.push(self.placeholder());
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

    fn operator(&mut self, pattern: &OperatorPattern, edge: Option<Edge>) {
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

    /// Appends a placeholder for an instruction that is patched later.
    fn placeholder(&mut self) -> usize {
        self.program.push(Instruction::Accept);
        self.program.len() - 1
    }
}
