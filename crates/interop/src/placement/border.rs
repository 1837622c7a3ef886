//! Boundary costs of the blocks of a path: a stronger cost for the path bound.
//!
//! A block with positions `i..=j` of a path contains everything [`Inside`] them, and neither what position `i - 1` depends
//! on nor what depends on position `j + 1`. It pays the transfer of every operator that is certainly outside and read
//! inside, and of every one that is certainly inside and read outside. Of a detour between two operators of the path (a
//! chain of operators with one reader each), at least the cheapest transfer crosses the boundary.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::inside::Inside;

/// The graph as far as borders ask for it.
pub struct Neighbours<'a> {
    pub readers: &'a [Vec<usize>],
    /// By operator: those that it reads.
    pub makers: &'a [Vec<usize>],
    pub transfer: &'a dyn Fn(usize) -> f64,
}

/// The border costs of all blocks of a path.
pub struct Borders<'a> {
    path: &'a [usize],
    graph: &'a Neighbours<'a>,
    inside: &'a Inside,
    /// By place: the last place that a reader of its operator is at or needs.
    last: Vec<Option<usize>>,
    /// By place: the places that detours lead to, ascending, with the least transfer of each detour.
    detours: Vec<Vec<(usize, f64)>>,
    /// By place: the places that detours to it begin at.
    begins: Vec<Vec<usize>>,
}

/// Longest detour that is followed.
const LONGEST: usize = 64;

impl<'a> Borders<'a> {
    pub fn new(path: &'a [usize], graph: &'a Neighbours<'a>, inside: &'a Inside) -> Borders<'a> {
        let place: HashMap<usize, usize> = path.iter().enumerate().map(|(at, op)| (*op, at)).collect();
        let last = path.iter().map(|op| last(graph, inside, *op)).collect();
        let (detours, begins) = (Vec::new(), vec![Vec::new(); path.len()]);
        let mut borders = Borders { path, graph, inside, last, detours, begins };
        for (from, op) in path.iter().enumerate() {
            let off_path = graph.readers[*op].iter().filter(|reader| !place.contains_key(reader));
            let mut detours: Vec<(usize, f64)> = off_path.filter_map(|reader| detour(*reader, graph, &place)).collect();
            detours.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
            for (to, _) in &detours {
                if borders.begins[*to].last() != Some(&from) {
                    borders.begins[*to].push(from);
                }
            }
            borders.detours.push(detours);
        }
        borders
    }

    /// Shows `visit` the places `j` from `i` on with the border cost of the block `i..=j`, as long as it says to go on.
    pub fn blocks(&self, i: usize, mut visit: impl FnMut(usize, f64) -> bool) {
        let transfer = self.graph.transfer;
        // Operators that certainly come in; what detours from each place before the block cost so far.
        let mut crossed: HashSet<usize> = HashSet::new();
        let mut by_detour: BTreeMap<usize, f64> = BTreeMap::new();
        // Places inside that detours lead away from.
        let mut open: Vec<usize> = Vec::new();
        let (mut entering, mut leaving) = (0.0, 0.0);
        // By place: what is not paid any more once it is inside.
        let mut until = vec![0.0; self.path.len()];
        for j in i..self.path.len() {
            leaving -= until[j];
            for op in std::iter::once(self.path[j]).chain(self.inside.entering(i, j)) {
                for &maker in &self.graph.makers[op] {
                    if self.inside.needed_at(maker) < i && crossed.insert(maker) {
                        entering += transfer(maker);
                    }
                }
                if let Some(last) = last(self.graph, self.inside, op).filter(|last| *last > j) {
                    leaving += transfer(op);
                    until[last] += transfer(op);
                }
            }
            for &from in self.begins[j].iter().filter(|from| **from < i) {
                by_detour.insert(from, self.around(from, |to| (i..=j).contains(&to)));
            }
            let certain = |place: &usize| crossed.contains(&self.path[*place]);
            let around: f64 = by_detour.iter().filter(|(from, _)| !certain(from)).map(|(_, cost)| cost).sum();
            open.push(j);
            open.retain(|from| self.detours[*from].last().is_some_and(|(to, _)| *to > j));
            let stays = |place: &&usize| self.last[**place].is_none_or(|last| last <= j);
            let out: f64 = open.iter().filter(stays).map(|from| self.around(*from, |to| to > j)).sum();
            if !visit(j, entering + around + leaving + out) {
                return;
            }
        }
    }

    /// The least that the detours from a place pay which lead `across` a border.
    fn around(&self, from: usize, across: impl Fn(usize) -> bool) -> f64 {
        let detours: f64 = self.detours[from].iter().filter(|(to, _)| across(*to)).map(|detour| detour.1).sum();
        detours.min((self.graph.transfer)(self.path[from]))
    }
}

/// The last place that a reader of `op` is at or needs.
fn last(graph: &Neighbours<'_>, inside: &Inside, op: usize) -> Option<usize> {
    graph.readers[op].iter().filter_map(|reader| inside.needs(*reader)).max()
}

/// Where the chain of operators that begins with `op` comes back to the path, and its least transfer.
fn detour(mut op: usize, graph: &Neighbours<'_>, place: &HashMap<usize, usize>) -> Option<(usize, f64)> {
    let mut least = f64::INFINITY;
    for _ in 0..LONGEST {
        let ([reader], [_]) = (graph.readers[op].as_slice(), graph.makers[op].as_slice()) else { return None };
        least = least.min((graph.transfer)(op));
        match place.get(reader) {
            Some(to) => return Some((*to, least)),
            None => op = *reader,
        }
    }
    None
}
