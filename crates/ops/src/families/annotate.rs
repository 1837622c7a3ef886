//! Operators that TVM's passes insert: annotations, device placement, explicit memory. Annotations are identities;
//! calls of TVM's runtime are typed and have no kernel.

use crate::rules::same_type;
use crate::{Alias, AttrDef, AttrKind, Call, OpDef, TypeError};
use edgecut_graph::{DType, Dim, Shape, TensorType, Type};

const COMPILER_ATTRS: &[AttrDef] = &[AttrDef::required("compiler", AttrKind::Str)];

const NO_RUNTIME: &str = "it belongs to TVM's virtual machine";

pub(crate) static OPS: &[OpDef] = &[
    annotation("annotation.bitpack_start"),
    annotation("annotation.bitpack_end"),
    annotation("annotation.checkpoint"),
    annotation("annotation.stop_fusion"),
    annotation("annotation.cast_hint")
        .attrs("relay.attrs.CastHintAttrs", &[AttrDef::required("dtype", AttrKind::DType)])
        .attrs_in_metadata(),
    annotation("annotation.compiler_begin").attrs("relay.attrs.CompilerAttrs", COMPILER_ATTRS).attrs_in_metadata(),
    annotation("annotation.compiler_end").attrs("relay.attrs.CompilerAttrs", COMPILER_ATTRS).attrs_in_metadata(),
    OpDef { operands: &["func"], ..annotation("annotation.with_funcid") },
    OpDef { operands: &["program"], ..annotation("debug") }
        .attrs("relay.attrs.DebugAttrs", &[AttrDef::required("debug_func", AttrKind::Object)]),
    OpDef { operands: &["body"], ..annotation("on_device") }.attrs(
        "relay.attrs.OnDeviceAttrs",
        &[
            AttrDef::new("virtual_device", AttrKind::Object, "VirtualDevice::FullyUnconstrained()"),
            AttrDef::new("constrain_result", AttrKind::Bool, "False"),
            AttrDef::new("constrain_body", AttrKind::Bool, "True"),
        ],
    ),
    annotation("device_copy").alias(Alias::Never).attrs(
        "relay.attrs.DeviceCopyAttrs",
        &[
            AttrDef::required("src_virtual_device", AttrKind::Object),
            AttrDef::required("dst_virtual_device", AttrKind::Object),
        ],
    ),
    OpDef::new("call_lowered", &["func", "call_args"], |call| Err(call.error("it calls compiled code")))
        .attrs(
            "relay.attrs.CallLoweredAttrs",
            &[AttrDef::new("metadata", AttrKind::Object, "Map<String, ObjectRef>()")],
        )
        .without_kernel("it calls compiled code"),
    OpDef::new("memory.alloc_storage", &["size", "shape", "alignment"], storage_type)
        .attrs(
            "relay.attrs.AllocStorageAttrs",
            &[
                AttrDef::new("dtype", AttrKind::DType, "\"float32\""),
                AttrDef::required("virtual_device", AttrKind::Object),
            ],
        )
        .without_kernel(NO_RUNTIME),
    OpDef::new("memory.alloc_tensor", &["storage", "offset", "shape"], tensor_type)
        .attrs(
            "relay.attrs.AllocTensorAttrs",
            &[
                AttrDef::new("dtype", AttrKind::DType, "\"float32\""),
                AttrDef::required("const_shape", AttrKind::Object),
                AttrDef::required("assert_shape", AttrKind::Ints),
            ],
        )
        .without_kernel(NO_RUNTIME),
    OpDef::new("memory.kill", &["to_free"], nothing).without_kernel(NO_RUNTIME),
    OpDef::new("vm.invoke_tvm_op", &["op", "ins", "outs"], nothing).without_kernel(NO_RUNTIME),
    OpDef::new("vm.reshape_tensor", &["data", "shape"], |call| {
        let shape = call.shape("newshape")?.ok_or_else(|| call.error("newshape is missing"))?;
        Ok(TensorType::new(call.tensor(0)?.dtype, shape).into())
    })
    .attrs("relay.attrs.ReshapeTensorAttrs", &[AttrDef::required("newshape", AttrKind::Ints)])
    .alias(Alias::View)
    .wire(kernel!(crate::families::view::kernel::reshape)),
];

/// An annotation: an identity.
const fn annotation(name: &'static str) -> OpDef {
    OpDef::new(name, &["data"], same_type)
        .alias(Alias::View)
        .split(crate::split::elementwise)
        .wire(kernel!(|wiring, _, inputs| wiring.wire(Identity, inputs)))
}

/// Storage is an opaque handle, typed here as its bytes.
fn storage_type(_call: &Call<'_>) -> Result<Type, TypeError> {
    Ok(TensorType::new(DType::U8, [Dim::Any].into_iter().collect()).into())
}

fn tensor_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let shape = call.shape("assert_shape")?.filter(|shape| shape.rank() > 0);
    let shape: Shape = shape.map_or_else(|| call.shape_operand(2), Ok)?;
    Ok(TensorType::new(call.dtype("dtype")?.unwrap_or(DType::F32), shape).into())
}

/// The empty tuple.
fn nothing(_call: &Call<'_>) -> Result<Type, TypeError> {
    Ok(Type::Tuple(Vec::new()))
}

#[cfg(feature = "kernels")]
mod kernel {
    pub(super) use tract_core::ops::identity::Identity;
}
