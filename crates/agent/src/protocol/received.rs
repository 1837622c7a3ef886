//! What another program sends, checked before it is used: texts become printable, and a number that is no time is refused,
//! since plans are made from times and profiles keep them.

use std::borrow::Cow;

use edgecut_graph::{
    EngineId, LinkCost,
    units::{Joules, Micros},
};
use edgecut_profile::{BusyProcessors, Cost};

use super::{
    error::MessageError,
    inference_trace::{DeviceMemory, InferenceTrace, SourceEnergy},
    probe::ProbeSample,
    profile::ProfileEvent,
    run::{Queued, RunEvent},
};
use crate::{Description, DeviceDescription, EnergyMetering, printable::printable};

/// What is checked when it is received.
pub trait Received: Sized {
    /// The same as it may be used.
    ///
    /// # Errors
    /// If a time or a cost is not a finite number from 0.
    fn checked(self) -> Result<Self, MessageError>;
}

/// Replaces what may not be printed in `text`.
fn make_printable<T: AsRef<str> + From<String>>(text: &mut T) {
    if let Cow::Owned(printed) = printable(text.as_ref()) {
        *text = printed.into();
    }
}

fn is_quantity(number: f64) -> bool {
    number.is_finite() && number >= 0.0
}

impl Received for Micros {
    fn checked(self) -> Result<Micros, MessageError> {
        let us = self.0;
        match is_quantity(us) {
            true => Ok(self),
            false => Err(MessageError::Malformed(format!("a time of {us} us: expected a finite number from 0"))),
        }
    }
}

impl Received for ProbeSample {
    fn checked(self) -> Result<ProbeSample, MessageError> {
        self.round_trip.checked()?;
        Ok(self)
    }
}

impl Received for RunEvent {
    fn checked(mut self) -> Result<RunEvent, MessageError> {
        match &mut self {
            RunEvent::Queued(Queued { device, user, ahead: _ }) => {
                make_printable(device);
                make_printable(user);
            }
            RunEvent::Loaded { memory, warm_up_runs: _ } => {
                memory.iter_mut().for_each(|memory| make_printable(&mut memory.device));
            }
            RunEvent::Started { at, .. } | RunEvent::Arrived { at, .. } => drop(at.checked()?),
            RunEvent::Measured(trace) => *trace = std::mem::take(trace).checked()?,
            RunEvent::Admitted | RunEvent::Connected | RunEvent::Output { .. } => {}
        }
        Ok(self)
    }
}

impl Received for InferenceTrace {
    fn checked(mut self) -> Result<InferenceTrace, MessageError> {
        let InferenceTrace { inference: _, stages, transfers, arrivals, memory, energy, machine } = &mut self;
        for stage in stages {
            let steps = stage.steps.iter().flat_map(|step| [step.end, step.wall, step.cpu]);
            for time in steps.chain([stage.ready, stage.start, stage.end]) {
                time.checked()?;
            }
            make_printable(&mut stage.device);
            make_printable(&mut stage.engine);
        }
        for transfer in transfers {
            for time in [transfer.ready, transfer.start, transfer.end] {
                time.checked()?;
            }
            make_printable(&mut transfer.to);
        }
        for time in arrivals.iter().flat_map(|arrival| [arrival.start, arrival.end]) {
            time.checked()?;
        }
        for DeviceMemory { device, .. } in memory {
            make_printable(device);
        }
        // What is no energy or no load is left out: nothing else of a run depends on it.
        energy.retain(|SourceEnergy { total: Joules(total), .. }| is_quantity(*total));
        energy.iter_mut().for_each(|energy| make_printable(&mut energy.source));
        let is_load = |BusyProcessors { own, others }: BusyProcessors| is_quantity(own) && is_quantity(others);
        *machine = machine.take().filter(|machine| is_load(machine.busy));
        if let Some(machine) = machine {
            make_printable(&mut machine.id);
        }
        Ok(self)
    }
}

impl Received for ProfileEvent {
    fn checked(mut self) -> Result<ProfileEvent, MessageError> {
        match &mut self {
            ProfileEvent::Whole(cost) => drop(cost.checked()?),
            ProfileEvent::WaitingFor(who) => make_printable(who),
            ProfileEvent::Item(measurement) => match &mut measurement.cost {
                Ok(cost) => drop(cost.checked()?),
                Err(failure) => make_printable(failure),
            },
        }
        Ok(self)
    }
}

impl Received for Cost {
    fn checked(self) -> Result<Cost, MessageError> {
        let Cost { time, cpu, kernels, workspace: _, held: _, disturbed, energy, conditions } = &self;
        let times = [time.median, time.mad, time.min, time.p95, *cpu].into_iter().chain(*kernels);
        let energy = energy.iter().flat_map(|energy| [energy.run.0, energy.idle.0]);
        let numbers = times.map(|time| time.0).chain([*disturbed]).chain(conditions.load).chain(energy);
        match numbers.into_iter().find(|number| !is_quantity(*number)) {
            Some(wrong) => Err(MessageError::Malformed(format!("a cost with {wrong}: expected finite numbers from 0"))),
            None => Ok(self),
        }
    }
}

impl Received for Description {
    fn checked(mut self) -> Result<Description, MessageError> {
        let Description { name, version, system, cpu, memory_total: _, memory_available: _, devices, notes, crash } =
            &mut self;
        make_printable(name);
        cpu.caches.iter_mut().for_each(|cache| make_printable(&mut cache.name));
        let texts = [version, system, &mut cpu.model, &mut cpu.architecture];
        texts.into_iter().chain(notes).chain(crash).for_each(make_printable);
        for DeviceDescription { name, kind: _, model, engine, engines, threads: _, memory: _, host_link, energy } in
            devices
        {
            make_printable(name);
            make_printable(model);
            for EngineId { name, version } in [engine].into_iter().chain(engines) {
                make_printable(name);
                make_printable(version);
            }
            let (EnergyMetering::Source(text) | EnergyMetering::Absent(text)) = energy;
            make_printable(text);
            let is_cost = |cost: LinkCost| is_quantity(cost.latency.0) && is_quantity(cost.rate.0) && cost.rate.0 > 0.0;
            *host_link = host_link.filter(|link| is_cost(link.to_device) && is_cost(link.from_device));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{
        inference_trace::{MachineUse, StageTime},
        profile_messages::tests::cost,
    };
    use edgecut_graph::units::Watts;
    use smol_str::SmolStr;

    #[test]
    fn what_is_no_energy_and_no_load_is_left_out() {
        let energy = [f64::NAN, -1.0, f64::INFINITY, 2.0];
        let energy = energy.map(|total| SourceEnergy { source: "a\n".to_string(), total: Joules(total) });
        for (own, others) in [(f64::NAN, 0.0), (0.0, -1.0), (f64::INFINITY, 0.0)] {
            let machine = Some(MachineUse { id: "boot".into(), busy: BusyProcessors { own, others } });
            let trace = InferenceTrace { energy: energy.to_vec(), machine, ..InferenceTrace::default() };
            let trace = trace.checked().unwrap();
            assert_eq!(trace.machine, None);
            assert_eq!(trace.energy, [SourceEnergy { source: "a\\n".to_string(), total: Joules(2.0) }]);
        }
    }

    #[test]
    fn a_trace_or_a_cost_with_what_is_no_time_is_refused() {
        for wrong in [f64::NAN, f64::INFINITY, -1.0] {
            let stage = StageTime {
                device: "cpu".into(),
                stage: 0,
                ready: Micros::ZERO,
                start: Micros::ZERO,
                end: Micros(wrong),
                steps: vec![],
                engine: SmolStr::default(),
                fallbacks: 0,
            };
            let trace = InferenceTrace { stages: vec![stage], ..InferenceTrace::default() };
            let refused = RunEvent::Measured(trace).checked().unwrap_err();
            assert!(refused.to_string().contains("expected a finite number from 0"));
            let (mut late, mut powerful) = (cost(), cost());
            late.time.p95 = Micros(wrong);
            powerful.energy.as_mut().unwrap().idle = Watts(wrong);
            for cost in [late, powerful] {
                let refused = ProfileEvent::Whole(cost).checked().unwrap_err();
                assert!(refused.to_string().contains("a cost with"));
            }
        }
    }
}
