//! Enumeration of all assignments of small workloads.

use super::bundles::Bundles;

/// Assignments that may be looked at.
const MOST: usize = 60_000;

/// Shows `visit` every assignment of bundles to accelerators and `cpus` CPUs, up to renaming equal devices.
/// False, and nothing is shown, if there are too many.
pub(crate) fn assignments(problem: &Bundles, cpus: usize, mut visit: impl FnMut(&[usize])) -> bool {
    let (count, devices) = (problem.bundles.len(), problem.accelerators + cpus);
    let all = u32::try_from(count).ok().and_then(|count| devices.checked_pow(count));
    if all.is_none_or(|all| all > MOST) {
        return false;
    }
    let mut device = vec![0; count];
    loop {
        let allowed = device.iter().enumerate().all(|(bundle, device)| problem.allows(bundle, *device));
        if allowed && is_canonical(&device, problem.accelerators) {
            visit(&device);
        }
        // The next number in base `devices`.
        let Some(at) = device.iter().rposition(|d| d + 1 < devices) else { return true };
        device[at] += 1;
        device[at + 1..].iter_mut().for_each(|d| *d = 0);
    }
}

/// Whether accelerators appear in the order of their numbers, and CPUs too.
fn is_canonical(device: &[usize], accelerators: usize) -> bool {
    let (mut next_accelerator, mut next_cpu) = (0, accelerators);
    device.iter().all(|&device| {
        let next = if device < accelerators { &mut next_accelerator } else { &mut next_cpu };
        let in_turn = device <= *next;
        *next += usize::from(device == *next);
        in_turn
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::bundles::Bundle;

    #[test]
    fn equal_devices_are_not_told_apart() {
        let bundle = Bundle { on_accelerator: true, ..Bundle::default() };
        let problem = Bundles {
            bundles: vec![bundle; 3],
            of: Vec::new(),
            nets: Vec::new(),
            accelerators: 3,
            cpus: 0,
            memory: 1.0,
        };
        let mut seen = 0;
        assert!(assignments(&problem, 0, |_| seen += 1));
        assert_eq!(seen, 5, "the partitions of three things");
    }
}
