//! Comparisons of two profiles, two plans or the results of two runs, row by row.

use std::path::Path;

pub use edgecut_report::comparison::{ComparedKind, Comparison, ComparisonRow, SIGNIFICANT, Unit};
use edgecut_report::{
    comparison::subjects::subjects,
    subject::{Content, Subject},
};

use crate::{
    Error, Events,
    subjects::{Models, read},
};

/// Compares the files or folders `a` and `b`.
///
/// # Errors
/// If one cannot be read, is none that is compared, or they are of different kinds or models.
pub fn compare(a: &Path, b: &Path, events: &Events) -> Result<Comparison, Error> {
    let (a, b) = (subject(a, events)?, subject(b, events)?);
    let compared = subjects(&a, &b).ok_or_else(|| {
        let what = "are of different kinds: expected two profiles, two plans or results of two runs";
        Error::BadInput(format!("{} and {} {what}", a.name, b.name).into())
    })?;
    compared.map_err(Error::bad_input)
}

/// What is compared of the file or folder.
fn subject(path: &Path, events: &Events) -> Result<Subject, Error> {
    let is_compared =
        |subject: &Subject| matches!(subject.content, Content::Profile(_) | Content::Plan(_) | Content::Results(_));
    let mut found: Vec<Subject> = read(path, Models::Skip, events)?.into_iter().filter(is_compared).collect();
    let bad = |what: &str| Error::BadInput(format!("{}: {what}", path.display()).into());
    match &found[..] {
        [] => Err(bad("expected a profile, a plan or results of a run")),
        [_] => Ok(found.remove(0)),
        several => {
            let names = several.iter().map(|subject| subject.name.as_str()).collect::<Vec<_>>().join(", ");
            let what = match several[0].content {
                Content::Plan(_) => {
                    format!("plans for several bindings; compare plans made with one size per dimension: {names}")
                }
                _ => format!("profiles of several models or bindings, name one of them: {names}"),
            };
            Err(bad(&what))
        }
    }
}
