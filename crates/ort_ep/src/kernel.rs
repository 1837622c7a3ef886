//! The node that stands for a model in a session: a call sends its inputs to the agents and returns what they compute.

use std::{collections::BTreeMap, ffi::c_void, ptr::null_mut};

use crate::{
    api::{OrtKernelContext, OrtNodeComputeContext, OrtNodeComputeInfo, Status, VERSION},
    error::Error,
    placement::Placement,
    runtime::Runtime,
};

/// A compiled node. ONNX Runtime knows its first field.
#[repr(C)]
pub struct Kernel {
    info: OrtNodeComputeInfo,
    runtime: Runtime,
    placement: Placement,
    /// The names of the node's inputs.
    inputs: Vec<String>,
    /// For each output of the node, its number among the model's.
    outputs: Vec<usize>,
}

impl Kernel {
    /// The kernel of a node with these inputs and outputs.
    pub fn new(runtime: Runtime, placement: Placement, inputs: Vec<String>, outputs: Vec<usize>) -> Kernel {
        let info = OrtNodeComputeInfo { version: VERSION, create_state, compute, release_state };
        Kernel { info, runtime, placement, inputs, outputs }
    }

    /// Gives the kernel to ONNX Runtime.
    pub fn into_raw(self) -> *mut OrtNodeComputeInfo {
        Box::into_raw(Box::new(self)).cast()
    }

    /// Takes a kernel back.
    ///
    /// # Safety
    /// `raw` is of [`Kernel::into_raw`], and is not used again.
    pub unsafe fn from_raw(raw: *mut OrtNodeComputeInfo) -> Box<Kernel> {
        // SAFETY: by the caller.
        unsafe { Box::from_raw(raw.cast()) }
    }

    /// # Safety
    /// `context` is that of the call in progress.
    unsafe fn compute(&self, context: *mut OrtKernelContext) -> Result<(), Error> {
        let mut given = BTreeMap::new();
        for (index, name) in self.inputs.iter().enumerate() {
            // SAFETY: by the caller.
            given.insert(name.as_str(), unsafe { self.runtime.input(context, index)? });
        }
        let outputs = self.placement.run(&given)?;
        for (index, number) in self.outputs.iter().enumerate() {
            let tensor = outputs.get(*number).ok_or_else(|| {
                Error::Refused(format!("the plan has {} outputs, the session asks for number {number}", outputs.len()))
            })?;
            // SAFETY: by the caller.
            unsafe { self.runtime.set_output(context, index, tensor)? };
        }
        Ok(())
    }
}

/// A kernel has no state of its own.
unsafe extern "system" fn create_state(
    _: *mut OrtNodeComputeInfo,
    _: *mut OrtNodeComputeContext,
    state: *mut *mut c_void,
) -> Status {
    // SAFETY: ONNX Runtime passes a place for the state.
    unsafe { *state = null_mut() };
    null_mut()
}

unsafe extern "system" fn compute(
    info: *mut OrtNodeComputeInfo,
    _: *mut c_void,
    context: *mut OrtKernelContext,
) -> Status {
    // SAFETY: `info` is the first field of a kernel that is not released. Several threads may call it.
    let kernel = unsafe { &*info.cast::<Kernel>() };
    // SAFETY: `context` is that of this call.
    kernel.runtime.status(|| unsafe { kernel.compute(context) })
}

unsafe extern "system" fn release_state(_: *mut OrtNodeComputeInfo, _: *mut c_void) {}
