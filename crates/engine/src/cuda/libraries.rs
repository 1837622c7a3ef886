//! Finds NVIDIA's libraries at run time: the newest version that the driver supports and that has all functions.
//!
//! cudarc's own search does not know CUDA 13, accepts any version, and panics if a library or function is missing.

use libloading::Library;

/// Why a library cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotFound(pub String);

/// Newest version of CUDA to look for if the driver does not tell its version.
pub(super) const NEWEST: u32 = 13;
/// Oldest version whose libraries have all functions.
const OLDEST: u32 = 11;

/// The newest library `name` that works with a driver for CUDA `newest`, as bound by `bind`.
///
/// # Errors
/// If no version is installed, or `bind` rejects all of them.
pub(super) fn find<T>(name: &str, newest: u32, bind: impl Fn(Library) -> Result<T, String>) -> Result<T, NotFound> {
    find_versions(&file_names(name, newest), bind)
}

/// The first library of these file names that `bind` accepts.
///
/// # Errors
/// If none is installed, or `bind` rejects all of them.
pub(super) fn find_versions<T>(names: &[String], bind: impl Fn(Library) -> Result<T, String>) -> Result<T, NotFound> {
    let mut rejected = Vec::new();
    for file in names {
        // SAFETY: loading NVIDIA's libraries has no other effects.
        match unsafe { Library::new(file) } {
            Ok(library) => match bind(library) {
                Ok(bound) => return Ok(bound),
                Err(why) => rejected.push(format!("{file}: {why}")),
            },
            // An installed library may lack a dependency, or be built for another architecture.
            Err(error) => rejected.extend(Some(reason(&error)).filter(|why| !why.starts_with(file))),
        }
    }
    Err(NotFound(if rejected.is_empty() { format!("{} was not found", names.join(", ")) } else { rejected.join("; ") }))
}

/// Possible file names of a library, newest version first.
fn file_names(name: &str, newest: u32) -> Vec<String> {
    let version = |major: u32| match (name, major) {
        // The name of all versions since 11.2.
        ("nvrtc", 11) => "11.2".to_string(),
        _ => major.to_string(),
    };
    let versions = (OLDEST..=newest).rev().map(|major| format!("lib{name}.so.{}", version(major)));
    versions.chain([format!("lib{name}.so")]).collect()
}

/// The message of the dynamic loader, which libloading wraps.
pub(super) fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Defines a library by its functions, which all return a status.
macro_rules! functions {
    ($(#[$doc:meta])* $name:ident { $($field:ident = $symbol:ident($($ty:ty),*),)* }) => {
        $(#[$doc])*
        struct $name {
            $($field: unsafe extern "C" fn($($ty),*) -> std::ffi::c_int,)*
            /// Never unloaded: the function pointers must stay valid, and NVIDIA's libraries start threads.
            _library: std::mem::ManuallyDrop<libloading::Library>,
        }

        impl $name {
            fn of(library: libloading::Library) -> Result<$name, String> {
                // SAFETY: the types are those of NVIDIA's headers, which agree in all supported versions.
                unsafe {
                    Ok($name {
                        $($field: *library
                            .get::<unsafe extern "C" fn($($ty),*) -> std::ffi::c_int>(stringify!($symbol).as_bytes())
                            .map_err(|error| crate::cuda::libraries::reason(&error))?,)*
                        _library: std::mem::ManuallyDrop::new(library),
                    })
                }
            }
        }
    };
}
pub(super) use functions;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_looked_up_from_the_driver_version_downwards() {
        assert_eq!(file_names("cublas", 12), ["libcublas.so.12", "libcublas.so.11", "libcublas.so"]);
        assert_eq!(file_names("nvrtc", 13)[..3], ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"]);
        let missing = find("edgecut_missing", 12, Ok).err().unwrap().0;
        assert!(missing.starts_with("libedgecut_missing.so.12, "), "{missing}");
    }
}
