//! What a table says below its rows.

use edgecut_memory::model::ScheduleFront;

use super::flags::Schedule;
use crate::memory::subject::Subject;

/// The lower bound, where times come from, and what was not run.
pub(super) fn notes(arguments: &Schedule, subject: &Subject, fitted: &ScheduleFront) -> Vec<String> {
    let mut notes = vec![format!("lower bound of the peak: {}; times {}", fitted.peak_bound, subject.times)];
    if arguments.execution.cluster.is_some() && !arguments.execution.run {
        notes.push("copies to a neighbour are simulated at the link's cost; --run runs them on the agents".to_string());
    }
    notes
}
