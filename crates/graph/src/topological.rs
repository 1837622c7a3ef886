//! Topological order of the vertices of a directed graph, by priority.

use std::{cmp::Reverse, collections::BinaryHeap};

/// A topological order of the vertices `0..count`: of those whose predecessors are ordered, the one with the least key
/// comes next, and of equal ones the first (Kahn 1962, with a priority queue). A vertex may be listed more than once among
/// the successors of another.
///
/// # Errors
/// The vertices on cycles and those reachable from one, ascending.
pub fn topological_order<I: IntoIterator<Item = usize>, K: Ord>(
    count: usize,
    successors: impl Fn(usize) -> I,
    key: impl Fn(usize) -> K,
) -> Result<Vec<usize>, Vec<usize>> {
    let mut missing = vec![0usize; count];
    (0..count).flat_map(&successors).for_each(|to| missing[to] += 1);
    let entry = |vertex| Reverse((key(vertex), vertex));
    let mut ready: BinaryHeap<_> = (0..count).filter(|vertex| missing[*vertex] == 0).map(entry).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(Reverse((_, vertex))) = ready.pop() {
        order.push(vertex);
        for to in successors(vertex) {
            missing[to] -= 1;
            if missing[to] == 0 {
                ready.push(entry(to));
            }
        }
    }
    if order.len() == count { Ok(order) } else { Err((0..count).filter(|vertex| missing[*vertex] > 0).collect()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(edges: &[(usize, usize)], key: impl Fn(usize) -> usize) -> Result<Vec<usize>, Vec<usize>> {
        let successors = |from| edges.iter().filter(move |edge| edge.0 == from).map(|edge| edge.1);
        topological_order(4, successors, key)
    }

    #[test]
    fn the_ready_vertex_of_the_least_key_comes_next() {
        let diamond = [(3, 1), (3, 2), (1, 0), (2, 0), (2, 0)];
        assert_eq!(order(&diamond, |_| 0), Ok(vec![3, 1, 2, 0]));
        assert_eq!(order(&diamond, |vertex| 4 - vertex), Ok(vec![3, 2, 1, 0]));
        assert_eq!(order(&[], |vertex| vertex ^ 1), Ok(vec![1, 0, 3, 2]));
    }

    #[test]
    fn cycles_and_what_follows_them_are_left_over() {
        assert_eq!(order(&[(0, 1), (1, 2), (2, 1), (2, 3)], |_| 0), Err(vec![1, 2, 3]));
        assert_eq!(order(&[(2, 2)], |_| 0), Err(vec![2]));
    }
}
