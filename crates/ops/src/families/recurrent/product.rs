//! Products with the weights of a recurrent layer, which are packed once for all steps.

use tract_core::internal::*;
use tract_linalg::{
    BinOp, MmmDispatch,
    mmm::{AsInputValue, EagerPackedInput, FusedSpec, MMMInputValue, MatMatMul, Query, ScratchSpace},
    pack::PackedFormat,
};

/// x · Wᵀ, plus a vector if there is one, for a packed W.
#[derive(Debug)]
pub(super) struct Product {
    kernel: Box<dyn MatMatMul>,
    /// Which of the kernel's pairs of formats the weight is packed in.
    packing: usize,
    weight: Box<dyn MMMInputValue>,
    bias: Option<Tensor>,
    outputs: usize,
}

/// What a product of one size needs while it is computed, for any number of times.
pub(super) struct Workspace {
    scratch: Box<dyn ScratchSpace>,
    /// x in the kernel's format, if that is one that can be overwritten.
    packed: Option<EagerPackedInput>,
}

impl Product {
    /// `weight` is [outputs, inputs]; `rows` is how many rows x has.
    pub fn new(weight: &Tensor, bias: Option<Tensor>, rows: usize) -> TractResult<Product> {
        let &[outputs, inputs] = weight.shape() else { bail!("a weight is a matrix") };
        let fits = |bias: &Tensor| bias.shape() == [outputs] && bias.datum_type() == DatumType::F32;
        ensure!(bias.as_ref().is_none_or(fits), "a bias is a vector of the outputs");
        // An extractor would convert the weight's panels at every step.
        let query =
            Query { allow_extractor: false, ..Query::plain(DatumType::F32, Some(outputs), Some(inputs), Some(rows)) };
        let (kernel, packing, _) = MmmDispatch::native().pick(&query).context("no kernel for a matrix product")?;
        let weight = kernel.packings()[packing].0.prepare_one(weight, 1, 0)?;
        Ok(Product { kernel, packing, weight, bias, outputs })
    }

    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Memory for products with x of as many rows.
    pub fn workspace(&self, rows: usize) -> TractResult<Workspace> {
        let format = self.kernel.packings()[self.packing].1.downcast_ref::<PackedFormat>();
        let packed = format.map(|format| format.new_packed_buffer(self.weight.k(), rows)).transpose()?;
        // SAFETY: an empty allocation, which the kernel sizes when it runs.
        let scratch = unsafe { self.kernel.allocate_scratch_space() };
        Ok(Workspace { scratch, packed })
    }

    /// The product with `x`, of as many rows as stated before; `result` is [rows, outputs].
    pub fn of(&self, x: &Tensor, result: &mut Tensor, workspace: &mut Workspace) -> TractResult<()> {
        let rows = x.shape()[0];
        ensure!(x.datum_type() == DatumType::F32 && x.shape() == [rows, self.weight.k()], "x does not fit the weight");
        ensure!(
            result.datum_type() == DatumType::F32 && result.shape() == [rows, self.outputs],
            "the result does not fit"
        );
        let format = &self.kernel.packings()[self.packing].1;
        let other: Box<dyn MMMInputValue>;
        let packed: &dyn MMMInputValue = match (&mut workspace.packed, format.downcast_ref::<PackedFormat>()) {
            (Some(buffer), Some(format)) => {
                format.repack_tensor_view(buffer, &x.view(), 1, 0)?;
                buffer
            }
            _ => {
                other = format.prepare_one(x, 1, 0)?;
                &*other
            }
        };
        let product = FusedSpec::AddMatMul {
            a: AsInputValue::Borrowed(&*self.weight),
            b: AsInputValue::Borrowed(packed),
            packing: self.packing,
        };
        let mut specs: TVec<FusedSpec> = tvec![product];
        specs.extend(self.bias.as_ref().map(|bias| FusedSpec::BinPerRow(bias.view(), BinOp::Add)));
        // SAFETY: the operands are packed for this kernel, and the result has the sizes and strides that it is told.
        unsafe {
            specs.push(FusedSpec::Store(self.kernel.c_view(Some(1), Some(0)).wrap(&result.view_mut())));
            self.kernel.run_with_scratch_space(self.outputs, rows, &mut *workspace.scratch, &specs)
        }
    }
}
