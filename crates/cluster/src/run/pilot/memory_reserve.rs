//! What agents lacked for candidates that they refused: kernels pack weights and need workspace, so a run takes a few percent
//! more than is predicted. The next candidate is planned with limits that are lower by that.

use std::collections::BTreeMap;

use edgecut_graph::units::Bytes;
use edgecut_plan::{Candidate, PlanRequest};

use crate::agent::MemoryShortage;

/// More than what was missing, since another plan packs other weights.
const MARGIN: f64 = 1.25;

/// The least part of a limit that a refusal takes off, so that a search among few plans does not find the refused one again.
const LEAST: f64 = 0.005;

/// See the module's head.
#[derive(Debug, Clone, Default)]
pub(super) struct MemoryReserve {
    /// By full name of a device.
    lacking: BTreeMap<String, Bytes>,
    /// What the agent said last.
    last: Option<String>,
}

impl MemoryReserve {
    /// After the agent of `server` refused a candidate with `message`; `shortage` is `None` if it does not say of which device.
    pub fn refused(
        &mut self,
        request: &PlanRequest<'_>,
        server: &str,
        shortage: Option<&MemoryShortage>,
        message: &str,
    ) {
        self.last = Some(format!("agent {server}: {message}"));
        for device in request.network.devices.iter().filter(|device| device.server == server) {
            let Some(limit) = device.memory else { continue };
            let missing = match shortage {
                Some(shortage) if shortage.device == device.name => shortage.short,
                Some(_) => continue,
                None => Bytes::ZERO,
            };
            let more = (missing.0 as f64 * MARGIN).max(limit.0 as f64 * LEAST);
            *self.lacking.entry(device.full_name()).or_default() += Bytes(more as u64);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.lacking.is_empty()
    }

    /// What the agent that refused last said.
    pub fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// `request` with lower limits.
    pub fn applied_to<'a>(&self, request: &PlanRequest<'a>) -> PlanRequest<'a> {
        let mut less = request.clone();
        for device in &mut less.network.devices {
            let lacking = self.lacking.get(&device.full_name()).copied().unwrap_or_default();
            device.memory = device.memory.map(|limit| limit - lacking);
        }
        less
    }

    /// A candidate for lower limits, with those that `request` has.
    pub fn restored(mut candidate: Candidate, request: &PlanRequest<'_>) -> Candidate {
        candidate.expanded.problem.devices.clone_from(&request.network.devices);
        candidate
    }
}
