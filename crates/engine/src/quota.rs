//! The CPU quota of this process: the limit of a container or service, from its control group.
//!
//! A process with a quota runs at full speed until the quota of a period (often 100 ms) is used up, and is then suspended
//! until the next period. A short operator measured in isolation is not affected; in a model that runs longer than a
//! period, every operator takes its CPU time divided by the quota.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The quota in cores, which may be a fraction; `None` without a quota, or if it cannot be determined.
pub fn cpu_quota() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    tightest_quota(&text, Path::new(CGROUPS))
}

/// The tightest quota of the groups in `text`, which has the format of `/proc/self/cgroup`, and of their ancestors.
fn tightest_quota(text: &str, root: &Path) -> Option<f64> {
    let mut tightest: Option<f64> = None;
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, quota): (PathBuf, fn(&Path) -> Option<f64>) = match controllers {
            "" => (root.to_path_buf(), quota_v2),
            list if list.split(',').any(|controller| controller == "cpu") => {
                let joined = root.join(list);
                (if joined.exists() { joined } else { root.join("cpu") }, quota_v1)
            }
            _ => continue,
        };
        let group = mount.join(path.trim_start_matches('/'));
        let ancestors = group.ancestors().take_while(|folder| folder.starts_with(&mount));
        tightest = ancestors.filter_map(quota).chain(tightest).reduce(f64::min);
    }
    tightest
}

/// Control groups v2: `cpu.max` is "max 100000" or "60000 100000".
fn quota_v2(group: &Path) -> Option<f64> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    ratio(quota, period)
}

/// Control groups v1: a quota of -1 means no limit.
fn quota_v1(group: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    ratio(read("cpu.cfs_quota_us")?.trim(), read("cpu.cfs_period_us")?.trim())
}

fn ratio(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_quota_of_all_ancestors_applies() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("cpu/a/cpu.cfs_quota_us", "30000\n");
        write("cpu/a/cpu.cfs_period_us", "100000\n");
        write("cpu/a/b/cpu.cfs_quota_us", "-1\n");
        write("cpu/a/b/cpu.cfs_period_us", "100000\n");
        write("c/d/cpu.max", "max 100000\n");
        write("c/cpu.max", "150000 100000\n");
        let of = |text: &str| tightest_quota(text, root.path());
        assert_eq!(of("4:memory:/a\n1:cpu,cpuacct:/a/b\n"), Some(0.3));
        assert_eq!(of("0::/c/d\n"), Some(1.5));
        assert_eq!(of("1:cpu:/a/b\n0::/c/d\n"), Some(0.3));
        assert_eq!(of("0::/elsewhere\n"), None);
        assert_eq!(of("not this\n"), None);
    }
}
