//! Which GPUs there are, or why there are none: the same in every build.

use std::{fmt, sync::Arc};

use super::Engine;
use crate::units::{Bytes, Micros};

/// What was found of CUDA on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuReport {
    /// The newest version of CUDA that the driver knows.
    pub driver: Option<String>,
    /// In the order of the driver.
    pub gpus: Vec<Gpu>,
    /// Without cuBLAS matrices are multiplied by a plain kernel, far from the card's peak.
    pub cublas: bool,
    /// Only compared with; nothing is computed by it.
    pub cudnn: bool,
    /// What must be there and is not: with anything in here no GPU is offered.
    pub lacking: Vec<Lacking>,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    pub name: String,
    /// Compute capability.
    pub architecture: String,
    pub multiprocessors: u32,
    /// Highest clocks, which are nobody's promise.
    pub clock_khz: u32,
    pub memory_clock_khz: u32,
    pub memory: Bytes,
}

/// Why no GPU is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lacking {
    /// This program cannot compute on GPUs.
    Feature,
    /// The driver's library cannot be loaded, or lacks a function.
    Driver { file: &'static str, why: String },
    /// The driver is older than the program can work with; versions as 1000 · major + 10 · minor.
    Version { found: i32, wanted: i32 },
    /// The driver has no card for this process.
    Card { code: i32 },
    /// A library cannot be loaded.
    Library { name: &'static str, file: &'static str },
    /// The card does not start.
    Start { gpu: String, why: String },
}

/// The GPUs that compute, and what a person should know of those that do not.
#[derive(Default)]
pub struct Started {
    pub gpus: Vec<StartedGpu>,
    pub notes: Vec<String>,
}

/// A GPU with its engine, and what was measured of it.
pub struct StartedGpu {
    pub gpu: Gpu,
    pub engine: Arc<dyn Engine>,
    /// Memory that nobody has taken.
    pub free: Bytes,
    /// Timed copies of tensors to the card and back.
    pub to_card: Vec<(Bytes, Micros)>,
    pub from_card: Vec<(Bytes, Micros)>,
}

/// Starts every GPU of this machine, and times its link. One that does not start is a note.
pub fn start_gpus() -> Started {
    let report = GpuReport::look();
    #[cfg_attr(not(feature = "cuda"), expect(unused_mut, reason = "only engines start GPUs"))]
    let mut started = Started { gpus: Vec::new(), notes: report.notes() };
    #[cfg(feature = "cuda")]
    for (ordinal, gpu) in report.usable().iter().enumerate() {
        match super::cuda::start(&report, ordinal, gpu) {
            Ok(gpu) => started.gpus.push(gpu),
            Err(error) => {
                let lacking = Lacking::Start { gpu: gpu.name.clone(), why: error.to_string() };
                started.notes.push(format!("no GPU: {lacking}"));
            }
        }
    }
    started
}

impl GpuReport {
    /// Looks for what this machine has. Nothing here panics, whatever is missing.
    pub fn look() -> GpuReport {
        #[cfg(feature = "cuda")]
        return super::cuda::look();
        #[cfg(not(feature = "cuda"))]
        GpuReport { lacking: vec![Lacking::Feature], ..GpuReport::default() }
    }

    /// The GPUs that can be computed on.
    pub fn usable(&self) -> &[Gpu] {
        if self.lacking.is_empty() { &self.gpus } else { &[] }
    }

    /// What a person should know: what is missing, and what it means.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.lacking.iter().map(|lacking| format!("no GPU: {lacking}")).collect();
        if !self.usable().is_empty() && !self.cublas {
            notes.push(
                "cuBLAS (libcublas.so.12) cannot be loaded: matrices are multiplied by a plain kernel".to_string(),
            );
        }
        notes
    }
}

impl Gpu {
    /// Name and clock, as profiles record the hardware.
    pub fn description(&self) -> String {
        let megahertz = self.clock_khz / 1000;
        format!(
            "{}, compute {}, {} multiprocessors up to {megahertz} MHz",
            self.name, self.architecture, self.multiprocessors
        )
    }
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = |v: &i32| format!("{}.{}", v / 1000, v % 1000 / 10);
        match self {
            Lacking::Feature => f.write_str("edgecut was built without the feature `cuda`"),
            Lacking::Driver { file, why } => write!(f, "the NVIDIA driver's {file} cannot be used: {why}"),
            Lacking::Version { found, wanted } => {
                write!(f, "the NVIDIA driver is for CUDA {}, {} is needed", version(found), version(wanted))
            }
            Lacking::Card { code: 100 } => f.write_str("the NVIDIA driver finds no card"),
            Lacking::Card { code } => write!(f, "the NVIDIA driver does not start (error {code})"),
            Lacking::Library { name, file } => write!(f, "{name} ({file}) cannot be loaded"),
            Lacking::Start { gpu, why } => write!(f, "{gpu} does not start: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu() -> Gpu {
        Gpu {
            name: "Card".to_string(),
            architecture: "9.0".to_string(),
            multiprocessors: 12,
            clock_khz: 1_500_000,
            memory_clock_khz: 1_000_000,
            memory: Bytes(1 << 30),
        }
    }

    #[test]
    fn whatever_is_missing_is_said_and_nothing_is_offered() {
        for (lacking, text) in [
            (Lacking::Feature, "no GPU: edgecut was built without the feature `cuda`"),
            (
                Lacking::Version { found: 11040, wanted: 12000 },
                "no GPU: the NVIDIA driver is for CUDA 11.4, 12.0 is needed",
            ),
            (Lacking::Card { code: 100 }, "no GPU: the NVIDIA driver finds no card"),
            (Lacking::Card { code: 803 }, "no GPU: the NVIDIA driver does not start (error 803)"),
            (
                Lacking::Library { name: "NVRTC", file: "libnvrtc.so.12" },
                "no GPU: NVRTC (libnvrtc.so.12) cannot be loaded",
            ),
        ] {
            let report = GpuReport { gpus: vec![gpu()], lacking: vec![lacking], ..GpuReport::default() };
            assert_eq!((report.notes(), report.usable()), (vec![text.to_string()], &[][..]));
        }
        let report = GpuReport { gpus: vec![gpu()], ..GpuReport::default() };
        assert_eq!((report.usable().len(), report.notes().len()), (1, 1), "usable, but without cuBLAS");
        assert_eq!(report.gpus[0].description(), "Card, compute 9.0, 12 multiprocessors up to 1500 MHz");
    }

    #[test]
    fn looking_never_panics_and_says_something() {
        let report = GpuReport::look();
        assert!(!report.usable().is_empty() || !report.notes().is_empty(), "{report:?}");
        assert_eq!(report.lacking.contains(&Lacking::Feature), !cfg!(feature = "cuda"));
    }
}
