//! How much of the processor's time this process may take: a container's or a service's limit, as its cgroup says.
//!
//! A process with a limit runs at full speed until its ration of a period (often 100 ms) is used up, and then not at all
//! until the next one. A short operator measured by itself sees none of that; in a model that runs for longer than a
//! period every operator takes its processor time divided by the ration.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The limit in cores' time, below 1 for less than a core; `None` without one, and where it cannot be known.
pub fn processor_quota() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    tightest(&text, Path::new(CGROUPS))
}

/// The tightest limit of the groups in `text`, which is as `/proc/self/cgroup`, and of those above them.
fn tightest(text: &str, root: &Path) -> Option<f64> {
    let mut tightest: Option<f64> = None;
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, limit): (PathBuf, fn(&Path) -> Option<f64>) = match controllers {
            "" => (root.to_path_buf(), limit_of_v2),
            list if list.split(',').any(|controller| controller == "cpu") => {
                let joined = root.join(list);
                (if joined.exists() { joined } else { root.join("cpu") }, limit_of_v1)
            }
            _ => continue,
        };
        let group = mount.join(path.trim_start_matches('/'));
        let above = group.ancestors().take_while(|folder| folder.starts_with(&mount));
        tightest = above.filter_map(limit).chain(tightest).reduce(f64::min);
    }
    tightest
}

/// `cpu.max`: "max 100000" or "60000 100000".
fn limit_of_v2(group: &Path) -> Option<f64> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    ratio(quota, period)
}

/// A quota of -1 is none.
fn limit_of_v1(group: &Path) -> Option<f64> {
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
    fn the_tightest_limit_on_the_way_up_holds() {
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
        let of = |text: &str| tightest(text, root.path());
        assert_eq!(of("4:memory:/a\n1:cpu,cpuacct:/a/b\n"), Some(0.3));
        assert_eq!(of("0::/c/d\n"), Some(1.5));
        assert_eq!(of("1:cpu:/a/b\n0::/c/d\n"), Some(0.3));
        assert_eq!(of("0::/elsewhere\n"), None);
        assert_eq!(of("not this\n"), None);
    }
}
