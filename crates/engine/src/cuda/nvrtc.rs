//! NVRTC, NVIDIA's run-time compiler: kernel source → code for one GPU.
//!
//! If the compiler knows the GPU's architecture, it emits machine code, which any minor version of the driver loads
//! without further compilation. For newer GPUs it emits PTX, which the driver compiles.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr::null,
};

use super::{
    driver::GpuError,
    libraries::{NotFound, find, functions},
};
use crate::CudaVersion;

/// `nvrtcProgram`.
type ProgramHandle = *mut c_void;

functions! {
    Functions {
        version = nvrtcVersion(*mut c_int, *mut c_int),
        count_architectures = nvrtcGetNumSupportedArchs(*mut c_int),
        architectures = nvrtcGetSupportedArchs(*mut c_int),
        create = nvrtcCreateProgram(
            *mut ProgramHandle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
        ),
        compile = nvrtcCompileProgram(ProgramHandle, c_int, *const *const c_char),
        log_size = nvrtcGetProgramLogSize(ProgramHandle, *mut usize),
        log = nvrtcGetProgramLog(ProgramHandle, *mut c_char),
        ptx_size = nvrtcGetPTXSize(ProgramHandle, *mut usize),
        ptx = nvrtcGetPTX(ProgramHandle, *mut c_char),
        cubin_size = nvrtcGetCUBINSize(ProgramHandle, *mut usize),
        cubin = nvrtcGetCUBIN(ProgramHandle, *mut c_char),
        destroy = nvrtcDestroyProgram(*mut ProgramHandle),
    }
}

/// An NVRTC library found on this machine.
pub(super) struct NvrtcLibrary {
    functions: Functions,
    pub version: CudaVersion,
    /// Supported compute capabilities, as 10 · major + minor.
    pub architectures: Vec<c_int>,
}

/// The target of a compilation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Machine code for this architecture.
    Exact(c_int),
    /// PTX for this architecture and later ones.
    AtLeast(c_int),
}

impl NvrtcLibrary {
    /// The newest compiler that works with a driver for CUDA `newest`.
    pub(super) fn find(newest: u32) -> Result<NvrtcLibrary, NotFound> {
        find("nvrtc", newest, |library| NvrtcLibrary::of(Functions::of(library)?, newest))
    }

    /// The newest compiler that supports this compute capability (10 · major + minor).
    pub(super) fn for_capability(newest: u32, architecture: c_int) -> Result<NvrtcLibrary, NotFound> {
        find("nvrtc", newest, |library| {
            let compiler = NvrtcLibrary::of(Functions::of(library)?, newest)?;
            match target(&compiler.architectures, architecture) {
                Some(_) => Ok(compiler),
                None => Err(format!("version {} does not support this GPU", compiler.version)),
            }
        })
    }

    fn of(functions: Functions, newest: u32) -> Result<NvrtcLibrary, String> {
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: the functions write one number to each address.
        let queried =
            unsafe { [(functions.version)(&mut major, &mut minor), (functions.count_architectures)(&mut count)] };
        let mut architectures = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: the vector has as many elements as the library reported.
        let listed = unsafe { (functions.architectures)(architectures.as_mut_ptr()) };
        if queried != [0, 0] || listed != 0 {
            return Err("it does not report the supported GPUs".to_string());
        }
        let version = CudaVersion(1000 * major + 10 * minor);
        if version.major() > newest {
            return Err(format!("version {version} is newer than the driver"));
        }
        Ok(NvrtcLibrary { functions, version, architectures })
    }

    /// Code for a GPU of this compute capability, for `cuModuleLoadData`.
    ///
    /// # Errors
    /// If the source does not compile; the error contains the compiler's log.
    pub(super) fn compile(&self, source: &str, architecture: c_int) -> Result<Vec<u8>, GpuError> {
        self.compile_with(source, architecture, &[]).map(|(code, _)| code)
    }

    /// The code and the compiler's log.
    fn compile_with(&self, source: &str, architecture: c_int, options: &[&str]) -> Result<(Vec<u8>, String), GpuError> {
        let target = target(&self.architectures, architecture).ok_or_else(|| {
            GpuError::Failed(format!("NVRTC {} does not support compute capability {architecture}", self.version))
        })?;
        // The default precision is that of C: products and sums may be contracted, roots and quotients are correctly rounded.
        let architecture = match target {
            Target::Exact(architecture) => format!("--gpu-architecture=sm_{architecture}"),
            Target::AtLeast(architecture) => format!("--gpu-architecture=compute_{architecture}"),
        };
        let text = |text: &str| {
            CString::new(text).map_err(|_| GpuError::Failed("the source contains a zero byte".to_string()))
        };
        let source = text(source)?;
        let options = std::iter::once(architecture.as_str()).chain(options.iter().copied()).map(text);
        let options = options.collect::<Result<Vec<CString>, _>>()?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut unit = CompilationUnit { functions: &self.functions, program: std::ptr::null_mut() };
        // SAFETY: the source is zero-terminated and outlives the unit; there are no headers.
        let created = unsafe { (self.functions.create)(&mut unit.program, source.as_ptr(), null(), 0, null(), null()) };
        unit.check("creating the program", created)?;
        // SAFETY: `options` has this length, and its elements are zero-terminated.
        let compiled = unsafe { (self.functions.compile)(unit.program, options.len() as c_int, options.as_ptr()) };
        let log = unit.bytes(self.functions.log_size, self.functions.log).unwrap_or_default();
        let log = CStr::from_bytes_until_nul(&log).map(|log| log.to_string_lossy().into_owned()).unwrap_or_default();
        unit.check(&log, compiled)?;
        let code = match target {
            Target::Exact(_) => unit.bytes(self.functions.cubin_size, self.functions.cubin),
            Target::AtLeast(_) => unit.bytes(self.functions.ptx_size, self.functions.ptx),
        }?;
        Ok((code, log))
    }
}

/// The best target of a compiler that knows these architectures; `None` if all of them are newer than the GPU.
fn target(known: &[c_int], capability: c_int) -> Option<Target> {
    match known.contains(&capability) {
        true => Some(Target::Exact(capability)),
        false => known.iter().copied().filter(|known| *known < capability).max().map(Target::AtLeast),
    }
}

/// One compilation.
struct CompilationUnit<'c> {
    functions: &'c Functions,
    program: ProgramHandle,
}

impl CompilationUnit<'_> {
    fn check(&self, what: &str, status: c_int) -> Result<(), GpuError> {
        match status {
            0 => Ok(()),
            _ => Err(GpuError::Failed(format!("NVRTC fails with status {status}: {what}"))),
        }
    }

    /// Calls a pair of functions of which the first returns a size and the second a buffer of that size.
    fn bytes(
        &self,
        size: unsafe extern "C" fn(ProgramHandle, *mut usize) -> c_int,
        get: unsafe extern "C" fn(ProgramHandle, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, GpuError> {
        let mut count = 0;
        // SAFETY: the program is alive, and the buffer has the reported size.
        unsafe {
            self.check("querying a size", size(self.program, &mut count))?;
            let mut bytes = vec![0u8; count];
            self.check("reading the output", get(self.program, bytes.as_mut_ptr().cast::<c_char>()))?;
            Ok(bytes)
        }
    }
}

impl Drop for CompilationUnit<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: the program was created and is not used afterwards. An error cannot be handled here.
            let _ = unsafe { (self.functions.destroy)(&mut self.program) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::{libraries::NEWEST, source::KernelFamily};

    #[test]
    fn known_architectures_get_machine_code_and_newer_ones_ptx() {
        let known = [75, 80, 90];
        for (capability, wanted) in [
            (80, Some(Target::Exact(80))),
            (86, Some(Target::AtLeast(80))),
            (120, Some(Target::AtLeast(90))),
            (70, None),
        ] {
            assert_eq!(target(&known, capability), wanted, "{capability}");
        }
    }

    /// Architectures that kernels are compiled for, if the compiler supports them: five generations.
    const ARCHITECTURES: [c_int; 5] = [60, 75, 80, 90, 120];

    /// Needs no GPU. Also checks the assembler's report: a kernel that spills registers, or copies its arguments to local
    /// memory, is slow.
    #[test]
    fn every_kernel_compiles_for_every_architecture() {
        let compiler = match NvrtcLibrary::find(NEWEST) {
            Ok(compiler) => compiler,
            Err(NotFound(why)) => {
                assert!(std::env::var_os("EDGECUT_REQUIRE_NVRTC").is_none(), "{why}");
                return eprintln!("SKIPPED, NOT RUN: NVRTC cannot be loaded ({why}); see docs/gpu.md");
            }
        };
        for architecture in
            ARCHITECTURES.into_iter().filter(|architecture| compiler.architectures.contains(architecture))
        {
            let (mut kernels, mut most_registers, mut most_shared) = (0, 0, 0);
            for family in KernelFamily::ALL {
                let source = family.source();
                let (code, log) = compiler.compile_with(&source, architecture, &["--ptxas-options=-v"]).unwrap();
                assert_eq!(&code[..4], b"\x7fELF", "{family:?}");
                let mut name = "";
                for line in log.lines() {
                    let number = |behind: &str| -> Option<u32> {
                        let at = line.find(behind)?;
                        let digits = line[..at].trim_end().rsplit(|c: char| !c.is_ascii_digit()).next()?;
                        digits.parse().ok()
                    };
                    if let Some((_, rest)) = line.split_once("Compiling entry function '") {
                        name = rest.split('\'').next().unwrap();
                        kernels += 1;
                    }
                    assert_eq!(
                        number("bytes spill stores").unwrap_or(0),
                        0,
                        "{name} for compute {architecture}: {line}"
                    );
                    // The argument reduction of double-precision sines uses local memory.
                    let copies = number("bytes stack frame").unwrap_or(0) > 0 && !name.ends_with("_f64");
                    assert!(!copies || architecture < 70, "{name} for compute {architecture}: {line}");
                    most_registers = most_registers.max(number("registers").unwrap_or(0));
                    most_shared = most_shared.max(number("bytes smem").unwrap_or(0));
                }
            }
            println!(
                "NVRTC {}, compute {architecture}: {kernels} kernels, at most {most_registers} registers a thread and \
                 {most_shared} bytes a block shared",
                compiler.version
            );
            // The largest block has 256 threads, and every GPU has 65536 registers per block.
            assert!(kernels > 200 && most_registers <= 255 && most_shared <= 48 << 10);
        }
    }

    #[test]
    fn errors_contain_the_log_of_the_compiler() {
        let Ok(compiler) = NvrtcLibrary::find(NEWEST) else {
            return eprintln!("SKIPPED, NOT RUN: NVRTC cannot be loaded; see docs/gpu.md");
        };
        let newest = *compiler.architectures.iter().max().unwrap();
        let error = compiler.compile("extern \"C\" __global__ void k() { nothing(); }", newest).unwrap_err();
        assert!(error.to_string().contains("nothing"), "{error}");
        // A newer GPU gets PTX.
        let later = compiler.compile("extern \"C\" __global__ void k() { }", newest + 1000).unwrap();
        assert!(later.starts_with(b"//") && later.ends_with(b"\0"));
    }
}
