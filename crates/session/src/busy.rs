//! Detection of machines that are too busy for reliable measurements.

/// Maximum number of processors that other workloads may use, on average over a measurement.
const MOST_LOAD: f64 = 0.25;

/// A message that names the machines that other workloads kept too busy; `None` if there are none. `loads` gives, for
/// each server, the number of processors of its machine that others used.
pub fn busy<'a>(loads: impl IntoIterator<Item = (&'a str, f64)>) -> Option<String> {
    let too_many = loads.into_iter().filter(|(_, load)| *load > MOST_LOAD);
    let machines: Vec<String> =
        too_many.map(|(server, load)| format!("{load:.1} processors of {server}'s machine")).collect();
    (!machines.is_empty()).then(|| format!("other workloads kept {} busy", machines.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_busy_machines_are_named() {
        assert_eq!(busy([("a", 0.25), ("b", 0.0)]), None);
        let message = busy([("a", 1.26), ("b", 0.1), ("c", 0.5)]).unwrap();
        let expected = "other workloads kept 1.3 processors of a's machine and 0.5 processors of c's machine busy";
        assert_eq!(message, expected);
    }
}
