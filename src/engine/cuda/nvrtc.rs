//! NVIDIA's run-time compiler: from kernels' source to code for one card.
//!
//! Code is made for the very card where the compiler knows it: the driver loads such code whatever minor version either
//! is of, and has nothing left to translate. For a card that is newer than the compiler it is in PTX, which the driver
//! translates.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr::null,
};

use super::{
    card::CardError,
    libraries::{NotFound, find, functions},
};
use crate::engine::gpu::CudaVersion;

/// `nvrtcProgram`.
type Program = *mut c_void;

functions! {
    Functions {
        version = nvrtcVersion(*mut c_int, *mut c_int),
        count_architectures = nvrtcGetNumSupportedArchs(*mut c_int),
        architectures = nvrtcGetSupportedArchs(*mut c_int),
        create = nvrtcCreateProgram(
            *mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
        ),
        compile = nvrtcCompileProgram(Program, c_int, *const *const c_char),
        log_size = nvrtcGetProgramLogSize(Program, *mut usize),
        log = nvrtcGetProgramLog(Program, *mut c_char),
        ptx_size = nvrtcGetPTXSize(Program, *mut usize),
        ptx = nvrtcGetPTX(Program, *mut c_char),
        cubin_size = nvrtcGetCUBINSize(Program, *mut usize),
        cubin = nvrtcGetCUBIN(Program, *mut c_char),
        destroy = nvrtcDestroyProgram(*mut Program),
    }
}

/// A compiler that was found on this machine.
pub(super) struct Compiler {
    functions: Functions,
    pub version: CudaVersion,
    /// Compute capabilities that it knows, as 10 · major + minor.
    pub architectures: Vec<c_int>,
}

/// What code is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// This architecture alone.
    Exact(c_int),
    /// This architecture and all that come after it.
    Since(c_int),
}

impl Compiler {
    /// The newest compiler that a driver for CUDA `newest` works with.
    pub(super) fn find(newest: u32) -> Result<Compiler, NotFound> {
        find("nvrtc", newest, |library| Compiler::of(Functions::of(library)?, newest))
    }

    /// The newest one that makes code for a card of this compute capability (10 · major + minor).
    pub(super) fn for_card(newest: u32, architecture: c_int) -> Result<Compiler, NotFound> {
        find("nvrtc", newest, |library| {
            let compiler = Compiler::of(Functions::of(library)?, newest)?;
            match target(&compiler.architectures, architecture) {
                Some(_) => Ok(compiler),
                None => Err(format!("version {} makes no code for a card that old", compiler.version)),
            }
        })
    }

    fn of(functions: Functions, newest: u32) -> Result<Compiler, String> {
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: the functions write one number to each place.
        let asked =
            unsafe { [(functions.version)(&mut major, &mut minor), (functions.count_architectures)(&mut count)] };
        let mut architectures = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: there is room for as many numbers as the function said.
        let listed = unsafe { (functions.architectures)(architectures.as_mut_ptr()) };
        if asked != [0, 0] || listed != 0 {
            return Err("it does not say which cards it knows".to_string());
        }
        let version = CudaVersion(1000 * major + 10 * minor);
        if version.major() > newest {
            return Err(format!("version {version} is newer than the driver"));
        }
        Ok(Compiler { functions, version, architectures })
    }

    /// Code for a card of this compute capability, as `cuModuleLoadData` takes it.
    ///
    /// # Errors
    /// If the source does not compile; the compiler's words are in the text.
    pub(super) fn compile(&self, source: &str, architecture: c_int) -> Result<Vec<u8>, CardError> {
        self.compile_with(source, architecture, &[]).map(|(code, _)| code)
    }

    /// The code, and what the compiler says.
    fn compile_with(
        &self,
        source: &str,
        architecture: c_int,
        options: &[&str],
    ) -> Result<(Vec<u8>, String), CardError> {
        let target = target(&self.architectures, architecture)
            .ok_or_else(|| CardError(format!("NVRTC {} makes no code for compute {architecture}", self.version)))?;
        // Its defaults are as exact as C: sums of products may be joined, roots and quotients are rounded to nearest.
        let architecture = match target {
            Target::Exact(architecture) => format!("--gpu-architecture=sm_{architecture}"),
            Target::Since(architecture) => format!("--gpu-architecture=compute_{architecture}"),
        };
        let text = |text: &str| CString::new(text).map_err(|_| CardError("source with a zero byte".to_string()));
        let source = text(source)?;
        let options = std::iter::once(architecture.as_str()).chain(options.iter().copied()).map(text);
        let options = options.collect::<Result<Vec<CString>, _>>()?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut unit = Unit { functions: &self.functions, program: std::ptr::null_mut() };
        // SAFETY: the source ends with a zero byte and is alive until the unit is gone; there are no headers.
        let created = unsafe { (self.functions.create)(&mut unit.program, source.as_ptr(), null(), 0, null(), null()) };
        unit.check("taking the source", created)?;
        // SAFETY: so many options, which all end with a zero byte.
        let compiled = unsafe { (self.functions.compile)(unit.program, options.len() as c_int, options.as_ptr()) };
        let log = unit.bytes(self.functions.log_size, self.functions.log).unwrap_or_default();
        let log = CStr::from_bytes_until_nul(&log).map(|log| log.to_string_lossy().into_owned()).unwrap_or_default();
        unit.check(&log, compiled)?;
        let code = match target {
            Target::Exact(_) => unit.bytes(self.functions.cubin_size, self.functions.cubin),
            Target::Since(_) => unit.bytes(self.functions.ptx_size, self.functions.ptx),
        }?;
        Ok((code, log))
    }
}

/// What a compiler that knows these architectures makes for a card: `None` if it knows newer ones only.
fn target(known: &[c_int], card: c_int) -> Option<Target> {
    match known.contains(&card) {
        true => Some(Target::Exact(card)),
        false => known.iter().copied().filter(|known| *known < card).max().map(Target::Since),
    }
}

/// One source being compiled.
struct Unit<'c> {
    functions: &'c Functions,
    program: Program,
}

impl Unit<'_> {
    fn check(&self, what: &str, status: c_int) -> Result<(), CardError> {
        match status {
            0 => Ok(()),
            _ => Err(CardError(format!("NVRTC fails with status {status}: {what}"))),
        }
    }

    /// What a pair of functions gives: first how many bytes, then the bytes.
    fn bytes(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        get: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, CardError> {
        let mut count = 0;
        // SAFETY: the program is alive, and the buffer as large as the first function says.
        unsafe {
            self.check("asking for a size", size(self.program, &mut count))?;
            let mut bytes = vec![0u8; count];
            self.check("asking for what it made", get(self.program, bytes.as_mut_ptr().cast::<c_char>()))?;
            Ok(bytes)
        }
    }
}

impl Drop for Unit<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: the program was created, and is not used any more. There is nothing to do about a failure.
            let _ = unsafe { (self.functions.destroy)(&mut self.program) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cuda::{libraries::NEWEST, source::Family};

    #[test]
    fn code_is_for_the_very_card_where_the_compiler_knows_it() {
        let known = [75, 80, 90];
        for (card, wanted) in
            [(80, Some(Target::Exact(80))), (86, Some(Target::Since(80))), (120, Some(Target::Since(90))), (70, None)]
        {
            assert_eq!(target(&known, card), wanted, "{card}");
        }
    }

    /// Cards whose kernels are compiled, as far as the compiler knows them: five generations.
    const CARDS: [c_int; 5] = [60, 75, 80, 90, 120];

    /// The compiler needs no card. What its assembler says of every kernel is looked at too: one that has too few
    /// registers, or makes a copy of what it is called with, is slow.
    #[test]
    fn every_kernel_compiles_for_every_card() {
        let compiler = match Compiler::find(NEWEST) {
            Ok(compiler) => compiler,
            Err(NotFound(why)) => {
                assert!(std::env::var_os("EDGECUT_REQUIRE_NVRTC").is_none(), "{why}");
                return eprintln!("SKIPPED, NOT RUN: NVRTC cannot be loaded ({why}); see docs/gpu.md");
            }
        };
        for card in CARDS.into_iter().filter(|card| compiler.architectures.contains(card)) {
            let (mut kernels, mut most_registers, mut most_shared) = (0, 0, 0);
            for family in Family::ALL {
                let source = family.source();
                let (code, log) = compiler.compile_with(&source, card, &["--ptxas-options=-v"]).unwrap();
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
                    assert_eq!(number("bytes spill stores").unwrap_or(0), 0, "{name} for compute {card}: {line}");
                    // Sines of doubles reduce their argument in memory of their own.
                    let copies = number("bytes stack frame").unwrap_or(0) > 0 && !name.ends_with("_f64");
                    assert!(!copies || card < 70, "{name} for compute {card}: {line}");
                    most_registers = most_registers.max(number("registers").unwrap_or(0));
                    most_shared = most_shared.max(number("bytes smem").unwrap_or(0));
                }
            }
            println!(
                "NVRTC {}, compute {card}: {kernels} kernels, at most {most_registers} registers a thread and \
                 {most_shared} bytes a block shared",
                compiler.version
            );
            // All of a block of 256 threads, the largest that is called, has 65536 registers on every card.
            assert!(kernels > 200 && most_registers <= 255 && most_shared <= 48 << 10);
        }
    }

    #[test]
    fn what_does_not_compile_is_said_in_the_compilers_words() {
        let Ok(compiler) = Compiler::find(NEWEST) else {
            return eprintln!("SKIPPED, NOT RUN: NVRTC cannot be loaded; see docs/gpu.md");
        };
        let newest = *compiler.architectures.iter().max().unwrap();
        let error = compiler.compile("extern \"C\" __global__ void k() { nothing(); }", newest).unwrap_err();
        assert!(error.0.contains("nothing"), "{error}");
        // A card of the future gets code that its driver translates.
        let later = compiler.compile("extern \"C\" __global__ void k() { }", newest + 1000).unwrap();
        assert!(later.starts_with(b"//") && later.ends_with(b"\0"));
    }
}
