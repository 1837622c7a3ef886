//! Profiles for the page: one table for each granularity, a row an operator or fused group, its time on each device; and
//! what each device reached in it.

use std::collections::BTreeMap;

use edgecut_graph::Granularity;
use edgecut_profile::ProfileRow;
use serde::Serialize;

use super::columns::{Dictionary, five_digits, nanoseconds};

/// The whole items of profiles of one granularity. Names are indices into the page's words.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct OperatorTable {
    pub granularity: Granularity,
    /// One entry of each column an item.
    pub id: Vec<usize>,
    pub name: Vec<u32>,
    pub layer: Vec<u32>,
    pub shapes: Vec<u32>,
    pub flops: Vec<u64>,
    pub bytes: Vec<u64>,
    pub devices: Vec<DeviceTimes>,
    /// Items that read a part of an operand which `bytes` counts whole: their rates mean nothing.
    pub partial: Vec<usize>,
    /// Rows of shards, which are not in the table.
    pub shards: usize,
}

/// What one device was measured to take, one entry an item.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct DeviceTimes {
    pub name: String,
    pub mode: String,
    /// Median; `None` where the device cannot compute the item, or the profile lacks it.
    pub time_us: Vec<Option<f64>>,
    /// Thousandths of the median: its median deviation, and how far the 95th percentile is above it.
    pub mad: Vec<Option<u64>>,
    pub p95: Vec<Option<u64>>,
    pub workspace_bytes: Vec<Option<u64>>,
    pub roof: Option<Roof>,
}

/// The highest rates that any item reached on a device: no theoretical figures.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
pub struct Roof {
    pub flops_per_us: f64,
    /// The item that reached it.
    pub flops_at: usize,
    pub bytes_per_us: f64,
    pub bytes_at: usize,
}

/// Shorter times are of views and other operators that do nothing; rates from them mean nothing.
const LEAST_TIME_US: f64 = 1.0;

/// What makes rows of several devices one item.
type ItemKey<'a> = (usize, &'a str, &'a str, &'a str);

/// A device, as the columns of a table name it; devices that differ in hardware, engine or threads are told apart.
type DeviceKey = (String, String, String, String);

/// One table for each granularity that the rows have; of several rows for the same item on one device the last counts.
pub fn tables<'a>(rows: impl Iterator<Item = &'a ProfileRow>, words: &mut Dictionary) -> Vec<OperatorTable> {
    let (mut fused, mut single): (Vec<&ProfileRow>, Vec<&ProfileRow>) = (Vec::new(), Vec::new());
    for row in rows {
        if row.granularity == Granularity::Fused { fused.push(row) } else { single.push(row) }
    }
    [fused, single].into_iter().filter(|rows| !rows.is_empty()).map(|rows| table(&rows, words)).collect()
}

fn table(rows: &[&ProfileRow], words: &mut Dictionary) -> OperatorTable {
    let whole: Vec<&ProfileRow> = rows.iter().copied().filter(|row| row.shard().is_none()).collect();
    let mut items: BTreeMap<ItemKey<'_>, &ProfileRow> = BTreeMap::new();
    let signatures: Vec<String> = whole.iter().map(|row| row.signature.to_string()).collect();
    for (row, signature) in whole.iter().zip(&signatures) {
        items.entry((row.id, &row.operators, &row.operator, signature)).or_insert(row);
    }
    let mut table = OperatorTable {
        granularity: rows.first().map_or(Granularity::Fused, |row| row.granularity),
        shards: rows.len() - whole.len(),
        ..OperatorTable::default()
    };
    for row in items.values() {
        table.id.push(row.id);
        table.name.push(words.add(&row.operator));
        table.layer.push(words.add(&row.layer));
        table.shapes.push(words.add(&row.shapes));
        table.flops.push(row.flops);
        table.bytes.push(row.bytes.0);
        if reads_a_part(&row.operator) {
            table.partial.push(table.id.len() - 1);
        }
    }
    let position: BTreeMap<ItemKey<'_>, usize> = items.keys().enumerate().map(|(at, key)| (*key, at)).collect();
    let mut devices: BTreeMap<DeviceKey, DeviceTimes> = BTreeMap::new();
    for (row, signature) in whole.iter().zip(&signatures) {
        let at = position[&(row.id, row.operators.as_str(), row.operator.as_str(), signature.as_str())];
        devices.entry(device_key(row)).or_insert_with(|| DeviceTimes::empty(row, items.len())).add(at, row);
    }
    let mut devices: Vec<DeviceTimes> = devices.into_values().collect();
    let names: Vec<String> = devices.iter().map(|device| device.name.clone()).collect();
    for (device, row) in devices.iter_mut().zip(first_rows(&whole)) {
        if names.iter().filter(|name| **name == device.name).count() > 1 {
            device.name = format!("{} ({}, {} threads, {})", device.name, row.engine, row.threads, row.hardware);
        }
        device.roof = roof(&table, &device.time_us);
    }
    table.devices = devices;
    table
}

fn device_key(row: &ProfileRow) -> DeviceKey {
    let mode = if row.mode == edgecut_profile::MeasurementMode::Isolated { "isolated" } else { "in-situ" };
    let engine = format!("{} {} {:4}", row.engine, row.engine_version, row.threads);
    (format!("{}/{}", row.server, row.device), row.hardware.clone(), engine, mode.to_string())
}

/// A row of each device, in the order of the table's devices.
fn first_rows<'a>(rows: &[&'a ProfileRow]) -> Vec<&'a ProfileRow> {
    let mut first: BTreeMap<DeviceKey, &ProfileRow> = BTreeMap::new();
    for row in rows {
        first.entry(device_key(row)).or_insert(row);
    }
    first.into_values().collect()
}

impl DeviceTimes {
    fn empty(row: &ProfileRow, items: usize) -> DeviceTimes {
        let (name, _, _, mode) = device_key(row);
        DeviceTimes {
            name,
            mode,
            time_us: vec![None; items],
            mad: vec![None; items],
            p95: vec![None; items],
            workspace_bytes: vec![None; items],
            roof: None,
        }
    }

    fn add(&mut self, at: usize, row: &ProfileRow) {
        let Some(median) = row.time_us_median.map(|time| time.0) else { return };
        let thousandths = |time: f64| (median > 0.0).then(|| (1e3 * time / median).round() as u64);
        self.time_us[at] = Some(five_digits(nanoseconds(median)));
        self.mad[at] = row.time_us_mad.and_then(|mad| thousandths(mad.0));
        self.p95[at] = row.time_us_p95.and_then(|p95| thousandths((p95.0 - median).max(0.0)));
        self.workspace_bytes[at] = row.workspace_bytes.map(|bytes| bytes.0);
    }
}

/// Whether one of the operators of an item reads less than its operands: a row of a table, a slice.
fn reads_a_part(name: &str) -> bool {
    const PARTIAL: [&str; 5] = ["take", "gather", "strided_slice", "split", "embedding"];
    name.split('+').any(|part| PARTIAL.iter().any(|partial| part.starts_with(partial)))
}

/// The highest rates of `time_us`; `None` if nothing took long enough.
fn roof(table: &OperatorTable, time_us: &[Option<f64>]) -> Option<Roof> {
    let OperatorTable { flops, bytes, partial, .. } = table;
    let mut roof: Option<Roof> = None;
    for (at, time) in time_us.iter().enumerate().filter(|(at, _)| !partial.contains(at)) {
        let Some(time) = time.filter(|time| *time >= LEAST_TIME_US) else { continue };
        let roof = roof.get_or_insert_default();
        let (computed, moved) = (five_digits(flops[at] as f64 / time), five_digits(bytes[at] as f64 / time));
        if computed > roof.flops_per_us {
            (roof.flops_per_us, roof.flops_at) = (computed, at);
        }
        if moved > roof.bytes_per_us {
            (roof.bytes_per_us, roof.bytes_at) = (moved, at);
        }
    }
    roof
}

#[cfg(test)]
mod tests {
    use super::{super::testing, *};

    #[test]
    fn rows_of_devices_meet_in_items() {
        let rows = testing::rows();
        let tables = tables(rows.iter(), &mut Dictionary::default());
        assert_eq!(tables.len(), 1);
        let table = &tables[0];
        assert_eq!((table.granularity, &table.id), (Granularity::Fused, &vec![0, 1]));
        let names: Vec<&str> = table.devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["a/cpu", "b/cpu"]);
        assert_eq!(table.devices[0].time_us, [Some(10.0), Some(8.0)]);
        assert_eq!(table.devices[1].time_us, [None, Some(5.0)]);
        // 1000 FLOPs and 100 bytes in 8 us.
        let roof = Roof { flops_per_us: 125.0, flops_at: 1, bytes_per_us: 12.5, bytes_at: 1 };
        assert_eq!(table.devices[0].roof, Some(roof));
        assert_eq!(super::roof(table, &[Some(0.5), None]), None);
        assert!(reads_a_part("cast+take+add") && !reads_a_part("nn.conv2d+add"));
    }

    #[test]
    fn other_threads_are_another_device() {
        let mut rows = testing::rows();
        rows[1].threads = 2;
        let tables = tables(rows.iter(), &mut Dictionary::default());
        let names: Vec<&str> = tables[0].devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["a/cpu (tract, 1 threads, h)", "a/cpu (tract, 2 threads, h)", "b/cpu"]);
    }
}
