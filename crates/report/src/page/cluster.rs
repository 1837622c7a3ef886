//! The cluster of the subjects: devices with what they were measured as, and the links that plans use.

use std::collections::BTreeMap;

use edgecut_agent::LinkRow;
use edgecut_graph::EngineId;
use edgecut_plan::Plan;
use edgecut_profile::{ProfileRow, ProfiledDevice};
use serde::Serialize;

use super::{
    columns::{five_digits, median},
    device_order::DeviceOrder,
};

/// Devices and links.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct ClusterView {
    pub devices: Vec<DeviceView>,
    pub links: Vec<LinkView>,
}

/// One device under the conditions of one profile, or as a plan names it.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub struct DeviceView {
    /// `server/device`.
    pub name: String,
    pub hardware: String,
    pub engine: EngineId,
    pub threads: Option<u64>,
    pub governors: Vec<String>,
    /// Processors that others kept busy: median over the rows.
    pub load: Option<f64>,
    /// Rows, and those with samples that another process disturbed.
    pub rows: usize,
    pub disturbed_rows: usize,
    /// The largest share of samples that were disturbed.
    pub disturbed: f64,
    /// When it was measured: first and last day and time.
    pub measured: Option<(String, String)>,
    pub limit_bytes: Option<u64>,
    /// Whether any plan runs something on it; `None` without a plan.
    pub is_used: Option<bool>,
}

/// A link: what it was measured as, and what the plans send over it.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub struct LinkView {
    pub from: String,
    pub to: String,
    pub transfers: usize,
    pub bytes: u64,
    pub time_us: f64,
    /// A transfer takes the latency, and its bytes over the rate.
    pub latency_us: Option<f64>,
    pub bytes_per_us: Option<f64>,
}

impl ClusterView {
    /// `None` if the subjects name no device and no link. Measured links are shown as far as plans use them, all without a
    /// plan.
    pub fn of<'a>(
        rows: impl Iterator<Item = &'a ProfileRow>,
        plans: &[&Plan],
        measured_links: &[&LinkRow],
    ) -> Option<ClusterView> {
        let mut profiled: BTreeMap<ProfiledDevice, Vec<&ProfileRow>> = BTreeMap::new();
        for row in rows {
            profiled.entry(row.profiled_device()).or_default().push(row);
        }
        let mut devices: Vec<DeviceView> = profiled.iter().map(|(device, rows)| measured(device, rows)).collect();
        for planned in plans.iter().flat_map(|plan| &plan.devices) {
            let name = planned.device_name().to_string();
            if devices.iter().all(|device| device.name != name) {
                devices.push(DeviceView {
                    name: name.clone(),
                    hardware: planned.hardware.clone().unwrap_or_default(),
                    engine: planned.engine.clone().unwrap_or_default(),
                    threads: planned.threads.map(u64::from),
                    ..DeviceView::default()
                });
            }
            for device in devices.iter_mut().filter(|device| device.name == name) {
                device.limit_bytes = device.limit_bytes.or(planned.memory_limit_bytes.map(|limit| limit.0));
                device.is_used = Some(device.is_used.unwrap_or(false) || !planned.order.is_empty());
            }
        }
        DeviceOrder::of(plans).sort(&mut devices, |device| device.name.clone());
        let links = links(plans, measured_links);
        (!devices.is_empty() || !links.is_empty()).then_some(ClusterView { devices, links })
    }
}

fn measured(device: &ProfiledDevice, rows: &[&ProfileRow]) -> DeviceView {
    let mut governors: Vec<String> =
        rows.iter().filter_map(|row| row.governor).map(|governor| governor.to_string()).collect();
    governors.sort();
    governors.dedup();
    let minute =
        |row: &&ProfileRow| row.measured_at.map(|at| format!("{} {:02}:{:02}", at.date(), at.hour(), at.minute()));
    let first = rows.iter().filter_map(minute).min();
    let disturbed = rows.iter().filter(|row| row.disturbed > 0.0);
    DeviceView {
        name: device.device_name().to_string(),
        hardware: device.hardware.clone(),
        engine: device.engine.clone(),
        threads: Some(device.threads as u64),
        governors,
        load: median(rows.iter().filter_map(|row| row.load).collect()).map(five_digits),
        rows: rows.len(),
        disturbed_rows: disturbed.clone().count(),
        disturbed: five_digits(disturbed.map(|row| row.disturbed).fold(0.0, f64::max)),
        measured: first.zip(rows.iter().filter_map(minute).max()),
        limit_bytes: None,
        is_used: None,
    }
}

fn links(plans: &[&Plan], measured: &[&LinkRow]) -> Vec<LinkView> {
    let mut links: BTreeMap<(String, String), LinkView> = BTreeMap::new();
    for plan in plans {
        for transfer in plan.transfers.iter().filter(|transfer| plan.is_between_servers(transfer)) {
            let server = |device: edgecut_plan::DeviceId| plan.devices[device.0 as usize].server.clone();
            let (from, to) = (server(transfer.from), server(transfer.to));
            let link =
                links.entry((from.clone(), to.clone())).or_insert_with(|| LinkView { from, to, ..LinkView::default() });
            link.transfers += 1;
            link.bytes = link.bytes.saturating_add(transfer.sent().0);
            link.time_us = five_digits(link.time_us + transfer.time_us.0);
        }
    }
    for row in measured {
        let key = (row.from.to_string(), row.to.to_string());
        if plans.is_empty() {
            let (from, to) = key.clone();
            links.entry(key.clone()).or_insert_with(|| LinkView { from, to, ..LinkView::default() });
        }
        if let Some(link) = links.get_mut(&key) {
            link.latency_us = Some(five_digits(row.latency_us.0));
            link.bytes_per_us = Some(five_digits(row.bytes_per_us.0));
        }
    }
    links.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::{super::testing, *};
    use edgecut_graph::units::{Bytes, Micros, Rate};

    #[test]
    fn devices_of_profiles_and_plans_are_one_list() {
        let (rows, plan) = (testing::rows(), testing::plan());
        let link = |from: &str, to: &str| LinkRow {
            from: from.into(),
            from_address: String::new(),
            to: to.into(),
            to_address: String::new(),
            latency_us: Micros(1.5),
            bytes_per_us: Rate(125.0),
            fit_error: 0.0,
            largest_bytes: Bytes(1),
            n: 1,
        };
        let (used, unused) = (link("a", "b"), link("b", "a"));
        let view = ClusterView::of(rows.iter(), &[&plan], &[&used, &unused]).unwrap();
        let names: Vec<&str> = view.devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["a/cpu", "b/cpu"]);
        let first = &view.devices[0];
        assert_eq!((first.rows, first.disturbed_rows, first.disturbed, first.is_used), (2, 1, 0.25, Some(true)));
        assert_eq!((first.limit_bytes, first.engine.to_string()), (Some(1 << 20), "tract 1".to_string()));
        let sent = LinkView { transfers: 1, bytes: 64, time_us: 2.0, ..LinkView::default() };
        let (latency_us, bytes_per_us) = (Some(1.5), Some(125.0));
        assert_eq!(view.links, [LinkView { from: "a".into(), to: "b".into(), latency_us, bytes_per_us, ..sent }]);
        assert_eq!(ClusterView::of([].iter(), &[], &[&used, &unused]).unwrap().links.len(), 2);
        assert_eq!(ClusterView::of([].iter(), &[], &[]), None);
    }
}
