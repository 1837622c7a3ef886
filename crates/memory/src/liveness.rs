//! Liveness of tensors in a kernel trace: births, deaths and idle periods.
//!
//! The trace is one iteration of a loop: a *global* tensor (a weight) is live across iterations, and its idle periods
//! wrap around. Any other tensor is born with the first kernel that uses it and dies with the kernel after the last that
//! reads it.

use edgecut_graph::units::{Bytes, Micros};
use serde::Serialize;

/// Kernels in order, and the tensors they use.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    pub tensors: Vec<TracedTensor>,
    pub kernels: Vec<Kernel>,
}

/// A tensor of a trace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TracedTensor {
    pub name: String,
    pub bytes: Bytes,
    /// Whether it is live across iterations.
    pub global: bool,
    /// Whether it is an input of every iteration.
    pub input: bool,
    /// Whether it is an output.
    pub result: bool,
}

/// One kernel call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kernel {
    /// As displayed, with its arguments.
    pub name: String,
    pub inputs: Vec<TensorUse>,
    pub outputs: Vec<TensorUse>,
    pub time: Micros,
}

/// A tensor as a kernel uses it: a view has a name and a shape of its own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TensorUse {
    pub tensor: usize,
    pub name: String,
    /// As in `f32[2, 8]`.
    pub dimensions: String,
}

/// The liveness of one tensor; positions are kernel indices.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TensorLiveness {
    /// First kernel that uses it; `None` if none does, or if it is global.
    pub birth: Option<usize>,
    /// The kernel after the last that reads it; `None` if none does.
    pub death: Option<usize>,
    pub idle: Vec<IdlePeriod>,
}

/// Consecutive kernels that do not use a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct IdlePeriod {
    /// First idle kernel.
    pub start: usize,
    /// The next kernel that uses it; at most `start` if that is in the next iteration.
    pub end: usize,
    #[serde(rename = "time_us")]
    pub time: Micros,
}

/// Memory while one kernel runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct KernelMemory {
    /// The tensors that the kernel uses: the sum of the next three.
    pub active: Bytes,
    pub inputs: Bytes,
    pub weights: Bytes,
    pub intermediates: Bytes,
    /// All live tensors, global ones included.
    pub total: Bytes,
}

impl Trace {
    /// The liveness of every tensor.
    pub fn liveness(&self) -> Vec<TensorLiveness> {
        let count = self.kernels.len();
        // Start times in microseconds over two iterations.
        let mut clock = vec![0.0; 2 * count + 1];
        for kernel in 0..2 * count {
            clock[kernel + 1] = clock[kernel] + self.kernels[kernel % count].time.0;
        }
        let mut uses: Vec<Vec<usize>> = vec![Vec::new(); self.tensors.len()];
        let mut last_read: Vec<Option<usize>> = vec![None; self.tensors.len()];
        for (index, kernel) in self.kernels.iter().enumerate() {
            for tensor in kernel.inputs.iter().chain(&kernel.outputs).map(|u| u.tensor) {
                if uses[tensor].last() != Some(&index) {
                    uses[tensor].push(index);
                }
            }
            kernel.inputs.iter().for_each(|u| last_read[u.tensor] = Some(index));
        }
        let liveness = |index: usize| {
            let (uses, tensor) = (&uses[index], &self.tensors[index]);
            let death = last_read[index].map(|kernel| kernel + 1);
            let is_live = |&kernel: &usize| tensor.global || death.is_some_and(|death| kernel < death);
            let live: Vec<usize> = uses.iter().copied().filter(is_live).collect();
            let gap = |pair: &[usize]| IdlePeriod {
                start: pair[0] + 1,
                end: pair[1],
                time: Micros(clock[pair[1]] - clock[pair[0] + 1]),
            };
            let mut idle: Vec<IdlePeriod> = live.windows(2).filter(|pair| pair[1] > pair[0] + 1).map(gap).collect();
            if let (true, Some(&first), Some(&last)) = (tensor.global, live.first(), live.last()) {
                let start = (last + 1) % count;
                if start != first {
                    let end = if first < start { first + count } else { first };
                    idle.push(IdlePeriod { start, end: first, time: Micros(clock[end] - clock[start]) });
                }
            }
            let (birth, death) = if tensor.global { (None, None) } else { (uses.first().copied(), death) };
            TensorLiveness { birth, death, idle }
        };
        (0..self.tensors.len()).map(liveness).collect()
    }

    /// The exact memory of every kernel. Outputs are live to the end; a tensor that is never read is live during the
    /// kernel that writes it.
    pub fn memory(&self) -> Vec<KernelMemory> {
        let globals: Bytes = self.tensors.iter().filter(|t| t.global).map(|t| t.bytes).sum();
        let mut memory: Vec<KernelMemory> =
            self.kernels.iter().map(|_| KernelMemory { total: globals, ..KernelMemory::default() }).collect();
        for (tensor, life) in self.tensors.iter().zip(self.liveness()) {
            let Some(birth) = life.birth else { continue };
            let end = if tensor.result { self.kernels.len() } else { life.death.unwrap_or(birth + 1) };
            // Inputs are live from the beginning.
            let start = if tensor.input { 0 } else { birth };
            memory[start..end].iter_mut().for_each(|m| m.total += tensor.bytes);
        }
        for (memory, kernel) in memory.iter_mut().zip(&self.kernels) {
            for index in kernel.tensors() {
                let tensor = &self.tensors[index];
                memory.active += tensor.bytes;
                *match tensor {
                    TracedTensor { global: true, .. } => &mut memory.weights,
                    TracedTensor { input: true, .. } => &mut memory.inputs,
                    _ => &mut memory.intermediates,
                } += tensor.bytes;
            }
        }
        memory
    }
}

impl Kernel {
    /// The tensors it uses, each once.
    pub fn tensors(&self) -> Vec<usize> {
        let mut tensors: Vec<usize> = self.inputs.iter().chain(&self.outputs).map(|u| u.tensor).collect();
        tensors.sort_unstable();
        tensors.dedup();
        tensors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        let tensor = |name: &str, global| TracedTensor {
            name: name.into(),
            bytes: Bytes(10),
            global,
            ..TracedTensor::default()
        };
        let uses = |list: &[usize]| list.iter().map(|&tensor| TensorUse { tensor, ..TensorUse::default() }).collect();
        let kernel = |inputs: &[usize], outputs: &[usize]| Kernel {
            name: String::new(),
            inputs: uses(inputs),
            outputs: uses(outputs),
            time: Micros(2.0),
        };
        Trace {
            tensors: vec![tensor("weight", true), tensor("a", false), tensor("b", false), tensor("c", false)],
            kernels: vec![kernel(&[0], &[1]), kernel(&[1], &[2]), kernel(&[2], &[3]), kernel(&[1, 3], &[])],
        }
    }

    #[test]
    fn tensors_are_idle_between_uses() {
        let liveness = trace().liveness();
        assert_eq!(liveness[0].idle, [IdlePeriod { start: 1, end: 0, time: Micros(6.0) }]);
        assert_eq!((liveness[1].birth, liveness[1].death), (Some(0), Some(4)));
        assert_eq!(liveness[1].idle, [IdlePeriod { start: 2, end: 3, time: Micros(2.0) }]);
        assert!(liveness[3].idle.is_empty());
    }

    #[test]
    fn memory_counts_live_tensors() {
        let totals: Vec<u64> = trace().memory().iter().map(|m| m.total.0).collect();
        assert_eq!(totals, [20, 30, 40, 30]);
        assert_eq!(trace().memory()[0].weights, Bytes(10));
    }
}
