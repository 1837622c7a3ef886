//! How busy other workloads keep this machine during a run.

use std::{
    fs,
    time::{Duration, Instant},
};

use smol_str::SmolStr;

use crate::protocol::inference_trace::MachineUse;
use edgecut_profile::MachineLoad;

/// The load of the machine from when a run is loaded to its end.
pub(super) struct RunLoad {
    /// Boot id of the kernel: servers that share a kernel, such as containers, share processors.
    id: SmolStr,
    load: MachineLoad,
    read_at: Option<Instant>,
}

/// Minimum time between two readings of the counters.
const INTERVAL: Duration = Duration::from_millis(100);

impl RunLoad {
    pub fn start() -> RunLoad {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        RunLoad { id: id.trim().into(), load: MachineLoad::start(), read_at: None }
    }

    /// The load so far at `now`; `None` if it is unknown, or was read less than [`INTERVAL`] ago.
    pub fn read(&mut self, now: Instant) -> Option<MachineUse> {
        if self.read_at.is_some_and(|at| now.saturating_duration_since(at) < INTERVAL) {
            return None;
        }
        let busy = self.load.so_far()?;
        self.read_at = Some(now);
        Some(MachineUse { id: self.id.clone(), busy })
    }
}
