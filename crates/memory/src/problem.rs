//! What is placed and scheduled: a graph with its groups, times, workspaces and the rules by which storage is reused.

use edgecut_graph::{
    Alias, ContractedGraph, Graph, HoistedGraph, InPlacePolicy, Operator, OperatorId, TensorId, hoist_constants,
    units::{Bytes, Micros},
};
use edgecut_ops::{self as ops, passes::summary::flops};

use crate::{
    StorageRules,
    meta::scratch::FusedFootprint,
    model::{Group, GroupedGraph},
    roofline::Roofline,
};

/// A graph with everything that placing and scheduling it depends on.
#[derive(Debug, Clone)]
pub struct MemoryProblem {
    /// What a run computes. Results of a model that depend on parameters alone are parameters here.
    pub graph: Graph,
    /// Computes the parameters `derived` of the graph, in their order, when the others are loaded.
    pub prologue: Graph,
    pub derived: Vec<TensorId>,
    /// For each operator the name that reports show.
    pub names: Vec<String>,
    /// What is computed as one, in an order in which the groups can be computed.
    pub groups: Vec<Group>,
    /// FLOPs of all operators.
    pub flops: u64,
    operators: Vec<OperatorRules>,
}

/// What placing needs to know of one operator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OperatorRules {
    pub alias: Alias,
    /// Bytes that it needs only while it runs.
    pub workspace: Bytes,
    pub time: Micros,
}

/// What is known of the cost of operators that are computed as one.
#[derive(Debug, Clone, Default)]
pub struct GroupCost {
    /// In program order.
    pub operators: Vec<OperatorId>,
    pub flops: u64,
    /// Read and written, at least.
    pub bytes: Bytes,
    /// Time and workspace, if these operators were measured as one.
    pub measured: Option<(Micros, Bytes)>,
    /// A cost model's time.
    pub estimated: Option<Micros>,
}

/// What is known of the costs of a model.
#[derive(Debug, Clone, Default)]
pub struct ModelCosts {
    /// One operator each, in program order.
    pub operators: Vec<GroupCost>,
    /// In an order in which they can be computed.
    pub groups: Vec<GroupCost>,
    /// Whether there is a profile: a group that it lacks then takes the time of its operators one by one.
    pub is_profiled: bool,
}

impl MemoryProblem {
    /// A graph of operators without a known meaning: `rules` of each, and groups of one operator each.
    pub fn new(graph: Graph, names: Vec<String>, rules: Vec<OperatorRules>) -> MemoryProblem {
        let group = |((id, _), rules): ((OperatorId, &Operator), &OperatorRules)| Group {
            operators: vec![id],
            time: rules.time,
            workspace: rules.workspace,
            in_place: is_in_place(rules.alias),
        };
        let groups = graph.operators().zip(&rules).map(group).collect();
        let (prologue, derived) = (Graph::new(), Vec::new());
        MemoryProblem { names, groups, flops: 0, operators: rules, graph, prologue, derived }
    }

    /// A model, whose operators' meanings say how they may reuse storage. What depends on parameters alone is computed when
    /// these are loaded, and takes no part in a run.
    pub fn of_model(model: &Graph, costs: ModelCosts, in_place: InPlacePolicy) -> MemoryProblem {
        let HoistedGraph { graph, operators: of_run, prologue, derived } = hoist_constants(model);
        let roofline = Roofline::default();
        let guess = |cost: &GroupCost| cost.estimated.unwrap_or_else(|| roofline.time(cost.flops, cost.bytes));
        let rules = |(of_run, cost): (&Option<OperatorId>, &GroupCost)| {
            Some(OperatorRules {
                alias: alias(&graph, graph.operator((*of_run)?), in_place),
                workspace: cost.measured.map_or(Bytes::ZERO, |(_, workspace)| workspace),
                time: guess(cost),
            })
        };
        let operators: Vec<OperatorRules> = of_run.iter().zip(&costs.operators).filter_map(rules).collect();
        let rules = |id: &OperatorId| &operators[id.0 as usize];
        let group = |mut cost: GroupCost| {
            cost.operators = cost.operators.iter().filter_map(|id| of_run[id.0 as usize]).collect();
            if cost.operators.is_empty() {
                return None;
            }
            let apart = || match costs.is_profiled {
                true => cost.operators.iter().map(|id| rules(id).time).sum(),
                false => guess(&cost),
            };
            let (time, workspace) = cost.measured.unwrap_or_else(|| (apart(), Bytes::ZERO));
            let in_place = cost.operators.iter().all(|id| is_in_place(rules(id).alias));
            Some(Group { operators: cost.operators, time, workspace, in_place })
        };
        let names = model.operators().filter(|(id, _)| of_run[id.0 as usize].is_some());
        MemoryProblem {
            groups: costs.groups.into_iter().filter_map(group).collect(),
            // Ids are the model's.
            names: names.map(|(id, operator)| format!("{}_{}", operator.name, id.0)).collect(),
            flops: graph.operators().map(|(_, operator)| flops(&graph, operator)).sum(),
            operators,
            graph,
            prologue,
            derived,
        }
    }

    /// The same with groups of operators contracted to one each, with what each needs inside; its time is that of its
    /// operators together.
    pub(crate) fn contracted(&self, contracted: &ContractedGraph, inside: &[FusedFootprint]) -> MemoryProblem {
        let members = || contracted.graph.operators().zip(&contracted.members);
        let name = |((id, operator), members): ((OperatorId, &Operator), &Vec<OperatorId>)| match members.as_slice() {
            [single] => self.names[single.0 as usize].clone(),
            _ => format!("{}_{}", operator.name, id.0),
        };
        let rules = |(members, inside): (&Vec<OperatorId>, &FusedFootprint)| OperatorRules {
            alias: inside.alias,
            workspace: inside.scratch,
            time: members.iter().map(|id| self.time(*id)).sum(),
        };
        let names = members().map(name).collect();
        let rules = contracted.members.iter().zip(inside).map(rules).collect();
        MemoryProblem { flops: self.flops, ..MemoryProblem::new(contracted.graph.clone(), names, rules) }
    }

    pub fn time(&self, id: OperatorId) -> Micros {
        self.operators[id.0 as usize].time
    }

    /// Of all parameters together.
    pub fn parameter_bytes(&self) -> Bytes {
        self.graph.parameters().filter_map(|t| self.graph.tensor(t).ty.bytes()).sum()
    }

    /// The graph in its groups, as schedules are made of.
    pub fn grouped(&self) -> GroupedGraph {
        GroupedGraph { graph: self.graph.clone(), groups: self.groups.clone() }
    }

    /// Calls `with` with the rules by which storage is reused, offsets being multiples of `align`.
    pub fn storage_rules<T>(&self, align: u64, with: impl FnOnce(&StorageRules<'_>) -> T) -> T {
        let alias = |id: OperatorId| self.operators[id.0 as usize].alias;
        let workspace = |id: OperatorId| self.operators[id.0 as usize].workspace;
        with(&StorageRules { alias: &alias, workspace: &workspace, align })
    }
}

/// Whether a result lies in an operand's bytes, rather than in its own or in those of a concatenation.
fn is_in_place(alias: Alias) -> bool {
    !matches!(alias, Alias::Never | Alias::Concat)
}

fn alias(graph: &Graph, operator: &Operator, policy: InPlacePolicy) -> Alias {
    match ops::lookup(&operator.name).map_or(Alias::Never, |def| def.alias) {
        Alias::Concat if !ops::is_contiguous_concat(graph, operator) => Alias::Never,
        alias => policy.restrict(alias),
    }
}

#[cfg(test)]
mod tests {
    use edgecut_graph::{DType, Origin, TensorType};

    use super::*;

    /// `relu(x)`, then `reshape` of it, then `relu` again; each of 64 bytes.
    fn chain() -> Graph {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[16]);
        let mut last = graph.add_tensor("x", ty.clone(), Origin::Input);
        for name in ["nn.relu", "reshape", "nn.relu"] {
            let id = graph.add_operator(Operator::new(name, [last]), std::slice::from_ref(&ty));
            last = graph.operator(id).outputs[0];
        }
        graph.outputs.push(last);
        graph
    }

    fn cost(operators: &[u32], measured: Option<(f64, u64)>, estimated: Option<f64>) -> GroupCost {
        GroupCost {
            operators: operators.iter().map(|id| OperatorId(*id)).collect(),
            flops: 0,
            bytes: Bytes(10_000),
            measured: measured.map(|(time, workspace)| (Micros(time), Bytes(workspace))),
            estimated: estimated.map(Micros),
        }
    }

    fn costs(is_profiled: bool, measured: Option<(f64, u64)>) -> ModelCosts {
        let operators =
            vec![cost(&[0], None, Some(5.0)), cost(&[1], None, None), cost(&[2], Some((7.0, 3)), Some(7.0))];
        ModelCosts { operators, groups: vec![cost(&[0, 1], measured, None), cost(&[2], None, None)], is_profiled }
    }

    #[test]
    fn the_rule_decides_what_is_overwritten() {
        for (rule, relu) in [
            (InPlacePolicy::Any, Alias::InPlace),
            (InPlacePolicy::FirstOperand, Alias::InPlaceFirst),
            (InPlacePolicy::Never, Alias::Never),
        ] {
            let problem = MemoryProblem::of_model(&chain(), costs(false, None), rule);
            let found = problem.storage_rules(1, |rules| [0, 1, 2].map(|id| (rules.alias)(OperatorId(id))));
            assert_eq!(found, [relu, Alias::View, relu]);
            assert_eq!(problem.groups[0].in_place, relu != Alias::Never);
        }
    }

    #[test]
    fn measured_times_come_before_estimates_and_the_roofline() {
        // 10 kB take 1 µs, and the call 1 µs more.
        let times = |costs: ModelCosts| {
            let problem = MemoryProblem::of_model(&chain(), costs, InPlacePolicy::Any);
            assert_eq!([0, 1, 2].map(|id| problem.time(OperatorId(id)).0), [5.0, 2.0, 7.0]);
            (problem.groups[0].time.0, problem.groups[0].workspace)
        };
        assert_eq!(times(costs(true, Some((4.0, 9)))), (4.0, Bytes(9)), "measured as one");
        assert_eq!(times(costs(true, None)), (7.0, Bytes::ZERO), "its operators together");
        assert_eq!(times(costs(false, None)), (2.0, Bytes::ZERO), "without a profile");
    }

    #[test]
    fn what_parameters_determine_is_no_part_of_a_run() {
        let mut graph = chain();
        let ty = TensorType::of(DType::F32, &[16]);
        let w = graph.add_tensor("w", ty.clone(), Origin::Parameter);
        let last = *graph.outputs.last().unwrap();
        let doubled = graph.add_operator(Operator::new("add", [w, w]), std::slice::from_ref(&ty));
        let doubled = graph.operator(doubled).outputs[0];
        let sum = graph.add_operator(Operator::new("add", [last, doubled]), &[ty]);
        graph.outputs = graph.operator(sum).outputs.clone();
        let one = |ids: &[u32]| cost(ids, None, Some(1.0));
        let costs = ModelCosts {
            operators: (0..5).map(|id| one(&[id])).collect(),
            groups: vec![one(&[0, 1]), one(&[2]), one(&[3]), one(&[4])],
            is_profiled: false,
        };
        let problem = MemoryProblem::of_model(&graph, costs, InPlacePolicy::Any);
        assert_eq!(problem.names, ["nn.relu_0", "reshape_1", "nn.relu_2", "add_4"]);
        assert_eq!(problem.groups.iter().map(|group| group.operators.len()).collect::<Vec<_>>(), [2, 1, 1]);
        assert_eq!((problem.prologue.operators().len(), problem.derived.len()), (1, 1));
        assert_eq!(problem.parameter_bytes(), Bytes(64));
    }

    #[test]
    fn contracted_operators_take_the_time_of_their_members() {
        let problem = MemoryProblem::of_model(&chain(), costs(true, None), InPlacePolicy::Any);
        let mut groups = edgecut_graph::ConvexGroups::new(&problem.graph);
        assert!(groups.add(&[OperatorId(0), OperatorId(1)]));
        let contracted = groups.contract(|_| "Pair".into());
        let inside = [
            FusedFootprint { scratch: Bytes(40), alias: Alias::InPlace },
            FusedFootprint { scratch: Bytes(3), alias: Alias::InPlace },
        ];
        let whole = problem.contracted(&contracted, &inside);
        assert_eq!([0, 1].map(|id| whole.time(OperatorId(id)).0), [7.0, 7.0]);
        assert_eq!(whole.names, ["Pair_0", "nn.relu_2"]);
        assert_eq!(whole.groups[0].workspace, Bytes(40));
    }
}
