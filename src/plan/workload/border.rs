//! What a block of one path pays at its border, whatever else is in it: a stronger cost for the path bound.
//!
//! A block that has the places `i..=j` of a path pays, on entering, for every earlier operator of the path that is read
//! inside, and on leaving, for every operator inside that the path reads later. Where two operators of the path are
//! joined by a detour (a chain of operators beside it, each with one reader), some operator of the detour or its
//! beginning crosses the border, the cheapest at least.

use std::collections::HashMap;

/// The graph as far as borders ask for it.
pub struct Neighbours<'a> {
    pub readers: &'a [Vec<usize>],
    /// By operator: how many operators it reads.
    pub reads: &'a [usize],
    pub transfer: &'a dyn Fn(usize) -> f64,
}

/// An operator of the path that something behind its next place reads.
struct Span {
    from: usize,
    cost: f64,
    /// Places that read it directly, ascending; and places that a detour leads to, with the detour's least transfer.
    direct: Vec<usize>,
    detours: Vec<(usize, f64)>,
}

/// The border costs of all blocks of a path.
pub struct Borders {
    spans: Vec<Span>,
    /// By place: the spans that begin there, and that end there.
    begin: Vec<Option<usize>>,
    end: Vec<Vec<usize>>,
}

/// Longest detour that is followed.
const LONGEST: usize = 64;

impl Borders {
    pub fn new(path: &[usize], graph: &Neighbours<'_>) -> Borders {
        let place: HashMap<usize, usize> = path.iter().enumerate().map(|(at, op)| (*op, at)).collect();
        let mut borders =
            Borders { spans: Vec::new(), begin: vec![None; path.len()], end: vec![Vec::new(); path.len()] };
        for (from, &op) in path.iter().enumerate() {
            let mut span = Span { from, cost: (graph.transfer)(op), direct: Vec::new(), detours: Vec::new() };
            for &reader in &graph.readers[op] {
                match place.get(&reader) {
                    Some(to) => span.direct.push(*to),
                    None => span.detours.extend(detour(reader, graph, &place)),
                }
            }
            span.direct.sort_unstable();
            span.detours.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
            let index = borders.spans.len();
            let mut ends: Vec<usize> = span.direct.iter().copied().chain(span.detours.iter().map(|d| d.0)).collect();
            ends.sort_unstable();
            ends.dedup();
            ends.iter().for_each(|end| borders.end[*end].push(index));
            borders.begin[from] = (!ends.is_empty()).then_some(index);
            borders.spans.push(span);
        }
        borders
    }

    /// Shows `visit` the places `j` from `i` on with the border cost of the block `i..=j`, as long as it says to go on.
    pub fn blocks(&self, i: usize, mut visit: impl FnMut(usize, f64) -> bool) {
        // What is paid so far for each span that reaches into the block from before it.
        let mut entered: HashMap<usize, f64> = HashMap::new();
        let mut entering = 0.0;
        let mut inside: Vec<usize> = Vec::new();
        for j in i..self.begin.len() {
            for &index in &self.end[j] {
                let span = &self.spans[index];
                if span.from < i {
                    let paid = entered.entry(index).or_insert(0.0);
                    let now = span.cross(|to| (i..=j).contains(&to));
                    entering += now - *paid;
                    *paid = now;
                }
            }
            inside.extend(self.begin[j]);
            inside.retain(|index| self.spans[*index].last() > j);
            let leaving: f64 = inside.iter().map(|index| self.spans[*index].cross(|to| to > j)).sum();
            if !visit(j, entering + leaving) {
                return;
            }
        }
    }
}

impl Span {
    fn last(&self) -> usize {
        let direct = self.direct.last().copied().unwrap_or(0);
        direct.max(self.detours.last().map_or(0, |d| d.0))
    }

    /// The least that crosses the border if the places that fit `across` are on its other side.
    fn cross(&self, across: impl Fn(usize) -> bool) -> f64 {
        if self.direct.iter().any(|to| across(*to)) {
            return self.cost;
        }
        let detours: f64 = self.detours.iter().filter(|(to, _)| across(*to)).map(|d| d.1).sum();
        self.cost.min(detours)
    }
}

/// Where the chain of operators that begins with `op` comes back to the path, and its least transfer.
fn detour(mut op: usize, graph: &Neighbours<'_>, place: &HashMap<usize, usize>) -> Option<(usize, f64)> {
    let mut least = f64::INFINITY;
    for _ in 0..LONGEST {
        let ([reader], 1) = (graph.readers[op].as_slice(), graph.reads[op]) else { return None };
        least = least.min((graph.transfer)(op));
        match place.get(reader) {
            Some(to) => return Some((*to, least)),
            None => op = *reader,
        }
    }
    None
}
