//! Which GPUs there are, or why there are none: the same in every build.

use std::{fmt, sync::Arc};

use super::Engine;
use crate::units::{Bytes, Micros};

/// What was found of CUDA on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuReport {
    /// The newest version of CUDA that the driver knows.
    pub driver: Option<CudaVersion>,
    /// In the order of the driver.
    pub gpus: Vec<Gpu>,
    /// Compiles the kernels.
    pub nvrtc: Option<CudaVersion>,
    /// Without it matrices are multiplied by a plain kernel, far from the card's peak.
    pub cublas: Option<CudaVersion>,
    /// Whether cuDNN is there. It is only compared with; nothing is computed by it.
    pub cudnn: bool,
    /// What must be there and is not: with anything in here no GPU is offered.
    pub lacking: Vec<Lacking>,
    /// What is not there and need not be.
    pub without: Vec<Lacking>,
}

/// A version of CUDA, as 1000 · major + 10 · minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaVersion(pub i32);

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

/// The driver's error where it has no card, `CUDA_ERROR_NO_DEVICE`.
pub const NO_DEVICE: i32 = 100;

/// Why no GPU is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lacking {
    /// This program cannot compute on GPUs.
    Feature,
    /// The driver's library cannot be loaded, or lacks a function.
    Driver { file: &'static str, why: String },
    /// The driver is older than the program can work with.
    Version { found: CudaVersion, wanted: CudaVersion },
    /// The driver has no card for this process: its error, and what it says of that.
    Card { code: i32, why: String },
    /// A library cannot be loaded, or lacks a function.
    Library { library: GpuLibrary, why: String },
    /// The card does not start.
    Start { gpu: String, why: String },
}

/// What the driver does not bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuLibrary {
    Nvrtc,
    Cublas,
    Cudnn,
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
        let lacking = self.lacking.iter().map(|lacking| format!("no GPU: {lacking}"));
        lacking.chain(self.without.iter().map(Lacking::to_string)).collect()
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

impl CudaVersion {
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only engines look for libraries"))]
    pub(super) fn major(self) -> u32 {
        u32::try_from(self.0 / 1000).unwrap_or(0)
    }
}

impl GpuLibrary {
    fn name(self) -> &'static str {
        match self {
            GpuLibrary::Nvrtc => "NVRTC",
            GpuLibrary::Cublas => "cuBLAS",
            GpuLibrary::Cudnn => "cuDNN",
        }
    }

    /// What is without it.
    fn loss(self) -> &'static str {
        match self {
            GpuLibrary::Nvrtc => "kernels cannot be compiled",
            GpuLibrary::Cublas => "matrices are multiplied by a plain kernel, far from a card's peak",
            GpuLibrary::Cudnn => "no test compares with it",
        }
    }

    /// The package of Python's index that has it, for any driver since CUDA 12.
    fn package(self) -> &'static str {
        match self {
            GpuLibrary::Nvrtc => "nvidia-cuda-nvrtc-cu12",
            GpuLibrary::Cublas => "nvidia-cublas-cu12",
            GpuLibrary::Cudnn => "nvidia-cudnn-cu12",
        }
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lacking::Feature => f.write_str("edgecut was built without the feature `cuda`"),
            Lacking::Driver { file, why } => {
                write!(f, "the NVIDIA driver's {file} cannot be used: {why}; an NVIDIA card comes with one")
            }
            Lacking::Version { found, wanted } => {
                write!(f, "the NVIDIA driver is for CUDA {found}, {wanted} is needed: install a newer driver")
            }
            Lacking::Card { code: NO_DEVICE, .. } => f.write_str("the NVIDIA driver finds no card"),
            Lacking::Card { code, why } => write!(f, "the NVIDIA driver does not start: {why} (error {code})"),
            Lacking::Library { library, why } => write!(
                f,
                "{} cannot be loaded, so {}: {why}; get it by `pip install {}` or NVIDIA's packages, and put its folder into \
                 LD_LIBRARY_PATH",
                library.name(),
                library.loss(),
                library.package()
            ),
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
        let library = |library, why: &str| Lacking::Library { library, why: why.to_string() };
        for (lacking, text) in [
            (Lacking::Feature, "no GPU: edgecut was built without the feature `cuda`"),
            (
                Lacking::Driver { file: "libcuda.so.1", why: "No such file".to_string() },
                "no GPU: the NVIDIA driver's libcuda.so.1 cannot be used: No such file; an NVIDIA card comes with one",
            ),
            (
                Lacking::Version { found: CudaVersion(11040), wanted: CudaVersion(12000) },
                "no GPU: the NVIDIA driver is for CUDA 11.4, 12.0 is needed: install a newer driver",
            ),
            (Lacking::Card { code: NO_DEVICE, why: String::new() }, "no GPU: the NVIDIA driver finds no card"),
            (
                Lacking::Card { code: 803, why: "other versions".to_string() },
                "no GPU: the NVIDIA driver does not start: other versions (error 803)",
            ),
            (
                library(GpuLibrary::Nvrtc, "there is no libnvrtc.so.12"),
                "no GPU: NVRTC cannot be loaded, so kernels cannot be compiled: there is no libnvrtc.so.12; get it \
                 by `pip install nvidia-cuda-nvrtc-cu12` or NVIDIA's packages, and put its folder into LD_LIBRARY_PATH",
            ),
        ] {
            let report = GpuReport { gpus: vec![gpu()], lacking: vec![lacking], ..GpuReport::default() };
            assert_eq!((report.notes(), report.usable()), (vec![text.to_string()], &[][..]));
        }
        let without = vec![library(GpuLibrary::Cublas, "there is none")];
        let report = GpuReport { gpus: vec![gpu()], without, ..GpuReport::default() };
        assert_eq!((report.usable().len(), report.notes().len()), (1, 1), "usable, but without cuBLAS");
        assert!(report.notes()[0].starts_with("cuBLAS cannot be loaded, so matrices"), "{:?}", report.notes());
        assert_eq!(report.gpus[0].description(), "Card, compute 9.0, 12 multiprocessors up to 1500 MHz");
    }

    #[test]
    fn looking_never_panics_and_says_something() {
        let report = GpuReport::look();
        assert!(!report.usable().is_empty() || !report.notes().is_empty(), "{report:?}");
        assert_eq!(report.lacking.contains(&Lacking::Feature), !cfg!(feature = "cuda"));
    }
}
