//! `--pin PATTERN=server/device`: groups that a person places.

use miette::Report;
use wildmatch::WildMatch;

use crate::{
    cli::{Failure, Outcome},
    plan::{problem::Device, split::Task},
};

/// Forbids every device but the pinned one to the groups whose name fits the pattern.
pub(super) fn pin(task: &mut Task<'_>, pins: &[String]) -> Outcome {
    let bad = |what: String| Failure::BadInput(Report::msg(what));
    for text in pins {
        let Some((pattern, wanted)) = text.rsplit_once('=') else {
            return Err(bad(format!("--pin {text}: expected PATTERN=server/device, such as 'nn.conv2d*=local/cpu'")));
        };
        let names: Vec<String> = task.network.devices.iter().map(Device::full_name).collect();
        let Some(device) = names.iter().position(|name| name == wanted) else {
            return Err(bad(format!("--pin {text}: there is no device {wanted}; there are {}", names.join(", "))));
        };
        let pattern_matcher = WildMatch::new(pattern);
        let mut hits = 0;
        for (_, costs) in task.names.iter().zip(&mut task.costs).filter(|(name, _)| pattern_matcher.matches(name)) {
            hits += 1;
            for (other, cost) in costs.iter_mut().enumerate() {
                if other != device {
                    *cost = None;
                }
            }
        }
        if hits == 0 {
            return Err(bad(format!("--pin {text}: no group is called like `{pattern}`")));
        }
    }
    Ok(())
}
