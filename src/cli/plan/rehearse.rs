//! Plans tried on the agents: what comes out of the tables is run, what it takes in its place goes into the tables, and
//! the search goes on from there. What is given out is the best of what was run.

use miette::Report;
use tokio::runtime::Runtime;

use crate::{
    agent::{AgentError, fleet::Fleet},
    cli::{Failure, model::Model},
    cluster::Cluster,
    plan::{
        self,
        evaluate::Evaluation,
        problem::Objective,
        search::Options,
        split::{self, Answer, Ratios, Sampled, Task, Ways, judged_anew},
    },
    run::{
        RunError,
        in_place::InPlace,
        rehearsal::{Rehearsal, RehearsalError, Stage, rehearse},
    },
    statistics::quantile,
    units::Micros,
};

/// Who plays, and what.
pub(super) struct Theatre<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) cluster: &'a Cluster,
    pub(super) model: &'a Model,
    pub(super) runtime: &'a Runtime,
    pub(super) options: &'a Options,
    /// Whether other plans may be tried too, and not only what was asked for.
    pub(super) is_free: bool,
    /// How often a plan is made anew after others were run.
    pub(super) rounds: usize,
    /// An answer as a plan that can be run.
    pub(super) in_file: &'a dyn Fn(&Answer) -> Result<plan::Plan, Failure>,
}

/// The plan to be given out, and what is known now.
pub(super) struct Rehearsed {
    pub(super) answer: Answer,
    pub(super) known: InPlace,
    /// What a person should know of it.
    pub(super) note: Option<String>,
}

/// One plan that was run.
struct Tried {
    answer: Answer,
    rehearsal: Rehearsal,
}

impl Tried {
    fn is(&self, other: &Answer) -> bool {
        self.answer.splits == other.splits
            && self.answer.solution.evaluation.placement == other.solution.evaluation.placement
    }

    fn latency(&self) -> Micros {
        self.rehearsal.outcome.latency.median_us
    }

    fn uses_one_device(&self) -> bool {
        let mut devices = self.answer.solution.evaluation.placement.strategies.iter().flat_map(|s| s.devices());
        let first = devices.next();
        devices.all(|device| Some(device) == first)
    }
}

/// So many plans are compared in the end, and the best one on a single device, in so many turns; none that was slower by
/// more than this until then.
const FINALISTS: usize = 3;
const TURNS: usize = 3;
const WORTH_A_TURN: f64 = 1.2;

/// What is gained by several devices must be more than this: links and other servers disturb, and a single device does not
/// depend on them.
const WORTH_ANOTHER_DEVICE: f64 = 1.03;

/// What takes longer than predicted by this factor at first is run again, so often at the most.
const SURPRISE: f64 = 1.1;
const OPINIONS: usize = 3;

/// With dearer exchanges another way through the plan may be the longest: so often what lacks is spread over those on it.
const SPREADINGS: usize = 4;

impl Theatre<'_> {
    /// Runs `first`, the best plan that splits nothing, and what the search makes of what these show; and in the end the
    /// best of them in turn, because machines change their speed from minute to minute. `told` is what was known of
    /// shards.
    pub(super) fn rehearsed(&self, task: &Task<'_>, told: &Sampled, first: Answer) -> Result<Rehearsed, Failure> {
        let mut known = InPlace::default();
        let mut tried: Vec<Tried> = Vec::new();
        let is_split = !first.splits.is_empty();
        let mut next = vec![first];
        if self.is_free && is_split {
            let none = Task { ways: Ways::none(task.ways.graph, task.ways.groups), ..task.clone() };
            next.extend(split::plan(&none, self.options).ok());
        }
        let rounds = if self.is_free { self.rounds } else { 1 };
        for round in 0..rounds {
            for answer in next.drain(..) {
                tried.extend(self.tried(task, told, answer, &mut known)?);
            }
            let fastest = tried.iter().min_by(|a, b| a.latency().0.total_cmp(&b.latency().0));
            let (Some(fastest), true) = (fastest, self.is_free) else { break };
            if round + 1 < rounds {
                // From the best one at first, then from the beginning: another way may look better now.
                let before = (round % 2 == 0).then_some(&fastest.answer.choices);
                let (task, sampled) = Self::with(&known, task, told);
                let task = Task { shards: &sampled, ..task };
                let answer = split::plan_from(&task, self.options, Ratios::Tuned, before);
                next.extend(answer.ok().filter(|answer| tried.iter().all(|tried| !tried.is(answer))));
            }
        }
        for answer in self.by_rules(task, told, &tried, &known) {
            tried.extend(self.tried(task, told, answer, &mut known)?);
        }
        let tried = self.compared(task, told, tried, &mut known)?;
        self.best(task, told, tried, known)
    }

    /// What the fastest of `tried` splits, in ratios by rule: what was measured while something disturbed one of the devices
    /// tunes ratios to what will not come again.
    fn by_rules(&self, task: &Task<'_>, told: &Sampled, tried: &[Tried], known: &InPlace) -> Vec<Answer> {
        let fastest = tried.iter().min_by(|a, b| a.latency().0.total_cmp(&b.latency().0));
        let Some(fastest) = fastest.filter(|one| self.is_free && !one.answer.splits.is_empty()) else {
            return Vec::new();
        };
        let (task, sampled) = Self::with(known, task, told);
        let task = Task { shards: &sampled, ..task };
        let rules = [Ratios::Equal, Ratios::Proportional].into_iter();
        let answers = rules.filter_map(|r| split::plan_like(&task, self.options, r, &fastest.answer.splits).ok());
        answers.filter(|answer| tried.iter().all(|tried| !tried.is(answer))).collect()
    }

    /// Runs the best of `tried` in turn, so that what disturbs the agents for a while disturbs all alike, and returns them
    /// from the best to the worst, each with a run that is neither its luckiest nor its unluckiest. That of the best is what
    /// is known from then on.
    fn compared(
        &self,
        task: &Task<'_>,
        told: &Sampled,
        mut tried: Vec<Tried>,
        known: &mut InPlace,
    ) -> Result<Vec<Tried>, Failure> {
        tried.sort_by(|a, b| a.latency().0.total_cmp(&b.latency().0));
        let limit = tried.first().map_or(0.0, |best| WORTH_A_TURN * best.latency().0);
        let single = tried.iter().position(Tried::uses_one_device);
        let finalists = (0..).zip(tried).filter(|(place, _)| *place < FINALISTS || Some(*place) == single);
        let finalists = finalists.map(|(_, one)| one).filter(|one| one.latency().0 <= limit).collect::<Vec<_>>();
        let mut turns: Vec<Vec<Rehearsal>> = Vec::new();
        for _ in 0..TURNS {
            let turn = finalists.iter().map(|one| self.run(&one.answer, 1)).collect::<Result<Option<Vec<_>>, _>>()?;
            turns.extend(turn);
        }
        if turns.is_empty() {
            return Ok(finalists);
        }
        let latency = |turn: &Vec<Rehearsal>, one: usize| turn[one].outcome.latency.median_us.0;
        let score = |(index, one): (usize, &Tried)| {
            let mut beside: Vec<f64> = turns.iter().map(|turn| latency(turn, index) / latency(turn, 0)).collect();
            beside.sort_by(f64::total_cmp);
            let worth = if one.uses_one_device() { 1.0 } else { WORTH_ANOTHER_DEVICE };
            quantile(&beside, 0.5).map_or(f64::INFINITY, |middle| worth * middle)
        };
        let scores: Vec<f64> = finalists.iter().enumerate().map(score).collect();
        let mut compared: Vec<(f64, Tried)> = Vec::new();
        for (index, one) in finalists.into_iter().enumerate() {
            let mut own: Vec<Rehearsal> = turns.iter().map(|turn| turn[index].clone()).collect();
            own.sort_by(|a, b| a.outcome.latency.median_us.0.total_cmp(&b.outcome.latency.median_us.0));
            let middle = own.swap_remove(own.len() / 2);
            compared.push((scores[index], Tried { rehearsal: middle, ..one }));
        }
        compared.sort_by(|a, b| a.0.total_cmp(&b.0));
        let compared: Vec<Tried> = compared.into_iter().map(|(_, one)| one).collect();
        for one in compared.iter().rev() {
            *known = self.after(task, told, one, known)?;
        }
        Ok(compared)
    }

    /// The first of what was `tried` that will do, at the costs that are known now.
    fn best(&self, task: &Task<'_>, told: &Sampled, tried: Vec<Tried>, known: InPlace) -> Result<Rehearsed, Failure> {
        let (now, sampled) = Self::with(&known, task, told);
        let now = Task { shards: &sampled, ..now };
        let mut judged = Vec::new();
        let mut missed = None;
        for one in tried {
            match judged_anew(&now, &one.answer) {
                Ok(answer) => judged.push((answer, one.rehearsal)),
                Err(why) => missed = missed.or(Some(why)),
            }
        }
        if task.objective != Objective::Latency {
            judged.sort_by(|a, b| a.0.solution.value().total_cmp(&b.0.solution.value()));
        }
        match (judged.into_iter().next(), missed) {
            (Some((answer, rehearsal)), _) => {
                let latency = rehearsal.outcome.latency;
                let note = format!(
                    "rehearsed on the agents: {} (median of {} runs, ± {}); times are those of groups in their places",
                    latency.median_us, latency.n, latency.mad_us
                );
                Ok(Rehearsed { answer, known, note: Some(note) })
            }
            (None, Some(why)) => {
                Err(Failure::NoPlan(Report::msg(format!("at what the agents took in rehearsals, {why}"))))
            }
            (None, None) => {
                let why = "no plan that was found fits what the agents have left; --rehearse 0 plans by profiles alone";
                Err(Failure::NoPlan(Report::msg(why)))
            }
        }
    }

    /// The tables with what is known now.
    pub(super) fn with<'t>(known: &InPlace, task: &Task<'t>, told: &Sampled) -> (Task<'t>, Sampled) {
        let (mut task, mut sampled) = (task.clone(), told.clone());
        known.tell(&mut task, &mut sampled);
        (task, sampled)
    }

    /// Runs `answer` and learns from it. `None` if an agent has no room for it.
    fn tried(
        &self,
        task: &Task<'_>,
        told: &Sampled,
        answer: Answer,
        known: &mut InPlace,
    ) -> Result<Option<Tried>, Failure> {
        let Some(rehearsal) = self.run(&answer, OPINIONS)? else { return Ok(None) };
        let tried = Tried { answer, rehearsal };
        *known = self.after(task, told, &tried, known)?.or_less(known);
        Ok(Some(tried))
    }

    /// Runs `answer`, up to `opinions` times if it surprises; the fastest run counts. `None` if an agent has no room for it.
    fn run(&self, answer: &Answer, opinions: usize) -> Result<Option<Rehearsal>, Failure> {
        let plan = (self.in_file)(answer)?;
        let graph = &answer.expanded.graph;
        let contents = self.model.contents(graph)?;
        let given = contents.given();
        let stage =
            Stage { fleet: self.fleet, cluster: self.cluster, graph, content: &|id| contents.of(id), given: &given };
        let mut fastest: Option<Rehearsal> = None;
        for _ in 0..opinions {
            let rehearsal = match self.runtime.block_on(rehearse(&stage, &plan)) {
                Ok(rehearsal) => rehearsal,
                Err(RehearsalError::Run(RunError::Agent(AgentError::Memory { agent, message }))) => {
                    eprintln!("not rehearsed: {agent}: {message}");
                    return Ok(None);
                }
                Err(error) => return Err(Failure::failed(error)),
            };
            let latency = |rehearsal: &Rehearsal| rehearsal.outcome.latency.median_us;
            if fastest.as_ref().is_none_or(|before| latency(&rehearsal) < latency(before)) {
                fastest = Some(rehearsal);
            }
            if fastest.as_ref().is_some_and(|fastest| latency(fastest).0 <= SURPRISE * plan.predicted.latency_us.0) {
                break;
            }
        }
        let Some(rehearsal) = fastest else { return Ok(None) };
        let devices = plan.devices.iter().filter(|device| !device.order.is_empty()).count();
        eprintln!(
            "rehearsed a plan on {devices} {}, {} operators split: {}, predicted {}",
            if devices == 1 { "device" } else { "devices" },
            plan.splits.len(),
            rehearsal.outcome.latency.median_us,
            plan.predicted.latency_us,
        );
        Ok(Some(rehearsal))
    }

    /// What is `known` with what the rehearsal of a plan showed, which counts before everything else.
    fn after(&self, task: &Task<'_>, told: &Sampled, one: &Tried, known: &InPlace) -> Result<InPlace, Failure> {
        let Tried { answer, rehearsal } = one;
        let alone = Task { shards: told, ..task.clone() };
        let alone = alone.expand(&answer.applied).map_err(Failure::failed)?;
        let mut after = known.clone().after(&alone, &(self.in_file)(answer)?, rehearsal);
        for _ in 0..SPREADINGS {
            let (now, sampled) = Self::with(&after, task, told);
            let now = Task { shards: &sampled, ..now };
            let expanded = now.expand(&answer.applied).map_err(Failure::failed)?;
            let placement = answer.solution.evaluation.placement.clone();
            let evaluation = Evaluation::of(&expanded.problem, placement).map_err(Failure::failed)?;
            after.spread(one.latency() - evaluation.latency(), evaluation.exchanges());
        }
        Ok(after)
    }
}
