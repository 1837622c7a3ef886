//! When each tensor is used, from its birth to its death, and how long it lies idle in between.
//!
//! Kernels run one after the other, again and again: what is *global* (a weight) wraps round from the last use in
//! one iteration to the first use in the next. A tensor is born with the first kernel that uses it and dead with
//! the kernel after the last that reads it.

use serde::Serialize;

/// Kernels in order, and the tensors they use.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    pub tensors: Vec<Tensor>,
    pub kernels: Vec<Kernel>,
}

/// One tensor.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tensor {
    pub name: String,
    pub bytes: u64,
    /// Whether it stays from one iteration to the next.
    pub global: bool,
    /// Whether it is given anew for every iteration.
    pub input: bool,
    /// Whether it is handed out at the end.
    pub result: bool,
}

/// One operator that runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kernel {
    /// With its arguments, as it is to be shown.
    pub name: String,
    pub inputs: Vec<Use>,
    pub outputs: Vec<Use>,
    pub time_us: f64,
}

/// A tensor as a kernel sees it: under which name and in which shape.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Use {
    pub tensor: usize,
    pub name: String,
    /// As in `f32[2, 8]`.
    pub dimensions: String,
}

/// The life of one tensor.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Life {
    /// First kernel that uses it; `None` if none does, or if it is global.
    pub birth: Option<usize>,
    /// The kernel after the last that reads it; `None` if none does.
    pub death: Option<usize>,
    pub idle: Vec<Period>,
}

/// A stretch of kernels that do not use a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Period {
    /// First idle kernel.
    pub start: usize,
    /// The kernel that uses it again; not after `start` if that is in the next iteration.
    pub end: usize,
    pub time_us: f64,
}

/// Memory while one kernel runs, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// What the kernel uses: of that inputs, global tensors, and others.
    pub active: u64,
    pub inputs: u64,
    pub weights: u64,
    pub intermediates: u64,
    /// All that lives, global tensors included.
    pub total: u64,
}

impl Trace {
    /// The life of every tensor.
    pub fn lives(&self) -> Vec<Life> {
        let count = self.kernels.len();
        let mut clock = vec![0.0; 2 * count + 1];
        for kernel in 0..2 * count {
            clock[kernel + 1] = clock[kernel] + self.kernels[kernel % count].time_us;
        }
        let mut used: Vec<Vec<usize>> = vec![Vec::new(); self.tensors.len()];
        let mut read: Vec<Option<usize>> = vec![None; self.tensors.len()];
        for (index, kernel) in self.kernels.iter().enumerate() {
            for tensor in kernel.inputs.iter().chain(&kernel.outputs).map(|u| u.tensor) {
                if used[tensor].last() != Some(&index) {
                    used[tensor].push(index);
                }
            }
            kernel.inputs.iter().for_each(|u| read[u.tensor] = Some(index));
        }
        let life = |index: usize| {
            let (uses, tensor) = (&used[index], &self.tensors[index]);
            let last_read = read[index].map(|kernel| kernel + 1);
            let before_death = |&kernel: &usize| tensor.global || last_read.is_some_and(|death| kernel < death);
            let kept: Vec<usize> = uses.iter().copied().filter(before_death).collect();
            let gap = |pair: &[usize]| Period {
                start: pair[0] + 1,
                end: pair[1],
                time_us: clock[pair[1]] - clock[pair[0] + 1],
            };
            let mut idle: Vec<Period> = kept.windows(2).filter(|pair| pair[1] > pair[0] + 1).map(gap).collect();
            if let (true, Some(&first), Some(&last)) = (tensor.global, kept.first(), kept.last()) {
                let start = (last + 1) % count;
                if start != first {
                    let end = if first < start { first + count } else { first };
                    idle.push(Period { start, end: first, time_us: clock[end] - clock[start] });
                }
            }
            let (birth, death) = if tensor.global { (None, None) } else { (uses.first().copied(), last_read) };
            Life { birth, death, idle }
        };
        (0..self.tensors.len()).map(life).collect()
    }

    /// Memory over the kernels, exact; a result lives to the end, what nobody reads while its kernel runs.
    pub fn memory(&self) -> Vec<Memory> {
        let globals: u64 = self.tensors.iter().filter(|t| t.global).map(|t| t.bytes).sum();
        let mut memory: Vec<Memory> =
            self.kernels.iter().map(|_| Memory { total: globals, ..Memory::default() }).collect();
        for (tensor, life) in self.tensors.iter().zip(self.lives()) {
            let Some(birth) = life.birth else { continue };
            let end = if tensor.result { self.kernels.len() } else { life.death.unwrap_or(birth + 1) };
            // Inputs are there from the beginning.
            let start = if tensor.input { 0 } else { birth };
            memory[start..end].iter_mut().for_each(|m| m.total += tensor.bytes);
        }
        for (memory, kernel) in memory.iter_mut().zip(&self.kernels) {
            for index in kernel.tensors() {
                let tensor = &self.tensors[index];
                memory.active += tensor.bytes;
                *match tensor {
                    Tensor { global: true, .. } => &mut memory.weights,
                    Tensor { input: true, .. } => &mut memory.inputs,
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
        let tensor = |name: &str, global| Tensor { name: name.into(), bytes: 10, global, ..Tensor::default() };
        let uses = |list: &[usize]| list.iter().map(|&tensor| Use { tensor, ..Use::default() }).collect();
        let kernel = |inputs: &[usize], outputs: &[usize]| Kernel {
            name: String::new(),
            inputs: uses(inputs),
            outputs: uses(outputs),
            time_us: 2.0,
        };
        Trace {
            tensors: vec![tensor("weight", true), tensor("a", false), tensor("b", false), tensor("c", false)],
            kernels: vec![kernel(&[0], &[1]), kernel(&[1], &[2]), kernel(&[2], &[3]), kernel(&[1, 3], &[])],
        }
    }

    #[test]
    fn idle_is_what_lies_between_uses() {
        let lives = trace().lives();
        assert_eq!(lives[0].idle, [Period { start: 1, end: 0, time_us: 6.0 }]);
        assert_eq!((lives[1].birth, lives[1].death), (Some(0), Some(4)));
        assert_eq!(lives[1].idle, [Period { start: 2, end: 3, time_us: 2.0 }]);
        assert!(lives[3].idle.is_empty());
    }

    #[test]
    fn memory_counts_what_lives() {
        let totals: Vec<u64> = trace().memory().iter().map(|m| m.total).collect();
        assert_eq!(totals, [20, 30, 40, 30]);
        assert_eq!(trace().memory()[0].weights, 10);
    }
}
