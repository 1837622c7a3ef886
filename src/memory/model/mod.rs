//! Schedules of a model: whole and with stretches of it computed in parts, each reordered and with what may be made
//! again, as graphs that any engine runs.
//!
//! | module | what it does |
//! |---|---|
//! | `stepped` | a graph in groups as a program, a schedule as a graph |
//! | `segment` | what a stretch of groups costs in parts |
//! | `tiles` | which stretches, in how many parts |
//! | [`kept`] | which schedules to run where a prediction does not hold |

pub mod kept;
mod segment;
mod stepped;
mod tiles;

use std::collections::{BTreeMap, HashMap};

use crate::{
    graph::{Graph, OperatorId},
    memory::{
        OrderError,
        fit::{self, Choice, Front, Options, Unfold},
        order::least_peak,
        program::{HostLink, Program},
    },
    ops::{
        sharded::{Role, Sharded},
        tiled::{Splits, Stretch, tiled},
    },
    units::{Bytes, Micros},
};

use segment::Line;
pub use stepped::{Group, Lowered, Scheduled, Stepped, Unmade, replayed};
use tiles::Tiling;

/// Part of the budget that the whole graph gets; the rest goes to those with stretches in parts.
const WHOLE: f64 = 0.4;
/// Sets that the search for an order looks at on each level.
const WIDTH: usize = 60;

/// What parts of groups cost.
pub trait Costs {
    /// How long a `share` of a group takes, where the whole takes `whole`.
    fn part(&self, group: &[OperatorId], whole: Micros, share: f64) -> Micros;
    /// How long it takes to copy so many bytes.
    fn copy(&self, bytes: Bytes) -> Micros;
}

/// A model to be scheduled.
pub struct Model<'a> {
    /// In an order in which the groups can be computed.
    pub stepped: &'a Stepped,
    pub costs: &'a dyn Costs,
    /// Where tensors can be copied to, if anywhere.
    pub host: Option<HostLink>,
}

/// The number of a group, and what part of it: 1 if all.
pub type PartOf = (usize, f64);

/// One way to divide a model, with the schedules found for it.
pub struct Variant {
    pub stepped: Stepped,
    pub lowered: Lowered,
    /// Stretches that are computed in parts.
    pub stretches: Vec<Stretch>,
    /// The model's operators in the order in which these stretches and the rest were computed.
    pub order: Vec<OperatorId>,
    /// For each of `stepped`'s groups which of the model's groups it is, and what part of it; `None` for slices and joins.
    pub origins: Vec<Option<PartOf>>,
    front: Front,
}

/// Schedules of a model.
pub struct Fitted {
    variants: Vec<Variant>,
    /// Bytes and microseconds of program order with everything whole.
    pub original: (u64, f64),
    /// No schedule of a whole model, and none of a divided one, needs fewer bytes.
    pub least_peak: u64,
    /// Schedules looked at.
    pub evaluated: u64,
}

/// One schedule of the front over all variants.
#[derive(Clone, Copy)]
pub struct Schedule<'a> {
    /// Bytes.
    pub peak: u64,
    /// Microseconds.
    pub time: f64,
    pub variant: &'a Variant,
    choice: &'a Choice,
}

/// Searches schedules of a model: the whole front of peak and time. Deterministic by seed and budget.
///
/// # Errors
/// If the size of a tensor is not known.
pub fn fit(model: &Model<'_>, options: &Options) -> Result<Fitted, OrderError> {
    let origins = (0..model.stepped.groups.len()).map(|index| Some((index, 1.0))).collect();
    let whole = variant(model, model.stepped.clone(), Vec::new(), order(model.stepped), origins)?;
    let keep = Choice::keep_all(&whole.lowered.program);
    let original = Unfold::new(&whole.lowered.program).figures(&keep, u64::MAX);
    let original = original.map_or((0, 0.0), |figures| (figures.peak, figures.time));
    let mut variants = vec![whole];
    let ordered = reorder(model, &variants[0])?;
    variants.extend(divided(model, ordered.as_ref().unwrap_or(&variants[0]))?);
    variants.extend(ordered);
    let programs: Vec<&Program> = variants.iter().map(|variant| &variant.lowered.program).collect();
    let (fronts, evaluated) = fit::fit_variants(&programs, WHOLE, options);
    variants.iter_mut().zip(fronts).for_each(|(variant, front)| variant.front = front);
    let least_peak = variants.iter().map(|v| v.lowered.program.least_peak()).min().unwrap_or(0);
    Ok(Fitted { variants, original, least_peak, evaluated })
}

fn variant(
    model: &Model<'_>,
    stepped: Stepped,
    stretches: Vec<Stretch>,
    order: Vec<OperatorId>,
    origins: Vec<Option<PartOf>>,
) -> Result<Variant, OrderError> {
    let mut lowered = stepped.lower()?;
    lowered.program.host = model.host;
    Ok(Variant { stepped, lowered, stretches, order, origins, front: Front::default() })
}

/// The operators in the order of the groups.
fn order(stepped: &Stepped) -> Vec<OperatorId> {
    stepped.groups.iter().flat_map(|group| &group.operators).copied().collect()
}

/// The same in the order of least peak, if that is another one.
fn reorder(model: &Model<'_>, variant: &Variant) -> Result<Option<Variant>, OrderError> {
    let program = &variant.lowered.program;
    let ordered = least_peak(program, &variant.lowered.reuse(), WIDTH);
    let keep = Unfold::new(program).figures(&Choice::keep_all(program), u64::MAX);
    if ordered.order.len() != program.operators.len() || keep.is_some_and(|keep| keep.peak <= ordered.peak) {
        return Ok(None);
    }
    let stepped = variant.stepped.reordered(&variant.lowered, &ordered.order);
    let groups = ordered.order.iter().filter_map(|&operator| variant.lowered.groups[operator as usize]);
    let origins = groups.map(|index| variant.origins[index]).collect();
    let order = order(&stepped);
    self::variant(model, stepped, variant.stretches.clone(), order, origins).map(Some)
}

/// The model with stretches in parts, as far as each division is smaller than all that are no slower.
fn divided(model: &Model<'_>, from: &Variant) -> Result<Vec<Variant>, OrderError> {
    let stepped = &from.stepped;
    let splits = Splits::of(&stepped.graph);
    let groups: Vec<Vec<OperatorId>> = stepped.groups.iter().map(|group| group.operators.clone()).collect();
    let times: Vec<Micros> = stepped.groups.iter().map(|group| group.time).collect();
    let order: Vec<usize> = (0..groups.len()).collect();
    let line = Line::new(&splits, &groups, &times, &order);
    let mut made: Vec<(u64, f64, Variant)> = Vec::new();
    for tiling in tiles::tilings(&line, model.costs) {
        let stretches = stretches(&groups, &tiling);
        // An operator may refuse a part that lies in its padding alone.
        let Ok(split) = tiled(&splits, &stretches) else { continue };
        let in_parts = stretches.into_iter().filter(|stretch| stretch.parts > 1).collect();
        let (in_steps, parts) = steps(stepped, split, model.costs);
        let origin = |part: Option<PartOf>| {
            let (index, share) = part?;
            from.origins[index].map(|(group, _)| (group, share))
        };
        let origins = parts.into_iter().map(origin).collect();
        let candidate = variant(model, in_steps, in_parts, from.order.clone(), origins)?;
        let program = &candidate.lowered.program;
        if let Some(figures) = Unfold::new(program).figures(&Choice::keep_all(program), u64::MAX) {
            made.push((figures.peak, figures.time, candidate));
        }
    }
    made.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut least = u64::MAX;
    made.retain(|(peak, ..)| {
        let better = *peak < least;
        least = least.min(*peak);
        better
    });
    Ok(made.into_iter().map(|(.., variant)| variant).collect())
}

/// All groups as stretches: those of the tiling in parts, the others whole.
fn stretches(groups: &[Vec<OperatorId>], tiling: &Tiling) -> Vec<Stretch> {
    let mut stretches = Vec::new();
    let mut at = 0;
    for segment in &tiling.segments {
        stretches.extend(groups[at..segment.first].iter().map(|group| whole(group)));
        let operators = groups[segment.first..=segment.last].concat();
        stretches.push(Stretch { operators, parts: segment.parts, axis: segment.axis });
        at = segment.last + 1;
    }
    stretches.extend(groups[at..].iter().map(|group| whole(group)));
    stretches
}

fn whole(group: &[OperatorId]) -> Stretch {
    Stretch { operators: group.to_vec(), parts: 1, axis: 0 }
}

/// The steps of a divided graph: a part of a group is one, and every slice and join. And for each which group of `whole`
/// it is, and what part of it.
fn steps(whole: &Stepped, split: Sharded, costs: &dyn Costs) -> (Stepped, Vec<Option<PartOf>>) {
    let mut group_of: HashMap<OperatorId, usize> = HashMap::new();
    for (index, group) in whole.groups.iter().enumerate() {
        group_of.extend(group.operators.iter().map(|id| (*id, index)));
    }
    // By group and part: where its last operator stands.
    let mut parts: BTreeMap<(usize, u32), Vec<OperatorId>> = BTreeMap::new();
    let mut placed: Vec<(OperatorId, Group, Option<PartOf>)> = Vec::new();
    let bytes = |operators: &[OperatorId], graph: &Graph| -> u64 {
        let last = operators.last().map(|id| &graph.operator(*id).outputs);
        last.into_iter().flatten().filter_map(|t| graph.tensor(*t).ty.bytes()).map(|bytes| bytes.0).sum()
    };
    for ((id, operator), role) in split.graph.operators().zip(&split.roles) {
        if let Role::Compute { of, shard } = role {
            parts.entry((group_of[of], *shard)).or_default().push(id);
            continue;
        }
        let moved: u64 = operator.outputs.iter().filter_map(|t| split.graph.tensor(*t).ty.bytes()).map(|b| b.0).sum();
        let time = costs.copy(Bytes(moved));
        placed.push((id, Group { operators: vec![id], time, workspace: Bytes::ZERO, in_place: false }, None));
    }
    for ((index, _), operators) in parts {
        let group = &whole.groups[index];
        let all = bytes(&group.operators, &whole.graph);
        let share = if all == 0 { 1.0 } else { bytes(&operators, &split.graph) as f64 / all as f64 };
        let time = if share < 1.0 { costs.part(&group.operators, group.time, share) } else { group.time };
        let workspace = Bytes((group.workspace.0 as f64 * share).ceil() as u64);
        let Some(last) = operators.last().copied() else { continue };
        placed.push((last, Group { operators, time, workspace, in_place: group.in_place }, Some((index, share))));
    }
    placed.sort_by_key(|(last, ..)| *last);
    let (groups, origins) = placed.into_iter().map(|(_, group, origin)| (group, origin)).unzip();
    (Stepped { graph: split.graph, groups }, origins)
}

impl Fitted {
    /// All schedules that no other one beats in both peak and time, by rising peak.
    pub fn front<'a>(&'a self) -> Vec<Schedule<'a>> {
        let mut all: Vec<Schedule<'a>> = Vec::new();
        for variant in &self.variants {
            let points = variant.front.points().iter();
            let schedule = |p: &'a fit::Point| Schedule { peak: p.peak, time: p.time, variant, choice: &p.choice };
            all.extend(points.map(schedule));
        }
        fit::unbeaten(all, |schedule| (schedule.peak, schedule.time))
    }

    /// The fastest schedule within so many bytes; a higher limit never gives a slower one.
    pub fn within(&self, peak: u64) -> Option<Schedule<'_>> {
        self.front().into_iter().rev().find(|schedule| schedule.peak <= peak)
    }

    /// The smallest schedule that takes at most so many microseconds; more time never gives a larger one.
    pub fn before(&self, time: f64) -> Option<Schedule<'_>> {
        self.front().into_iter().find(|schedule| schedule.time <= time)
    }
}

impl Schedule<'_> {
    /// What runs, in order.
    pub fn steps(&self) -> Vec<fit::Step> {
        fit::steps(&self.variant.lowered.program, self.choice).unwrap_or_default()
    }

    /// The numbers of the variant's groups in the order in which they run, without copies to the host.
    pub fn groups(&self) -> Vec<usize> {
        let groups = &self.variant.lowered.groups;
        let group = |step: fit::Step| match step {
            fit::Step::Run(operator) => groups[operator as usize],
            fit::Step::Store(_) | fit::Step::Load(_) => None,
        };
        self.steps().into_iter().filter_map(group).collect()
    }

    /// By step of [`Schedule::graph`] how long it takes and the bytes that it works in; nothing for copies.
    pub fn costs(&self) -> Vec<(Micros, Bytes)> {
        let group =
            |operator: u32| self.variant.lowered.groups[operator as usize].map(|at| &self.variant.stepped.groups[at]);
        let cost = |step: fit::Step| match step {
            fit::Step::Run(operator) => group(operator).map(|group| (group.time, group.workspace)),
            fit::Step::Store(_) | fit::Step::Load(_) => Some((Micros::ZERO, Bytes::ZERO)),
        };
        self.steps().into_iter().filter_map(cost).collect()
    }

    /// The schedule as a graph.
    pub fn graph(&self) -> Scheduled {
        self.variant.stepped.scheduled(&self.variant.lowered, &self.steps())
    }
}
