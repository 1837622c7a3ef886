//! Profiles for the page: of each subject one table for each granularity, a row an operator or fused group, its time on
//! each device; and what each device reached in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use edgecut_graph::Granularity;
use edgecut_plan::{Plan, file::DevicePlan};
use edgecut_profile::{MeasurementMode, ProfileRow, ProfiledDevice};
use serde::Serialize;

use super::{
    columns::{Dictionary, five_digits, nanoseconds},
    device_order::DeviceOrder,
};

/// The whole items of one subject, of one granularity. Names are indices into the page's words.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct OperatorTable {
    /// The subject's name.
    pub subject: String,
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
#[derive(Debug, PartialEq, Serialize)]
pub struct DeviceTimes {
    /// `server/device`; with what distinguishes it, where the page has another one of this name.
    pub name: String,
    pub mode: MeasurementMode,
    #[serde(skip)]
    condition: Condition,
    /// Median; `None` where the device cannot compute the item, or the profile lacks it.
    pub time_us: Vec<Option<f64>>,
    /// Items that the device cannot compute: of them the profile has a row without a time.
    pub unable: Vec<usize>,
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
pub(crate) const LEAST_TIME_US: f64 = 1.0;

/// What makes rows of several devices one item.
type ItemKey<'a> = (usize, &'a str, &'a str, &'a str);

/// A device, and how it was measured.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Condition {
    device: ProfiledDevice,
    mode: &'static str,
}

/// Profiles of one subject: its name, and its rows.
pub type NamedRows<'a> = (&'a str, &'a [ProfileRow]);

/// One table for each subject and granularity that it has; of several rows for the same item on one device the last counts.
pub(crate) fn tables(subjects: &[NamedRows<'_>], words: &mut Dictionary) -> Vec<OperatorTable> {
    let rows = subjects.iter().flat_map(|(_, rows)| rows.iter());
    let conditions: BTreeSet<Condition> = rows.map(Condition::of).collect();
    let mut tables = Vec::new();
    for (name, rows) in subjects {
        for granularity in [Granularity::Fused, Granularity::Op] {
            let rows: Vec<&ProfileRow> = rows.iter().filter(|row| row.granularity == granularity).collect();
            if !rows.is_empty() {
                tables.push(table(name, &rows, &conditions, words));
            }
        }
    }
    tables
}

/// Puts the devices of all tables into an order.
pub(super) fn sort_devices(tables: &mut [OperatorTable], order: &DeviceOrder) {
    for table in tables {
        order.sort(&mut table.devices, |times| times.condition.device.device_name().to_string());
    }
}

/// The times of a device in one of the tables, which is of the model of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DeviceColumn {
    /// The table, and the device in it.
    pub table: usize,
    pub device: usize,
    /// The plan's device that computes as was measured: with the same engine, hardware and number of threads.
    pub planned: Option<usize>,
}

/// The devices of those of `tables` that are of the model of `plan`, in the plan's granularity.
///
/// Folders of profiles are named after the model's hash. Elsewhere the groups that both have must have the same names.
pub fn profiled(plan: &Plan, tables: &[OperatorTable], words: &Dictionary) -> Vec<DeviceColumn> {
    let is_of = |table: &OperatorTable| match model_hash(&table.subject) {
        Some(hash) => plan.model.blake3.starts_with(hash),
        None => has_same_groups(plan, table, words),
    };
    let mut found = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        if table.granularity == plan.granularity && is_of(table) {
            found.extend(table.devices.iter().enumerate().map(|(device, times)| DeviceColumn {
                table: index,
                device,
                planned: plan.devices.iter().position(|planned| times.condition.is_of(planned)),
            }));
        }
    }
    found
}

/// The first digits of the hash of the model, from the name of a folder of profiles or of a file in it: `NAME-HASH8`.
pub(crate) fn model_hash(subject: &str) -> Option<&str> {
    let is_hash = |text: &&str| text.len() == 8 && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    let mut names = Path::new(subject).iter().rev().take(2);
    names.find_map(|name| name.to_str()?.rsplit_once('-').map(|(_, hash)| hash).filter(is_hash))
}

/// Whether the whole groups that both have are of the same names, and there is any group that both have.
fn has_same_groups(plan: &Plan, table: &OperatorTable, words: &Dictionary) -> bool {
    let words = words.words();
    let names: BTreeMap<usize, &str> =
        table.id.iter().zip(&table.name).map(|(id, name)| (*id, words[*name as usize].as_str())).collect();
    let mut has_any = false;
    for group in &plan.groups {
        let Some(name) = group.id.and_then(|id| names.get(&(id as usize))) else { continue };
        let is_same = without_parts(&group.name) == *name;
        // A part of an operator may be called otherwise than the whole.
        if !is_same && group.part.is_empty() {
            return false;
        }
        has_any |= is_same;
    }
    has_any
}

/// A name of operators without what is in brackets: the names of their parts.
fn without_parts(name: &str) -> String {
    let mut pieces = name.split('[');
    let first = pieces.next().unwrap_or_default().to_string();
    pieces.fold(first, |text, piece| text + piece.split_once(']').map_or("", |(_, rest)| rest))
}

impl Condition {
    fn of(row: &ProfileRow) -> Condition {
        Condition {
            device: row.profiled_device(),
            mode: match row.mode {
                MeasurementMode::Isolated => "isolated",
                MeasurementMode::InSitu => "in-situ",
            },
        }
    }

    /// Whether `planned` is the device, as far as the plan says how it computes.
    fn is_of(&self, planned: &DevicePlan) -> bool {
        let ProfiledDevice { hardware, engine, threads, .. } = &self.device;
        self.device.device_name() == planned.device_name()
            && planned.threads.is_none_or(|planned| planned as usize == *threads)
            && planned.engine.as_ref().is_none_or(|planned| planned.to_string() == engine.to_string())
            && planned.hardware.as_ref().is_none_or(|planned| planned == hardware)
    }

    /// The name, with what not all conditions of this name have in common.
    fn label(&self, all: &BTreeSet<Condition>) -> String {
        let name = self.device.device_name();
        let differs = |part: fn(&Condition) -> String| {
            let is_other = |other: &Condition| other.device.device_name() == name && part(other) != part(self);
            all.iter().any(is_other).then(|| part(self))
        };
        let parts = [
            differs(|of| of.device.engine.to_string()),
            differs(|of| of.device.threads_text()),
            differs(|of| of.device.hardware.clone()),
            differs(|of| of.mode.to_string()),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { name.to_string() } else { format!("{name} ({})", parts.join(", ")) }
    }
}

fn table(subject: &str, rows: &[&ProfileRow], all: &BTreeSet<Condition>, words: &mut Dictionary) -> OperatorTable {
    let whole: Vec<&ProfileRow> = rows.iter().copied().filter(|row| row.shard().is_none()).collect();
    let mut items: BTreeMap<ItemKey<'_>, &ProfileRow> = BTreeMap::new();
    let signatures: Vec<String> = whole.iter().map(|row| row.signature.to_string()).collect();
    for (row, signature) in whole.iter().zip(&signatures) {
        items.entry((row.id, &row.operators, &row.operator, signature)).or_insert(row);
    }
    let mut table = OperatorTable {
        subject: subject.to_string(),
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
        table.bytes.push(row.accessed_bytes.0);
        if reads_a_part(&row.operator) {
            table.partial.push(table.id.len() - 1);
        }
    }
    let position: BTreeMap<ItemKey<'_>, usize> = items.keys().enumerate().map(|(at, key)| (*key, at)).collect();
    let mut devices: BTreeMap<Condition, DeviceTimes> = BTreeMap::new();
    for (row, signature) in whole.iter().zip(&signatures) {
        let at = position[&(row.id, row.operators.as_str(), row.operator.as_str(), signature.as_str())];
        let condition = Condition::of(row);
        let label = condition.label(all);
        devices.entry(condition).or_insert_with(|| DeviceTimes::empty(label, row, items.len())).add(at, row);
    }
    table.devices = devices.into_values().collect();
    let roofs: Vec<Option<Roof>> = table.devices.iter().map(|device| roof(&table, &device.time_us)).collect();
    table.devices.iter_mut().zip(roofs).for_each(|(device, roof)| device.roof = roof);
    table
}

impl DeviceTimes {
    fn empty(name: String, row: &ProfileRow, items: usize) -> DeviceTimes {
        DeviceTimes {
            name,
            mode: row.mode,
            condition: Condition::of(row),
            time_us: vec![None; items],
            unable: Vec::new(),
            mad: vec![None; items],
            p95: vec![None; items],
            workspace_bytes: vec![None; items],
            roof: None,
        }
    }

    fn add(&mut self, at: usize, row: &ProfileRow) {
        let Some(median) = row.time_us_median.map(|time| time.0) else {
            if self.time_us[at].is_none() && !self.unable.contains(&at) {
                self.unable.push(at);
            }
            return;
        };
        self.unable.retain(|item| *item != at);
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

    fn names(table: &OperatorTable) -> Vec<&str> {
        table.devices.iter().map(|device| device.name.as_str()).collect()
    }

    #[test]
    fn rows_of_devices_meet_in_items() {
        let mut rows = testing::rows();
        let mut unable = rows[0].clone();
        (unable.server, unable.time_us_median) = ("c".into(), None);
        rows.push(unable);
        let tables = tables(&[("p", &rows)], &mut Dictionary::default());
        assert_eq!(tables.len(), 1);
        let table = &tables[0];
        assert_eq!((table.granularity, &table.id, table.subject.as_str()), (Granularity::Fused, &vec![0, 1], "p"));
        assert_eq!(names(table), ["a/cpu", "b/cpu", "c/cpu"]);
        let times: Vec<_> = table.devices.iter().map(|device| (&device.time_us[..], &device.unable[..])).collect();
        let expected: [(&[Option<f64>], &[usize]); 3] =
            [(&[Some(10.0), Some(8.0)], &[]), (&[None, Some(5.0)], &[]), (&[None, None], &[0])];
        assert_eq!(times, expected);
        // 1000 FLOPs and 100 bytes in 8 us.
        let roof = Roof { flops_per_us: 125.0, flops_at: 1, bytes_per_us: 12.5, bytes_at: 1 };
        assert_eq!(table.devices[0].roof, Some(roof));
        assert_eq!(super::roof(table, &[Some(0.5), None]), None);
        assert!(reads_a_part("cast+take+add") && !reads_a_part("nn.conv2d+add"));
    }

    #[test]
    fn labels_tell_devices_of_one_name_apart() {
        let mut rows = testing::rows();
        rows[1].threads = 2;
        let found = tables(&[("p", &rows)], &mut Dictionary::default());
        assert_eq!(names(&found[0]), ["a/cpu (1 thread)", "a/cpu (2 threads)", "b/cpu"]);
        let mut other = testing::rows();
        other[0].engine_version = "2".into();
        other[1].mode = MeasurementMode::InSitu;
        // What differs in another subject is told too.
        let found = tables(&[("p", &testing::rows()), ("q", &other)], &mut Dictionary::default());
        assert_eq!(names(&found[0]), ["a/cpu (tract 1, isolated)", "b/cpu"]);
        assert_eq!(names(&found[1]), ["a/cpu (tract 1, in-situ)", "a/cpu (tract 2, isolated)", "b/cpu"]);
    }

    #[test]
    fn a_plan_has_times_of_its_own_model() {
        let (mut plan, mut words) = (testing::plan(), Dictionary::default());
        plan.model.blake3 = "0123456789abcdef".into();
        plan.devices[1].threads = Some(2);
        let (rows, mut other) = (testing::rows(), testing::rows());
        other[0].operator = "sqrt".into();
        let subjects: [NamedRows<'_>; 6] = [
            ("profiles/m-01234567", &other),
            ("profiles/m-89abcdef", &rows),
            ("profiles/m-01234567/b.csv", &rows[2..]),
            ("p.csv", &rows),
            ("q.csv", &other),
            ("profiles/m-89abcdef/b.csv", &rows),
        ];
        let found = profiled(&plan, &tables(&subjects, &mut words), &words);
        let found: Vec<_> = found.iter().map(|of| (of.table, of.device, of.planned)).collect();
        assert_eq!(found, [(0, 0, Some(0)), (0, 1, None), (2, 0, None), (3, 0, Some(0)), (3, 1, None)]);
        assert_eq!((without_parts("a[1of2]+b[x]"), without_parts("nn.relu")), ("a+b".into(), "nn.relu".into()));
    }
}
