//! Processor, caches and memory of this machine, as the operating system reports them.

use std::{fs, path::Path};

use smol_str::SmolStr;
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use crate::{Cache, CpuDescription};
use edgecut_graph::units::Bytes;

/// The machine without its devices.
pub(super) struct Machine {
    pub system: String,
    pub cpu: CpuDescription,
    pub memory_total: Bytes,
    pub memory_available: Bytes,
}

impl Machine {
    /// Queries the operating system; what it does not report is empty.
    pub fn detect() -> Machine {
        let requested = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        let system = System::new_with_specifics(requested).ok();
        let first = system.as_ref().and_then(|system| system.cpus().first());
        let model = first.map(|cpu| cpu.brand().trim().to_string()).unwrap_or_default();
        // Threads that this process may use, under its affinity and CPU quota.
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let cores = System::physical_core_count().map_or(threads, |n| n as u32);
        let (memory_total, memory_available) = system.as_ref().map_or_else(Default::default, memory);
        Machine {
            system: System::long_os_version().unwrap_or_else(|_| std::env::consts::OS.to_string()),
            cpu: CpuDescription {
                model,
                cores,
                threads,
                architecture: std::env::consts::ARCH.to_string(),
                caches: caches(Path::new("/sys/devices/system/cpu/cpu0/cache")),
            },
            memory_total,
            memory_available,
        }
    }
}

/// The memory of this machine, or that of the container where that is less; zero if the operating system does not report it.
pub fn total_memory() -> Bytes {
    let requested = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    System::new_with_specifics(requested).map_or(Bytes::ZERO, |system| memory(&system).0)
}

/// Total and available.
fn memory(system: &System) -> (Bytes, Bytes) {
    let (total, available) = (system.total_memory(), system.available_memory());
    match system.cgroup_limits() {
        Some(limits) => (Bytes(total.min(limits.total_memory)), Bytes(available.min(limits.free_memory))),
        None => (Bytes(total), Bytes(available)),
    }
}

/// The data caches of a core from sysfs (`folder`); empty where there is no sysfs.
fn caches(folder: &Path) -> Vec<Cache> {
    let read = |index: usize, file: &str| {
        let text = fs::read_to_string(folder.join(format!("index{index}")).join(file)).ok()?;
        Some(text.trim().to_string())
    };
    let cache = |index| {
        let (level, kind) = (read(index, "level")?, read(index, "type")?);
        let size: Bytes = read(index, "size")?.replace('K', "KiB").replace('M', "MiB").parse().ok()?;
        let suffix = if level == "1" { "d" } else { "" };
        (kind != "Instruction").then(|| Cache { name: SmolStr::new(format!("L{level}{suffix}")), size })
    };
    (0..8).filter_map(cache).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_processor_and_memory() {
        let machine = Machine::detect();
        assert!(machine.cpu.threads >= 1 && machine.cpu.cores >= 1);
        assert!(machine.memory_total.0 > 1 << 20 && machine.memory_available <= machine.memory_total);
    }

    #[test]
    fn caches_are_read_from_linux_files() {
        let folder = tempfile::tempdir().unwrap();
        for (index, level, kind, size) in
            [(0, "1", "Data", "48K"), (1, "1", "Instruction", "32K"), (2, "2", "Unified", "2048K")]
        {
            let at = folder.path().join(format!("index{index}"));
            fs::create_dir(&at).unwrap();
            for (file, text) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(at.join(file), format!("{text}\n")).unwrap();
            }
        }
        let want = [("L1d", 48 << 10), ("L2", 2 << 20)];
        assert_eq!(caches(folder.path()), want.map(|(name, size)| Cache { name: name.into(), size: Bytes(size) }));
        assert_eq!(caches(Path::new("/nowhere")), vec![]);
    }
}
