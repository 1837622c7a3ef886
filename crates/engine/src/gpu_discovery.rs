//! Finds the GPUs of this machine and starts an engine on each.

use crate::{GpuReport, StartedGpus};

/// Starts every usable GPU of this machine and measures its host link. Failures become notes.
pub fn start_gpus() -> StartedGpus {
    let report = GpuReport::detect();
    #[cfg_attr(not(feature = "cuda"), expect(unused_mut, reason = "only engines start GPUs"))]
    let mut started = StartedGpus { gpus: Vec::new(), notes: report.notes() };
    #[cfg(feature = "cuda")]
    for (ordinal, gpu) in report.usable().iter().enumerate() {
        match crate::cuda::start(&report, ordinal, gpu) {
            Ok(gpu) => started.gpus.push(gpu),
            Err(error) => {
                let missing = crate::MissingRequirement::Start { gpu: gpu.name.clone(), why: error.to_string() };
                started.notes.push(format!("no GPU: {missing}"));
            }
        }
    }
    started
}

impl GpuReport {
    /// Detects drivers, GPUs and libraries. Never panics, whatever is missing.
    pub fn detect() -> GpuReport {
        #[cfg(feature = "cuda")]
        return crate::cuda::detect();
        #[cfg(not(feature = "cuda"))]
        GpuReport { missing: vec![crate::MissingRequirement::Feature], ..GpuReport::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MissingRequirement;

    #[test]
    fn detection_finds_a_gpu_or_says_why_not() {
        let report = GpuReport::detect();
        assert!(!report.usable().is_empty() || !report.notes().is_empty(), "{report:?}");
        assert_eq!(report.missing.contains(&MissingRequirement::Feature), !cfg!(feature = "cuda"));
    }
}
