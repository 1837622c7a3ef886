//! How busy others keep this machine during a run.

use std::{
    fs,
    time::{Duration, Instant},
};

use smol_str::SmolStr;

use crate::agent::protocol::inference_trace::MachineUse;
use edgecut_profile::MachineLoad;

/// The load of the machine from when a run is loaded to its end.
pub(super) struct RunLoad {
    /// Of the running kernel: what shares it, such as containers, shares processors.
    id: SmolStr,
    load: MachineLoad,
    read_at: Option<Instant>,
}

/// Reading the counters more often costs more than it tells.
const INTERVAL: Duration = Duration::from_millis(100);

impl RunLoad {
    pub fn start() -> RunLoad {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        RunLoad { id: id.trim().into(), load: MachineLoad::start(), read_at: None }
    }

    /// The load so far at `now`; `None` where it is not known, or was read a moment ago.
    pub fn read(&mut self, now: Instant) -> Option<MachineUse> {
        if self.read_at.is_some_and(|at| now.saturating_duration_since(at) < INTERVAL) {
            return None;
        }
        let busy = self.load.so_far()?;
        self.read_at = Some(now);
        Some(MachineUse { id: self.id.clone(), busy })
    }
}
