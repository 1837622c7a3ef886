//! A sequence of calls on the card that computes one tract model: which memory each call reads and writes is known
//! beforehand, addresses are not.

use std::sync::Arc;

use super::{
    arguments::{Arguments, Product},
    card::{Address, CardError, Launch, Threads},
    heap::{Heap, Region},
    source::Kernel,
};

/// A tensor's memory, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Slot(pub usize);

/// What computes one model.
pub(super) struct Program {
    /// Bytes of every slot.
    pub sizes: Vec<usize>,
    /// Slots that are filled when the program is made.
    pub constants: Vec<(Slot, Arc<Region>)>,
    pub inputs: Vec<Slot>,
    pub outputs: Vec<Slot>,
    pub steps: Vec<Step>,
}

/// One call, and what nobody reads after it.
pub(super) struct Step {
    pub writes: Slot,
    pub reads: Vec<Slot>,
    pub work: Work,
    pub frees: Vec<Slot>,
}

/// A call but for its addresses, which come in the order of the step's `reads` and last what it writes.
pub(super) enum Work {
    Launch {
        kernel: Kernel,
        threads: Threads,
        arguments: Box<Filled>,
    },
    /// By the card's library, else by our kernel.
    Multiply(Box<Placed>, Kernel),
}

/// Makes a kernel's arguments of addresses.
pub(super) type Filled = dyn Fn(&[Address]) -> Vec<u64> + Send;

/// Puts addresses into a product.
pub(super) type Placed = dyn Fn(&[Address]) -> Product + Send;

impl Program {
    /// Fills in [`Step::frees`].
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

    /// Compiles every kernel, so that no run waits for it.
    pub(super) fn prepare(&self, heap: &Heap) -> Result<(), CardError> {
        self.steps.iter().try_for_each(|step| match &step.work {
            Work::Launch { kernel, .. } | Work::Multiply(_, kernel) => heap.card().prepare(kernel),
        })
    }

    /// Asks the card to compute the outputs, and does not wait. `inputs` in the order of [`Program::inputs`]; what is
    /// not held elsewhere is given back as soon as nothing reads it any more.
    pub(super) fn run(&self, heap: &Arc<Heap>, inputs: Vec<Arc<Region>>) -> Result<Vec<Arc<Region>>, CardError> {
        let mut regions: Vec<Option<Arc<Region>>> = vec![None; self.sizes.len()];
        for (slot, region) in self.constants.iter().cloned().chain(self.inputs.iter().copied().zip(inputs)) {
            regions[slot.0] = Some(region);
        }
        for step in &self.steps {
            let written = &mut regions[step.writes.0];
            if written.is_none() {
                *written = Some(heap.allocate(self.sizes[step.writes.0])?);
            }
            let addresses: Vec<Address> = step
                .reads
                .iter()
                .chain([&step.writes])
                .map(|slot| regions[slot.0].as_ref().map(|region| region.address()))
                .collect::<Option<_>>()
                .ok_or_else(|| CardError("a step reads what no step has written".to_string()))?;
            match &step.work {
                Work::Launch { kernel, threads, arguments } => {
                    let arguments = arguments(&addresses);
                    heap.card().launch(&Launch { kernel: kernel.clone(), arguments, threads: *threads })?;
                }
                Work::Multiply(product, kernel) => {
                    let product = product(&addresses);
                    if !heap.card().multiply(&product)? {
                        let threads = Threads::Each(product.batch * product.rows * product.columns);
                        let arguments = product.words();
                        heap.card().launch(&Launch { kernel: kernel.clone(), arguments, threads })?;
                    }
                }
            }
            step.frees.iter().for_each(|slot| regions[slot.0] = None);
        }
        let output = |slot: &Slot| regions[slot.0].clone();
        let outputs = self.outputs.iter().map(output).collect::<Option<_>>();
        outputs.ok_or_else(|| CardError("no step computes an output".to_string()))
    }
}
