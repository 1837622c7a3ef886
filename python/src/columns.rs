//! Columns of an Arrow table, one after the other, from rows.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Float64Array, RecordBatch, RecordBatchOptions, StringArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow_schema::{ArrowError, Field, Schema};
use time::OffsetDateTime;

/// The columns so far. Every cell may be null.
pub struct Columns<'r, R> {
    rows: &'r [R],
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

impl<'r, R> Columns<'r, R> {
    pub fn of(rows: &'r [R]) -> Columns<'r, R> {
        Columns { rows, fields: Vec::new(), arrays: Vec::new() }
    }

    pub fn text<V: Into<Option<String>>>(self, name: &str, cell: impl Fn(&R) -> V) -> Columns<'r, R> {
        let cells: StringArray = self.rows.iter().map(|row| cell(row).into()).collect();
        self.add(name, Arc::new(cells))
    }

    pub fn whole<V: Into<Option<u64>>>(self, name: &str, cell: impl Fn(&R) -> V) -> Columns<'r, R> {
        let cells: UInt64Array = self.rows.iter().map(|row| cell(row).into()).collect();
        self.add(name, Arc::new(cells))
    }

    pub fn number<V: Into<Option<f64>>>(self, name: &str, cell: impl Fn(&R) -> V) -> Columns<'r, R> {
        let cells: Float64Array = self.rows.iter().map(|row| cell(row).into()).collect();
        self.add(name, Arc::new(cells))
    }

    /// Instants, in UTC.
    pub fn instant(self, name: &str, cell: impl Fn(&R) -> Option<OffsetDateTime>) -> Columns<'r, R> {
        let micros = |at: OffsetDateTime| i64::try_from(at.unix_timestamp_nanos() / 1000).ok();
        let cells: TimestampMicrosecondArray = self.rows.iter().map(|row| cell(row).and_then(micros)).collect();
        self.add(name, Arc::new(cells.with_timezone("UTC")))
    }

    /// The table.
    ///
    /// # Errors
    /// Never: all columns have a cell for each row.
    pub fn finish(self) -> Result<RecordBatch, ArrowError> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows.len()));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(self.fields)), self.arrays, &options)
    }

    fn add(mut self, name: &str, cells: ArrayRef) -> Columns<'r, R> {
        self.fields.push(Field::new(name, cells.data_type().clone(), true));
        self.arrays.push(cells);
        self
    }
}

/// A value as serde writes it, where that is a word: `Some("in-situ")`.
pub fn word(value: impl serde::Serialize) -> Option<String> {
    serde_json::to_value(value).ok()?.as_str().map(str::to_string)
}
