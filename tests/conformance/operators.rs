//! Every operator case that TVM computed, on the CPU engine, against TVM's outputs.

use std::sync::LazyLock;

use edgecut::engine::TractEngine;
use libtest_mimic::Trial;

use crate::{cases, trial};

/// The engine that all cases run on.
pub static ENGINE: LazyLock<TractEngine> = LazyLock::new(|| TractEngine::new(1).unwrap());

pub fn trials() -> impl Iterator<Item = Trial> {
    cases::all()
        .into_iter()
        .map(|case| trial(format!("operators/{}/{}", case.family, case.name), move || case.run(&*ENGINE)))
}
