//! Plans and measurements in turn: a plan is made with estimates of what shards take, the shards that it asks for are
//! measured, and it is made again, until nothing is left to measure or rounds run out.

use tokio::runtime::Runtime;

use super::{
    finish::is_limited,
    rehearse::{Rehearsed, Theatre, no_fuller},
};
use crate::{
    agent::fleet::Fleet,
    cli::Failure,
    plan::{
        fitted::Fitted,
        search::Options,
        solve::NoPlan,
        split::{Answer, Ratios, Sampled, Task, judged_anew, plan_from},
    },
    run::shards::{ShardError, Shards},
};

/// Makes of an answer to a task one that keeps its limits on memory.
pub(super) type Within<'f> = dyn Fn(&Task<'_>, Result<Answer, NoPlan>) -> Result<Fitted, Failure> + 'f;

/// How often the search goes on from what it found at the most, and what must be left of the value for another time.
const FURTHER: usize = 4;
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
    /// The best plan, and what was known of shards in the end: what comes out from the beginning with nothing left to
    /// measure, and what the search makes of that as long as it gains. Unless rounds ran out, the same comes out the next
    /// time.
    pub(super) fn settled(&mut self, ratios: Ratios) -> Result<(Result<Answer, NoPlan>, Sampled), Failure> {
        let (mut rounds, mut further) = (0, 0);
        let mut before = None;
        // Found from the beginning with nothing left to measure, or made of that.
        let mut best: Option<Answer> = None;
        loop {
            let sampled = self.told();
            let task = Task { shards: &sampled, ..self.task.clone() };
            let answer = match plan_from(&task, self.options, ratios, before.as_ref()) {
                Ok(answer) => answer,
                Err(why) => return Ok((best.ok_or(why), sampled)),
            };
            if rounds == self.rounds {
                return Ok((Ok(answer), sampled));
            }
            if self.measured(&answer).map_err(Failure::failed)? > 0 {
                (before, best) = (Some(answer.choices), None);
                (rounds, further) = (rounds + 1, 0);
                continue;
            }
            let is_over = answer.splits.is_empty() || further == FURTHER;
            (before, best) = match (before, best) {
                (Some(_), None) => (None, None),
                (None, _) if is_over => return Ok((Ok(answer), sampled)),
                (None, _) => (Some(answer.choices.clone()), Some(answer)),
                (Some(_), Some(best)) => {
                    let value = |answer: &Answer| answer.solution.evaluation.score;
                    let (new, old) = (value(&answer), value(&best));
                    if is_over || new.value >= ENOUGH * old.value {
                        let best = if new.better(&old) { answer } else { best };
                        return Ok((Ok(best), sampled));
                    }
                    (Some(answer.choices.clone()), Some(answer))
                }
            };
            further += usize::from(best.is_some());
        }
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
            if is_settled || self.measured(&fitted.answer).map_err(Failure::failed)? == 0 {
                break;
            }
            told = self.told();
            let task = Task { shards: &told, ..self.task.clone() };
            fitted = match judged_anew(&task, &fitted.answer) {
                Ok(answer) => Fitted::from(answer),
                Err(why) => within(&task, Err(why))?,
            };
        }
        Ok((fitted, told))
    }

    /// What rehearsals led to, with what its shards need of memory measured where that was an estimate; and what is known of
    /// shards then, `told` being what was known before. The agents, which enforce their limits, have run it: where it cannot be
    /// weighed it is given out as it is.
    pub(super) fn weighed(&mut self, mut rehearsed: Rehearsed, told: Sampled) -> (Rehearsed, Sampled) {
        let fitted = &rehearsed.fitted;
        if fitted.answer.splits.is_empty() || !fitted.schedules.is_empty() {
            return (rehearsed, told);
        }
        match self.measured(&fitted.answer) {
            Ok(0) => return (rehearsed, told),
            Ok(_) => {}
            Err(why) => {
                let what = "what its shards need of memory is an estimate, measuring them failed";
                rehearsed.notes.push(format!("{what}: {why}"));
                return (rehearsed, told);
            }
        }
        let now = self.told();
        let (task, sampled) = Theatre::with(&rehearsed.known, self.task, &now);
        let weighed = judged_anew(&Task { shards: &sampled, ..task }, &fitted.answer);
        match weighed.and_then(|answer| no_fuller(answer, &fitted.answer)) {
            Ok(answer) => {
                rehearsed.fitted = Fitted::from(answer);
                (rehearsed, now)
            }
            Err(why) => {
                let what = "memory is as it was estimated before rehearsals; by what its shards take alone,";
                rehearsed.notes.push(format!("{what} {why}"));
                (rehearsed, told)
            }
        }
    }

    /// What is known of shards.
    pub(super) fn told(&self) -> Sampled {
        let mut sampled = Sampled::default();
        self.shards.tell(&mut sampled);
        sampled
    }

    /// Measures the shards of `answer` that nobody knows, and counts them.
    fn measured(&mut self, answer: &Answer) -> Result<usize, ShardError> {
        let mut measured = 0;
        let mut count = |_: &str| measured += 1;
        let measuring = self.shards.measure(self.fleet, &answer.expanded, &mut count);
        let added = self.runtime.block_on(measuring)?;
        if measured > 0 {
            eprintln!("measured {measured} shards, kept in the profiles");
        }
        Ok(added)
    }
}
