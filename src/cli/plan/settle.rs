//! Plans and measurements in turn: a plan is made with estimates of what shards take, the shards that it asks for are
//! measured, and it is made again, until nothing in it is an estimate.

use miette::Report;
use tokio::runtime::Runtime;

use super::finish::is_limited;
use crate::{
    agent::fleet::Fleet,
    cli::Failure,
    plan::{
        fitted::Fitted,
        search::Options,
        solve::NoPlan,
        split::{Answer, Ratios, Sampled, Task, judged_anew, plan_from},
    },
    run::shards::Shards,
};

/// Makes of an answer to a task one that keeps its limits on memory.
pub(super) type Within<'f> = dyn Fn(&Task<'_>, Result<Answer, NoPlan>) -> Result<Fitted, Failure> + 'f;

/// What must be left of a plan's value for it to be worth going on.
const ENOUGH: f64 = 0.995;

/// What plans are made of, and who measures.
pub(super) struct Settling<'a, 's> {
    /// Without anything known of shards.
    pub(super) task: &'a Task<'a>,
    pub(super) options: &'a Options,
    pub(super) shards: &'a mut Shards<'s>,
    pub(super) fleet: &'a Fleet,
    pub(super) runtime: &'a Runtime,
    /// How often a plan is made anew at the most.
    pub(super) rounds: usize,
}

impl Settling<'_, '_> {
    /// The best plan, and what was known of shards in the end: what comes out of it from the beginning, and from there on as
    /// long as that gains. The same comes out the next time.
    pub(super) fn settled(&mut self, ratios: Ratios) -> Result<(Result<Answer, NoPlan>, Sampled), Failure> {
        let mut before = None;
        // Found from the beginning, with nothing in it estimated.
        let mut best: Option<Answer> = None;
        for round in 0.. {
            let sampled = self.told();
            let task = Task { shards: &sampled, ..self.task.clone() };
            let answer = match plan_from(&task, self.options, ratios, before.as_ref()) {
                Ok(answer) => answer,
                Err(why) => return Ok((best.ok_or(why), sampled)),
            };
            let value = |answer: &Answer| answer.solution.evaluation.score;
            let is_last = answer.splits.is_empty() || round >= self.rounds;
            if !is_last && self.measured(&answer)? > 0 {
                (before, best) = (Some(answer.choices), None);
                continue;
            }
            let gains = |best: &Answer| value(&answer).better(&value(best));
            let is_better = best.as_ref().is_none_or(gains);
            let is_enough = best.as_ref().is_some_and(|best| value(&answer).value > ENOUGH * value(best).value);
            if is_last || is_enough {
                let best = best.filter(|_| !is_better).unwrap_or(answer);
                return Ok((Ok(best), sampled));
            }
            (before, best) = match before {
                Some(_) if best.is_none() => (None, None),
                _ => (Some(answer.choices.clone()), Some(answer)),
            };
        }
        Err(Failure::Failed(Report::msg("no plan was made")))
    }

    /// What `within` makes of `answer` to keep limits on memory, found again where what its shards hold was an estimate
    /// that turned out too small.
    pub(super) fn refitted(
        &mut self,
        answer: Result<Answer, NoPlan>,
        mut told: Sampled,
        within: &Within<'_>,
    ) -> Result<(Fitted, Sampled), Failure> {
        let mut fitted = within(&Task { shards: &told, ..self.task.clone() }, answer)?;
        for _ in 0..if is_limited(self.task) { self.rounds } else { 0 } {
            let is_settled = fitted.answer.splits.is_empty() || !fitted.schedules.is_empty();
            if is_settled || self.measured(&fitted.answer)? == 0 {
                break;
            }
            told = self.told();
            let task = Task { shards: &told, ..self.task.clone() };
            fitted = match judged_anew(&task, &fitted.answer) {
                Ok(answer) => Fitted { answer, schedules: Vec::new() },
                Err(why) => within(&task, Err(why))?,
            };
        }
        Ok((fitted, told))
    }

    /// What is known of shards.
    pub(super) fn told(&self) -> Sampled {
        let mut sampled = Sampled::default();
        self.shards.tell(&mut sampled);
        sampled
    }

    /// Measures the shards of `answer` that nobody knows, and counts them.
    fn measured(&mut self, answer: &Answer) -> Result<usize, Failure> {
        let mut measured = 0;
        let mut count = |_: &str| measured += 1;
        let measuring = self.shards.measure(self.fleet, &answer.expanded, &mut count);
        let added = self.runtime.block_on(measuring).map_err(Failure::failed)?;
        if measured > 0 {
            eprintln!("measured {measured} shards, kept in the profiles");
        }
        Ok(added)
    }
}
