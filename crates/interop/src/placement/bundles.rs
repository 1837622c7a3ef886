//! The workload with the operators of one colour merged: bundles, and the nets between them.

use std::collections::HashMap;

use super::{PlacementWorkload, WorkloadDevice};

/// The workload as bundles that move as one, and the nets that connect them.
#[derive(Debug, Clone)]
pub struct Bundles {
    pub bundles: Vec<Bundle>,
    /// For each operator its bundle.
    pub of: Vec<usize>,
    pub nets: Vec<Net>,
    pub accelerators: usize,
    pub cpus: usize,
    pub memory: f64,
}

/// Operators that must share a device.
#[derive(Debug, Clone, Default)]
pub struct Bundle {
    pub operators: Vec<usize>,
    pub on_accelerator: bool,
    pub cpu_time: f64,
    pub accelerator_time: f64,
    pub size: f64,
    /// Nets that start here, and nets that end here.
    pub makes: Vec<usize>,
    pub reads: Vec<usize>,
}

/// Transfers that are always charged together: from one bundle to the same others.
#[derive(Debug, Clone, PartialEq)]
pub struct Net {
    pub source: usize,
    /// Without the source.
    pub readers: Vec<usize>,
    pub cost: f64,
}

impl Bundles {
    pub fn new(workload: &PlacementWorkload) -> Bundles {
        let mut of = vec![usize::MAX; workload.operators.len()];
        let mut by_colour: HashMap<i64, usize> = HashMap::new();
        let mut bundles: Vec<Bundle> = Vec::new();
        for (at, operator) in workload.operators.iter().enumerate() {
            let fresh = bundles.len();
            let bundle = operator.colour.map_or(fresh, |colour| *by_colour.entry(colour).or_insert(fresh));
            if bundle == fresh {
                bundles.push(Bundle { on_accelerator: true, ..Bundle::default() });
            }
            let entry = &mut bundles[bundle];
            of[at] = bundle;
            entry.operators.push(at);
            entry.on_accelerator &= operator.on_accelerator;
            entry.cpu_time += operator.cpu_time;
            entry.accelerator_time += operator.accelerator_time;
            entry.size += operator.size;
        }
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); workload.operators.len()];
        for &(from, to) in workload.edges.iter().filter(|(from, to)| of[*from] != of[*to]) {
            readers[from].push(of[to]);
        }
        let mut costs: std::collections::BTreeMap<(usize, Vec<usize>), f64> = Default::default();
        for (at, mut readers) in readers.into_iter().enumerate() {
            readers.sort_unstable();
            readers.dedup();
            if !readers.is_empty() && workload.operators[at].transfer > 0.0 {
                *costs.entry((of[at], readers)).or_default() += workload.operators[at].transfer;
            }
        }
        let nets: Vec<Net> = costs.into_iter().map(|((source, readers), cost)| Net { source, readers, cost }).collect();
        for (index, net) in nets.iter().enumerate() {
            bundles[net.source].makes.push(index);
            net.readers.iter().for_each(|reader| bundles[*reader].reads.push(index));
        }
        let (accelerators, cpus) = (workload.accelerators as usize, workload.cpus as usize);
        Bundles { bundles, of, nets, accelerators, cpus, memory: workload.memory }
    }

    pub fn devices(&self) -> usize {
        self.accelerators + self.cpus
    }

    pub fn time(&self, bundle: usize, device: usize) -> f64 {
        let bundle = &self.bundles[bundle];
        if device < self.accelerators { bundle.accelerator_time } else { bundle.cpu_time }
    }

    /// Whether the bundle may be on the device at all.
    pub fn allows(&self, bundle: usize, device: usize) -> bool {
        device >= self.accelerators || self.fits_accelerator(&self.bundles[bundle])
    }

    /// Whether an accelerator could compute the bundle, with nothing else on it.
    pub fn fits_accelerator(&self, bundle: &Bundle) -> bool {
        self.accelerators > 0 && bundle.on_accelerator && bundle.size <= self.memory
    }

    /// Bytes above the memory of accelerators, summed; `sizes` are of the bundles on each device.
    pub fn excess_bytes(&self, sizes: &[f64]) -> f64 {
        sizes.iter().take(self.accelerators).map(|size| (size - self.memory).max(0.0)).sum()
    }

    /// The device of every operator, from that of every bundle.
    pub fn operator_devices(&self, device: &[usize]) -> Vec<WorkloadDevice> {
        let operators = self.bundles.iter().map(|b| b.operators.len()).sum();
        let mut devices = vec![WorkloadDevice::Cpu(0); operators];
        for (bundle, &device) in self.bundles.iter().zip(device) {
            let of = match device < self.accelerators {
                true => WorkloadDevice::Accelerator(device as u32),
                false => WorkloadDevice::Cpu((device - self.accelerators) as u32),
            };
            bundle.operators.iter().for_each(|op| devices[*op] = of);
        }
        devices
    }
}
