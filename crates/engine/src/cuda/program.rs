//! A sequence of kernel calls that computes one tract model. Which buffers a call reads and writes is fixed when the
//! program is built; their addresses are assigned at each run.

use std::sync::Arc;

use super::{
    arguments::{Arguments, Product},
    device_memory::{DeviceBuffer, DeviceMemory},
    driver::{Address, GpuError, Grid, Launch, LibraryConvolution},
    source::Kernel,
};

/// Index of a tensor's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Slot(pub usize);

/// The kernel calls of one model.
pub(super) struct GpuProgram {
    /// Size of every slot in bytes.
    pub sizes: Vec<usize>,
    /// Slots with constant content.
    pub constants: Vec<(Slot, Arc<DeviceBuffer>)>,
    pub inputs: Vec<Slot>,
    pub outputs: Vec<Slot>,
    pub steps: Vec<ProgramStep>,
}

/// One kernel call, and the slots that no later call reads.
pub(super) struct ProgramStep {
    pub writes: Slot,
    pub reads: Vec<Slot>,
    pub call: KernelCall,
    pub frees: Vec<Slot>,
}

/// A call without its addresses, which are passed in the order of the step's `reads`, followed by the written slot.
pub(super) enum KernelCall {
    Launch {
        kernel: Kernel,
        grid: Grid,
        arguments: Box<ArgumentsFn>,
    },
    /// By cuBLAS if possible, else by our kernel.
    Multiply(Box<ProductFn>, Kernel),
    /// By cuDNN, of data and weights.
    Convolve(Box<dyn LibraryConvolution>),
}

/// Builds a kernel's arguments from addresses.
pub(super) type ArgumentsFn = dyn Fn(&[Address]) -> Vec<u64> + Send;

/// Builds a product from addresses.
pub(super) type ProductFn = dyn Fn(&[Address]) -> Product + Send;

impl GpuProgram {
    /// Sets [`ProgramStep::frees`].
    pub(super) fn find_last_uses(&mut self) {
        let mut needed = vec![false; self.sizes.len()];
        let kept = self.outputs.iter().chain(self.constants.iter().map(|(slot, _)| slot));
        kept.for_each(|slot| needed[slot.0] = true);
        for step in self.steps.iter_mut().rev() {
            let mut touched: Vec<Slot> = step.reads.iter().copied().chain([step.writes]).collect();
            touched.sort_unstable_by_key(|slot| slot.0);
            touched.dedup();
            touched.retain(|slot| !std::mem::replace(&mut needed[slot.0], true));
            step.frees = touched;
        }
    }

    /// Compiles all kernels.
    pub(super) fn prepare(&self, memory: &DeviceMemory) -> Result<(), GpuError> {
        self.steps.iter().try_for_each(|step| match &step.call {
            KernelCall::Launch { kernel, .. } | KernelCall::Multiply(_, kernel) => memory.driver().prepare(kernel),
            KernelCall::Convolve(_) => Ok(()),
        })
    }

    /// Enqueues the computation of the outputs without waiting for it. `inputs` in the order of [`GpuProgram::inputs`];
    /// buffers without other owners are freed after their last use.
    pub(super) fn run(
        &self,
        memory: &Arc<DeviceMemory>,
        inputs: Vec<Arc<DeviceBuffer>>,
    ) -> Result<Vec<Arc<DeviceBuffer>>, GpuError> {
        let mut buffers: Vec<Option<Arc<DeviceBuffer>>> = vec![None; self.sizes.len()];
        for (slot, buffer) in self.constants.iter().cloned().chain(self.inputs.iter().copied().zip(inputs)) {
            buffers[slot.0] = Some(buffer);
        }
        for step in &self.steps {
            let written = &mut buffers[step.writes.0];
            if written.is_none() {
                *written = Some(memory.allocate(self.sizes[step.writes.0])?);
            }
            let addresses: Vec<Address> = step
                .reads
                .iter()
                .chain([&step.writes])
                .map(|slot| buffers[slot.0].as_ref().map(|buffer| buffer.address()))
                .collect::<Option<_>>()
                .ok_or_else(|| GpuError::Failed("a call reads a buffer that no call has written".to_string()))?;
            match &step.call {
                KernelCall::Launch { kernel, grid, arguments } => {
                    let arguments = arguments(&addresses);
                    memory.driver().launch(&Launch { kernel: kernel.clone(), arguments, grid: *grid })?;
                }
                KernelCall::Multiply(product, kernel) => {
                    let product = product(&addresses);
                    if !memory.driver().multiply(&product)? {
                        let grid = Grid::Threads(product.batch * product.rows * product.columns);
                        let arguments = product.words();
                        memory.driver().launch(&Launch { kernel: kernel.clone(), arguments, grid })?;
                    }
                }
                KernelCall::Convolve(convolution) => {
                    let [data, weight, to] = addresses[..] else {
                        return Err(GpuError::Failed("a convolution has two operands".to_string()));
                    };
                    let workspace = memory.allocate(convolution.workspace())?;
                    // SAFETY: the translation prepared the convolution for the tensors of these slots; memory is freed
                    // after previous requests have finished with it.
                    unsafe { convolution.enqueue(data, weight, workspace.address(), to) }?;
                }
            }
            step.frees.iter().for_each(|slot| buffers[slot.0] = None);
        }
        let output = |slot: &Slot| buffers[slot.0].clone();
        let outputs = self.outputs.iter().map(output).collect::<Option<_>>();
        outputs.ok_or_else(|| GpuError::Failed("no call computes an output".to_string()))
    }
}
