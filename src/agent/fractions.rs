//! Parts of a model's items on one device: half, a quarter and an eighth of each, along every axis that it can be split
//! along, the items that take the most time first, for as long as there is time.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::{
    client::Agent,
    share::measure_share,
    survey::{Progress, Survey, SurveyError},
};
use crate::{
    cluster::DeviceSpec,
    graph::OperatorId,
    plan::split::alone::{FRACTIONS, Fraction, fractions},
    profile::{Item, Row, Share, Signature, Store, Surroundings, measure::Cost},
    units::{Bytes, Micros},
};

/// Measures what `store` lacks until `budget` is spent; returns how many parts are left.
///
/// # Errors
/// If the agent is lost, or a row cannot be written.
pub(super) async fn measure_fractions(
    agent: &Agent,
    device: &DeviceSpec,
    survey: &Survey<'_>,
    items: &[Item],
    budget: Micros,
    store: &mut Store,
    progress: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<usize, SurveyError> {
    let end = Duration::try_from_secs_f64(budget.0 / 1e6).ok().and_then(|budget| Instant::now().checked_add(budget));
    let displaces = Surroundings::bytes(survey.graph);
    let wanted: Vec<(usize, Fraction)> = by_time(items, store)
        .into_iter()
        .flat_map(|id| fractions(survey.graph, &items[id].operators, &FRACTIONS).into_iter().map(move |f| (id, f)))
        .filter(|(id, fraction)| !is_known(store, *id, fraction))
        .collect();
    // A shard that is what another item or shard is, is not measured twice.
    let mut known: HashMap<Signature, Result<Cost, String>> = HashMap::new();
    for row in store.rows().iter().chain(store.shares()) {
        known.insert(row.signature.clone(), row.cost().ok_or_else(|| row.note.clone()));
    }
    let told = |done: usize, item: &str| {
        let (measured, items) = (items.len() + done, items.len() + wanted.len());
        progress(Progress { device: &device.name, measured, items, item });
    };
    for (done, (id, fraction)) in wanted.iter().enumerate() {
        if end.is_some_and(|end| Instant::now() >= end) {
            return Ok(wanted.len() - done);
        }
        let whole = &items[*id];
        told(done, &whole.name);
        let operators: Vec<OperatorId> = fraction.graph.operators().map(|(id, _)| id).collect();
        let part = Item::new(&fraction.graph, operators);
        let cost = match known.get(&part.signature) {
            Some(cost) => cost.clone(),
            None => {
                let measuring = measure_share(agent, device, fraction.graph.clone(), displaces, survey.sampling);
                measuring.await.map_err(|cause| SurveyError::Agent {
                    cause,
                    device: device.name.clone(),
                    kept: store.rows().len() + store.shares().len(),
                    items: items.len() + wanted.len(),
                    path: store.path().to_path_buf(),
                })?
            }
        };
        known.entry(part.signature.clone()).or_insert_with(|| cost.clone());
        let share = Share { axis: fraction.axis, fraction: fraction.share, copied: Bytes::ZERO };
        store.record_share(*id, whole, &part, &share, &cost)?;
    }
    Ok(0)
}

/// The first item of each signature that the device can compute, those that take the most time together first.
fn by_time(items: &[Item], store: &Store) -> Vec<usize> {
    let mut all: HashMap<&Signature, (usize, f64)> = HashMap::new();
    for row in store.rows() {
        let Some(cost) = row.cost() else { continue };
        let entry = all.entry(&row.signature).or_insert((row.id, 0.0));
        *entry = (entry.0.min(row.id), entry.1 + cost.time.median.0);
    }
    let mut found: Vec<(usize, f64)> = all.into_values().filter(|(id, _)| *id < items.len()).collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    found.into_iter().map(|(id, _)| id).collect()
}

/// Whether the store has this part, without slices and joins.
fn is_known(store: &Store, id: usize, fraction: &Fraction) -> bool {
    let wanted = Share { axis: fraction.axis, fraction: fraction.share, copied: Bytes::ZERO };
    store.shares().iter().filter(|row| row.id == id).filter_map(Row::share).any(|share| share.is(&wanted))
}
