//! Two profiles: times of the same operators on two devices, with two engines or versions, or on two days.

use std::collections::{BTreeMap, BTreeSet};

use edgecut_profile::{ProfileRow, Signature};

use super::{ComparedKind, Comparison, ComparisonError, ComparisonRow, estimate::Estimate, paired, sort, unpaired};

/// Compares the profile `a`, called `name_a`, with `b`.
///
/// If each has one device, these are compared; else those of the same name. Rows are paired by what they compute, so that
/// they need not be of the same file or model.
///
/// # Errors
/// If there are no such devices, or nothing that both have measured.
pub fn profiles(
    (name_a, a): (&str, &[ProfileRow]),
    (name_b, b): (&str, &[ProfileRow]),
) -> Result<Comparison, ComparisonError> {
    let (devices_a, devices_b) = (devices(a), devices(b));
    for (name, devices) in [(name_a, &devices_a), (name_b, &devices_b)] {
        if devices.is_empty() {
            return Err(ComparisonError::Empty(name.to_string()));
        }
    }
    let pairs: Vec<(&str, &str)> = match (&devices_a[..], &devices_b[..]) {
        ([one], [other]) => vec![(one, other)],
        _ => devices_a
            .iter()
            .filter(|device| devices_b.contains(device))
            .map(|device| (&device[..], &device[..]))
            .collect(),
    };
    if pairs.is_empty() {
        let (a, b) = (name_a.to_string(), name_b.to_string());
        return Err(ComparisonError::Devices {
            a,
            devices_a: devices_a.join(", "),
            b,
            devices_b: devices_b.join(", "),
        });
    }
    let mut comparison = Comparison { a: described(name_a, a), b: described(name_b, b), ..Comparison::default() };
    for (device_a, device_b) in pairs {
        device(&mut comparison, (device_a, a), (device_b, b));
    }
    if comparison.rows.is_empty() {
        return Err(ComparisonError::Nothing { a: name_a.to_string(), b: name_b.to_string() });
    }
    sort(&mut comparison.rows);
    Ok(comparison)
}

fn full_name(row: &ProfileRow) -> String {
    format!("{}/{}", row.server, row.device)
}

/// The devices that measured anything, in order.
fn devices(rows: &[ProfileRow]) -> Vec<String> {
    let measured = rows.iter().filter(|row| row.time_us_median.is_some());
    measured.map(full_name).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The file, its devices, engines and the day of its last row.
fn described(name: &str, rows: &[ProfileRow]) -> String {
    let of = |row: &ProfileRow| {
        let threads = if row.threads == 1 { "1 thread".to_string() } else { format!("{} threads", row.threads) };
        format!("{} ({}), {} {}, {threads}", full_name(row), row.hardware, row.engine, row.engine_version)
    };
    let devices: BTreeSet<String> = rows.iter().map(of).collect();
    let devices: Vec<String> = devices.into_iter().collect();
    let date = rows.iter().filter_map(|row| row.measured_at).max();
    let date = date.map_or(String::new(), |at| format!(", measured {}", at.date()));
    format!("{name}: {}{date}", devices.join("; "))
}

/// By what rows are paired: what is computed, and which shard of it.
type Key<'a> = (&'a Signature, u8, Option<usize>, u64);

/// The rows of one device on each side.
fn device(comparison: &mut Comparison, (device_a, a): (&str, &[ProfileRow]), (device_b, b): (&str, &[ProfileRow])) {
    let (pairs, alone_a, alone_b) = paired(measured(a, device_a), measured(b, device_b));
    let mut operators: BTreeMap<&str, BTreeMap<&Signature, (usize, Estimate, Estimate)>> = BTreeMap::new();
    let row = |kind, name: &str, a, b| ComparisonRow::times(kind, name, a, b).on(device_a, device_b);
    for ((signature, _, axis, fraction), of_a, of_b) in &pairs {
        let (time_a, time_b) = (estimate(of_a), estimate(of_b));
        let part = axis.map_or(String::new(), |axis| format!("axis {axis}, {:.3}", f64::from_bits(*fraction)));
        let id = u32::try_from(of_a.id).ok();
        comparison.rows.push(row(ComparedKind::Group, &of_a.operator, time_a, time_b).of(id, &part));
        if axis.is_none() {
            let of_kind = operators.entry(&of_a.operator).or_default();
            of_kind.entry(signature).or_insert((0, time_a, time_b)).0 += 1;
        }
    }
    let mut whole = (Estimate::ZERO, Estimate::ZERO);
    for (name, times) in &operators {
        let mut sum = (Estimate::ZERO, Estimate::ZERO);
        for (count, a, b) in times.values() {
            sum = (sum.0.plus(a.times(*count)), sum.1.plus(b.times(*count)));
        }
        whole = (whole.0.plus(sum.0), whole.1.plus(sum.1));
        comparison.rows.push(row(ComparedKind::Operators, name, sum.0, sum.1));
    }
    if !operators.is_empty() {
        comparison.rows.push(row(ComparedKind::Whole, "sum", whole.0, whole.1));
    }
    comparison.notes.extend(unpaired("operators", alone_a, alone_b).map(|note| format!("{device_a}: {note}")));
}

/// The rows of a device that have a time.
fn measured<'a>(rows: &'a [ProfileRow], device: &str) -> impl Iterator<Item = (Key<'a>, &'a ProfileRow)> {
    let key =
        |row: &'a ProfileRow| (&row.signature, row.granularity as u8, row.axis, row.fraction.unwrap_or(1.0).to_bits());
    let of_device = rows.iter().filter(move |row| full_name(row) == device);
    of_device.filter(|row| row.time_us_median.is_some()).map(move |row| (key(row), row))
}

fn estimate(row: &ProfileRow) -> Estimate {
    let value = row.time_us_median.map_or(0.0, |time| time.0);
    Estimate::median(value, row.time_us_mad.map(|mad| mad.0), row.n as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(found.notes, ["s/cpu: 1 operators only in A, 1 only in B: not compared"]);
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
