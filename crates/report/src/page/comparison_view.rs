//! Comparisons for the page: each profile, plan or run with the first before it that has something in common with it.

use serde::Serialize;

use super::columns::{Dictionary, five_digits, nanoseconds};
use crate::{
    comparison::{ComparedKind, Comparison, Unit, subjects::subjects as compare},
    subject::Subject,
};

/// One comparison in columns. Names are indices into the page's words.
#[derive(Debug, PartialEq, Serialize)]
pub struct ComparisonView {
    pub name: String,
    /// What A and B are.
    pub a: String,
    pub b: String,
    pub notes: Vec<String>,
    pub kind: Vec<ComparedKind>,
    pub id: Vec<Option<u32>>,
    pub operator: Vec<u32>,
    pub part: Vec<u32>,
    pub on_a: Vec<u32>,
    pub on_b: Vec<u32>,
    /// Of the values.
    pub unit: Vec<Unit>,
    pub value_a: Vec<f64>,
    pub value_b: Vec<f64>,
    /// In standard errors.
    pub difference: Vec<Option<f64>>,
    pub is_significant: Vec<Option<bool>>,
}

/// The comparisons of `subjects`. Pairs that have nothing in common are left out.
pub(super) fn comparisons(subjects: &[Subject], words: &mut Dictionary) -> Vec<ComparisonView> {
    let mut views = Vec::new();
    for (index, b) in subjects.iter().enumerate() {
        // The first one that has something in common with it: there may be plans of two models.
        let found = subjects[..index].iter().find_map(|a| Some((a, compare(a, b)?.ok()?)));
        if let Some((a, comparison)) = found {
            views.push(ComparisonView::of(&format!("{} and {}", a.name, b.name), comparison, words));
        }
    }
    views
}

impl ComparisonView {
    fn of(name: &str, comparison: Comparison, words: &mut Dictionary) -> ComparisonView {
        let Comparison { a, b, rows, notes } = comparison;
        let value = |unit: Unit, value: f64| match unit {
            Unit::Us => nanoseconds(value),
            Unit::Bytes => value,
            Unit::J => five_digits(value),
        };
        ComparisonView {
            name: name.to_string(),
            a,
            b,
            notes,
            kind: rows.iter().map(|row| row.kind).collect(),
            id: rows.iter().map(|row| row.id).collect(),
            operator: rows.iter().map(|row| words.add(&row.name)).collect(),
            part: rows.iter().map(|row| words.add(&row.part)).collect(),
            on_a: rows.iter().map(|row| words.add(&row.device_a)).collect(),
            on_b: rows.iter().map(|row| words.add(&row.device_b)).collect(),
            unit: rows.iter().map(|row| row.unit).collect(),
            value_a: rows.iter().map(|row| value(row.unit, row.a)).collect(),
            value_b: rows.iter().map(|row| value(row.unit, row.b)).collect(),
            is_significant: rows.iter().map(|row| row.is_significant).collect(),
            difference: rows.iter().map(|row| row.z.map(five_digits)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing, *};
    use crate::subject::{Content, MeasuredRun};

    #[test]
    fn the_first_of_a_kind_is_compared_with_the_others() {
        let run = || Content::Results(Box::new(MeasuredRun { about: None, outcome: testing::outcome() }));
        let subject = |name: &str, content| Subject { name: name.to_string(), content };
        let subjects = [
            subject("r1", run()),
            subject("rows", Content::Profile(testing::rows())),
            subject("r2", run()),
            subject("r3", run()),
        ];
        let mut words = Dictionary::default();
        let found = comparisons(&subjects, &mut words);
        let names: Vec<&str> = found.iter().map(|view| view.name.as_str()).collect();
        assert_eq!(names, ["r1 and r2", "r1 and r3"]);
        assert_eq!((found[0].kind[0], found[0].value_a[0]), (ComparedKind::Whole, found[0].value_b[0]));
        assert_eq!(found[0].kind.len(), found[0].difference.len());
    }
}
