//! The library of ONNX Runtime: where it is found, and loading it once for the process.

use std::{
    ffi::CStr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use ort::environment::Environment;

use super::memory;
use crate::{EngineError, panics::catch_panic};

/// The loaded library.
pub(super) struct Library {
    pub environment: Environment,
    pub found: &'static FoundLibrary,
}

/// A library that can be loaded.
pub(super) struct FoundLibrary {
    /// As it was asked for.
    path: PathBuf,
    absolute: PathBuf,
    /// Such as `1.22.0`.
    pub version: String,
}

/// The environment variable that names the library.
const VARIABLE: &str = "ORT_DYLIB_PATH";

/// How long the interpreter may take to say where its package is.
const PYTHON_TIME: Duration = Duration::from_secs(5);

/// Prints the folder of Python's package without importing it. Before anything else is imported, folders that are relative
/// to the current one are dropped; `sys` is compiled into the interpreter.
const PYTHON_QUERY: &str = "import sys; sys.path = [p for p in sys.path if p[:1] == '/' or p[1:2] == ':']; \
                            import importlib.util as u; s = u.find_spec('onnxruntime'); \
                            print(s.submodule_search_locations[0] if s else '')";

/// ONNX Runtime has one environment in a process, and so one library.
static FOUND: OnceLock<Result<FoundLibrary, String>> = OnceLock::new();
static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();

/// The library at `asked`, else the first that is found, loaded; the first call in a process decides.
///
/// # Errors
/// If there is none, it cannot be loaded, or another one is loaded already.
pub(super) fn library(asked: Option<&Path>) -> Result<&'static Library, EngineError> {
    let found = found(asked)?;
    let loaded = LIBRARY.get_or_init(|| load(found));
    loaded.as_ref().map_err(|what| EngineError::Other(what.clone()))
}

/// The same library, found but not loaded: an idle agent does not hold its memory.
///
/// # Errors
/// If there is none, it is no library of ONNX Runtime, or this process uses another one.
pub(super) fn found(asked: Option<&Path>) -> Result<&'static FoundLibrary, EngineError> {
    let found = FOUND.get_or_init(|| find(asked).and_then(|path| inspect(&path)));
    let found = found.as_ref().map_err(|what| EngineError::Other(what.clone()))?;
    match asked {
        Some(path) if path != found.path => Err(EngineError::Other(format!(
            "{} cannot be loaded: this process uses {}",
            path.display(),
            found.path.display()
        ))),
        _ => Ok(found),
    }
}

/// The path of the library: named by the caller, by the environment, in Python's package, in the system's folders.
fn find(asked: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = asked {
        return Ok(path.to_path_buf());
    }
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(path));
    }
    let folders = python_folder().into_iter().chain(system_folders());
    folders.filter_map(|folder| library_in(&folder)).next().ok_or_else(|| {
        format!(
            "ONNX Runtime is not installed: `pip install onnxruntime`, or name its library with option `onnxruntime` or {VARIABLE}"
        )
    })
}

/// The newest library in `folder`, by the name that it has on this system.
fn library_in(folder: &Path) -> Option<PathBuf> {
    let (start, end) = (format!("{}onnxruntime", std::env::consts::DLL_PREFIX), std::env::consts::DLL_SUFFIX);
    let entries = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let is_library = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(&start));
        // `libonnxruntime.so`, `libonnxruntime.so.1.22.0`, `libonnxruntime.1.22.0.dylib`; not the libraries of providers.
        name.is_some_and(|rest| rest.starts_with('.') && rest.contains(end))
    };
    entries.filter(is_library).max_by_key(|path| (version_in_name(path), path.clone()))
}

/// The numbers of a library's name, in order: `libonnxruntime.so.1.9.0` is older than `libonnxruntime.so.1.32.0`.
fn version_in_name(path: &Path) -> Vec<u64> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let numbers = name.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    numbers.map(|digits| digits.parse().unwrap_or(u64::MAX)).collect()
}

/// `capi/` of the package that `python3` finds. Nothing is run or imported from the current folder, which may be anybody's:
/// the interpreter imports modules of its own when it starts, so it starts in the root folder.
fn python_folder() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    let mut programs = std::env::split_paths(&paths).filter(|folder| folder.is_absolute());
    let name = format!("python3{}", std::env::consts::EXE_SUFFIX);
    let started = |folder: PathBuf| {
        let mut command = Command::new(folder.join(&name));
        command
            .current_dir("/")
            .args(["-c", PYTHON_QUERY])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command.spawn().ok()
    };
    let mut child = programs.find_map(started)?;
    let deadline = Instant::now() + PYTHON_TIME;
    while child.try_wait().ok()?.is_none() {
        if Instant::now() >= deadline {
            // An error means that it has ended meanwhile.
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let printed = String::from_utf8(child.wait_with_output().ok()?.stdout).ok()?;
    let folder = Path::new(printed.trim());
    folder.is_absolute().then(|| folder.join("capi"))
}

fn system_folders() -> Vec<PathBuf> {
    let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let triple = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let usual =
        ["/usr/local/lib", "/usr/lib", triple.as_str(), "/usr/lib64", "/opt/onnxruntime/lib", "/opt/homebrew/lib"];
    std::env::split_paths(&named).filter(|folder| folder.is_absolute()).chain(usual.iter().map(PathBuf::from)).collect()
}

fn failed(what: String) -> String {
    format!("ONNX Runtime cannot be used: {what}")
}

/// The library at `path`, which is closed again.
fn inspect(path: &Path) -> Result<FoundLibrary, String> {
    let absolute = path.canonicalize().map_err(|error| failed(format!("{}: {error}", path.display())))?;
    let version = version_of(&absolute).map_err(failed)?;
    Ok(FoundLibrary { path: path.to_path_buf(), absolute, version })
}

/// Loads a library, and registers the allocator that counts.
fn load(found: &'static FoundLibrary) -> Result<Library, String> {
    let environment = catch_panic(|| {
        let builder = ort::init_from(&found.absolute).map_err(|error| error.to_string())?;
        builder.with_name("edgecut").with_telemetry(false).build().map_err(|error| error.to_string())
    });
    let environment = environment.and_then(|built| built).map_err(failed)?;
    memory::register(&environment).map_err(|error| failed(error.to_string()))?;
    Ok(Library { environment, found })
}

/// The version that the library at `path` says it has.
fn version_of(path: &Path) -> Result<String, String> {
    // SAFETY: loading a library runs its initialisers; the user, or Python's package, named it as ONNX Runtime's.
    let opened = unsafe { libloading::Library::new(path) }.map_err(|error| error.to_string())?;
    // SAFETY: `OrtGetApiBase` has this signature in every version of the programming interface.
    let base = unsafe { opened.get::<unsafe extern "C" fn() -> *const ort::sys::OrtApiBase>(b"OrtGetApiBase") };
    let base = base.map_err(|_| format!("{} is not a library of ONNX Runtime", path.display()))?;
    // SAFETY: it returns a static table, or null.
    let base = unsafe { base().as_ref() }.ok_or_else(|| format!("{} has no programming interface", path.display()))?;
    // SAFETY: the version is a static string.
    let version = unsafe { CStr::from_ptr((base.GetVersionString)()) }.to_string_lossy().into_owned();
    // SAFETY: a function of the table, which returns null for versions of the interface that the library has not.
    match unsafe { (base.GetApi)(ort::sys::ORT_API_VERSION) }.is_null() {
        true => {
            let least = ort::sys::ORT_API_VERSION;
            Err(format!("{} has version {version}, expected 1.{least} or later", path.display()))
        }
        false => Ok(version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_library_is_found_by_its_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let named = |rest: &str| {
            let (start, end) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
            format!("{start}onnxruntime{end}{rest}")
        };
        for version in ["", ".1", ".1.9.0", ".1.32.0", ".1.4.12"] {
            std::fs::write(folder.path().join(named(version)), b"").unwrap();
            std::fs::write(folder.path().join(format!("other{version}")), b"").unwrap();
        }
        let found = library_in(folder.path()).unwrap();
        assert!(found.ends_with(named(".1.32.0")), "{found:?}");
    }
}
