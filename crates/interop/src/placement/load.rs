//! Throughput: the load of every device, updated incrementally.
//!
//! The load of an accelerator is the time of its operators, plus the transfer of every operator outside with an edge into
//! it, plus the transfer of every operator inside with an edge out of it, each once. The load of a CPU is the time of its
//! operators.

use super::bundles::{Bundles, Net};

/// A device for every bundle with the loads that follow. Devices `0..accelerators` are accelerators, the CPUs follow.
#[derive(Debug, Clone)]
pub struct Loads<'a> {
    pub problem: &'a Bundles,
    pub device: Vec<usize>,
    pub loads: Vec<f64>,
    pub sizes: Vec<f64>,
    /// `readers[net * devices + device]`: readers of the net on the device.
    readers: Vec<u32>,
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
        self.problem.excess_bytes(&self.sizes)
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

    /// Moves a bundle, in time proportional to its nets. For each of them this equals `charge(net, -1.0)`, the move and
    /// `charge(net, 1.0)`, on the loads that can change.
    pub fn move_bundle(&mut self, bundle: usize, to: usize) {
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
                    // `from` stops sending the net, and receives it if it still has readers; `to` the reverse.
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
