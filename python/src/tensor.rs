//! Contents of tensors, which numpy reads without a copy.

use edgecut_graph::{DType, TensorData};
use pyo3::{exceptions::PyAttributeError, prelude::*, types::PyDict};

/// An output of a run. `numpy.asarray(tensor)` reads it without a copy.
#[pyclass(frozen, module = "edgecut", name = "Tensor")]
pub struct Tensor(pub TensorData);

#[pymethods]
impl Tensor {
    /// Its sizes.
    #[getter]
    fn shape(&self) -> Vec<u64> {
        self.0.shape().to_vec()
    }

    /// The type of its elements, such as `float32`.
    #[getter]
    fn dtype(&self) -> String {
        self.0.dtype().to_string()
    }

    /// Its elements, row by row and little-endian.
    fn tobytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// numpy's array interface, version 3. The array keeps this tensor, and is read-only.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let code = match self.0.dtype() {
            DType::Bool => "|b1",
            DType::I8 => "|i1",
            DType::I16 => "<i2",
            DType::I32 => "<i4",
            DType::I64 => "<i8",
            DType::U8 => "|u1",
            DType::U16 => "<u2",
            DType::U32 => "<u4",
            DType::U64 => "<u8",
            DType::F16 => "<f2",
            DType::F32 => "<f4",
            DType::F64 => "<f8",
            DType::Bf16 | DType::Exotic(_) => {
                let what = format!("numpy has no type for {}; tobytes() gives the content", self.0.dtype());
                return Err(PyAttributeError::new_err(what));
            }
        };
        let interface = PyDict::new(py);
        interface.set_item("shape", pyo3::types::PyTuple::new(py, self.0.shape())?)?;
        interface.set_item("typestr", code)?;
        interface.set_item("data", (self.0.bytes().as_ptr() as usize, true))?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    fn __repr__(&self) -> String {
        format!("<edgecut.Tensor {}>", self.0.ty())
    }
}
