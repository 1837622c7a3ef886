//! One self-contained page of profiles, plans, fronts and results of runs, for any browser: data in columns, and a script
//! that draws them.
//!
//! | module | |
//! |---|---|
//! | `cluster` | devices and links |
//! | `plan_view` | a plan: groups, transfers, devices, bound, targets |
//! | `causes` | what groups and transfers wait for, and the critical chain |
//! | `memory_curve`, `account` | memory of each device over time |
//! | `run_view` | measured times next to predicted ones, and how far they are apart |
//! | `comparison_view` | the first of several profiles, plans or runs with each of the others |
//! | `operators` | profiles as tables, and the highest rates reached |
//! | `device_order` | the order of devices, as in plans |
//! | `columns` | compact numbers and names |
//! | [`document`] | the HTML file |
//!
//! The script and the style are built from the folder `page` of this crate (CONTRIBUTING.md, "The report page") and
//! kept there, so that building edgecut needs no npm.

pub(crate) mod account;
mod causes;
mod cluster;
mod columns;
mod comparison_view;
mod device_order;
pub mod document;
pub(crate) mod memory_curve;
mod operators;
mod plan_view;
mod run_view;
#[cfg(test)]
mod testing;

use std::collections::BTreeSet;

use edgecut_agent::LinkRow;
use edgecut_plan::Plan;
use serde::Serialize;

use crate::{
    class::{CLASSES, class},
    subject::{Content, FrontPoint, Subject},
};
use cluster::ClusterView;
use columns::Dictionary;
use comparison_view::ComparisonView;
use device_order::DeviceOrder;
use operators::{LEAST_TIME_US, NamedRows, OperatorTable, model_hash};
use plan_view::PlanView;
use run_view::RunView;

/// All data of the page.
#[derive(Debug, PartialEq, Serialize)]
pub struct Page {
    /// The program that made it.
    pub made_by: String,
    /// What it was made of: name, kind, and what it has.
    pub subjects: Vec<(String, &'static str, String)>,
    pub classes: [&'static str; CLASSES.len()],
    /// Names of operators, layers and places; columns hold indices.
    pub words: Dictionary,
    /// The class of each word as an operator's name.
    pub class_of: Vec<usize>,
    pub cluster: Option<ClusterView>,
    pub plans: Vec<PlanView>,
    pub runs: Vec<RunView>,
    pub comparisons: Vec<ComparisonView>,
    pub fronts: Vec<FrontView>,
    pub tables: Vec<OperatorTable>,
    /// Rates are not computed from shorter times.
    pub least_time_us: f64,
}

/// A front in columns.
#[derive(Debug, PartialEq, Serialize)]
pub struct FrontView {
    pub name: String,
    pub latency_us: Vec<f64>,
    pub interval_us: Vec<f64>,
    pub peak_bytes: Vec<u64>,
    pub devices: Vec<usize>,
    pub splits: Vec<usize>,
}

impl Page {
    pub fn of(subjects: &[Subject]) -> Page {
        let mut words = Dictionary::default();
        let (mut plans, mut views): (Vec<&Plan>, Vec<PlanView>) = (Vec::new(), Vec::new());
        let (mut fronts, mut profiles): (Vec<FrontView>, Vec<NamedRows<'_>>) = (Vec::new(), Vec::new());
        let mut links: Vec<&LinkRow> = Vec::new();
        for subject in subjects {
            match &subject.content {
                Content::Profile(rows) => profiles.push((&subject.name, rows)),
                Content::Links(measured) => links.extend(measured),
                Content::Plan(planned) => {
                    plans.push(&planned.plan);
                    views.push(PlanView::of(&subject.name, planned, &mut words));
                }
                Content::Front(points) => fronts.push(FrontView::of(&subject.name, points)),
                Content::Results(_) => {}
            }
        }
        let runs = subjects.iter().filter_map(|subject| match &subject.content {
            Content::Results(run) => Some(RunView::of(&subject.name, run, &plans, &mut words)),
            _ => None,
        });
        let runs: Vec<RunView> = runs.collect();
        let comparisons = comparisons(subjects, &mut words);
        let mut tables = operators::tables(&profiles, &mut words);
        operators::sort_devices(&mut tables, &DeviceOrder::of(&plans));
        for (view, plan) in views.iter_mut().zip(&plans) {
            view.profiled = operators::profiled(plan, &tables, &words);
        }
        Page {
            made_by: format!("edgecut {}", env!("CARGO_PKG_VERSION")),
            subjects: subjects.iter().map(described).collect(),
            classes: CLASSES,
            cluster: ClusterView::of(profiles.iter().flat_map(|(_, rows)| rows.iter()), &plans, &links),
            runs,
            comparisons,
            plans: views,
            fronts,
            tables,
            least_time_us: LEAST_TIME_US,
            class_of: words.words().iter().map(|word| class(word)).collect(),
            words,
        }
    }
}

impl FrontView {
    fn of(name: &str, points: &[FrontPoint]) -> FrontView {
        FrontView {
            name: name.to_string(),
            latency_us: points.iter().map(|point| columns::nanoseconds(point.latency_us)).collect(),
            interval_us: points.iter().map(|point| columns::nanoseconds(point.interval_us)).collect(),
            peak_bytes: points.iter().map(|point| point.peak_bytes).collect(),
            devices: points.iter().map(|point| point.devices).collect(),
            splits: points.iter().map(|point| point.splits).collect(),
        }
    }
}

/// The comparisons of `subjects`. Profiles of two models, as far as their folders tell models, are not compared.
fn comparisons(subjects: &[Subject], words: &mut Dictionary) -> Vec<ComparisonView> {
    let model = |subject: &Subject| match &subject.content {
        Content::Profile(_) => model_hash(&subject.name).map(str::to_string),
        _ => None,
    };
    let models: BTreeSet<String> = subjects.iter().filter_map(model).collect();
    if models.len() < 2 {
        return comparison_view::comparisons(subjects, words);
    }
    let mut found: Vec<ComparisonView> = Vec::new();
    for hash in &models {
        let others = |subject: &&Subject| model(subject).is_none_or(|of| of == *hash);
        let of_model: Vec<Subject> = subjects.iter().filter(others).cloned().collect();
        for view in comparison_view::comparisons(&of_model, words) {
            // Plans, runs, and profiles whose model is not known come with each model.
            if found.iter().all(|other| other.name != view.name) {
                found.push(view);
            }
        }
    }
    found
}

/// Name, kind, and what a subject has.
fn described(subject: &Subject) -> (String, &'static str, String) {
    let (kind, what) = match &subject.content {
        Content::Profile(rows) => ("profile", format!("{} rows", rows.len())),
        Content::Links(rows) => ("links", format!("{} links", rows.len())),
        Content::Plan(planned) => {
            let plan = &planned.plan;
            let used = plan.used_devices().count();
            ("plan", format!("{} groups on {used} of {} devices", plan.groups.len(), plan.devices.len()))
        }
        Content::Front(points) => ("front", format!("{} plans", points.len())),
        Content::Results(run) => ("results of a run", format!("{} inferences", run.outcome.latency.n)),
    };
    (subject.name.clone(), kind, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{MeasuredRun, PlanSubject};

    #[test]
    fn profiles_of_two_models_are_not_compared() {
        let of = |name: &str| Subject { name: name.to_string(), content: Content::Profile(testing::rows()) };
        let subjects = ["x/m-01234567", "x/n-89abcdef", "y/m-01234567", "y/n-89abcdef"].map(of);
        let page = Page::of(&subjects);
        let names: Vec<&str> = page.comparisons.iter().map(|view| view.name.as_str()).collect();
        assert_eq!(names, ["x/m-01234567 and y/m-01234567", "x/n-89abcdef and y/n-89abcdef"]);
        assert_eq!(page.tables.len(), 4);
    }

    #[test]
    fn a_page_has_a_section_for_what_its_subjects_have() {
        let subject = |name: &str, content| Subject { name: name.to_string(), content };
        let plan = PlanSubject { plan: testing::plan(), model: Err("absent".into()) };
        let point =
            FrontPoint { latency_us: 1.0, interval_us: 1.0, peak_bytes: 1, devices: 1, splits: 0, measured_us: None };
        let page = Page::of(&[
            subject("r", Content::Results(Box::new(MeasuredRun { about: None, outcome: testing::outcome() }))),
            subject("p", Content::Plan(Box::new(plan))),
            subject("f", Content::Front(vec![point])),
            subject("rows", Content::Profile(testing::rows())),
        ]);
        assert_eq!((page.plans.len(), page.runs[0].plan, page.fronts.len(), page.tables.len()), (1, Some(0), 1, 1));
        assert_eq!(page.subjects[1], ("p".to_string(), "plan", "3 groups on 2 of 2 devices".to_string()));
        let empty = Page::of(&[]);
        assert_eq!((empty.cluster, empty.plans.len(), empty.tables.len()), (None, 0, 0));
    }
}
