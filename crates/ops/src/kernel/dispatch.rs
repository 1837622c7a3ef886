//! Computes a call by the kernel of its definition.

use tract_core::internal::*;

use crate::{
    def::{HostFn, Kernel, Typed},
    kernel::{bfloat, host::HostOp, wiring::Wiring},
};

impl Wiring<'_> {
    /// Adds one call by its operator's kernel and returns one outlet for each of its output tensors.
    ///
    /// # Errors
    /// If the operator has no kernel, or its kernel does not support this call.
    pub fn call(&mut self, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        match bfloat::uses_bfloat16(call) {
            true => bfloat::in_float32(self, call, inputs, |wiring, call, inputs| wiring.kernel(call, inputs)),
            false => self.kernel(call, inputs),
        }
    }

    fn kernel(&mut self, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        match call.def.kernel {
            Kernel::Wire(wire) => wire(self, call, inputs),
            Kernel::Host(host) => self.host(call, host, inputs),
            Kernel::None(reason) => bail!("{reason}"),
        }
    }

    /// Adds `function` as one opaque operator.
    pub(crate) fn host(
        &mut self,
        call: &Typed<'_>,
        function: HostFn,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        self.wire(Box::new(HostOp::new(call, function)) as Box<dyn TypedOp>, inputs)
    }
}

impl Typed<'_> {
    /// The dimensions of the only result.
    ///
    /// # Errors
    /// If one is unknown.
    pub(crate) fn dims(&self) -> TractResult<TVec<usize>> {
        let shape = self.result()?.shape.fixed().context("the shape of the result is unknown")?;
        Ok(shape.iter().map(|d| *d as usize).collect())
    }
}
