//! What of CUDA is on this machine, found out without touching what is not: bindings panic where a library is missing.

use std::ffi::{CStr, c_char, c_int};

use libloading::{Library, Symbol};

use crate::{
    engine::gpu::{Gpu, GpuReport, Lacking},
    units::Bytes,
};

/// The driver's library: every other one is looked for by the bindings' own names.
const DRIVER: &str = "libcuda.so.1";
/// The first version of CUDA whose driver has all functions that are called.
const OLDEST_DRIVER: c_int = 12000;

/// `CUdevice_attribute`s.
const CLOCK_RATE: c_int = 13;
const MULTIPROCESSORS: c_int = 16;
const MEMORY_CLOCK_RATE: c_int = 36;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;

/// Looks for the driver, its cards, and the libraries.
pub(super) fn look() -> GpuReport {
    let mut report = match Driver::open() {
        Ok(driver) => driver.report(),
        Err(lacking) => GpuReport { lacking: vec![lacking], ..GpuReport::default() },
    };
    if report.lacking.is_empty() {
        // SAFETY: these only try to open the libraries, under the names by which the bindings look for them.
        let (nvrtc, cublas, cudnn) = unsafe {
            (
                cudarc::nvrtc::sys::is_culib_present(),
                cudarc::cublas::sys::is_culib_present(),
                cudarc::cudnn::sys::is_culib_present(),
            )
        };
        (report.cublas, report.cudnn) = (cublas, cudnn);
        if !nvrtc {
            report.lacking.push(Lacking::Library { name: "NVRTC", file: "libnvrtc.so.12" });
        }
    }
    report
}

/// The driver's library with the few functions that describe a card. Not by the bindings: those end in a panic where a
/// function is missing.
struct Driver {
    library: Library,
}

type Result<T> = std::result::Result<T, Lacking>;

impl Driver {
    fn open() -> Result<Driver> {
        // SAFETY: the driver's library prepares itself when it is loaded, and needs nothing from us.
        let library = unsafe { Library::new(DRIVER) };
        let library = library.map_err(|e| unusable(&e))?;
        let driver = Driver { library };
        // SAFETY: `cuInit(unsigned)`.
        let state = unsafe { (driver.function::<unsafe extern "C" fn(u32) -> c_int>(c"cuInit")?)(0) };
        if state != 0 {
            return Err(Lacking::Card { code: state });
        }
        let mut version = 0;
        // SAFETY: `cuDriverGetVersion(int *)`.
        unsafe { (driver.function::<unsafe extern "C" fn(*mut c_int) -> c_int>(c"cuDriverGetVersion")?)(&mut version) };
        if version < OLDEST_DRIVER {
            return Err(Lacking::Version { found: version, wanted: OLDEST_DRIVER });
        }
        Ok(driver)
    }

    /// # Errors
    /// If the library has no such function.
    fn function<T>(&self, name: &CStr) -> Result<Symbol<'_, T>> {
        // SAFETY: callers give the type that the driver's documentation has for the name.
        unsafe { self.library.get(name.to_bytes_with_nul()) }.map_err(|e| unusable(&e))
    }

    fn report(&self) -> GpuReport {
        let cards = || -> Result<(String, Vec<Gpu>)> {
            let (mut count, mut version) = (0, 0);
            // SAFETY: `cuDeviceGetCount(int *)`, `cuDriverGetVersion(int *)`.
            unsafe {
                (self.function::<unsafe extern "C" fn(*mut c_int) -> c_int>(c"cuDeviceGetCount")?)(&mut count);
                (self.function::<unsafe extern "C" fn(*mut c_int) -> c_int>(c"cuDriverGetVersion")?)(&mut version);
            }
            let gpus = (0..count).map(|ordinal| self.gpu(ordinal)).collect::<Result<Vec<_>>>()?;
            Ok((format!("{}.{}", version / 1000, version % 1000 / 10), gpus))
        };
        match cards() {
            Ok((driver, gpus)) if !gpus.is_empty() => GpuReport { driver: Some(driver), gpus, ..GpuReport::default() },
            Ok((driver, _)) => {
                GpuReport { driver: Some(driver), lacking: vec![Lacking::Card { code: 100 }], ..GpuReport::default() }
            }
            Err(lacking) => GpuReport { lacking: vec![lacking], ..GpuReport::default() },
        }
    }

    fn gpu(&self, ordinal: c_int) -> Result<Gpu> {
        let mut name = [0 as c_char; 256];
        let (mut device, mut bytes) = (0, 0usize);
        // SAFETY: `cuDeviceGet(CUdevice *, int)`, `cuDeviceGetName(char *, int, CUdevice)`,
        // `cuDeviceTotalMem_v2(size_t *, CUdevice)`; a name is cut to the length that is given, with its end.
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
        })
    }
}

/// What the loader says, which stands behind the error's own words.
fn unusable(error: &libloading::Error) -> Lacking {
    let why = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    Lacking::Driver { file: DRIVER, why }
}
