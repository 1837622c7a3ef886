//! The system's limit on the memory of a worker, for what an operator allocates that its types do not tell.
//!
//! RLIMIT_DATA counts private memory that can be written, used or not. An allocation beyond it fails: in ONNX Runtime as an
//! error of the operator, elsewhere with the worker, which the supervisor starts again. RLIMIT_AS would count files and
//! libraries too, and a cgroup of its own needs rights that an agent seldom has.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use edgecut_graph::units::Bytes;

/// How many times a model is in memory while it is loaded: as it came, and as its engine keeps it.
const COPIES: u64 = 2;

/// For the process itself: threads' stacks, the region that the heap grows by, messages.
const PROCESS: Bytes = Bytes(256 << 20);

/// Limits the memory of this process, a worker that offers `offered` to clients. A lower limit stays.
///
/// # Errors
/// If the system refuses it.
pub fn limit_memory(offered: Bytes) -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Data);
    let limit = limit(offered).min(current.unwrap_or(u64::MAX));
    Ok(setrlimit(Resource::Data, Rlimit { current: Some(limit), maximum })?)
}

fn limit(offered: Bytes) -> u64 {
    offered.0.saturating_mul(COPIES).saturating_add(PROCESS.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_fits_twice() {
        assert_eq!(limit(Bytes(512 << 20)), 1280 << 20);
        assert_eq!(limit(Bytes(u64::MAX)), u64::MAX);
    }
}
