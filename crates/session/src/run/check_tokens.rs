//! The tokens of a plan against those of one device, this machine.

use edgecut_agent::results::Tolerance;
use edgecut_engine::EngineOptions;
use edgecut_plan::Plan;

use super::{
    execution::reference_engines,
    generate::GenerateOptions,
    generation::Generation,
    progress::RunWatch,
    sequence::{PlanSteps, Sequence},
    steps::LocalSteps,
    token_check::TokenCheck,
};
use crate::{Error, Model, Site};

impl Site {
    /// Finds out of each sequence whether its tokens, all of them generated with `plan` of `model`, are those of this machine.
    ///
    /// # Errors
    /// If a step fails here, or the work is cancelled and its results are discarded.
    pub(super) fn check_tokens(
        &self,
        model: &Model,
        plan: &Plan,
        options: &GenerateOptions,
        steps: &PlanSteps,
        sequences: &mut [Generation],
    ) -> Result<(), Error> {
        let watch = RunWatch::start(&self.events);
        watch.tell("generating the tokens on this machine, to compare");
        let Some(mut local) = self.local_steps(model, plan, steps)? else { return Ok(()) };
        let prompts = options.prompts.iter().cycle();
        for (number, (generation, prompt)) in sequences.iter_mut().zip(prompts).enumerate() {
            let tolerance = Tolerance::of(&model.import.graph);
            let mut check = TokenCheck::new(&generation.tokens, tolerance, options.top_k, options.seed_of(number));
            let mut accept = |logits: &[f64]| check.accept(logits);
            let mut again = Sequence::new(prompt, options.tokens);
            match again.extend(&mut local, &steps.interfaces, &self.events, &mut accept) {
                // What interrupts the comparison does not decide it.
                Err(Error::Cancelled) if !self.events.is_unwanted() => {}
                extended => extended?,
            }
            let TokenCheck { accepted, near_ties, wanted, .. } = check;
            if let (Some(found), Some(wanted)) = (generation.tokens.get(accepted), wanted) {
                let of_sequence = if number == 0 { String::new() } else { format!(" of sequence {number}") };
                let what = format!("token {accepted}{of_sequence} of the plan is {found}, but {wanted} on one device");
                self.events.notice(what);
            }
            let is_complete = accepted == generation.tokens.len();
            generation.is_equal = if wanted.is_some() { Some(false) } else { is_complete.then_some(true) };
            generation.near_ties = near_ties;
        }
        Ok(())
    }

    /// The steps of `model` on this machine, by an engine of `plan`; `None`, with a notice, if none computes them.
    fn local_steps(&self, model: &Model, plan: &Plan, steps: &PlanSteps) -> Result<Option<LocalSteps>, Error> {
        let load = |engine: &EngineOptions| {
            let engine = engine.start(1).map_err(Error::failed)?;
            let sharing = steps.longer.as_ref().and_then(|_| engine.sharing_weights());
            let engine = sharing.unwrap_or(engine);
            let mut local = LocalSteps::load(model, engine.as_ref())?;
            steps.longer.iter().try_for_each(|longer| local.load_prefill(longer, engine.as_ref()))?;
            Ok::<_, Error>(local)
        };
        match reference_engines(self, plan).iter().map(load).reduce(|one, other| one.or(other)) {
            Some(Ok(local)) => Ok(Some(local)),
            failed => {
                let why = failed.and_then(Result::err).map_or(String::new(), |error| format!(": {error}"));
                let what = "the tokens were not checked: this machine does not compute the model";
                self.events.notice(format_args!("{what}{why}"));
                Ok(None)
            }
        }
    }
}
