//! Costs of shards on one device: 1/2, 1/4 and 1/8 of each item along each of its split axes, the most expensive items
//! first, until a time budget is spent.

use std::{collections::HashMap, time::Instant};

use super::{
    request::{SurveyError, SurveyProgress, SurveyRequest},
    shard::measure_shard,
};
use edgecut_agent::{DeviceSpec, client::Agent};
use edgecut_graph::{
    OperatorId,
    units::{Bytes, Micros},
};
use edgecut_plan::split::shard_graphs::{FRACTIONS, Fraction, fractions};
use edgecut_profile::{CacheFlush, Cost, Item, ProfileRow, ProfileStore, ProfiledShard, Signature};

/// Measures the shards that `store` does not have until `budget` is spent; returns how many remain.
///
/// # Errors
/// If the agent is lost, or a row cannot be written.
pub(super) async fn measure_shards(
    agent: &Agent,
    device: &DeviceSpec,
    survey: &SurveyRequest<'_>,
    items: &[Item],
    budget: Micros,
    store: &mut ProfileStore,
    progress: &(dyn Fn(SurveyProgress<'_>) + Sync),
) -> Result<usize, SurveyError> {
    let end = budget.to_duration().and_then(|budget| Instant::now().checked_add(budget));
    let cache_flush = CacheFlush::working_set(survey.graph);
    let wanted: Vec<(usize, Fraction)> = by_time(items, store)
        .into_iter()
        .flat_map(|id| fractions(survey.graph, &items[id].operators, &FRACTIONS).into_iter().map(move |f| (id, f)))
        .filter(|(id, fraction)| !is_known(store, *id, fraction))
        .collect();
    // A shard with the signature of another item or shard is measured once.
    let mut known: HashMap<Signature, Result<Cost, String>> = HashMap::new();
    for row in store.rows().iter().chain(store.shards()) {
        known.insert(row.signature.clone(), row.cost().ok_or_else(|| row.note.clone()));
    }
    let report = |done: usize, item: &str| {
        let (measured, items) = (items.len() + done, items.len() + wanted.len());
        progress(SurveyProgress { device: &device.name, measured, items, item, waiting_for: None });
    };
    for (done, (id, fraction)) in wanted.iter().enumerate() {
        if end.is_some_and(|end| Instant::now() >= end) {
            return Ok(wanted.len() - done);
        }
        let whole = &items[*id];
        report(done, &whole.name);
        let operators: Vec<OperatorId> = fraction.graph.operators().map(|(id, _)| id).collect();
        let shard = Item::new(&fraction.graph, operators);
        let cost = match known.get(&shard.signature) {
            Some(cost) => cost.clone(),
            None => {
                let measuring = measure_shard(agent, device, fraction.graph.clone(), cache_flush, survey.sampling);
                measuring.await.map_err(|cause| SurveyError::Agent {
                    cause,
                    device: device.name.clone(),
                    kept: store.rows().len() + store.shards().len(),
                    items: items.len() + wanted.len(),
                    path: store.path().to_path_buf(),
                })?
            }
        };
        known.entry(shard.signature.clone()).or_insert_with(|| cost.clone());
        let position = ProfiledShard { axis: fraction.axis, fraction: fraction.share, copied: Bytes::ZERO };
        store.record_shard(*id, whole, &shard, &position, &cost)?;
    }
    Ok(0)
}

/// The first item of each signature that the device can compute, by decreasing total time of the signature.
fn by_time(items: &[Item], store: &ProfileStore) -> Vec<usize> {
    let mut totals: HashMap<&Signature, (usize, f64)> = HashMap::new();
    for row in store.rows() {
        let Some(cost) = row.cost() else { continue };
        let entry = totals.entry(&row.signature).or_insert((row.id, 0.0));
        *entry = (entry.0.min(row.id), entry.1 + cost.time.median.0);
    }
    let mut found: Vec<(usize, f64)> = totals.into_values().filter(|(id, _)| *id < items.len()).collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    found.into_iter().map(|(id, _)| id).collect()
}

/// Whether the store has this shard, without the cost of slices and concatenations.
fn is_known(store: &ProfileStore, id: usize, fraction: &Fraction) -> bool {
    let shard = ProfiledShard { axis: fraction.axis, fraction: fraction.share, copied: Bytes::ZERO };
    store.shards().iter().filter(|row| row.id == id).filter_map(ProfileRow::shard).any(|known| known.same_cost(&shard))
}
