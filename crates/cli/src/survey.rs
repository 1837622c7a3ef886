//! Profiles that a verb needs: taken on every device of the cluster, with progress on stderr.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use miette::Report;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::{
    Failure,
    caller::{Event, notice, status, tell, until_stopped},
    verbosity::draw_target,
};
use edgecut_cluster::{
    Cluster, Inventory,
    agent::Fleet,
    survey::{DeviceProfile, MissingPolicy, SurveyError, SurveyProgress, SurveyRequest, survey},
};
use edgecut_profile::{ModelTime, ProfileSummary};

/// Takes the profiles of all devices, or reads those that are there, and tells where they are.
pub async fn profiles(
    fleet: &Fleet,
    cluster: &Cluster,
    inventory: &Inventory,
    wanted: &SurveyRequest<'_>,
) -> Result<Vec<DeviceProfile>, Failure> {
    let (all, bars) =
        (MultiProgress::with_draw_target(draw_target()), Mutex::new(HashMap::<String, ProgressBar>::new()));
    let progress = |now: SurveyProgress<'_>| {
        if let Some(who) = now.waiting_for {
            let what = format!("{}: waiting for {who}", now.device);
            all.suspend(|| status!("{what}"));
        }
        let mut bars = bars.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = bars.entry(now.device.to_string()).or_insert_with(|| {
            let style = ProgressStyle::with_template("{elapsed:>4} {prefix} measured {pos}/{len} {wide_msg}");
            let bar = ProgressBar::new(now.items as u64).with_prefix(now.device.to_string());
            all.add(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
        });
        bar.set_length(now.items as u64);
        bar.set_position(now.measured as u64);
        bar.set_message(now.item.to_string());
        let device = &now.device.to_string();
        tell(Event::Measured { device, done: now.measured, of: now.items, item: now.item });
    };
    let survey = async { survey(fleet, cluster, inventory, wanted, &progress).await.map_err(survey_failure) };
    let profiles = until_stopped(survey).await;
    for bar in bars.lock().unwrap_or_else(PoisonError::into_inner).values() {
        bar.finish_and_clear();
    }
    let mut profiles = profiles?;
    for profile in &mut profiles {
        // A whole model that was measured before is as good as measured now.
        let whole = profile.whole.or_else(|| ModelTime::read(&profile.path));
        if profile.unwritten.is_none() {
            let summary = ProfileSummary::of(&profile.rows).write(&profile.path, whole);
            profile.unwritten = summary.err().map(Arc::new);
        }
        match &profile.unwritten {
            Some(why) => notice!("the profile of {} is used, and not kept: {why}", profile.device.name),
            None => {
                let how = if profile.changed { "written to" } else { "unchanged, read from" };
                status!("profile {how} {}", profile.path.display());
            }
        }
    }
    Ok(profiles)
}

/// The failure of profiles that could not be written, if there are any.
pub fn unwritten(profiles: &[DeviceProfile]) -> Option<Failure> {
    let paths = profiles.iter().filter(|profile| profile.unwritten.is_some()).map(|profile| profile.path.display());
    let paths: Vec<String> = paths.map(|path| path.to_string()).collect();
    (!paths.is_empty()).then(|| Failure::Failed(Report::msg(format!("not written: {}", paths.join(", ")))))
}

/// The rows of all devices that are stored; nothing is measured.
pub async fn stored_profiles(
    fleet: &Fleet,
    cluster: &Cluster,
    inventory: &Inventory,
    wanted: &SurveyRequest<'_>,
) -> Result<Vec<DeviceProfile>, Failure> {
    let wanted = SurveyRequest { missing: MissingPolicy::Skip, whole: false, shard_budget: None, ..wanted.clone() };
    survey(fleet, cluster, inventory, &wanted, &|_| {}).await.map_err(survey_failure)
}

fn survey_failure(error: SurveyError) -> Failure {
    match error {
        SurveyError::Agent { .. } => Failure::agent(error),
        SurveyError::Store(error) => Failure::profile(error),
    }
}
