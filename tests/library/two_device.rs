//! Optimal placement on two devices that execute one operator at a time: EOP's model of a CPU with a small GPU.
//!
//! Operators run one after the other, each on one device or split over both, and every edge between operators that are
//! placed differently has the same cost. For whole operators the optimum is a minimum cut (Stone 1977). With split
//! operators it is a labelling problem with three labels, solved by expansion moves, each a minimum cut (Boykov, Veksler &
//! Zabih 2001), from the best whole placement.

use petgraph::{
    algo::dinics,
    graph::{DiGraph, NodeIndex},
    visit::EdgeRef,
};

use edgecut::units::Micros;

/// Operators with their times on both devices, and the edges between them, each once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TwoDeviceProblem {
    pub times: Vec<[Micros; 2]>,
    pub edges: Vec<(usize, usize)>,
}

/// Where an operator runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    First,
    Second,
    Both,
}

/// A placement of all operators and its total time.
#[derive(Debug, Clone, PartialEq)]
pub struct TwoDevicePlacement {
    pub sides: Vec<Side>,
    pub total: Micros,
    /// Lower bound on the total of every placement.
    pub bound: Micros,
}

/// Capacities of cuts are whole picoseconds, so that sums are exact.
const PER_MICROSECOND: f64 = 1e6;

impl TwoDeviceProblem {
    /// The optimal placement of whole operators, where each edge between the devices costs `edge`.
    pub fn place_whole(&self, edge: Micros) -> TwoDevicePlacement {
        let cut = self.cut(&self.times, |_, _| [Micros::ZERO, edge, edge, Micros::ZERO]);
        let sides: Vec<Side> = cut.iter().map(|second| if *second { Side::Second } else { Side::First }).collect();
        let total = self.total(&sides, &vec![Micros::ZERO; sides.len()], edge);
        TwoDevicePlacement { sides, total, bound: total }
    }

    /// As [`TwoDeviceProblem::whole`], where operator `i` may also be split over both devices and then takes `both[i]`. The bound
    /// ignores edges.
    pub fn place_split(&self, both: &[Micros], edge: Micros) -> TwoDevicePlacement {
        let mut best = self.place_whole(edge);
        let mut at = best.sides.clone();
        let mut improves = true;
        while improves {
            improves = false;
            for label in [Side::Both, Side::First, Side::Second] {
                let time = |i: usize, side: Side| match side {
                    Side::First => self.times[i][0],
                    Side::Second => self.times[i][1],
                    Side::Both => both[i],
                };
                let times: Vec<[Micros; 2]> =
                    at.iter().enumerate().map(|(i, side)| [time(i, *side), time(i, label)]).collect();
                let apart = |a: Side, b: Side| if a == b { Micros::ZERO } else { edge };
                let moved = self
                    .cut(&times, |a, b| [apart(at[a], at[b]), apart(at[a], label), apart(label, at[b]), Micros::ZERO]);
                let next: Vec<Side> =
                    at.iter().zip(moved).map(|(side, moved)| if moved { label } else { *side }).collect();
                let total = self.total(&next, both, edge);
                if total.0 < best.total.0 - 1e-9 {
                    (best.total, best.sides) = (total, next.clone());
                    at = next;
                    improves = true;
                }
            }
        }
        let least = self.times.iter().zip(both).map(|(time, both)| Micros(time[0].0.min(time[1].0).min(both.0)));
        best.bound = least.sum();
        best
    }

    /// The total time of a placement.
    fn total(&self, sides: &[Side], both: &[Micros], edge: Micros) -> Micros {
        let time = |(i, side): (usize, &Side)| match side {
            Side::First => self.times[i][0],
            Side::Second => self.times[i][1],
            Side::Both => both[i],
        };
        let cut = self.edges.iter().filter(|(a, b)| sides[*a] != sides[*b]).count();
        sides.iter().enumerate().map(time).sum::<Micros>() + Micros(edge.0 * cut as f64)
    }

    /// The optimal binary labelling by a minimum cut: for each operator whether it takes the second label. `pair` has the
    /// costs of an edge for the labels (first, first), (first, second), (second, first), (second, second) of its ends. It
    /// is submodular (the outer two sum to no more than the inner two), and the last is zero.
    fn cut(&self, times: &[[Micros; 2]], pair: impl Fn(usize, usize) -> [Micros; 4]) -> Vec<bool> {
        let count = |time: f64| (time * PER_MICROSECOND).round() as i64;
        // By operator: the costs of the first and of the second label.
        let mut costs: Vec<[i64; 2]> = times.iter().map(|t| [count(t[0].0), count(t[1].0)]).collect();
        let mut graph: DiGraph<(), u64> = DiGraph::with_capacity(times.len() + 2, times.len() + self.edges.len());
        let (source, sink) = (graph.add_node(()), graph.add_node(()));
        let vertices: Vec<NodeIndex> = times.iter().map(|_| graph.add_node(())).collect();
        for (a, b) in &self.edges {
            let [both_first, first_second, second_first, _] = pair(*a, *b).map(|time| count(time.0));
            // E(0,0) = A, E(0,1) = B, E(1,0) = C, E(1,1) = 0 as unary terms and one arc of weight B + C − A ≥ 0.
            costs[*a][0] += both_first;
            costs[*a][1] += second_first;
            costs[*b][1] -= second_first;
            let arc = first_second + second_first - both_first;
            graph.add_edge(vertices[*a], vertices[*b], arc.max(0) as u64);
        }
        for (vertex, [first, second]) in vertices.iter().zip(costs) {
            // The source side has the first label: then the arc to the sink is cut.
            let least = first.min(second);
            graph.add_edge(source, *vertex, (second - least) as u64);
            graph.add_edge(*vertex, sink, (first - least) as u64);
        }
        let (_, flows) = dinics(&graph, source, sink);
        // What the source reaches in the residual graph has the first label.
        let mut reached = vec![false; graph.node_count()];
        let mut stack = vec![source];
        reached[source.index()] = true;
        while let Some(at) = stack.pop() {
            let onward = graph.edges(at).filter(|e| flows[e.id().index()] < *e.weight()).map(|e| e.target());
            let back = graph.edges_directed(at, petgraph::Direction::Incoming);
            let back = back.filter(|e| flows[e.id().index()] > 0).map(|e| e.source());
            for next in onward.chain(back) {
                if !std::mem::replace(&mut reached[next.index()], true) {
                    stack.push(next);
                }
            }
        }
        vertices.iter().map(|vertex| !reached[vertex.index()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random_problem(seed: u64, n: usize) -> (TwoDeviceProblem, Vec<Micros>) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut time = || Micros(f64::from(rng.u32(1..50)));
        let times: Vec<[Micros; 2]> = (0..n).map(|_| [time(), time()]).collect();
        let both = (0..n).map(|_| time()).collect();
        let mut edges: Vec<(usize, usize)> = (0..2 * n).map(|_| (rng.usize(0..n), rng.usize(0..n))).collect();
        edges.retain(|(a, b)| a < b);
        edges.sort();
        edges.dedup();
        (TwoDeviceProblem { times, edges }, both)
    }

    /// The least over all labellings with the first `labels` of the three sides.
    fn brute_force(pair: &TwoDeviceProblem, both: &[Micros], edge: Micros, labels: usize) -> f64 {
        let n = pair.times.len();
        let sides = [Side::First, Side::Second, Side::Both];
        let all = (0..labels.pow(n as u32)).map(|code| {
            let labelling: Vec<Side> = (0..n).map(|i| sides[code / labels.pow(i as u32) % labels]).collect();
            pair.total(&labelling, both, edge).0
        });
        all.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn whole_operators_are_placed_optimally() {
        for seed in 0..40 {
            let (pair, both) = random_problem(seed, 9);
            for edge in [0.0, 3.0, 20.0].map(Micros) {
                let placed = pair.place_whole(edge);
                assert!((placed.total.0 - brute_force(&pair, &both, edge, 2)).abs() < 1e-6, "{seed} {edge}");
            }
        }
    }

    #[test]
    fn splitting_never_hurts_and_stays_near_the_optimum() {
        for seed in 0..40 {
            let (pair, both) = random_problem(seed, 7);
            for edge in [0.0, 3.0, 20.0].map(Micros) {
                let (split, whole) = (pair.place_split(&both, edge), pair.place_whole(edge));
                let best = brute_force(&pair, &both, edge, 3);
                assert!(split.total.0 <= whole.total.0 + 1e-9 && split.total.0 >= best - 1e-9);
                assert!(split.total.0 <= 1.2 * best, "{seed} {edge}: {} against {best}", split.total);
                assert!(split.bound.0 <= best + 1e-9);
                if edge == Micros::ZERO {
                    assert!((split.total.0 - split.bound.0).abs() < 1e-9);
                }
            }
        }
    }
}
