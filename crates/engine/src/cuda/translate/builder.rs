//! A [`GpuProgram`] under construction: allocates slots and appends kernel calls.

use std::sync::Arc;

use tract_core::internal::*;

use super::strides::dense_strides;
use crate::cuda::{
    arguments::{Arguments, Product},
    device_memory::DeviceMemory,
    driver::{Address, ConvolutionSizes, GpuError, Grid, LibraryConvolution},
    program::{GpuProgram, KernelCall, ProgramStep, Slot},
    source::Kernel,
};

/// A dense row-major tensor on the GPU.
#[derive(Debug, Clone)]
pub(super) struct Value {
    pub slot: Slot,
    pub shape: TVec<usize>,
    pub dtype: DatumType,
    /// The content, if it is constant.
    pub known: Option<Arc<Tensor>>,
}

/// Builds the program of `model`.
pub(super) struct KernelBuilder<'m> {
    model: &'m TypedModel,
    memory: &'m Arc<DeviceMemory>,
    sizes: Vec<usize>,
    inputs: Vec<Slot>,
    constants: Vec<(Slot, Arc<Tensor>)>,
    steps: Vec<ProgramStep>,
}

impl<'m> KernelBuilder<'m> {
    /// The program will run on the device that `memory` belongs to.
    pub(super) fn new(model: &'m TypedModel, memory: &'m Arc<DeviceMemory>) -> KernelBuilder<'m> {
        KernelBuilder { model, memory, sizes: Vec::new(), inputs: Vec::new(), constants: Vec::new(), steps: Vec::new() }
    }

    /// Adds an input of the program.
    pub(super) fn input(&mut self, fact: &TypedFact) -> TractResult<Value> {
        let value = self.value(fact)?;
        self.inputs.push(value.slot);
        Ok(value)
    }

    /// A new tensor for the first output of `node`.
    pub(super) fn output(&mut self, node: &TypedNode) -> TractResult<Value> {
        let fact = self.model.outlet_fact(OutletId::new(node.id, 0))?.clone();
        self.value(&fact)
    }

    fn value(&mut self, fact: &TypedFact) -> TractResult<Value> {
        let shape = fact.shape.as_concrete().with_context(|| format!("{fact:?} has unknown dimensions"))?;
        self.tensor(shape, fact.datum_type)
    }

    /// A new tensor.
    pub(super) fn tensor(&mut self, shape: &[usize], dtype: DatumType) -> TractResult<Value> {
        ensure!(size_of_element(dtype).is_some(), "elements of type {dtype:?} are not supported on a GPU");
        let count = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).filter(|n| *n < 1 << 31);
        let count = count.with_context(|| format!("{shape:?} exceeds 2^31 elements"))?;
        self.sizes.push(count * dtype.size_of());
        Ok(Value { slot: Slot(self.sizes.len() - 1), shape: shape.into(), dtype, known: None })
    }

    /// A tensor with constant content.
    pub(super) fn constant(&mut self, tensor: &Arc<Tensor>) -> Value {
        self.sizes.push(tensor.as_bytes().len());
        let slot = Slot(self.sizes.len() - 1);
        self.constants.push((slot, Arc::clone(tensor)));
        let known = Some(Arc::clone(tensor));
        Value { slot, shape: tensor.shape().into(), dtype: tensor.datum_type(), known }
    }

    /// A constant table of indices.
    pub(super) fn table(&mut self, entries: &[i32]) -> Value {
        self.constant(&Arc::new(tensor1(entries)))
    }

    /// Appends a launch of `kernel`, even for an empty result: every slot must be written.
    pub(super) fn launch<A: Arguments>(
        &mut self,
        kernel: Kernel,
        reads: &[&Value],
        writes: &Value,
        grid: Grid,
        arguments: impl Fn(&[Address]) -> A + Send + 'static,
    ) {
        let arguments = Box::new(move |at: &[Address]| arguments(at).words());
        let reads = reads.iter().map(|value| value.slot).collect();
        let call = KernelCall::Launch { kernel, grid, arguments };
        self.steps.push(ProgramStep { writes: writes.slot, reads, call, frees: Vec::new() });
    }

    /// Appends a matrix product of tensors with one dtype, whose addresses are set at each run. Offsets are in bytes.
    /// Single-precision products may be computed by cuBLAS.
    pub(super) fn multiply(
        &mut self,
        kernel: Kernel,
        left: &Value,
        right: &Value,
        to: &Value,
        offset: [u64; 3],
        product: Product,
    ) {
        let with_addresses = move |at: &[Address]| Product {
            left: at[0] + offset[0],
            right: at[1] + offset[1],
            to: at[2] + offset[2],
            ..product
        };
        if to.dtype != DatumType::F32 {
            let grid = Grid::Threads(product.batch * product.rows * product.columns);
            return self.launch(kernel, &[left, right], to, grid, with_addresses);
        }
        let (reads, call) = (vec![left.slot, right.slot], KernelCall::Multiply(Box::new(with_addresses), kernel));
        self.steps.push(ProgramStep { writes: to.slot, reads, call, frees: Vec::new() });
    }

    /// A convolution by the vendor's library, if it supports these sizes.
    pub(super) fn library_convolution(
        &self,
        sizes: &ConvolutionSizes,
        max_workspace: usize,
    ) -> Option<Box<dyn LibraryConvolution>> {
        self.memory.driver().convolution(sizes, max_workspace)
    }

    /// Appends a convolution of tensors of the sizes that it was prepared for.
    pub(super) fn convolve(
        &mut self,
        convolution: Box<dyn LibraryConvolution>,
        data: &Value,
        weight: &Value,
        to: &Value,
    ) {
        let (reads, call) = (vec![data.slot, weight.slot], KernelCall::Convolve(convolution));
        self.steps.push(ProgramStep { writes: to.slot, reads, call, frees: Vec::new() });
    }

    /// The program with these outputs. Uploads the constants that it uses.
    pub(super) fn finish(self, outputs: Vec<Slot>) -> Result<GpuProgram, GpuError> {
        let KernelBuilder { memory, sizes, inputs, constants, steps, .. } = self;
        let is_used =
            |slot: &Slot| outputs.contains(slot) || steps.iter().any(|step: &ProgramStep| step.reads.contains(slot));
        let used = constants.into_iter().filter(|(slot, _)| is_used(slot));
        let constants = used.map(|(slot, tensor)| Ok((slot, memory.upload(tensor.as_bytes())?)));
        let constants = constants.collect::<Result<_, GpuError>>()?;
        let mut program = GpuProgram { sizes, constants, inputs, outputs, steps };
        program.find_last_uses();
        Ok(program)
    }
}

impl Value {
    /// Number of elements.
    pub(super) fn count(&self) -> u32 {
        self.shape.iter().product::<usize>() as u32
    }

    pub(super) fn strides(&self) -> TVec<i64> {
        dense_strides(&self.shape)
    }

    /// The same buffer with another shape.
    pub(super) fn viewed(&self, shape: &[usize]) -> Value {
        Value { shape: shape.into(), known: None, ..self.clone() }
    }
}

/// The name of a dtype in kernels; `None` for dtypes without arithmetic.
pub(super) fn name_of(dtype: DatumType) -> Option<&'static str> {
    Some(match dtype {
        DatumType::F32 => "f32",
        DatumType::F64 => "f64",
        DatumType::I32 => "i32",
        DatumType::I64 => "i64",
        DatumType::I8 => "i8",
        DatumType::U8 => "u8",
        DatumType::Bool => "boolean",
        _ => return None,
    })
}

/// Size of an element in bytes, if kernels can move it.
pub(super) fn size_of_element(dtype: DatumType) -> Option<usize> {
    let plain = dtype.is_number() && !dtype.is_quantized() || dtype == DatumType::Bool;
    Some(dtype.size_of()).filter(|size| plain && matches!(size, 1 | 2 | 4 | 8))
}

/// The first element of a tensor as bits, zero-extended.
pub(super) fn bits(tensor: &Tensor) -> u64 {
    let mut bits = [0; 8];
    let size = tensor.datum_type().size_of().min(8);
    bits.iter_mut().zip(tensor.as_bytes().iter().take(size)).for_each(|(bit, byte)| *bit = *byte);
    u64::from_le_bytes(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_as_bits() {
        assert_eq!(bits(&tensor1(&[1.0f32, 2.0])), 0x3f80_0000);
        assert_eq!(bits(&tensor0(-1i8)), 0xff);
        assert_eq!(bits(&tensor0(true)), 1);
        assert_eq!((size_of_element(DatumType::F16), size_of_element(DatumType::Bool)), (Some(2), Some(1)));
    }
}
