//! Loads of contiguous segments of an order on one device. The transfers of a segment depend on its ends alone, so all
//! loads are tabulated in quadratic time.

use super::bundles::Bundles;

/// The load of every segment of an order on an accelerator and on a CPU.
pub struct Segments {
    count: usize,
    /// Row-major by start, column end − 1; infinite where the segment does not fit.
    accelerator: Vec<f64>,
    cpu_sums: Vec<f64>,
}

impl Segments {
    pub fn new(problem: &Bundles, order: &[usize]) -> Segments {
        let count = order.len();
        let mut accelerator = vec![f64::INFINITY; count * count];
        let mut inside = vec![0u32; problem.nets.len()];
        let mut owns = vec![false; problem.nets.len()];
        for start in 0..count {
            inside.iter_mut().for_each(|n| *n = 0);
            owns.iter_mut().for_each(|o| *o = false);
            let (mut load, mut size) = (0.0, 0.0);
            for end in start..count {
                let bundle = &problem.bundles[order[end]];
                size += bundle.size;
                if !bundle.on_accelerator || size > problem.memory {
                    break;
                }
                load += bundle.accelerator_time;
                for &index in &bundle.reads {
                    let net = &problem.nets[index];
                    inside[index] += 1;
                    if owns[index] {
                        // The last reader that comes in ends the sending.
                        load -= if inside[index] as usize == net.readers.len() { net.cost } else { 0.0 };
                    } else if inside[index] == 1 {
                        load += net.cost;
                    }
                }
                for &index in &bundle.makes {
                    let net = &problem.nets[index];
                    owns[index] = true;
                    load -= if inside[index] > 0 { net.cost } else { 0.0 };
                    load += if (inside[index] as usize) < net.readers.len() { net.cost } else { 0.0 };
                }
                accelerator[start * count + end] = load;
            }
        }
        let mut cpu_sums = vec![0.0];
        for bundle in order {
            cpu_sums.push(cpu_sums.last().copied().unwrap_or(0.0) + problem.bundles[*bundle].cpu_time);
        }
        Segments { count, accelerator, cpu_sums }
    }

    /// Of the segment `start..end`, with its transfers; infinite where it does not fit.
    pub(crate) fn accelerator(&self, start: usize, end: usize) -> f64 {
        self.accelerator[start * self.count + end - 1]
    }

    /// Of the segment `start..end` on one CPU.
    pub fn cpu(&self, start: usize, end: usize) -> f64 {
        self.cpu_sums[end] - self.cpu_sums[start]
    }
}
