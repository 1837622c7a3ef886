//! Detects the NVIDIA driver, GPUs and libraries of this machine, without cudarc's bindings, which panic if a library or
//! function is missing.

use std::{
    ffi::{CStr, c_char, c_int},
    mem::ManuallyDrop,
};

use libloading::{Library, Symbol};

use super::{
    cublas::CublasLibrary,
    cudnn::CudnnLibrary,
    libraries::{NEWEST, NotFound, reason},
    nvrtc::NvrtcLibrary,
};
use crate::{CudaVersion, Gpu, GpuLibrary, GpuReport, MissingRequirement, gpu::NO_DEVICE};
use edgecut_graph::units::Bytes;

const DRIVER: &str = "libcuda.so.1";
/// First version of CUDA whose driver has all [`REQUIRED_FUNCTIONS`].
const OLDEST_DRIVER: CudaVersion = CudaVersion(12000);

/// Values of `CUdevice_attribute`; clock rates are in kHz.
const CLOCK_RATE: c_int = 13;
const MULTIPROCESSORS: c_int = 16;
const MEMORY_CLOCK_RATE: c_int = 36;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;

/// Functions that the engine calls through cudarc.
const REQUIRED_FUNCTIONS: [&CStr; 33] = [
    c"cuCtxGetCurrent",
    c"cuCtxSetCurrent",
    c"cuCtxSynchronize",
    c"cuDeviceGet",
    c"cuDeviceGetAttribute",
    c"cuDeviceGetDefaultMemPool",
    c"cuDevicePrimaryCtxRelease_v2",
    c"cuDevicePrimaryCtxRetain",
    c"cuEventCreate",
    c"cuEventDestroy_v2",
    c"cuEventElapsedTime",
    c"cuEventRecord",
    c"cuEventSynchronize",
    c"cuGetErrorString",
    c"cuInit",
    c"cuLaunchKernel",
    c"cuMemAllocAsync",
    c"cuMemAlloc_v2",
    c"cuMemFreeAsync",
    c"cuMemFreeHost",
    c"cuMemFree_v2",
    c"cuMemGetInfo_v2",
    c"cuMemHostAlloc",
    c"cuMemPoolSetAttribute",
    c"cuMemPoolTrimTo",
    c"cuMemcpyDtoHAsync_v2",
    c"cuMemcpyHtoDAsync_v2",
    c"cuModuleGetFunction",
    c"cuModuleLoadData",
    c"cuModuleUnload",
    c"cuStreamCreate",
    c"cuStreamDestroy_v2",
    c"cuStreamSynchronize",
];

/// Detects the driver, its GPUs and the CUDA libraries. Whatever cannot be loaded is reported as missing. If the driver's library
/// cannot be used, as on a machine that has no GPU, only that is reported.
pub(crate) fn detect() -> GpuReport {
    let mut report = match DriverLibrary::open() {
        Ok(driver) => driver.report(),
        Err(missing @ MissingRequirement::Driver { .. }) => {
            return GpuReport { missing: vec![missing], ..GpuReport::default() };
        }
        Err(missing) => GpuReport { missing: vec![missing], ..GpuReport::default() },
    };
    let newest = report.driver.map_or(NEWEST, CudaVersion::major);
    match NvrtcLibrary::find(newest) {
        Ok(compiler) => report.nvrtc = Some(compiler.version),
        Err(NotFound(why)) => report.missing.push(MissingRequirement::Library { library: GpuLibrary::Nvrtc, why }),
    }
    match CublasLibrary::find(newest) {
        Ok(cublas) => report.cublas = Some(cublas.version),
        Err(NotFound(why)) => {
            report.missing_optional.push(MissingRequirement::Library { library: GpuLibrary::Cublas, why })
        }
    }
    match CudnnLibrary::find(newest) {
        Ok(cudnn) => report.cudnn = Some(cudnn.version),
        Err(NotFound(why)) => {
            report.missing_optional.push(MissingRequirement::Library { library: GpuLibrary::Cudnn, why })
        }
    }
    report
}

/// The driver library, with the functions that describe a GPU.
struct DriverLibrary {
    /// Never unloaded: once initialised, the driver has threads.
    library: ManuallyDrop<Library>,
}

type Result<T> = std::result::Result<T, MissingRequirement>;

impl DriverLibrary {
    fn open() -> Result<DriverLibrary> {
        // SAFETY: loading the driver library has no other effects.
        let library = unsafe { Library::new(DRIVER) };
        let library = library.map_err(|e| unusable(&e))?;
        let driver = DriverLibrary { library: ManuallyDrop::new(library) };
        // SAFETY: `cuInit(unsigned)`.
        let status = unsafe { (driver.function::<unsafe extern "C" fn(u32) -> c_int>(c"cuInit")?)(0) };
        if status != 0 {
            return Err(MissingRequirement::Device { code: status, why: driver.error_text(status)? });
        }
        let found = driver.version()?;
        if found < OLDEST_DRIVER {
            return Err(MissingRequirement::Version { found, wanted: OLDEST_DRIVER });
        }
        for name in REQUIRED_FUNCTIONS {
            driver.function::<unsafe extern "C" fn()>(name)?;
        }
        Ok(driver)
    }

    fn version(&self) -> Result<CudaVersion> {
        let mut version = 0;
        // SAFETY: `cuDriverGetVersion(int *)`.
        unsafe { (self.function::<unsafe extern "C" fn(*mut c_int) -> c_int>(c"cuDriverGetVersion")?)(&mut version) };
        Ok(CudaVersion(version))
    }

    /// The driver's description of an error code.
    fn error_text(&self, code: c_int) -> Result<String> {
        let describe =
            self.function::<unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int>(c"cuGetErrorString")?;
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: `cuGetErrorString(CUresult, const char **)` returns a static string or null.
        let text = unsafe {
            describe(code, &mut text);
            (!text.is_null()).then(|| CStr::from_ptr(text))
        };
        Ok(text.map_or_else(|| "no description".to_string(), |text| text.to_string_lossy().into_owned()))
    }

    /// # Errors
    /// If the library has no such function.
    fn function<T>(&self, name: &CStr) -> Result<Symbol<'_, T>> {
        // SAFETY: callers pass the documented type of the function.
        unsafe { self.library.get(name.to_bytes_with_nul()) }.map_err(|e| unusable(&e))
    }

    fn report(&self) -> GpuReport {
        let mut report = GpuReport { driver: self.version().ok(), ..GpuReport::default() };
        match self.gpus() {
            Ok(gpus) if gpus.is_empty() => {
                report.missing.push(MissingRequirement::Device { code: NO_DEVICE, why: String::new() })
            }
            Ok(gpus) => report.gpus = gpus,
            Err(missing) => report.missing.push(missing),
        }
        report
    }

    fn gpus(&self) -> Result<Vec<Gpu>> {
        let mut count = 0;
        // SAFETY: `cuDeviceGetCount(int *)`.
        unsafe { (self.function::<unsafe extern "C" fn(*mut c_int) -> c_int>(c"cuDeviceGetCount")?)(&mut count) };
        (0..count).map(|ordinal| self.gpu(ordinal)).collect()
    }

    fn gpu(&self, ordinal: c_int) -> Result<Gpu> {
        let mut name = [0 as c_char; 256];
        let (mut device, mut bytes) = (0, 0usize);
        // SAFETY: `cuDeviceGet(CUdevice *, int)`, `cuDeviceGetName(char *, int, CUdevice)`,
        // `cuDeviceTotalMem_v2(size_t *, CUdevice)`; names are truncated to the given length and zero-terminated.
        unsafe {
            (self.function::<unsafe extern "C" fn(*mut c_int, c_int) -> c_int>(c"cuDeviceGet")?)(&mut device, ordinal);
            let get_name =
                self.function::<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int>(c"cuDeviceGetName")?;
            get_name(name.as_mut_ptr(), name.len() as c_int - 1, device);
            let total = self.function::<unsafe extern "C" fn(*mut usize, c_int) -> c_int>(c"cuDeviceTotalMem_v2")?;
            total(&mut bytes, device);
        }
        let attribute = |which: c_int| -> Result<u32> {
            let mut value = 0;
            let get =
                self.function::<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int>(c"cuDeviceGetAttribute")?;
            // SAFETY: `cuDeviceGetAttribute(int *, CUdevice_attribute, CUdevice)`.
            unsafe { get(&mut value, which, device) };
            Ok(value.max(0) as u32)
        };
        let name: Vec<u8> = name.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
        Ok(Gpu {
            name: String::from_utf8_lossy(&name).into_owned(),
            architecture: format!("{}.{}", attribute(MAJOR)?, attribute(MINOR)?),
            multiprocessors: attribute(MULTIPROCESSORS)?,
            clock_khz: attribute(CLOCK_RATE)?,
            memory_clock_khz: attribute(MEMORY_CLOCK_RATE)?,
            memory: Bytes(bytes as u64),
            pci_bus_id: self.pci_bus_id(device),
        })
    }

    fn pci_bus_id(&self, device: c_int) -> Option<String> {
        let get = self.function::<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int>(c"cuDeviceGetPCIBusId");
        let mut id = [0 as c_char; 32];
        // SAFETY: `cuDeviceGetPCIBusId(char *, int, CUdevice)` writes no more than the given length.
        let status = unsafe { get.ok()?(id.as_mut_ptr(), id.len() as c_int - 1, device) };
        let id: Vec<u8> = id.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
        String::from_utf8(id).ok().filter(|id| status == 0 && !id.is_empty())
    }
}

fn unusable(error: &libloading::Error) -> MissingRequirement {
    MissingRequirement::Driver { file: DRIVER, why: reason(error) }
}
