//! Replanning for the servers that answer, after an agent is lost.

use std::{path::Path, time::Duration};

use edgecut_agent::Cluster;
use edgecut_plan::{Plan, Stop};
use edgecut_profile::ProfiledBinding;

use crate::{
    Error, Events, Model,
    calibrations::{self, Calibrations},
    cluster::{connect, links},
    failover::{FailoverError, as_planned, plan_again},
    profile::{link_table_in, stored_profiles},
    request::DeviceRows,
    survey::SurveyRequest,
};

/// Time limit of the search.
const SEARCH_TIME: Duration = Duration::from_secs(2);

/// A plan of `model` for the servers of `cluster` that answer, from the profiles in `folder`. It has the objective,
/// limits and rules of `failed`, and splits groups only if `may_split`.
pub(super) async fn replan(
    events: &Events,
    folder: &Path,
    model: &Model,
    failed: &Plan,
    cluster: &Cluster,
    may_split: bool,
) -> Result<Plan, Error> {
    let cluster = as_planned(cluster, failed);
    let name = model.name();
    let fleet = connect(&cluster, events).await?;
    let inventory = fleet.inventory(&cluster, Vec::new());
    for terminal in [&inventory.source, &inventory.sink] {
        if !fleet.connected().any(|(server, ..)| server == terminal) {
            return Err(Error::failed(FailoverError::Terminal(terminal.clone())));
        }
    }
    let inventory = fleet.inventory(&cluster, links(&fleet, &cluster, &link_table_in(folder), false, events).await?);
    let calibrations = Calibrations::read(&folder.join(calibrations::FILE), &inventory.devices, events)?;
    let mut wanted = SurveyRequest::new(model.graph(), &name, &model.import.hash, folder);
    wanted.binding = ProfiledBinding::Sole(failed.model.binding().to_string());
    wanted.granularity = failed.granularity;
    let surveyed = stored_profiles(&fleet, &cluster, &inventory, &wanted).await?;
    let rows = surveyed.iter().zip(&calibrations.found);
    let rows = rows.map(|(surveyed, found)| DeviceRows { calibration: *found, ..DeviceRows::from(surveyed) });
    let rows: Vec<DeviceRows> = rows.collect();
    let stop = Stop::after(SEARCH_TIME);
    plan_again(&model.import.graph, failed, &inventory, &rows, &cluster, may_split, stop).map_err(Error::failed)
}
