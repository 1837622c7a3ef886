//! Tensors of ONNX Runtime, and their conversion.

use std::{ffi::c_void, ptr::null_mut, sync::Arc};

use bytes::Bytes;
use edgecut_graph::{DType, Exotic, TensorData, TensorType};
use ort::{Error, sys};

use super::memory;
use crate::EngineError;

/// Contents at such addresses are shared with sessions, others copied: no element type needs more.
const VIEW_ALIGNMENT: u64 = 16;

/// A tensor in main memory: a view of a tensor of the graph, or allocated by the allocator that counts.
#[derive(Debug)]
pub(super) struct OrtTensor {
    value: *mut sys::OrtValue,
    /// Whose content it is, if it is a view.
    viewed: Option<TensorData>,
}

// SAFETY: a tensor's content may be read and released on any thread.
unsafe impl Send for OrtTensor {}
// SAFETY: a shared tensor is only read; kernels write in place to one that nothing shares.
unsafe impl Sync for OrtTensor {}

impl Drop for OrtTensor {
    fn drop(&mut self) {
        // SAFETY: the value is owned, and released once.
        unsafe { (ort::api().ReleaseValue)(self.value) };
    }
}

fn is_aligned(data: &TensorData) -> bool {
    (data.bytes().as_ptr() as u64).is_multiple_of(VIEW_ALIGNMENT)
}

/// The element type as ONNX Runtime numbers it.
fn element_type(dtype: DType) -> Option<sys::ONNXTensorElementDataType> {
    use sys::ONNXTensorElementDataType as T;
    Some(match dtype {
        DType::Bool => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
        DType::I8 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
        DType::I16 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
        DType::I32 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
        DType::I64 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
        DType::U8 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
        DType::U16 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
        DType::U32 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
        DType::U64 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
        DType::F16 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
        DType::Bf16 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
        DType::F32 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        DType::F64 => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
        DType::Exotic(Exotic::E4M3) => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FN,
        DType::Exotic(Exotic::E4M3_FNUZ) => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FNUZ,
        DType::Exotic(Exotic::E5M2) => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E5M2,
        DType::Exotic(Exotic::E5M2_FNUZ) => T::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E5M2FNUZ,
        // Types of which several elements share a byte: `TensorData` has a byte for each.
        DType::Exotic(_) => return None,
    })
}

/// The element type of a number of ONNX Runtime's enumeration.
pub(super) fn dtype_of(number: sys::ONNXTensorElementDataType) -> Option<DType> {
    use DType::{Bf16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    const FLOAT8: [Exotic; 4] = [Exotic::E4M3, Exotic::E4M3_FNUZ, Exotic::E5M2, Exotic::E5M2_FNUZ];
    let others = [Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, Bf16, F32, F64];
    others.into_iter().chain(FLOAT8.map(DType::Exotic)).find(|dtype| element_type(*dtype) == Some(number))
}

/// Runs a function of the programming interface that writes one result.
///
/// # Safety
/// `call` must write a valid result where it returns no error.
unsafe fn made<T>(empty: T, call: impl FnOnce(&mut T) -> sys::OrtStatusPtr) -> Result<T, String> {
    let mut result = empty;
    let status = call(&mut result);
    // SAFETY: the status comes from ONNX Runtime.
    unsafe { Error::result_from_status(status) }.map_err(|error| error.to_string())?;
    Ok(result)
}

impl OrtTensor {
    /// Takes over what ONNX Runtime made.
    ///
    /// # Safety
    /// `value` must be an owned tensor in main memory.
    pub unsafe fn owned(value: *mut sys::OrtValue) -> OrtTensor {
        OrtTensor { value, viewed: None }
    }

    /// Whether `data` is its content, which ONNX Runtime allocated.
    pub fn is_content_of(&self, data: &TensorData) -> bool {
        let address = self.content().ok().filter(|_| self.viewed.is_none());
        address.is_some_and(|address| std::ptr::eq(address.cast::<u8>(), data.bytes().as_ptr()))
    }

    /// Whether its content is that of a tensor of the graph.
    pub fn is_view(&self) -> bool {
        self.viewed.is_some()
    }

    pub fn pointer(&self) -> *const sys::OrtValue {
        self.value
    }

    /// The content of the tensor `name`, after checking that it has the type `ty`: a view of it where it is aligned.
    pub fn of(name: &str, data: &TensorData, ty: &TensorType) -> Result<OrtTensor, EngineError> {
        let error = |what: String| EngineError::Tensor { name: name.to_string(), what };
        if !data.is_of(ty) {
            return Err(error(format!("the model declares {ty}, {} was given", data.ty())));
        }
        if data.dtype() == DType::Bool {
            // A bool is 0 or 1; a file may contain any byte.
            let bools: Vec<u8> = data.bytes().iter().map(|byte| u8::from(*byte != 0)).collect();
            return OrtTensor::copied(data.dtype(), data.shape(), &bools).map_err(error);
        }
        let made = match is_aligned(data) && !data.bytes().is_empty() {
            true => OrtTensor::view(data),
            false => OrtTensor::copied(data.dtype(), data.shape(), data.bytes()),
        };
        made.map_err(error)
    }

    /// A view of `data`, or of a copy of it that is aligned.
    pub fn viewing(data: &TensorData) -> Result<OrtTensor, String> {
        if is_aligned(data) {
            return OrtTensor::view(data);
        }
        let copy = TensorData::new(data.dtype(), data.shape(), data.bytes().to_vec());
        OrtTensor::view(&copy.map_err(|error| error.to_string())?)
    }

    /// A tensor that shares the content of `data`. Sessions do not write to views.
    fn view(data: &TensorData) -> Result<OrtTensor, String> {
        let dtype = data.dtype();
        let dtype = element_type(dtype).ok_or_else(|| format!("elements of type {dtype} are not supported"))?;
        let shape: Vec<i64> = data.shape().iter().map(|n| *n as i64).collect();
        let (api, bytes) = (ort::api(), data.bytes());
        // SAFETY: the memory has as many bytes as type and shape say, lives as long as `viewed`, and is only read.
        let value = unsafe {
            made(null_mut(), |value| {
                let content = bytes.as_ptr().cast_mut().cast::<c_void>();
                let info = memory::info_of_allocator();
                (api.CreateTensorWithDataAsOrtValue)(
                    info,
                    content,
                    bytes.len(),
                    shape.as_ptr(),
                    shape.len(),
                    dtype,
                    value,
                )
            })?
        };
        Ok(OrtTensor { value, viewed: Some(data.clone()) })
    }

    /// A tensor with a copy of `bytes`, which must be as many as type and shape say.
    pub fn copied(dtype: DType, shape: &[u64], bytes: &[u8]) -> Result<OrtTensor, String> {
        let dtype = element_type(dtype).ok_or_else(|| format!("elements of type {dtype} are not supported"))?;
        let shape: Vec<i64> = shape.iter().map(|n| *n as i64).collect();
        let (api, allocator) = (ort::api(), memory::allocator());
        // SAFETY: the shape is read during the call; the value is written if there is no error.
        let value = unsafe {
            made(null_mut(), |value| {
                (api.CreateTensorAsOrtValue)(allocator, shape.as_ptr(), shape.len(), dtype, value)
            })?
        };
        let tensor = OrtTensor { value, viewed: None };
        let content = tensor.content()?;
        if !bytes.is_empty() {
            // SAFETY: the tensor was created with room for elements of this type and shape, whose size is `bytes`.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), content.cast::<u8>(), bytes.len()) };
        }
        Ok(tensor)
    }

    /// The address of the elements; null without any.
    fn content(&self) -> Result<*mut c_void, String> {
        // SAFETY: the value is a tensor in main memory.
        unsafe { made(null_mut(), |content| (ort::api().GetTensorMutableData)(self.value, content)) }
    }

    /// The shape.
    pub fn shape(&self) -> Result<Vec<u64>, String> {
        let api = ort::api();
        // SAFETY: the value is a tensor; the description is released below, after its last use.
        let info = unsafe { made(null_mut(), |info| (api.GetTensorTypeAndShape)(self.value, info))? };
        // SAFETY: `info` is valid until it is released, and `dims` has room for as many sizes as it has.
        let dims = unsafe {
            made(0, |count| (api.GetDimensionsCount)(info, count))
                .and_then(|count| made(vec![0i64; count], |dims| (api.GetDimensions)(info, dims.as_mut_ptr(), count)))
        };
        // SAFETY: it is not used any more.
        unsafe { (api.ReleaseTensorTypeAndShapeInfo)(info) };
        dims?.into_iter().map(|n| u64::try_from(n).map_err(|_| format!("a dimension of {n}"))).collect()
    }

    /// The content as that of the tensor `name`, which must be of type `ty`; not copied.
    pub fn to_data(self: &Arc<Self>, name: &str, ty: &TensorType) -> Result<TensorData, EngineError> {
        if let Some(data) = &self.viewed {
            return Ok(data.clone());
        }
        let error = |what: String| EngineError::Tensor { name: name.to_string(), what };
        if element_type(ty.dtype).is_none() {
            return Err(error(format!("elements of type {} are not supported", ty.dtype)));
        }
        let shape = self.shape().map_err(error)?;
        let count = shape.iter().try_fold(1u64, |count, n| count.checked_mul(*n));
        let bytes = count.and_then(|count| count.checked_mul(ty.dtype.size())).and_then(|n| usize::try_from(n).ok());
        let bytes = bytes.ok_or_else(|| error(format!("its shape {shape:?} is too large")))?;
        let content = match bytes {
            0 => Bytes::new(),
            _ => {
                let address = self.content().map_err(error)?.cast_const().cast::<u8>();
                Bytes::from_owner(SharedContent { address, bytes, _tensor: Arc::clone(self) })
            }
        };
        let data = TensorData::new(ty.dtype, shape, content).map_err(|what| error(what.to_string()))?;
        match data.is_of(ty) {
            true => Ok(data),
            false => Err(error(format!("the model declares {ty}, ONNX Runtime computed {}", data.ty()))),
        }
    }
}

/// The elements of a tensor, which nothing writes to while this exists: a session that computes in place has its tensor
/// alone.
struct SharedContent {
    address: *const u8,
    bytes: usize,
    _tensor: Arc<OrtTensor>,
}

// SAFETY: it is only read; the tensor that owns it may move between threads.
unsafe impl Send for SharedContent {}

impl AsRef<[u8]> for SharedContent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the session computed elements of the declared type, as many as its shape says; the tensor is alive.
        unsafe { std::slice::from_raw_parts(self.address, self.bytes) }
    }
}
