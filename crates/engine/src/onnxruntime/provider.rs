//! Execution providers of ONNX Runtime, by name.

use std::{ffi::CStr, fmt, ptr::null_mut, str::FromStr};

use ort::{AsPointer, Error, ep, session::builder::SessionBuilder};
use serde::{Deserialize, Serialize};

/// Computes the operators of a session that it supports; those that no provider takes run on the CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Provider {
    /// As the user wrote it, in lower case: `cpu`, `cuda`, `xnnpack`.
    name: String,
}

/// The provider that every session has.
const CPU: &str = "cpu";

/// What follows the name of a provider in ONNX Runtime.
const SUFFIX: &str = "ExecutionProvider";

impl FromStr for Provider {
    type Err = String;

    fn from_str(text: &str) -> Result<Provider, String> {
        let name = text.trim().to_ascii_lowercase();
        let name = name.strip_suffix(&SUFFIX.to_ascii_lowercase()).unwrap_or(&name);
        match !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric()) {
            true => Ok(Provider { name: name.to_string() }),
            false => Err(format!("`{text}` is no execution provider: expected a name such as cpu, cuda or openvino")),
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Provider {
    /// Adds the provider to the sessions of `builder`, after those that were added before.
    ///
    /// # Errors
    /// If the library was built without it, or its own libraries are missing.
    pub(super) fn add_to(&self, mut builder: SessionBuilder) -> Result<SessionBuilder, Error> {
        if self.name == CPU {
            return Ok(builder);
        }
        let available = available();
        let known = available
            .iter()
            .find(|name| name.to_ascii_lowercase().strip_suffix(&SUFFIX.to_ascii_lowercase()) == Some(&self.name));
        let Some(known) = known else {
            let known: Vec<_> = available.iter().map(|name| name.trim_end_matches(SUFFIX)).collect();
            return Err(Error::new(format!("this library has no provider `{self}`, only {}", known.join(", "))));
        };
        if self.name == "cuda" {
            return Ok(builder.with_execution_providers([ep::CUDA::default().build().error_on_failure()])?);
        }
        let short = std::ffi::CString::new(known.trim_end_matches(SUFFIX)).map_err(Error::wrap)?;
        // SAFETY: the options are alive; without options of the provider, no list is read.
        unsafe {
            let status = (ort::api().SessionOptionsAppendExecutionProvider)(
                builder.ptr_mut(),
                short.as_ptr(),
                std::ptr::null(),
                std::ptr::null(),
                0,
            );
            Error::result_from_status(status)?;
        }
        Ok(builder)
    }
}

/// The providers that the loaded library has, by ONNX Runtime's names.
pub(super) fn available() -> Vec<String> {
    let (mut names, mut count) = (null_mut(), 0);
    // SAFETY: the list is written if there is no error, has as many entries as is said, and is released below.
    unsafe {
        let status = (ort::api().GetAvailableProviders)(&mut names, &mut count);
        if Error::result_from_status(status).is_err() {
            return Vec::new();
        }
        let listed = std::slice::from_raw_parts(names, usize::try_from(count).unwrap_or(0));
        let found = listed.iter().map(|name| CStr::from_ptr(*name).to_string_lossy().into_owned()).collect();
        // Nothing can be done about an error here.
        let _ = Error::result_from_status((ort::api().ReleaseAvailableProviders)(names, count));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_named_in_either_form() {
        for (text, name) in [("CUDA", "cuda"), ("CPUExecutionProvider", "cpu"), (" openvino ", "openvino")] {
            assert_eq!(text.parse::<Provider>().unwrap().to_string(), name);
        }
        assert!("".parse::<Provider>().is_err() && "a b".parse::<Provider>().is_err());
    }
}
