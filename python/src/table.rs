//! Tables of results, which others read by Arrow's PyCapsule interface, without a copy.

use std::ffi::CStr;

use arrow_array::{
    Array, Float64Array, RecordBatch, RecordBatchIterator, RecordBatchReader, StringArray, StructArray,
    TimestampMicrosecondArray, UInt64Array,
    ffi::{FFI_ArrowArray, FFI_ArrowSchema, to_ffi},
    ffi_stream::FFI_ArrowArrayStream,
};
use arrow_schema::ArrowError;
use pyo3::{
    exceptions::{PyKeyError, PyValueError},
    prelude::*,
    types::{PyCapsule, PyDict, PyList},
};

use crate::errors::bug;

/// A table of results in Arrow's memory layout.
///
/// Implements the Arrow PyCapsule interface: `pyarrow.table(t)`, `polars.DataFrame(t)` and pandas (through
/// `t.to_pandas()` or `pandas.DataFrame.from_arrow(t)`) read it without a copy. Times are in microseconds and sizes in bytes, as
/// the names of columns say.
#[pyclass(frozen, module = "edgecut", name = "Table")]
pub struct Table(RecordBatch);

impl Table {
    /// The table of these columns.
    pub fn new(columns: Result<RecordBatch, ArrowError>) -> PyResult<Table> {
        columns.map(Table).map_err(bug)
    }

    fn index(&self, name: &str) -> PyResult<usize> {
        self.0.schema_ref().index_of(name).map_err(|_| PyKeyError::new_err(name.to_string()))
    }
}

/// The names of the interface's capsules.
const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

#[pymethods]
impl Table {
    /// The number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.0.num_rows()
    }

    /// The names of the columns, in order.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.0.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The cells of one column, `None` where a row has none.
    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        cells(py, self.0.column(self.index(name)?).as_ref())
    }

    /// The rows as dictionaries.
    fn to_pylist<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let rows: Vec<Bound<'py, PyDict>> = (0..self.0.num_rows()).map(|_| PyDict::new(py)).collect();
        for (name, column) in self.column_names().iter().zip(self.0.columns()) {
            for (row, cell) in rows.iter().zip(cells(py, column.as_ref())?.iter()) {
                row.set_item(name, cell)?;
            }
        }
        Ok(rows)
    }

    /// As a `pandas.DataFrame`; needs pandas and pyarrow.
    fn to_pandas<'py>(slf: &Bound<'py, Table>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pyarrow")?.call_method1("table", (slf,))?.call_method0("to_pandas")
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // Consumers must cast themselves where they get another schema than they asked for.
        drop(requested_schema);
        let schema = self.0.schema();
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], schema);
        let reader: Box<dyn RecordBatchReader + Send> = Box::new(batches);
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), STREAM)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        drop(requested_schema);
        let data = StructArray::from(self.0.clone()).into_data();
        let (array, schema): (FFI_ArrowArray, FFI_ArrowSchema) = to_ffi(&data).map_err(bug)?;
        Ok((PyCapsule::new_with_value(py, schema, SCHEMA)?, PyCapsule::new_with_value(py, array, ARRAY)?))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.0.schema_ref().as_ref()).map_err(bug)?;
        PyCapsule::new_with_value(py, schema, SCHEMA)
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        self.column(py, name)
    }

    fn __repr__(&self) -> String {
        format!("<edgecut.Table of {} rows: {}>", self.0.num_rows(), self.column_names().join(", "))
    }
}

/// The cells of a column as Python has them.
fn cells<'py>(py: Python<'py>, column: &dyn Array) -> PyResult<Bound<'py, PyList>> {
    let any = column.as_any();
    if let Some(texts) = any.downcast_ref::<StringArray>() {
        PyList::new(py, texts.iter().collect::<Vec<_>>())
    } else if let Some(numbers) = any.downcast_ref::<UInt64Array>() {
        PyList::new(py, numbers.iter().collect::<Vec<_>>())
    } else if let Some(numbers) = any.downcast_ref::<Float64Array>() {
        PyList::new(py, numbers.iter().collect::<Vec<_>>())
    } else if let Some(instants) = any.downcast_ref::<TimestampMicrosecondArray>() {
        let module = py.import("datetime")?;
        let utc = module.getattr("timezone")?.getattr("utc")?;
        let datetime = module.getattr("datetime")?;
        let instant = |micros: i64| datetime.call_method1("fromtimestamp", (micros as f64 / 1e6, &utc));
        let instants: Vec<_> = instants.iter().map(|at| at.map(instant).transpose()).collect::<PyResult<_>>()?;
        PyList::new(py, instants)
    } else {
        Err(PyValueError::new_err(format!("columns of {} have no cells in Python", column.data_type())))
    }
}
