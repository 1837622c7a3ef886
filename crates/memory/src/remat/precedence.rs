//! Precedence between operators, as far as moving one operator in an order needs it.

use smallvec::SmallVec;

use crate::program::{OperatorIndex, Program};

/// The direct predecessors and successors of each operator.
pub(super) struct Precedence {
    before: Vec<SmallVec<[OperatorIndex; 4]>>,
    after: Vec<SmallVec<[OperatorIndex; 4]>>,
}

impl Precedence {
    pub fn of(program: &Program) -> Precedence {
        let before = program.predecessors();
        let mut after: Vec<SmallVec<[OperatorIndex; 4]>> = vec![SmallVec::new(); before.len()];
        for (index, list) in (0..).zip(&before) {
            for &earlier in list {
                after[earlier as usize].push(index);
            }
        }
        Precedence { before, after }
    }

    /// The first and the last position that an operator may move to while all others keep their order.
    pub fn range(&self, program: &Program, positions: &[u32], operator: OperatorIndex) -> (u32, u32) {
        let at = operator as usize;
        if program.operators[at].first {
            return (positions[at], positions[at]);
        }
        let pinned = program.operators.iter().take_while(|o| o.first).count() as u32;
        let low = self.before[at].iter().map(|&o| positions[o as usize] + 1).max().unwrap_or(0).max(pinned);
        let last = positions.len() as u32 - 1;
        let high = self.after[at].iter().map(|&o| positions[o as usize] - 1).min().unwrap_or(last);
        (low, high)
    }
}

/// The position of each operator in an order.
pub(super) fn positions(order: &[OperatorIndex]) -> Vec<u32> {
    let mut positions = vec![0; order.len()];
    for (position, &operator) in (0..).zip(order) {
        positions[operator as usize] = position;
    }
    positions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Operator, Value};

    #[test]
    fn operators_move_between_predecessors_and_successors() {
        // An input, two independent operators on it, and one that reads both.
        let mut program = Program::default();
        for (index, reads) in (0u32..).zip([&[][..], &[0], &[0], &[1, 2]]) {
            let (reads, writes) = (SmallVec::from_slice(reads), [index].into_iter().collect());
            program.operators.push(Operator { reads, writes, first: index == 0, ..Operator::default() });
            program.values.push(Value { producer: Some(index), storage: index, ..Value::default() });
        }
        let precedence = Precedence::of(&program);
        let at = positions(&[0, 2, 1, 3]);
        assert_eq!(at, [0, 2, 1, 3]);
        for (operator, range) in [(0, (0, 0)), (1, (1, 2)), (2, (1, 2)), (3, (3, 3))] {
            assert_eq!(precedence.range(&program, &at, operator), range, "operator {operator}");
        }
    }
}
