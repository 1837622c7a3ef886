//! Where profiles are kept: one CSV file for each model, device, mode and granularity.
//!
//! Rows are appended as they come, so that an interruption loses nothing; the same measurement asked for
//! again reads them back and continues.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use super::{Item, Mode, Place, Row, Signature, measure::Measured, summary::beside};
use crate::{files::write_whole, graph::Granularity};

/// What a profile is of. Measurements are reused only where all of it is equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Name of the model's file, without folder and extension.
    pub model: String,
    /// BLAKE3 of the model's file, in hexadecimal.
    pub model_hash: String,
    pub place: Place,
    pub mode: Mode,
    pub granularity: Granularity,
}

/// The file of one profile, open for adding rows.
#[derive(Debug)]
pub struct Store {
    key: Key,
    path: PathBuf,
    rows: Vec<Row>,
    file: File,
}

/// Why a profile could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path}: this is no profile of this device: {what}; move it away or choose another --output")]
    Content { path: PathBuf, what: String },
}

impl Key {
    /// `<model>-<hash>/<server>-<device>-<hardware and engine>-<threads>t-<mode>-<granularity>.csv`: a profile
    /// that was made on another machine has another name.
    pub fn file(&self) -> PathBuf {
        let Key { place, .. } = self;
        let identity = format!("{}\n{}", place.hardware, place.engine);
        let identity: String = blake3::hash(identity.as_bytes()).to_hex().chars().take(4).collect();
        let mode = match self.mode {
            Mode::Isolated => "isolated",
            Mode::InSitu => "in-situ",
        };
        let granularity = match self.granularity {
            Granularity::Op => "op",
            Granularity::Fused => "fused",
        };
        let hash: String = self.model_hash.chars().take(8).collect();
        let (server, device) = (plain(&place.server), plain(&place.device));
        let name = format!("{server}-{device}-{identity}-{}t-{mode}-{granularity}.csv", place.threads);
        Path::new(&format!("{}-{hash}", plain(&self.model))).join(name)
    }

    fn is_of(&self, row: &Row) -> bool {
        let Place { server, device, hardware, engine, threads } = &self.place;
        (&row.server, &row.device, &row.hardware, &row.engine, &row.engine_version, &row.threads)
            == (server, device, hardware, &engine.name, &engine.version, threads)
            && (row.mode, row.granularity) == (self.mode, self.granularity)
    }
}

/// What is safe in a file name everywhere.
fn plain(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "._".contains(c) { c } else { '-' };
    let name: String = name.trim_start_matches('.').chars().map(safe).collect();
    if name.is_empty() { "unnamed".to_string() } else { name }
}

impl Store {
    /// Opens the profile of `key` below `folder`, with the rows that are there already.
    ///
    /// What an interruption left of a last line is dropped.
    ///
    /// # Errors
    /// If the file cannot be read or written, or holds something else.
    pub fn open(folder: &Path, key: &Key) -> Result<Store, StoreError> {
        let path = folder.join(key.file());
        let file_error = |source| StoreError::File { path: path.clone(), source };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(file_error)?;
        }
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(file_error(error)),
        };
        let whole = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
        let rows = csv::Reader::from_reader(whole.as_bytes()).into_deserialize::<Row>().collect::<Result<Vec<_>, _>>();
        let content = |what| StoreError::Content { path: path.clone(), what };
        let rows = rows.map_err(|e| content(e.to_string()))?;
        if let Some(row) = rows.iter().find(|row| !key.is_of(row)) {
            return Err(content(format!("it has a row of {}/{} on {}", row.server, row.device, row.hardware)));
        }
        replace(&path, &rows)?;
        let file = OpenOptions::new().append(true).open(&path).map_err(file_error)?;
        Ok(Store { key: key.clone(), path, rows, file })
    }

    /// Forgets the rows that are not of `items`: of a model read with other dimensions, or grouped by another version.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep(&mut self, items: &[Item]) -> Result<(), StoreError> {
        let before = self.rows.len();
        self.rows.retain(|row| items.get(row.id).is_some_and(|item| row.is_of(item)));
        if self.rows.len() == before {
            return Ok(());
        }
        let error = |source| StoreError::File { path: self.path.clone(), source };
        replace(&self.path, &self.rows)?;
        self.file = OpenOptions::new().append(true).open(&self.path).map_err(error)?;
        // It was of other rows.
        match fs::remove_file(beside(&self.path)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::File { path: beside(&self.path), source: error })
            }
            _ => Ok(()),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Forgets all rows.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn clear(&mut self) -> Result<(), StoreError> {
        self.rows.clear();
        let error = |source| StoreError::File { path: self.path.clone(), source };
        self.file.set_len(0).map_err(error)
    }

    /// The signatures that need no measuring any more.
    pub fn known(&self) -> HashSet<Signature> {
        self.rows.iter().map(|row| row.signature.clone()).collect()
    }

    /// Adds the rows of one result: of the item itself or, when it was measured alone, of every item of its
    /// signature that has no row yet. They are on disk when this returns.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn record(&mut self, items: &[Item], measured: &Measured) -> Result<(), StoreError> {
        let Some(item) = items.get(measured.item) else { return Ok(()) };
        for (id, other) in items.iter().enumerate() {
            let same = match self.key.mode {
                Mode::Isolated => other.signature == item.signature,
                Mode::InSitu => id == measured.item,
            };
            if same && self.rows.iter().all(|row| row.id != id) {
                let Key { place, mode, granularity, .. } = &self.key;
                self.add(Row::new(place, *mode, *granularity, id, other, &measured.cost))?;
            }
        }
        Ok(())
    }

    /// Adds the rows that are missing of signatures that are known: an interruption may fall between them.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn complete(&mut self, items: &[Item]) -> Result<(), StoreError> {
        for row in self.rows.clone() {
            let cost = row.cost().ok_or(row.note);
            self.record(items, &Measured { item: row.id, cost })?;
        }
        Ok(())
    }

    fn add(&mut self, row: Row) -> Result<(), StoreError> {
        let text = encode(std::slice::from_ref(&row), self.rows.is_empty());
        let error = |source| StoreError::File { path: self.path.clone(), source };
        self.file.write_all(&text.map_err(error)?).and_then(|()| self.file.flush()).map_err(error)?;
        self.rows.push(row);
        Ok(())
    }

    /// Puts the rows into the order of the model, once all are there.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(mut self) -> Result<(PathBuf, Vec<Row>), StoreError> {
        self.rows.sort_by_key(|row| row.id);
        replace(&self.path, &self.rows)?;
        Ok((self.path, self.rows))
    }
}

fn encode<T: serde::Serialize>(rows: &[T], header: bool) -> std::io::Result<Vec<u8>> {
    let mut writer = csv::WriterBuilder::new().has_headers(header).from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(std::io::Error::other)?;
    }
    writer.into_inner().map_err(|e| std::io::Error::other(e.to_string()))
}

/// Writes all rows under a temporary name and renames it.
pub(super) fn replace<T: serde::Serialize>(path: &Path, rows: &[T]) -> Result<(), StoreError> {
    let written = write_whole(path, |file| encode(rows, true).and_then(|text| file.write_all(&text)));
    written.map_err(|source| StoreError::File { path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::EngineId,
        graph::Graph,
        profile::{Item, Statistics, measure::Cost},
        units::{Bytes, Micros},
    };

    fn key(hardware: &str) -> Key {
        let engine = EngineId { name: "tract".to_string(), version: "1".to_string() };
        let (server, device) = ("lab one".to_string(), "cpu".to_string());
        let place = Place { server, device, hardware: hardware.to_string(), engine, threads: 1 };
        let (mode, granularity) = (Mode::Isolated, Granularity::Fused);
        Key { model: "a/b".to_string(), model_hash: "0123456789abcdef".to_string(), place, mode, granularity }
    }

    fn row(key: &Key, id: usize, cost: Result<Cost, String>) -> Row {
        let item = Item::new(&Graph::new(), Vec::new());
        Row::new(&key.place, key.mode, key.granularity, id, &item, &cost)
    }

    fn cost(median: f64) -> Cost {
        let median = Micros(median);
        let time = Statistics { n: 7, median, mad: Micros(0.25), min: Micros(1.0), p95: Micros(9.0) };
        Cost { time, cpu: Micros(2.0), workspace: Bytes(3), held: Bytes(4), disturbed: 0.125 }
    }

    #[test]
    fn an_interrupted_profile_keeps_its_whole_lines_and_continues() {
        let folder = tempfile::tempdir().unwrap();
        let key = key("Some CPU, 8 cores");
        let mut store = Store::open(folder.path(), &key).unwrap();
        store.add(row(&key, 2, Ok(cost(12.5)))).unwrap();
        store.add(row(&key, 1, Err("no, \"this\"\ncannot be".to_string()))).unwrap();
        let path = store.path().to_path_buf();
        drop(store);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"lab one,cpu,\"Some").unwrap();

        let mut store = Store::open(folder.path(), &key).unwrap();
        assert_eq!(store.rows().iter().map(|r| r.id).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(store.rows()[0].cost(), Some(cost(12.5)));
        assert_eq!((store.rows()[1].cost(), store.rows()[1].note.as_str()), (None, "no, \"this\" cannot be"));
        store.add(row(&key, 0, Ok(cost(1.0)))).unwrap();
        assert_eq!(store.known().len(), 1);
        let (_, rows) = store.finish().unwrap();
        assert_eq!(rows.iter().map(|r| r.id).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(Store::open(folder.path(), &key).unwrap().rows(), rows);
    }

    #[test]
    fn another_machine_has_another_file_and_foreign_rows_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (key("this"), key("that"));
        assert_ne!(here.file(), there.file());
        let text = here.file().display().to_string();
        assert!(text.starts_with("a-b-01234567/lab-one-cpu-") && text.ends_with("-1t-isolated-fused.csv"), "{text}");
        let mut store = Store::open(folder.path(), &here).unwrap();
        store.add(row(&there, 0, Ok(cost(1.0)))).unwrap();
        drop(store);
        let error = Store::open(folder.path(), &here).unwrap_err().to_string();
        assert!(error.contains("no profile of this device"), "{error}");
        assert_eq!(plain(".."), "unnamed");
    }
}
