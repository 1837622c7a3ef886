//! NVIDIA's libraries, looked for when the program runs: by the names that their versions have, none newer than the
//! driver, and each with all functions that are called. The bindings' own search knows no names of CUDA 13, takes any
//! version, and ends in a panic where a library or a function is missing.

use libloading::Library;

/// Why a library cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotFound(pub String);

/// The newest version of CUDA whose libraries are looked for where no driver says which it knows.
pub(super) const NEWEST: u32 = 13;
/// The oldest one whose libraries have all functions that are called.
const OLDEST: u32 = 11;

/// The newest library called `name` that a driver for CUDA `newest` works with, as `bind` makes it.
///
/// # Errors
/// If no version is there, or `bind` refuses all that are.
pub(super) fn find<T>(name: &str, newest: u32, bind: impl Fn(Library) -> Result<T, String>) -> Result<T, NotFound> {
    let (names, mut refused) = (names(name, newest), Vec::new());
    for file in &names {
        // SAFETY: NVIDIA's libraries only prepare themselves when they are loaded.
        match unsafe { Library::new(file) } {
            Ok(library) => match bind(library) {
                Ok(made) => return Ok(made),
                Err(why) => refused.push(format!("{file}: {why}")),
            },
            // One that is there lacks another one, or is of another machine.
            Err(error) => refused.extend(Some(reason(&error)).filter(|why| !why.starts_with(file))),
        }
    }
    Err(NotFound(if refused.is_empty() { format!("there is no {}", names.join(", ")) } else { refused.join("; ") }))
}

/// The files that a library may be in, the newest version first.
fn names(name: &str, newest: u32) -> Vec<String> {
    let version = |major: u32| match (name, major) {
        // All since 11.2 have this name.
        ("nvrtc", 11) => "11.2".to_string(),
        _ => major.to_string(),
    };
    let versions = (OLDEST..=newest).rev().map(|major| format!("lib{name}.so.{}", version(major)));
    versions.chain([format!("lib{name}.so")]).collect()
}

/// What the loader says, which stands behind the error's own words.
pub(super) fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Defines a library by the functions that are called, which all return a status.
macro_rules! functions {
    ($(#[$doc:meta])* $name:ident { $($field:ident = $symbol:ident($($ty:ty),*),)* }) => {
        $(#[$doc])*
        struct $name {
            $($field: unsafe extern "C" fn($($ty),*) -> std::ffi::c_int,)*
            /// Functions are there as long as this is, which is for ever: NVIDIA's libraries have threads of their own.
            _library: std::mem::ManuallyDrop<libloading::Library>,
        }

        impl $name {
            fn of(library: libloading::Library) -> Result<$name, String> {
                // SAFETY: the types are those of NVIDIA's headers, the same in all versions that are looked for.
                unsafe {
                    Ok($name {
                        $($field: *library
                            .get::<unsafe extern "C" fn($($ty),*) -> std::ffi::c_int>(stringify!($symbol).as_bytes())
                            .map_err(|error| crate::engine::cuda::libraries::reason(&error))?,)*
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
    fn a_library_is_looked_for_by_the_versions_that_the_driver_knows() {
        assert_eq!(names("cublas", 12), ["libcublas.so.12", "libcublas.so.11", "libcublas.so"]);
        assert_eq!(names("nvrtc", 13)[..3], ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"]);
        let missing = find("edgecut_has_none", 12, Ok).err().unwrap().0;
        assert!(missing.starts_with("there is no libedgecut_has_none.so.12, "), "{missing}");
    }
}
