//! Plans again when an agent is lost, for those that answer.

use std::{path::Path, sync::atomic::AtomicBool, time::Duration};

use super::flags::Run;
use crate::{
    Failure,
    calibration::{self, Calibrations},
    cluster_flag::{links, reach},
    model::Model,
    survey::stored_profiles,
};
use edgecut_cluster::{
    Cluster,
    run::{
        failover::{FailoverError, as_planned, plan_again},
        request::DeviceRows,
    },
    survey::{MissingPolicy, SurveyRequest},
};
use edgecut_plan::{Plan, Stop};
use edgecut_profile::{MeasurementMode, ProfiledBinding, Sampling};

/// The longest time for the search.
const SEARCH_TIME: Duration = Duration::from_secs(2);

/// Searches are not interrupted.
static NEVER: AtomicBool = AtomicBool::new(false);

/// The plan of `model` for the servers of `cluster` that answer, like `failed`, by the profiles that are there; without splits
/// unless `may_split`.
pub(super) async fn replan(
    arguments: &Run,
    model: &Model,
    name: &str,
    failed: &Plan,
    cluster: &Cluster,
    may_split: bool,
) -> Result<Plan, Failure> {
    let cluster = as_planned(cluster, failed);
    let folder = Path::new(&arguments.profile);
    let fleet = reach(&cluster).await?;
    let inventory = fleet.inventory(&cluster, Vec::new());
    for terminal in [&inventory.source, &inventory.sink] {
        if !fleet.connected().any(|(server, ..)| server == terminal) {
            return Err(Failure::failed(FailoverError::Terminal(terminal.clone())));
        }
    }
    let inventory = fleet.inventory(&cluster, links(&fleet, &cluster, &folder.join("links.csv"), false).await?);
    let calibrations = Calibrations::read(&folder.join(calibration::FILE), &inventory.devices)?;
    let wanted = SurveyRequest {
        graph: &model.import.graph,
        model: name,
        model_hash: &model.import.hash,
        binding: ProfiledBinding::Sole(failed.model.binding().to_string()),
        mode: MeasurementMode::Isolated,
        granularity: failed.granularity,
        sampling: Sampling::default(),
        whole: false,
        shard_budget: None,
        remeasure: false,
        missing: MissingPolicy::Skip,
        folder,
        contents: Default::default(),
    };
    let surveyed = stored_profiles(&fleet, &cluster, &inventory, &wanted).await?;
    let rows = surveyed.iter().zip(&calibrations.found);
    let rows = rows.map(|(surveyed, found)| DeviceRows { calibration: *found, ..DeviceRows::from(surveyed) });
    let rows: Vec<DeviceRows> = rows.collect();
    let stop = Stop::new(Some(SEARCH_TIME), &NEVER);
    plan_again(&model.import.graph, failed, &inventory, &rows, &cluster, may_split, stop).map_err(Failure::failed)
}
