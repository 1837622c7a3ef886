//! Two profiles: times and energy of the same operators on two devices, with two engines or versions, or on two days.

use std::collections::{BTreeMap, BTreeSet};

use edgecut_graph::{DeviceName, Granularity, units::Joules};
use edgecut_profile::{MeasurementMode, ProfileRow, ProfiledDevice, Signature};

use super::{
    ComparedKind, Comparison, ComparisonError, ComparisonRow, estimate::Estimate, other_sources, paired, sort, unpaired,
};

/// Compares the profile `a`, called `name_a`, with `b`.
///
/// Rows are compared that were measured in one setting on each side. If each side has one device, these are compared, else those of
/// the same name; of one device, settings of the same mode and granularity are. Rows are paired by what they compute, so that they
/// need not be of the same file or model.
///
/// # Errors
/// If there are no such devices, or nothing that both have measured.
pub fn profiles(
    (name_a, a): (&str, &[ProfileRow]),
    (name_b, b): (&str, &[ProfileRow]),
) -> Result<Comparison, ComparisonError> {
    let (of_a, of_b) = (settings(a), settings(b));
    for (name, settings) in [(name_a, &of_a), (name_b, &of_b)] {
        if settings.is_empty() {
            return Err(ComparisonError::Empty(name.to_string()));
        }
    }
    let (devices_a, devices_b) = (devices(&of_a), devices(&of_b));
    let any_device = devices_a.len() == 1 && devices_b.len() == 1;
    let (pairs, mut notes) = matched(&of_a, &of_b, any_device);
    if pairs.is_empty() && !any_device && !devices_a.iter().any(|device| devices_b.contains(device)) {
        let (a, b) = (name_a.to_string(), name_b.to_string());
        return Err(ComparisonError::Devices {
            a,
            devices_a: devices_a.join(", "),
            b,
            devices_b: devices_b.join(", "),
        });
    }
    let mut comparison = Comparison { a: described(name_a, a), b: described(name_b, b), ..Comparison::default() };
    let is_one = pairs.len() == 1;
    for (setting_a, setting_b) in pairs {
        compare(&mut comparison, (setting_a, a), (setting_b, b), is_one);
    }
    if comparison.rows.is_empty() {
        return Err(ComparisonError::Nothing { a: name_a.to_string(), b: name_b.to_string() });
    }
    sort(&mut comparison.rows);
    comparison.notes.append(&mut notes);
    Ok(comparison)
}

/// What all rows of one measurement of a model have in common.
#[derive(Debug, Clone, PartialEq)]
struct Setting {
    device: ProfiledDevice,
    mode: MeasurementMode,
    granularity: Granularity,
}

impl Setting {
    fn of(row: &ProfileRow) -> Setting {
        Setting { device: row.profiled_device(), mode: row.mode, granularity: row.granularity }
    }

    /// Engine and threads, in words.
    fn engine(&self) -> String {
        format!("{}, {}", self.device.engine, self.device.threads_text())
    }

    /// What is measured, in words.
    fn what(&self) -> &'static str {
        match (self.granularity, self.mode) {
            (Granularity::Fused, MeasurementMode::Isolated) => "fused groups",
            (Granularity::Fused, MeasurementMode::InSitu) => "fused groups in situ",
            (Granularity::Op, MeasurementMode::Isolated) => "operators",
            (Granularity::Op, MeasurementMode::InSitu) => "operators in situ",
        }
    }
}

/// The settings in which anything was measured, in order.
fn settings(rows: &[ProfileRow]) -> Vec<Setting> {
    let mut found = Vec::new();
    for setting in rows.iter().filter(|row| row.time_us_median.is_some()).map(Setting::of) {
        if !found.contains(&setting) {
            found.push(setting);
        }
    }
    found
}

fn devices(settings: &[Setting]) -> Vec<String> {
    let names: BTreeSet<DeviceName> = settings.iter().map(|setting| setting.device.device_name()).collect();
    names.iter().map(DeviceName::to_string).collect()
}

/// Settings of A and B that measure the same on a device: equal ones, else what is the only one of its kind on both sides.
fn matched<'a>(a: &'a [Setting], b: &'a [Setting], any_device: bool) -> (Vec<(&'a Setting, &'a Setting)>, Vec<String>) {
    let is_same = |x: &Setting, y: &Setting| {
        let is_device = any_device || x.device.device_name() == y.device.device_name();
        is_device && (x.mode, x.granularity) == (y.mode, y.granularity)
    };
    let (mut pairs, mut notes) = (Vec::new(), Vec::new());
    for setting in a {
        let rivals = a.iter().filter(|other| is_same(setting, other)).count();
        let candidates: Vec<&Setting> = b.iter().filter(|other| is_same(setting, other)).collect();
        match (candidates.iter().find(|other| **other == setting), &candidates[..]) {
            (Some(other), _) => pairs.push((setting, *other)),
            (None, [other]) if rivals == 1 => pairs.push((setting, *other)),
            (None, []) => {}
            (None, _) => {
                let (device, engine, what) = (setting.device.device_name(), setting.engine(), setting.what());
                notes.push(format!("{device}: {what} on {engine}: B has several of them, not compared"));
            }
        }
    }
    (pairs, notes)
}

/// The file, its devices, engines and the day of its last row.
fn described(name: &str, rows: &[ProfileRow]) -> String {
    let of = |row: &ProfileRow| {
        let setting = Setting::of(row);
        format!("{} ({}), {}", setting.device.device_name(), setting.device.hardware, setting.engine())
    };
    let devices: BTreeSet<String> = rows.iter().map(of).collect();
    let devices: Vec<String> = devices.into_iter().collect();
    let date = rows.iter().filter_map(|row| row.measured_at).max();
    let date = date.map_or(String::new(), |at| format!(", measured {}", at.date()));
    format!("{name}: {}{date}", devices.join("; "))
}

/// By what rows are paired: what is computed, and which shard of it.
type Key<'a> = (&'a Signature, Option<usize>, u64);

/// The rows of one setting on each side.
fn compare(
    comparison: &mut Comparison,
    (setting_a, a): (&Setting, &[ProfileRow]),
    (setting_b, b): (&Setting, &[ProfileRow]),
    is_one: bool,
) {
    let [device_a, device_b] = [setting_a, setting_b].map(|setting| setting.device.device_name().to_string());
    let (pairs, alone_a, alone_b) = paired(measured(a, setting_a), measured(b, setting_b));
    let mut operators: BTreeMap<&str, BTreeMap<&Signature, (Estimate, Estimate)>> = BTreeMap::new();
    let row = |kind, name: &str, a, b| ComparisonRow::times(kind, name, a, b).on(&device_a, &device_b);
    for ((signature, axis, fraction), of_a, of_b) in &pairs {
        let (time_a, time_b) = (estimate(of_a), estimate(of_b));
        let part = axis.map_or(String::new(), |axis| format!("axis {axis}, {:.3}", f64::from_bits(*fraction)));
        let id = u32::try_from(of_a.id).ok();
        comparison.rows.push(row(ComparedKind::Group, &of_a.operator, time_a, time_b).of(id, &part));
        if axis.is_none() {
            let sum = operators.entry(&of_a.operator).or_default().entry(signature);
            let sum = sum.or_insert((Estimate::ZERO, Estimate::ZERO));
            // In isolation one measurement stands for all of a signature, so that its error does too.
            *sum = match setting_a.mode {
                MeasurementMode::Isolated => (sum.0.plus_same(time_a), sum.1.plus_same(time_b)),
                MeasurementMode::InSitu => (sum.0.plus(time_a), sum.1.plus(time_b)),
            };
        }
    }
    let add = |sum: (Estimate, Estimate), (a, b): &(Estimate, Estimate)| (sum.0.plus(*a), sum.1.plus(*b));
    let mut whole = (Estimate::ZERO, Estimate::ZERO);
    for (name, times) in &operators {
        let sum = times.values().fold((Estimate::ZERO, Estimate::ZERO), add);
        whole = add(whole, &sum);
        comparison.rows.push(row(ComparedKind::Operators, name, sum.0, sum.1));
    }
    if !operators.is_empty() {
        let of_setting = if is_one { String::new() } else { format!(" of {}", setting_a.what()) };
        comparison.rows.push(row(ComparedKind::Whole, &format!("sum{of_setting}"), whole.0, whole.1));
        let pairs: Vec<_> =
            pairs.iter().filter(|((_, axis, _), ..)| axis.is_none()).map(|(_, a, b)| (*a, *b)).collect();
        let rows = energy(&pairs, &format!("energy{of_setting}"));
        comparison.rows.extend(rows.into_iter().map(|row| row.on(&device_a, &device_b)));
        let sources = |rows: &mut dyn Iterator<Item = &ProfileRow>| -> BTreeSet<String> {
            rows.filter_map(|row| row.energy().map(|energy| energy.source.to_string())).collect()
        };
        let (of_a, of_b) =
            (sources(&mut pairs.iter().map(|pair| pair.0)), sources(&mut pairs.iter().map(|pair| pair.1)));
        comparison.notes.extend(other_sources(&device_a, &of_a, &of_b));
    }
    comparison.notes.extend(unpaired("rows", alone_a, alone_b).map(|note| format!("{device_a}: {note}")));
}

/// The energy of all `pairs`, called `whole`, and of each kind of operator, where all rows of both sides have it.
fn energy(pairs: &[(&ProfileRow, &ProfileRow)], whole: &str) -> Vec<ComparisonRow> {
    let sum = |kind: Option<&str>| {
        let mut counted = pairs.iter().filter(|(a, _)| kind.is_none_or(|kind| a.operator == kind));
        counted.try_fold((Joules::ZERO, Joules::ZERO), |sum, (a, b)| Some((sum.0 + a.energy_j?, sum.1 + b.energy_j?)))
    };
    let row =
        |kind, name: &str, sum: Option<(Joules, Joules)>| sum.map(|(a, b)| ComparisonRow::energy(kind, name, a, b));
    let kinds: BTreeSet<&str> = pairs.iter().map(|(a, _)| a.operator.as_str()).collect();
    let of_kinds = kinds.into_iter().filter_map(|kind| row(ComparedKind::Operators, kind, sum(Some(kind))));
    row(ComparedKind::Whole, whole, sum(None)).into_iter().chain(of_kinds).collect()
}

/// The rows of a setting that have a time.
fn measured<'a>(rows: &'a [ProfileRow], setting: &Setting) -> impl Iterator<Item = (Key<'a>, &'a ProfileRow)> {
    let key = |row: &'a ProfileRow| (&row.signature, row.axis, row.fraction.unwrap_or(1.0).to_bits());
    let of_setting = rows.iter().filter(move |row| row.time_us_median.is_some() && Setting::of(row) == *setting);
    of_setting.map(move |row| (key(row), row))
}

fn estimate(row: &ProfileRow) -> Estimate {
    let value = row.time_us_median.map_or(0.0, |time| time.0);
    Estimate::median(value, row.time_us_mad.map(|mad| mad.0), row.n as usize)
}

#[cfg(test)]
mod tests {
    use super::{super::Unit, *};

    const HEADER: &str = "server,device,hardware,engine,engine_version,threads,mode,granularity,id,operators,operator,\
                          signature,shapes,dtype,flops,bytes,n,time_us_median,time_us_mad,time_us_min,time_us_p95,\
                          cpu_us_median,gpu_us_median,workspace_bytes,output_bytes,parameter_bytes,held_bytes,disturbed,note\n";

    /// A profile with operators of these ids, names, signatures and medians.
    fn profile(server: &str, rows: &[(u32, &str, &str, f64)]) -> Vec<ProfileRow> {
        let row = |(id, name, signature, time): &(u32, &str, &str, f64)| {
            format!(
                "{server},cpu,hw,tract,1,1,isolated,op,{id},{id},{name},{signature},s,float32,1,1,100,{time},0.1,{time},\
                 {time},{time},,0,0,0,0,0,\n"
            )
        };
        let text: String = rows.iter().map(row).collect();
        edgecut_profile::reader::parse(&format!("{HEADER}{text}")).unwrap()
    }

    #[test]
    fn operators_are_paired_by_what_they_compute() {
        let a = profile("s", &[(0, "conv", "x", 10.0), (1, "conv", "x", 10.0), (2, "relu", "y", 1.0)]);
        let b = profile("t", &[(5, "relu", "y", 1.0), (6, "conv", "x", 8.0), (7, "new", "z", 1.0)]);
        let found = profiles(("a.csv", &a), ("b.csv", &b)).unwrap();
        let rows: Vec<(ComparedKind, &str, f64, f64, Option<bool>)> =
            found.rows.iter().map(|row| (row.kind, row.name.as_str(), row.a, row.b, row.is_significant)).collect();
        assert_eq!(
            rows,
            [
                (ComparedKind::Whole, "sum", 11.0, 9.0, Some(true)),
                (ComparedKind::Operators, "conv", 10.0, 8.0, Some(true)),
                (ComparedKind::Operators, "relu", 1.0, 1.0, Some(false)),
                (ComparedKind::Group, "conv", 10.0, 8.0, Some(true)),
                (ComparedKind::Group, "relu", 1.0, 1.0, Some(false)),
            ]
        );
        assert_eq!(found.notes, ["s/cpu: 1 rows only in A, 1 only in B: not compared"]);
    }

    #[test]
    fn energy_is_compared_where_all_rows_have_it() {
        let told = |joules: [Option<f64>; 3]| {
            let rows = profile("s", &[(0, "conv", "x", 1.0), (1, "conv", "z", 1.0), (2, "relu", "y", 1.0)]);
            let rows = rows.into_iter().zip(joules);
            rows.map(|(row, j)| ProfileRow { energy_j: j.map(Joules), ..row }).collect::<Vec<_>>()
        };
        let energy = |a: &[ProfileRow], b: &[ProfileRow]| {
            let rows = profiles(("a", a), ("b", b)).unwrap().rows.into_iter().filter(|row| row.unit == Unit::J);
            rows.map(|row| (row.name, row.a, row.b)).collect::<Vec<_>>()
        };
        let all = told([Some(1.0), Some(2.0), Some(4.0)]);
        let more = told([Some(1.5), Some(2.5), Some(9.0)]);
        let named = |name: &str, a, b| (name.to_string(), a, b);
        assert_eq!(energy(&all, &more), [named("energy", 7.0, 13.0), named("relu", 4.0, 9.0), named("conv", 3.0, 4.0)]);
        assert_eq!(energy(&all, &told([Some(1.0), None, Some(5.0)])), [named("relu", 4.0, 5.0)]);
        assert_eq!(energy(&all, &told([None; 3])), []);
    }

    #[test]
    fn what_was_measured_in_one_setting_is_compared() {
        let rows = profile("s", &[(0, "f", "x", 1.0), (1, "f", "x", 3.0)]);
        let fused: Vec<ProfileRow> =
            rows.iter().map(|row| ProfileRow { granularity: Granularity::Fused, ..row.clone() }).collect();
        let both = [rows.clone(), fused].concat();
        let sums = |found: Comparison| -> Vec<(String, f64)> {
            let whole = found.rows.into_iter().filter(|row| row.kind == ComparedKind::Whole);
            whole.map(|row| (row.name, row.a)).collect()
        };
        let found = sums(profiles(("a", &both), ("b", &both)).unwrap());
        assert_eq!(found, [("sum of operators".to_string(), 4.0), ("sum of fused groups".to_string(), 4.0)]);
        let in_situ: Vec<ProfileRow> =
            rows.iter().map(|row| ProfileRow { mode: MeasurementMode::InSitu, ..row.clone() }).collect();
        assert_eq!(sums(profiles(("a", &in_situ), ("b", &in_situ)).unwrap()), [("sum".to_string(), 4.0)]);
        let threads = |count| rows.iter().map(move |row| ProfileRow { threads: count, ..row.clone() });
        let many: Vec<ProfileRow> = threads(1).chain(threads(2)).collect();
        assert_eq!(sums(profiles(("a", &many), ("b", &many)).unwrap()).len(), 2);
        // Which of two settings is meant by another one, nothing says.
        let other: Vec<ProfileRow> = threads(4).collect();
        assert!(profiles(("a", &many), ("b", &other)).is_err());
        assert_eq!(sums(profiles(("a", &rows), ("b", &other)).unwrap()).len(), 1);
    }

    #[test]
    fn several_devices_are_paired_by_name() {
        let several = [profile("s", &[(0, "f", "x", 1.0)]), profile("t", &[(0, "f", "x", 2.0)])].concat();
        let found = profiles(("a", &several), ("b", &profile("t", &[(0, "f", "x", 4.0)]))).unwrap();
        assert!(found.rows.iter().all(|row| row.ratio == Some(2.0)), "{found:?}");
        let none = profiles(("a", &several), ("b", &profile("u", &[(0, "f", "x", 4.0)]))).unwrap_err();
        assert!(none.to_string().contains("a has the devices s/cpu, t/cpu, b has u/cpu"), "{none}");
        let other = profiles(("a", &profile("s", &[(0, "f", "q", 1.0)])), ("b", &profile("u", &[(0, "f", "x", 4.0)])));
        assert!(matches!(other, Err(ComparisonError::Nothing { .. })));
        assert_eq!(profiles(("a", &[]), ("b", &several)), Err(ComparisonError::Empty("a".into())));
    }
}
