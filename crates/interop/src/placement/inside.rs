//! Interiors of the blocks of a path: everything between two operators of the path.
//!
//! A block starts when all its inputs are available and yields nothing before its end, so no path leaves a block and
//! returns. A block with positions `i..=j` of a path therefore contains every operator that depends on position `i` and
//! that position `j` depends on.

/// The operators off a path that lie between two of its positions.
pub struct Inside {
    /// By position: the operators that it needs and no earlier position does.
    until: Vec<Vec<Inner>>,
    /// By operator: one more than the last position that it is at or needs.
    after: Vec<usize>,
    /// By operator: the first position that it is at or that needs it.
    before: Vec<usize>,
}

/// An operator off the path, and the last position that it needs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Inner {
    operator: usize,
    from: usize,
}

impl Inside {
    /// `order` is a topological order of all operators, `readers` those that read each.
    pub fn new(path: &[usize], order: &[usize], readers: &[Vec<usize>]) -> Inside {
        let count = readers.len();
        let (mut after, mut before) = (vec![0; count], vec![usize::MAX; count]);
        for (position, op) in path.iter().enumerate() {
            (after[*op], before[*op]) = (position + 1, position);
        }
        for op in order {
            for reader in &readers[*op] {
                after[*reader] = after[*reader].max(after[*op]);
            }
        }
        for op in order.iter().rev() {
            for reader in &readers[*op] {
                before[*op] = before[*op].min(before[*reader]);
            }
        }
        let mut until = vec![Vec::new(); path.len()];
        let mut on_path = vec![false; count];
        path.iter().for_each(|op| on_path[*op] = true);
        for &operator in order.iter().filter(|op| !on_path[**op]) {
            if let (Some(from), Some(until)) = (after[operator].checked_sub(1), until.get_mut(before[operator])) {
                until.push(Inner { operator, from });
            }
        }
        Inside { until, after, before }
    }

    /// The last position that an operator is at or needs.
    pub(crate) fn needs(&self, operator: usize) -> Option<usize> {
        self.after[operator].checked_sub(1)
    }

    /// The first position that an operator is at or that needs it; beyond the path if there is none.
    pub(crate) fn needed_at(&self, operator: usize) -> usize {
        self.before[operator]
    }

    /// All operators in the interior of some block.
    pub fn all(&self) -> impl Iterator<Item = usize> + '_ {
        self.until.iter().flatten().map(|inner| inner.operator)
    }

    /// Operators that join the block starting at `from` when it is extended to `to`.
    pub fn entering(&self, from: usize, to: usize) -> impl Iterator<Item = usize> + '_ {
        self.until[to].iter().filter(move |inner| inner.from >= from).map(|inner| inner.operator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_comes_in_once() {
        // The path 0 → 1 → 4 → 6 with 2 and 3 parallel to 1, 5 parallel to 4; 7 leaves the path and never comes back.
        let edges = [(0, 1), (1, 4), (4, 6), (0, 2), (2, 3), (3, 4), (1, 5), (5, 6), (4, 7)];
        let mut readers = vec![Vec::new(); 8];
        edges.iter().for_each(|(from, to)| readers[*from].push(*to));
        let inside = Inside::new(&[0, 1, 4, 6], &[0, 1, 2, 3, 4, 5, 6, 7], &readers);
        let block =
            |from: usize, to: usize| -> Vec<usize> { (from..=to).flat_map(|at| inside.entering(from, at)).collect() };
        assert_eq!(block(0, 2), [2, 3]);
        assert_eq!(block(0, 3), [2, 3, 5]);
        assert_eq!(block(1, 3), [5]);
        assert!(block(1, 2).is_empty() && block(2, 3).is_empty());
    }
}
