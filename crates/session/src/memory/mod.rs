//! Memory of one device: tensors placed in an arena, buffers packed, liveness, and schedules within a limit. Every result
//! has a lower bound.
//!
//! ```no_run
//! use edgecut_session::{Events, memory};
//!
//! # fn main() -> Result<(), edgecut_session::Error> {
//! let options = memory::PlaceOptions::default();
//! let placed = memory::place("m.onnx".as_ref(), &options, &Events::default())?;
//! println!("{}, at least {}", placed.summary.arena_bytes, placed.summary.bound_arena_bytes);
//! let options = memory::ScheduleOptions { limit: "40%".parse().ok(), ..memory::ScheduleOptions::default() };
//! memory::schedule("m.onnx".as_ref(), &options, &Events::default())?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`subject`], `stored_profile` | models and networks of bare tensors, with times; profiles that are found by the model |
//! | [`mod@place`], [`figures`] | the tensors of a model in an arena, in the order of minimum peak; figures of it |
//! | [`mod@pack`] | offsets for buffers with given lifetimes, in one arena or several memories |
//! | [`mod@liveness`] | births, deaths and idle periods of tensors, of a model or of a traced PyTorch graph |
//! | [`mod@schedule`] | schedules with less memory, of models and of graphs of DLMO and MAGIS |
//! | `effort` | budgets of searches |

mod effort;
pub mod figures;
pub mod liveness;
pub mod pack;
pub mod place;
pub mod schedule;
mod stored_profile;
pub mod subject;

pub use figures::FigureOptions;
pub use liveness::{LivenessOptions, TraceOptions, liveness, liveness_of_trace};
pub use pack::{PackOptions, pack};
pub use place::{PlaceOptions, place};
pub use schedule::{
    options::{ScheduleOptions, SearchOptions},
    schedule, schedule_batch,
};
pub use subject::SubjectOptions;

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::PathBuf};

    use edgecut_graph::units::Bytes;

    use super::{schedule::Scheduled, *};
    use crate::{Error, Events};

    /// Two branches of 6400 bytes, which need less one after the other.
    const NETWORK: &str = r#"{"tensors": [{"id": 0, "size": 64, "kind": "input"}, {"id": 1, "size": 6400, "kind": "act"},
      {"id": 2, "size": 6400, "kind": "act"}, {"id": 3, "size": 64, "kind": "act"}, {"id": 4, "size": 64, "kind": "act"},
      {"id": 5, "size": 64, "kind": "output"}],
     "ops": [{"name": "a", "ins": [0], "outs": [1], "elementwise": false},
      {"name": "b", "ins": [0], "outs": [2], "elementwise": false},
      {"name": "c", "ins": [1], "outs": [3], "elementwise": false},
      {"name": "d", "ins": [2], "outs": [4], "elementwise": false},
      {"name": "e", "ins": [3, 4], "outs": [5], "elementwise": true}]}"#;

    fn in_folder(name: &str, content: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        (folder, path)
    }

    #[test]
    fn verbs_return_what_they_find() {
        let (_folder, network) = in_folder("net.json", NETWORK);
        let events = Events::default();
        let placed = place(&network, &PlaceOptions::default(), &events).unwrap();
        assert_eq!((placed.summary.program_order_peak_bytes, placed.summary.peak_bytes), (Bytes(12864), Bytes(6528)));
        assert_eq!(placed.buffers().len(), 5);
        let found = liveness(&network, &LivenessOptions::default(), &events).unwrap();
        assert_eq!((found.summary.kernels, found.summary.peak_bytes), (5, Bytes(6528)));
        assert_eq!(found.files("run1", false).len(), 8);
        let options = ScheduleOptions { limit: "60%".parse().ok(), effort: Some(1), ..ScheduleOptions::default() };
        let Scheduled::Model(schedules) = schedule(&network, &options, &events).unwrap() else { panic!("a network") };
        assert_eq!(schedules.rows[0].peak_bytes, Bytes(6528));
        assert!(schedules.csv.is_some() && schedules.check().is_ok());
        let (_folder, buffers) = in_folder("buffers.csv", "id,lower,upper,size\na,0,9,100\nb,0,3,60\nc,3,9,60\n");
        let packed = pack(&buffers, &PackOptions::default(), &events).unwrap();
        assert!(matches!(packed.summary, pack::PackSummary::Arena(arena) if arena.arena_bytes == Bytes(160)));
        let options = PackOptions { capacity: Some(Bytes(100)), ..PackOptions::default() };
        assert!(matches!(pack(&buffers, &options, &events), Err(Error::NoPlan(_))));
    }

    #[test]
    fn options_without_effect_are_refused_but_for_defaults() {
        let (_folder, network) = in_folder("net.json", NETWORK);
        let with = |defaults: &[&str]| {
            let defaults: BTreeSet<String> = defaults.iter().map(ToString::to_string).collect();
            let subject = SubjectOptions { profile: Some("p.csv".into()), defaults, ..SubjectOptions::default() };
            let options = ScheduleOptions { subject, seeds: Some(2), effort: Some(1), ..ScheduleOptions::default() };
            schedule(&network, &options, &Events::default()).err().map(|error| error.to_string())
        };
        let both = "option `profile`, option `seeds` have no effect with a network of bare tensors";
        assert_eq!(with(&[]).as_deref(), Some(both));
        assert!(with(&["profile"]).is_some_and(|error| error.starts_with("option `seeds` has no effect")));
        assert_eq!(with(&["profile", "seeds"]), None);
    }
}
