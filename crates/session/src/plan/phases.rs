//! Plans of a decoder for both phases: decode, which computes a token a step, and prefill, the longer steps that read a prompt. Both
//! have the same splits and devices, so that weights and states are held once.

use edgecut_graph::units::Micros;
use edgecut_plan::{Plan, candidate::attempt::Attempt, file::PrefillPlan, problem::Objective, resized};

use super::{
    no_plan::ROOM,
    objective::PlanObjective,
    options::PlanOptions,
    planner::{Planned, Planner, PlanningAgents},
};
use crate::{
    Error, Model, Profiles,
    decoder::{
        interface::StepInterface,
        prefill::{LongStep, PromptSteps, longest_step},
    },
};

/// Checks, before anything is measured, that `model` is a decoder in steps of one token that has room for a prompt of `prompt`
/// tokens.
///
/// # Errors
/// If it is not.
pub(super) fn check_prompt(model: &Model, prompt: u64) -> Result<(), Error> {
    let interface = StepInterface::of(model)?;
    let what = match interface.context.filter(|context| prompt > *context as u64) {
        _ if interface.step != 1 => {
            format!("plans for prompts are for steps of one token, and those of the model have {}", interface.step)
        }
        Some(context) => format!("option `prompt`: {prompt} tokens do not fit into a context of {context}"),
        None => return Ok(()),
    };
    Err(Error::BadInput(what.into()))
}

/// The error that a prompt is given with profiles that are files.
pub(super) fn prompt_without_agents() -> Error {
    let what = "option `prompt` has no effect with profiles that are files, which have one length of steps";
    Error::BadInput(what.into())
}

impl Planner<'_> {
    /// The best plan for steps of one token, with how it reads a prompt of `prompt` tokens. If the options have a limit on the
    /// time to the first token, or optimise it, the splits and devices may be those that are best for the prompt.
    ///
    /// # Errors
    /// As of [`Planner::plan`], or if the model is no decoder.
    pub(super) fn plan_of_phases(&self, prompt: u64) -> Result<Planned<'_>, Error> {
        let Some(agents) = &self.agents else { return Err(prompt_without_agents()) };
        let phases = Phases { planner: self, agents, prompt };
        match self.options.objective {
            PlanObjective::FirstToken => {
                let by_token = || phases.by_token().and_then(|planned| phases.met(planned));
                let by_prompt = phases.by_prompt().and_then(|found| found.map(|found| phases.met(found)).transpose());
                match by_prompt {
                    Ok(Some(planned)) => Ok(planned),
                    Ok(None) => by_token(),
                    Err(Error::NoPlan(missed)) => match by_token() {
                        Err(Error::NoPlan(_)) => Err(Error::NoPlan(missed)),
                        found => found,
                    },
                    Err(error) => Err(error),
                }
            }
            PlanObjective::Inference(_) => {
                let planned = phases.by_token()?;
                let is_fixed = self.options.like.is_some() || self.options.sharded || prompt == 1;
                if is_fixed || phases.is_met(&planned) {
                    return phases.met(planned);
                }
                match phases.by_prompt() {
                    Ok(Some(other)) if first_token(&other) < first_token(&planned) => phases.met(other),
                    Ok(_) | Err(Error::NoPlan(_)) => phases.met(planned),
                    Err(error) => Err(error),
                }
            }
        }
    }
}

/// The predicted time to the first token; infinite if it is not known.
fn first_token(planned: &Planned<'_>) -> Micros {
    planned.plan.prefill.map_or(Micros(f64::INFINITY), |prefill| prefill.time_us)
}

/// A planner for steps of one token, and the prompt that is read in longer ones.
struct Phases<'p, 'a> {
    planner: &'p Planner<'a>,
    agents: &'p PlanningAgents<'a>,
    prompt: u64,
}

impl<'p> Phases<'p, '_> {
    /// The best plan for a token.
    fn by_token(&self) -> Result<Planned<'p>, Error> {
        let mut planned = self.planner.plan_of_step(None)?;
        self.add_prefill(&mut planned.plan)?;
        Ok(planned)
    }

    /// The best plan for the prompt, judged for a token too. Its steps have at most 128 tokens, and as many as its memory limits leave
    /// room for. `None` if it cannot be read in such steps.
    fn by_prompt(&self) -> Result<Option<Planned<'p>>, Error> {
        self.planned_by_prompt().or_else(|error| match error {
            Error::NoPlan(_) | Error::Cancelled | Error::Agent(_) => Err(error),
            why => {
                self.notice_one_by_one(&why);
                Ok(None)
            }
        })
    }

    fn planned_by_prompt(&self) -> Result<Option<Planned<'p>>, Error> {
        let mut longest = PromptSteps::MAX_STEP;
        loop {
            let steps = PromptSteps::fewest(self.prompt, longest);
            let Some(long) = self.long_step(steps)? else { return Ok(None) };
            let of_steps = match self.with_steps(&long, None) {
                // Shorter steps need less memory.
                Err(Error::NoPlan(_)) if steps.step > 2 => {
                    longest = steps.step / 2;
                    continue;
                }
                of_steps => of_steps?,
            };
            let (graph, longer) = (self.agents.model.graph(), long.model.graph());
            let of_one = resized(&of_steps.plan, longer, graph).map_err(Error::failed)?;
            let mut planned = self.planner.plan_of_step(Some(&of_one))?;
            let room = longest_step(&planned.plan, 1);
            if room < steps.step {
                longest = room;
                continue;
            }
            planned.candidate.attempts = of_steps.attempts;
            self.set_prefill(&mut planned.plan, steps, &of_steps.plan);
            let token = planned.plan.bound.value;
            if let Some(prefill) = planned.plan.prefill.as_mut().filter(|_| self.is_objective()) {
                prefill.bound_us = Some(Micros(steps.sum(of_steps.plan.bound.value, token)));
            }
            return Ok(Some(planned));
        }
    }

    fn notice_one_by_one(&self, why: &Error) {
        self.planner.events.notice(format_args!("the prompt is read token by token: {why}"));
    }

    fn is_objective(&self) -> bool {
        self.planner.options.objective == PlanObjective::FirstToken
    }

    /// Adds to `plan` how it reads the prompt. If that cannot be known, a note says why.
    fn add_prefill(&self, plan: &mut Plan) -> Result<(), Error> {
        let events = self.planner.events;
        let mut longest = longest_step(plan, 1);
        let why = loop {
            let steps = PromptSteps::fewest(self.prompt, longest);
            let Some(long) = self.long_step(steps).transpose() else {
                self.set_one_by_one(plan);
                return Ok(());
            };
            let resized = long.and_then(|long| {
                let resized = resized(plan, self.agents.model.graph(), long.model.graph());
                Ok((resized.map_err(Error::failed)?, long))
            });
            let (of_steps, long) = match resized {
                Ok(resized) => resized,
                // Then a run reads it token by token too.
                Err(why) => {
                    self.notice_one_by_one(&why);
                    self.set_one_by_one(plan);
                    return Ok(());
                }
            };
            match self.with_steps(&long, Some(&of_steps)) {
                Ok(of_steps) => {
                    self.set_prefill(plan, steps, &of_steps.plan);
                    return Ok(());
                }
                Err(Error::NoPlan(_)) => longest = steps.step / 2,
                Err(Error::Cancelled) if events.is_unwanted() => return Err(Error::Cancelled),
                Err(why) => break why,
            }
        };
        plan.notes.push(format!("the time to the first token is not known: {why}"));
        Ok(())
    }

    /// Sets the prefill of `plan` to `steps`, for which it is `of_steps`.
    fn set_prefill(&self, plan: &mut Plan, steps: PromptSteps, of_steps: &Plan) {
        let PromptSteps { prompt, step } = steps;
        let step_us = of_steps.predicted.latency_us;
        let time_us = Micros(steps.sum(step_us.0, plan.predicted.latency_us.0));
        let target_us = self.planner.options.first_token;
        plan.prefill = Some(PrefillPlan { prompt, step, step_us, time_us, target_us, bound_us: None });
        let notes = of_steps.notes.iter().filter(|note| !plan.notes.contains(note));
        let notes: Vec<String> = notes.map(|note| format!("steps of {step} tokens: {note}")).collect();
        plan.notes.extend(notes);
    }

    /// Sets the prefill of `plan` to steps of one token.
    fn set_one_by_one(&self, plan: &mut Plan) {
        let of_one = Plan { notes: Vec::new(), ..plan.clone() };
        self.set_prefill(plan, PromptSteps { prompt: self.prompt, step: 1 }, &of_one);
    }

    /// The step of several tokens of `steps`; `None` if there is none.
    fn long_step(&self, steps: PromptSteps) -> Result<Option<LongStep>, Error> {
        if steps.step == 1 { Ok(None) } else { LongStep::of(self.agents.model, steps.step) }
    }

    /// The best plan for the steps of `long`, or `other`, judged for them.
    fn with_steps(&self, long: &LongStep, other: Option<&Plan>) -> Result<StepsPlan, Error> {
        let (Planner { events, options, .. }, agents) = (self.planner, self.agents);
        events.status(format_args!("steps of {} tokens, which read the prompt", long.interface.step));
        let options = PlanOptions {
            objective: Objective::Latency.into(),
            latency: None,
            throughput: None,
            prompt: None,
            first_token: None,
            like: None,
            advise: false,
            ..(*options).clone()
        };
        let mut planner = agents.site.planner(&long.model, &Profiles::in_folder(&agents.folder), &options)?;
        planner.groups.common_with = Some(agents.model.graph());
        // Schedules that need less memory are for one length of steps.
        planner.settings.fits_memory = false;
        let planned = planner.plan_of_step(other)?;
        Ok(StepsPlan { plan: planned.plan, attempts: planned.candidate.attempts })
    }

    /// Whether `planned` keeps the limit on the time to the first token.
    fn is_met(&self, planned: &Planned<'_>) -> bool {
        self.planner.options.first_token.is_none_or(|target| first_token(planned) <= target)
    }

    /// `planned`, if it keeps that limit.
    fn met(&self, planned: Planned<'p>) -> Result<Planned<'p>, Error> {
        let Some(target) = self.planner.options.first_token.filter(|_| !self.is_met(&planned)) else {
            return Ok(planned);
        };
        let (prompt, first) = (self.prompt, first_token(&planned));
        let text = match first.0.is_finite() {
            true => format!(
                "the nearest plan takes {first} to the first token after a prompt of {prompt} tokens, more than the limit of \
                 {target}\noption `first_token={}us` accepts the nearest plan",
                (first.0 * ROOM).ceil()
            ),
            false => {
                let why = planned.plan.notes.last().cloned().unwrap_or_default();
                format!("whether a plan keeps option `first_token={target}` is not known: {why}")
            }
        };
        Err(Error::NoPlan(text.into()))
    }
}

/// A plan for steps of several tokens.
struct StepsPlan {
    plan: Plan,
    /// How it was found.
    attempts: Vec<Attempt>,
}
