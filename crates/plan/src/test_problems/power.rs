//! The power of random problems, for the unit tests of this crate and, by its path, for tests/common.

use super::{Objective, Problem, Rng, Watts};

/// Gives most devices an idle power, and groups a power on them; of a quarter of the problems energy is the objective.
pub(super) fn add_power(problem: &mut Problem, seed: u64) {
    let mut rng = Rng::with_seed(!seed);
    for (index, device) in problem.devices.iter_mut().enumerate() {
        device.idle = (rng.u8(0..8) > 0).then(|| Watts(10.0 * rng.f64()));
        let top = f64::from(rng.u32(0..40));
        for cost in problem.groups.iter_mut().filter_map(|group| group.costs[index].as_mut()) {
            cost.power = device.idle.map_or(Watts::ZERO, |_| Watts(top * rng.f64()));
        }
    }
    if rng.u8(0..4) == 0 {
        problem.objective = Objective::Energy;
    }
}
