//! Throughput: the load of every device, updated incrementally.
//!
//! The load of an accelerator is the time of its operators, plus the transfer of every operator outside with an edge into
//! it, plus the transfer of every operator inside with an edge out of it, each once. The load of a CPU is the time of its
//! operators. Operators of one colour move together, as a [`Bundle`].

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

/// A device for every bundle with the loads that follow. Devices `0..accelerators` are accelerators, the CPUs follow.
#[derive(Debug, Clone)]
pub struct Loads<'a> {
    pub problem: &'a Bundles,
    pub device: Vec<usize>,
    pub loads: Vec<f64>,
    pub sizes: Vec<f64>,
    /// Row-major by net: readers on each device.
    readers: Vec<u32>,
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
        device >= self.accelerators || (self.bundles[bundle].on_accelerator && self.bundles[bundle].size <= self.memory)
    }

    /// A place for every operator.
    pub fn places(&self, device: &[usize]) -> Vec<WorkloadDevice> {
        let operators = self.bundles.iter().map(|b| b.operators.len()).sum();
        let mut places = vec![WorkloadDevice::Cpu(0); operators];
        for (bundle, &device) in self.bundles.iter().zip(device) {
            let place = match device < self.accelerators {
                true => WorkloadDevice::Accelerator(device as u32),
                false => WorkloadDevice::Cpu((device - self.accelerators) as u32),
            };
            bundle.operators.iter().for_each(|op| places[*op] = place);
        }
        places
    }
}

impl<'a> Loads<'a> {
    pub fn new(problem: &'a Bundles, device: Vec<usize>) -> Loads<'a> {
        let devices = problem.devices();
        let mut loads = Loads {
            problem,
            loads: vec![0.0; devices],
            sizes: vec![0.0; devices],
            readers: vec![0; problem.nets.len() * devices],
            device,
        };
        for (bundle, &device) in loads.device.iter().enumerate() {
            loads.loads[device] += problem.time(bundle, device);
            loads.sizes[device] += problem.bundles[bundle].size;
        }
        for (index, net) in problem.nets.iter().enumerate() {
            for reader in &net.readers {
                loads.readers[index * devices + loads.device[*reader]] += 1;
            }
            loads.charge(index, 1.0);
        }
        loads
    }

    /// The largest load.
    pub fn largest(&self) -> f64 {
        self.loads.iter().copied().fold(0.0, f64::max)
    }

    /// Bytes above the memory of accelerators, summed.
    pub fn over(&self) -> f64 {
        let accelerators = self.sizes.iter().take(self.problem.accelerators);
        accelerators.map(|size| (size - self.problem.memory).max(0.0)).sum()
    }

    /// Adds a net's transfers to the loads, or takes them away.
    fn charge(&mut self, net: usize, sign: f64) {
        let devices = self.loads.len();
        let Net { source, readers, cost } = &self.problem.nets[net];
        let home = self.device[*source];
        let counts = &self.readers[net * devices..(net + 1) * devices];
        for (device, load) in self.loads.iter_mut().enumerate().take(self.problem.accelerators) {
            let charged = match device == home {
                true => (counts[device] as usize) < readers.len(),
                false => counts[device] > 0,
            };
            if charged {
                *load += sign * cost;
            }
        }
    }

    /// Moves a bundle, in time proportional to its nets.
    pub fn place(&mut self, bundle: usize, to: usize) {
        let from = self.device[bundle];
        if from == to {
            return;
        }
        let problem = self.problem;
        let (devices, accelerators) = (self.loads.len(), problem.accelerators);
        let entry = &problem.bundles[bundle];
        for &index in &entry.reads {
            let net = &problem.nets[index];
            let home = self.device[net.source];
            let (all, counts) = (net.readers.len() as u32, &mut self.readers[index * devices..(index + 1) * devices]);
            let was_out = counts[home] < all;
            counts[from] -= 1;
            counts[to] += 1;
            let is_out = counts[home] < all;
            if home < accelerators && was_out != is_out {
                self.loads[home] += if is_out { net.cost } else { -net.cost };
            }
            if from != home && from < accelerators && counts[from] == 0 {
                self.loads[from] -= net.cost;
            }
            if to != home && to < accelerators && counts[to] == 1 {
                self.loads[to] += net.cost;
            }
        }
        for &index in &entry.makes {
            let net = &problem.nets[index];
            let (all, counts) = (net.readers.len() as u32, &self.readers[index * devices..(index + 1) * devices]);
            for (device, sign) in [(from, 1.0), (to, -1.0)] {
                if device < accelerators {
                    // Leaving, a device pays to get it if it reads it, instead of paying to send it; arriving, the reverse.
                    let reads = f64::from(u8::from(counts[device] > 0));
                    let sends = f64::from(u8::from(counts[device] < all));
                    self.loads[device] += sign * net.cost * (reads - sends);
                }
            }
        }
        self.loads[from] -= problem.time(bundle, from);
        self.loads[to] += problem.time(bundle, to);
        self.sizes[from] -= entry.size;
        self.sizes[to] += entry.size;
        self.device[bundle] = to;
    }
}
