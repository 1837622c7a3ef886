//! The GPUs of this machine, and why one cannot be used. Independent of the feature `cuda`.

use std::{fmt, sync::Arc};

use crate::{
    Engine,
    energy::{EnergyMeter, NoEnergySource},
};
use edgecut_graph::units::{Bytes, Micros};

/// The state of CUDA on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuReport {
    /// Newest version of CUDA that the driver supports.
    pub driver: Option<CudaVersion>,
    /// In the driver's order.
    pub gpus: Vec<Gpu>,
    /// Version of the run-time compiler, which compiles the kernels.
    pub nvrtc: Option<CudaVersion>,
    /// Version of the matrix library. Without it a simple kernel multiplies matrices, far below peak performance.
    pub cublas: Option<CudaVersion>,
    /// Version of the library of convolutions. Without it they are matrix products.
    pub cudnn: Option<CudnnVersion>,
    /// Missing mandatory requirements: unless this is empty, no GPU is used.
    pub missing: Vec<MissingRequirement>,
    /// Missing optional requirements.
    pub missing_optional: Vec<MissingRequirement>,
}

/// A version of CUDA, as 1000 · major + 10 · minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaVersion(pub i32);

/// A version of cuDNN as the library reports it: 10000 · major + 100 · minor + patch since version 9, before that
/// 1000 · major + 100 · minor + patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudnnVersion(pub usize);

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    pub name: String,
    /// Compute capability.
    pub architecture: String,
    pub multiprocessors: u32,
    /// Maximum clock rates.
    pub clock_khz: u32,
    pub memory_clock_khz: u32,
    pub memory: Bytes,
    /// `domain:bus:device.function`, by which NVML knows it; `None` if the driver does not tell it.
    pub pci_bus_id: Option<String>,
}

/// `CUDA_ERROR_NO_DEVICE`: the driver finds no GPU.
pub(crate) const NO_DEVICE: i32 = 100;

/// Why a GPU, or an optional feature of one, cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MissingRequirement {
    /// The program was built without support for GPUs.
    Feature,
    /// The driver library cannot be loaded or has no such function.
    Driver { file: &'static str, why: String },
    /// The driver is too old.
    Version { found: CudaVersion, wanted: CudaVersion },
    /// The driver has no GPU for this process: error code and text of the driver.
    Device { code: i32, why: String },
    /// A library cannot be loaded or has no such function.
    Library { library: GpuLibrary, why: String },
    /// The GPU cannot be initialised.
    Start { gpu: String, why: String },
}

/// NVIDIA libraries that are not part of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuLibrary {
    Nvrtc,
    Cublas,
    Cudnn,
}

/// The GPUs that were started, and notes for the user on those that were not.
#[derive(Default)]
pub struct StartedGpus {
    pub gpus: Vec<StartedGpu>,
    pub notes: Vec<String>,
}

/// A GPU with its engine and its host link.
pub struct StartedGpu {
    pub gpu: Gpu,
    pub engine: Arc<dyn Engine>,
    /// Free device memory.
    pub free: Bytes,
    /// Measured copies from main memory to the device and back, by size.
    pub to_device: Vec<(Bytes, Micros)>,
    pub from_device: Vec<(Bytes, Micros)>,
    /// What tells its energy, or why nothing does.
    pub energy: Result<EnergyMeter, NoEnergySource>,
}

impl GpuReport {
    /// The GPUs that an engine can be started on.
    pub fn usable(&self) -> &[Gpu] {
        if self.missing.is_empty() { &self.gpus } else { &[] }
    }

    /// Notes for the user: what is missing, and its consequence.
    pub fn notes(&self) -> Vec<String> {
        let missing = self.missing.iter().map(|missing| format!("no GPU: {missing}"));
        missing.chain(self.missing_optional.iter().map(MissingRequirement::to_string)).collect()
    }
}

impl Gpu {
    /// Name, architecture and clock rate, as recorded in profiles.
    pub fn description(&self) -> String {
        let megahertz = self.clock_khz / 1000;
        format!(
            "{}, compute {}, {} multiprocessors up to {megahertz} MHz",
            self.name, self.architecture, self.multiprocessors
        )
    }
}

impl CudaVersion {
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only engines load libraries"))]
    pub(crate) fn major(self) -> u32 {
        u32::try_from(self.0 / 1000).unwrap_or(0)
    }
}

impl CudnnVersion {
    /// What the major version is multiplied with.
    fn scale(self) -> usize {
        if self.0 >= 90_000 { 10_000 } else { 1000 }
    }

    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only engines load libraries"))]
    pub(crate) fn major(self) -> u32 {
        u32::try_from(self.0 / self.scale()).unwrap_or(0)
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

    /// What happens without it.
    fn consequence(self) -> &'static str {
        match self {
            GpuLibrary::Nvrtc => "kernels cannot be compiled",
            GpuLibrary::Cublas => "matrices are multiplied by a simple kernel, far below peak performance",
            GpuLibrary::Cudnn => "convolutions are matrix products, which take more memory and are usually slower",
        }
    }

    /// The PyPI package that contains it, for drivers since CUDA 12.
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

impl fmt::Display for CudnnVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = self.0 % self.scale();
        write!(f, "{}.{}.{}", self.0 / self.scale(), rest / 100, rest % 100)
    }
}

impl fmt::Display for MissingRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MissingRequirement::Feature => f.write_str("edgecut was built without the feature `cuda`"),
            MissingRequirement::Driver { file, why } => {
                write!(f, "the NVIDIA driver's {file} cannot be used: {why}; install the NVIDIA driver")
            }
            MissingRequirement::Version { found, wanted } => {
                write!(f, "the NVIDIA driver supports CUDA {found}, but {wanted} is required: install a newer driver")
            }
            MissingRequirement::Device { code: NO_DEVICE, .. } => f.write_str("the NVIDIA driver finds no GPU"),
            MissingRequirement::Device { code, why } => {
                write!(f, "the NVIDIA driver cannot be initialised: {why} (error {code})")
            }
            MissingRequirement::Library { library, why } => write!(
                f,
                "{} cannot be loaded, so {}: {why}; install it with `pip install {}` or from NVIDIA's packages, and add its \
                 folder to LD_LIBRARY_PATH",
                library.name(),
                library.consequence(),
                library.package()
            ),
            MissingRequirement::Start { gpu, why } => write!(f, "{gpu} cannot be initialised: {why}"),
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
            pci_bus_id: Some("0000:65:00.0".to_string()),
        }
    }

    #[test]
    fn a_missing_requirement_is_reported_and_no_gpu_is_usable() {
        let library = |library, why: &str| MissingRequirement::Library { library, why: why.to_string() };
        for (missing, text) in [
            (MissingRequirement::Feature, "no GPU: edgecut was built without the feature `cuda`"),
            (
                MissingRequirement::Driver { file: "libcuda.so.1", why: "No such file".to_string() },
                "no GPU: the NVIDIA driver's libcuda.so.1 cannot be used: No such file; install the NVIDIA driver",
            ),
            (
                MissingRequirement::Version { found: CudaVersion(11040), wanted: CudaVersion(12000) },
                "no GPU: the NVIDIA driver supports CUDA 11.4, but 12.0 is required: install a newer driver",
            ),
            (
                MissingRequirement::Device { code: NO_DEVICE, why: String::new() },
                "no GPU: the NVIDIA driver finds no GPU",
            ),
            (
                MissingRequirement::Device { code: 803, why: "other versions".to_string() },
                "no GPU: the NVIDIA driver cannot be initialised: other versions (error 803)",
            ),
            (
                library(GpuLibrary::Nvrtc, "libnvrtc.so.12 was not found"),
                "no GPU: NVRTC cannot be loaded, so kernels cannot be compiled: libnvrtc.so.12 was not found; \
                 install it with `pip install nvidia-cuda-nvrtc-cu12` or from NVIDIA's packages, and add its folder to \
                 LD_LIBRARY_PATH",
            ),
        ] {
            let report = GpuReport { gpus: vec![gpu()], missing: vec![missing], ..GpuReport::default() };
            assert_eq!((report.notes(), report.usable()), (vec![text.to_string()], &[][..]));
        }
        let missing_optional = vec![library(GpuLibrary::Cublas, "there is none")];
        let report = GpuReport { gpus: vec![gpu()], missing_optional, ..GpuReport::default() };
        assert_eq!((report.usable().len(), report.notes().len()), (1, 1), "usable, but without cuBLAS");
        assert!(report.notes()[0].starts_with("cuBLAS cannot be loaded, so matrices"), "{:?}", report.notes());
        assert_eq!(report.gpus[0].description(), "Card, compute 9.0, 12 multiprocessors up to 1500 MHz");
    }
}
