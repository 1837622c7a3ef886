//! Plans tried on the agents: what comes out of the tables is run, what it takes in its place goes into the tables, and
//! the search goes on from there. The best of what was run takes turns, beside the best plan for a single device, and one of
//! them is given out.

use miette::Report;
use tokio::runtime::Runtime;

use super::{rules, settle::Within};
use crate::{
    agent::{AgentError, fleet::Fleet},
    cli::{Failure, model::Model},
    cluster::Cluster,
    plan::{
        self, GroupId,
        evaluate::Evaluation,
        fitted::Fitted,
        problem::Objective,
        rule::{Kind, Rule},
        search::Options,
        solve::NoPlan,
        split::{self, Answer, Ratios, Sampled, Task, Ways, front, judged_anew, speeds},
    },
    run::{
        RunError,
        in_place::InPlace,
        perform::{PerformError, Stage},
        rehearsal::{Rehearsal, RehearsalError, rehearse},
    },
    statistics::quantile,
    units::{Bytes, Micros},
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
    /// Makes of an answer one that keeps limits on memory.
    pub(super) within: &'a Within<'a>,
    /// An answer as a plan that can be run.
    pub(super) in_file: &'a dyn Fn(&Answer) -> Result<plan::Plan, Failure>,
}

/// The plan to be given out, and what is known now.
pub(super) struct Rehearsed {
    pub(super) fitted: Fitted,
    pub(super) known: InPlace,
    /// What a person should know of it.
    pub(super) notes: Vec<String>,
}

/// One plan that was run.
struct Tried {
    fitted: Fitted,
    rehearsal: Rehearsal,
}

impl Tried {
    fn is(&self, other: &Answer) -> bool {
        let placement = |answer: &Answer| answer.solution.evaluation.placement.clone();
        let answer = &self.fitted.answer;
        !self.is_scheduled() && answer.splits == other.splits && placement(answer) == placement(other)
    }

    /// Whether devices compute in schedules. The tables do not know the steps of these.
    fn is_scheduled(&self) -> bool {
        !self.fitted.schedules.is_empty()
    }

    fn time(&self) -> Micros {
        self.rehearsal.time()
    }
}

fn uses_one_device(answer: &Answer) -> bool {
    let mut devices = answer.solution.evaluation.placement.strategies.iter().flat_map(|strategy| strategy.devices());
    let first = devices.next();
    devices.all(|device| Some(device) == first)
}

/// `answer` with no more inputs under way than what was `run` was planned for.
pub(super) fn no_fuller(mut answer: Answer, run: &Answer) -> Result<Answer, NoPlan> {
    if let Some(most) = run.solution.in_flight {
        answer.solution.at_most(most, &answer.expanded.problem)?;
    }
    Ok(answer)
}

fn fastest(tried: &[Tried]) -> Option<&Tried> {
    tried.iter().min_by(|a, b| a.time().0.total_cmp(&b.time().0))
}

/// How long each plan took in turns, the less the better: the median of its time beside the mean of all plans' in the
/// same turn. A plan for more than a single device must be [`WORTH_A_SECOND`].
fn scores(times: &[Vec<f64>], single: &[bool]) -> Vec<f64> {
    let turns = times.iter().map(Vec::len).min().unwrap_or(0);
    let mean = |turn: usize| times.iter().map(|of| of[turn]).sum::<f64>() / times.len() as f64;
    let score = |(of, single): (&Vec<f64>, &bool)| {
        let mut beside: Vec<f64> = (0..turns).map(|turn| of[turn] / mean(turn)).collect();
        beside.sort_by(f64::total_cmp);
        quantile(&beside, 0.5).unwrap_or(1.0) * if *single { 1.0 } else { WORTH_A_SECOND }
    };
    times.iter().zip(single).map(score).collect()
}

/// So many plans are compared in the end, and the best one for a single device, in so many turns; none that was slower by
/// more than this until then.
const FINALISTS: usize = 3;
const TURNS: usize = 3;
const WORTH_A_TURN: f64 = 1.2;

/// What a second device gains must be more than this: everything that disturbs either of them or the way between disturbs
/// such a plan.
const WORTH_A_SECOND: f64 = 1.03;

/// So many of the devices that are fastest alone are asked for their best plan, with such a share of the evaluations.
const SINGLES: usize = 3;
const FOR_OTHERS: u32 = 4;

/// What takes longer than predicted by this factor at first is run again, so often at the most.
const SURPRISE: f64 = 1.1;
const OPINIONS: usize = 3;

/// If agents have no room for anything, something is planned for a little less than there is, so often at the most, and each
/// time for twice as much less: what a run needs of memory is predicted to some percent.
const SPARED: f64 = 0.01;
const SPARINGS: i32 = 3;

/// With slower computations something else may be what a stream waits for: so often they are made slower.
const CROWDINGS: usize = 4;

impl Theatre<'_> {
    /// Runs `first`, the best plans without schedules, without splits and for a single device, and what the search makes of what
    /// these show; and in the end the best of them in turn, because machines change their speed from minute to minute. `told` is
    /// what was known of shards.
    pub(super) fn rehearsed(&self, task: &Task<'_>, told: &Sampled, first: Fitted) -> Result<Rehearsed, Failure> {
        let mut known = InPlace::default();
        let mut tried: Vec<Tried> = Vec::new();
        let mut next = vec![first];
        if self.is_free {
            let added = |next: &mut Vec<Fitted>, answer: Option<Answer>| next.extend(answer.map(Fitted::from));
            if !next[0].schedules.is_empty() {
                let plans = [split::plan(task, self.options), front::within(task, self.options)].into_iter().flatten();
                let value = |answer: &Answer| front::value(task.objective, answer);
                added(&mut next, plans.min_by(|a, b| value(a).total_cmp(&value(b))));
            }
            if !next.iter().any(|fitted| fitted.schedules.is_empty() && fitted.answer.splits.is_empty()) {
                let none = Task { ways: Ways::none(task.ways.graph, task.ways.groups), ..task.clone() };
                added(&mut next, split::plan(&none, self.options).ok());
            }
            let is_single = |fitted: &Fitted| fitted.schedules.is_empty() && uses_one_device(&fitted.answer);
            if task.objective != Objective::Memory && !next.iter().any(is_single) {
                added(&mut next, self.single(task));
            }
        }
        let rounds = if self.is_free { self.rounds } else { 1 };
        for round in 0..rounds {
            for fitted in next.drain(..) {
                tried.extend(self.tried(task, told, fitted, &mut known)?);
            }
            if tried.is_empty() && self.is_free {
                tried.extend(self.sparing(task, told, &mut known)?);
            }
            let (Some(fastest), true) = (fastest(&tried), self.is_free) else { break };
            if round + 1 < rounds {
                // From the best one at first, then from the beginning: another way may look better now.
                let before = (round % 2 == 0).then_some(&fastest.fitted.answer.choices);
                let (task, sampled) = Self::with(&known, task, told);
                let task = Task { shards: &sampled, ..task };
                let answer = split::plan_from(&task, self.options, Ratios::Tuned, before);
                let answer = answer.ok().filter(|answer| tried.iter().all(|tried| !tried.is(answer)));
                next.extend(answer.map(Fitted::from));
            }
        }
        // Of memory, tables say which plan is best.
        if task.objective != Objective::Memory {
            for answer in self.by_rules(task, told, &tried, &known) {
                if tried.iter().all(|tried| !tried.is(&answer)) {
                    tried.extend(self.tried(task, told, Fitted::from(answer), &mut known)?);
                }
            }
            let nothing_before = tried.is_empty();
            tried = self.compared(tried)?;
            if tried.is_empty() && !nothing_before && self.is_free {
                tried.extend(self.sparing(task, told, &mut known)?);
            }
        }
        self.best(task, told, tried, known)
    }

    /// What there is room for if a little less memory is planned with; `None` if nothing is.
    fn sparing(&self, task: &Task<'_>, told: &Sampled, known: &mut InPlace) -> Result<Option<Tried>, Failure> {
        for time in 0..SPARINGS {
            let mut less = Task { shards: told, ..task.clone() };
            for limit in less.network.devices.iter_mut().filter_map(|device| device.memory.as_mut()) {
                *limit = Bytes((limit.0 as f64 * (1.0 - SPARED * 2f64.powi(time))) as u64);
            }
            let Ok(mut fitted) = (self.within)(&less, split::plan(&less, self.options)) else { return Ok(None) };
            // The limits are what they were.
            fitted.answer.expanded.problem.devices.clone_from(&task.network.devices);
            let tried = self.tried(task, told, fitted, known)?;
            if tried.is_some() {
                return Ok(tried);
            }
        }
        Ok(None)
    }

    /// The best plan for any single device of those that are fastest alone.
    fn single(&self, task: &Task<'_>) -> Option<Answer> {
        let speeds = speeds(&task.costs, task.network.devices.len());
        let computes_all = |device: &usize| task.costs.iter().all(|row| row.get(*device).is_some_and(Option::is_some));
        let mut devices: Vec<usize> = (0..speeds.len()).filter(computes_all).collect();
        devices.sort_by(|a, b| speeds[*b].total_cmp(&speeds[*a]));
        let few = self.options.part(FOR_OTHERS, task.names.len());
        let plan = |device: &usize| {
            let mut task = Task { ways: Ways::none(task.ways.graph, task.ways.groups), ..task.clone() };
            let pin = Rule { kind: Kind::Pin, groups: "*".into(), device: task.network.devices[*device].full_name() };
            rules::apply(&[pin], &mut task);
            split::plan(&task, &few).ok()
        };
        let answers = devices.iter().take(SINGLES).filter_map(plan);
        answers.min_by(|a, b| a.solution.value().total_cmp(&b.solution.value()))
    }

    /// What the fastest of `tried` splits, in ratios by rule: what was measured while something disturbed one of the devices
    /// tunes ratios to what will not come again.
    fn by_rules(&self, task: &Task<'_>, told: &Sampled, tried: &[Tried], known: &InPlace) -> Vec<Answer> {
        let split = fastest(tried).map(|one| &one.fitted.answer).filter(|one| self.is_free && !one.splits.is_empty());
        let Some(answer) = split else { return Vec::new() };
        let (task, sampled) = Self::with(known, task, told);
        let task = Task { shards: &sampled, ..task };
        let few = self.options.part(FOR_OTHERS, task.names.len());
        let rules = [Ratios::Equal, Ratios::Proportional].into_iter();
        rules.filter_map(|rule| split::plan_like(&task, &few, rule, &answer.splits).ok()).collect()
    }

    /// Runs the fastest of `tried` in turn, so that what disturbs the agents for a while disturbs all alike. They come back
    /// from the best to the worst, each with the middle one of its runs; behind them, those that took no part. Whatever an agent
    /// had no room for any more is left out.
    fn compared(&self, mut tried: Vec<Tried>) -> Result<Vec<Tried>, Failure> {
        tried.sort_by(|a, b| a.time().0.total_cmp(&b.time().0));
        let limit = tried.first().map_or(0.0, |best| WORTH_A_TURN * best.time().0);
        let single = tried.iter().position(|one| uses_one_device(&one.fitted.answer));
        let (mut finalists, mut others) = (Vec::new(), Vec::new());
        for (place, one) in tried.into_iter().enumerate() {
            let takes_part = (place < FINALISTS || Some(place) == single) && one.time().0 <= limit;
            if takes_part { finalists.push((one, Vec::new())) } else { others.push(one) }
        }
        // Also if there is but one: of those before, the fastest counted, which is no more than the best moment.
        for _ in 0..TURNS {
            for (one, runs) in &mut finalists {
                runs.extend(self.run(&one.fitted, 1)?);
            }
        }
        // An agent that had no room in one of the turns may have none later.
        finalists.retain(|(_, runs): &(Tried, Vec<Rehearsal>)| runs.len() == TURNS);
        let time = |run: &Rehearsal| run.time().0;
        let times: Vec<Vec<f64>> = finalists.iter().map(|(_, runs)| runs.iter().map(time).collect()).collect();
        let single: Vec<bool> = finalists.iter().map(|(one, _)| uses_one_device(&one.fitted.answer)).collect();
        let mut compared: Vec<(f64, Tried)> = Vec::new();
        for (score, (one, mut runs)) in scores(&times, &single).into_iter().zip(finalists) {
            runs.sort_by(|a, b| time(a).total_cmp(&time(b)));
            compared.push((score, Tried { rehearsal: runs.swap_remove(TURNS / 2), ..one }));
        }
        compared.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(compared.into_iter().map(|(_, one)| one).chain(others).collect())
    }

    /// The first of what was `tried` that will do, at what is `known` after its own rehearsal.
    fn best(&self, task: &Task<'_>, told: &Sampled, tried: Vec<Tried>, known: InPlace) -> Result<Rehearsed, Failure> {
        let mut judged: Vec<(Fitted, Rehearsal, InPlace)> = Vec::new();
        let mut missed = None;
        for one in tried {
            let known = self.after(task, told, &one, &known)?;
            let answer = if one.is_scheduled() {
                let times = one.rehearsal.outcome.groups.iter().map(|time| (GroupId(time.group), time.measured_us));
                let count = one.rehearsal.outcome.interval_us.and(one.fitted.answer.solution.in_flight);
                one.fitted.retimed(&times.collect(), one.time(), |evaluation| match count {
                    Some(count) => evaluation.loads.interval().max(Micros(evaluation.latency().0 / f64::from(count))),
                    None => evaluation.latency(),
                })
            } else {
                let (now, sampled) = Self::with(&known, task, told);
                judged_anew(&Task { shards: &sampled, ..now }, &one.fitted.answer)
            };
            match answer.and_then(|answer| no_fuller(answer, &one.fitted.answer)) {
                Ok(answer) => judged.push((Fitted { answer, ..one.fitted }, one.rehearsal, known)),
                Err(why) => missed = missed.or(Some(why)),
            }
        }
        if task.objective == Objective::Memory {
            judged.sort_by(|a, b| a.0.answer.solution.value().total_cmp(&b.0.answer.solution.value()));
        }
        match (judged.into_iter().next(), missed) {
            (Some((fitted, rehearsal, known)), _) => {
                let latency = rehearsal.outcome.latency;
                let seen = match rehearsal.outcome.interval_us {
                    Some(between) => format!("{between} between {} results", latency.n),
                    None => format!("{} (median of {} runs, ± {})", latency.median_us, latency.n, latency.mad_us),
                };
                let times = match fitted.schedules.is_empty() {
                    true => "times are those of groups in their places",
                    false => "times are those of groups there, all of them and the links' fitted to the whole",
                };
                Ok(Rehearsed { fitted, known, notes: vec![format!("rehearsed on the agents: {seen}; {times}")] })
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

    /// Runs `fitted` and learns from it. `None` if an agent has no room for it.
    fn tried(
        &self,
        task: &Task<'_>,
        told: &Sampled,
        fitted: Fitted,
        known: &mut InPlace,
    ) -> Result<Option<Tried>, Failure> {
        let Some(rehearsal) = self.run(&fitted, OPINIONS)? else { return Ok(None) };
        let tried = Tried { fitted, rehearsal };
        let exchanges = !tried.rehearsal.outcome.transfers.is_empty();
        let after = self.after(task, told, &tried, known)?.or_less(known);
        *known = if exchanges { after } else { after.as_crowded_as(known) };
        Ok(Some(tried))
    }

    /// Runs `fitted`, up to `opinions` times if it surprises; the fastest run counts. `None` if an agent has no room for it.
    fn run(&self, Fitted { answer, schedules }: &Fitted, opinions: usize) -> Result<Option<Rehearsal>, Failure> {
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
                Err(RehearsalError::Perform(PerformError::Run(RunError::Agent(AgentError::Memory {
                    agent,
                    message,
                })))) => {
                    eprintln!("not rehearsed: {agent}: {message}");
                    return Ok(None);
                }
                Err(error) => return Err(Failure::failed(error)),
            };
            if fastest.as_ref().is_none_or(|before| rehearsal.time() < before.time()) {
                fastest = Some(rehearsal);
            }
            if fastest.as_ref().is_some_and(|fastest| fastest.time().0 <= SURPRISE * fastest.predicted(&plan).0) {
                break;
            }
        }
        let Some(rehearsal) = fastest else { return Ok(None) };
        let devices = plan.devices.iter().filter(|device| !device.order.is_empty()).count();
        eprintln!(
            "rehearsed a plan on {devices} {}, {} operators split{}: {}{}, predicted {}",
            if devices == 1 { "device" } else { "devices" },
            plan.splits.len(),
            if schedules.is_empty() { "" } else { ", with schedules of its own" },
            rehearsal.time(),
            if rehearsal.outcome.interval_us.is_some() { " between results" } else { "" },
            rehearsal.predicted(&plan),
        );
        Ok(Some(rehearsal))
    }

    /// What is `known` with what the rehearsal of a plan showed, which counts before everything else.
    fn after(&self, task: &Task<'_>, told: &Sampled, one: &Tried, known: &InPlace) -> Result<InPlace, Failure> {
        if one.is_scheduled() {
            return Ok(known.clone());
        }
        let Tried { fitted: Fitted { answer, .. }, rehearsal } = one;
        let alone = Task { shards: told, ..task.clone() };
        let alone = alone.expand(&answer.applied).map_err(Failure::failed)?;
        let mut after = known.clone().after(&alone, &(self.in_file)(answer)?, rehearsal);
        let evaluated = |known: &InPlace| {
            let (now, sampled) = Self::with(known, task, told);
            let now = Task { shards: &sampled, ..now };
            let expanded = now.expand(&answer.applied).map_err(Failure::failed)?;
            let placement = answer.solution.evaluation.placement.clone();
            Evaluation::of(&expanded.problem, placement).map_err(Failure::failed)
        };
        let Some(between) = rehearsal.outcome.interval_us else {
            let exchanges = evaluated(&after)?.exchanges();
            after.spread(one.time(), exchanges, |known| Ok::<_, Failure>(evaluated(known)?.latency()))?;
            return Ok(after);
        };
        for _ in 0..CROWDINGS {
            let evaluation = evaluated(&after)?;
            let busiest = evaluation.loads.devices.iter().copied().fold(Micros::ZERO, Micros::max);
            let count = f64::from(answer.solution.in_flight.unwrap_or(1));
            let least = busiest.max(Micros(evaluation.latency().0 / count));
            // Where a link takes the longest, computations are not what takes so long.
            if least >= evaluation.loads.interval() {
                after.crowd(between, least);
            }
        }
        Ok(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_in_its_turns_is_first_and_one_device_before_two_that_gain_little() {
        let order = |latencies: &[Vec<f64>], single: &[bool]| {
            let scores = scores(latencies, single);
            let mut order: Vec<usize> = (0..scores.len()).collect();
            order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
            order
        };
        // The second turn was slow for all, and lucky for nobody.
        assert_eq!(order(&[vec![10.0, 30.0, 11.0], vec![8.0, 24.0, 9.0]], &[false, false]), [1, 0]);
        assert_eq!(order(&[vec![9.8, 19.6], vec![10.0, 20.0]], &[false, true]), [1, 0]);
        assert_eq!(order(&[vec![10.0, 20.0], vec![9.0, 18.0]], &[true, false]), [1, 0]);
        assert_eq!(order(&[vec![10.0], vec![9.0], vec![9.5]], &[false, false, false]), [1, 2, 0]);
        // One plan, or no turn, changes nothing.
        assert_eq!(order(&[vec![]], &[false]), [0]);
        assert_eq!(order(&[vec![], vec![]], &[false, false]), [0, 1]);
        assert_eq!(order(&[], &[]), [0; 0]);
        assert_eq!(order(&[vec![0.0], vec![0.0]], &[false, true]).len(), 2);
    }
}
