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

use super::{
    Item, Mode, Place, Row, Share, Signature,
    measure::{Cost, Measured},
    summary::beside,
};
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
    /// Rows of parts of items.
    shares: Vec<Row>,
    file: File,
}

/// Why a profile could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path}: {what}")]
    Malformed { path: PathBuf, what: String },
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
        self.is_of_device(row) && (row.mode, row.granularity) == (self.mode, self.granularity)
    }

    /// Whether `row`, of whatever model, was measured on the same device with the same threads.
    pub fn is_of_device(&self, row: &Row) -> bool {
        let Place { server, device, hardware, engine, threads } = &self.place;
        (&row.server, &row.device, &row.hardware, &row.engine, &row.engine_version, &row.threads)
            == (server, device, hardware, &engine.name, &engine.version, threads)
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
        let (shares, rows) = rows.into_iter().partition(|row| row.share().is_some());
        let file = OpenOptions::new().append(true).create(true).open(&path).map_err(file_error)?;
        let mut store = Store { key: key.clone(), path, rows, shares, file };
        store.rewrite()?;
        Ok(store)
    }

    /// Writes all rows anew, in the order of the model, and goes on behind them.
    fn rewrite(&mut self) -> Result<(), StoreError> {
        let all: Vec<&Row> = self.rows.iter().chain(&self.shares).collect();
        replace(&self.path, &all)?;
        let error = |source| StoreError::File { path: self.path.clone(), source };
        self.file = OpenOptions::new().append(true).open(&self.path).map_err(error)?;
        Ok(())
    }

    /// Puts `rows`, which were measured elsewhere, in the place of all that is there.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn take(&mut self, rows: Vec<Row>) -> Result<(), StoreError> {
        (self.shares, self.rows) = rows.into_iter().partition(|row| row.share().is_some());
        self.finish()
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
        let rows = &self.rows;
        self.shares.retain(|share| rows.iter().any(|row| (row.id, &row.operators) == (share.id, &share.operators)));
        self.rewrite()?;
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

    /// Those of whole items.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Those of parts of items, in the order in which they were measured.
    pub fn shares(&self) -> &[Row] {
        &self.shares
    }

    /// Forgets all rows.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn clear(&mut self) -> Result<(), StoreError> {
        self.rows.clear();
        self.shares.clear();
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

    /// Adds the row of a `share` of item `id`, which is `whole`: `part` is all that was measured for it. It is on disk
    /// when this returns.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn record_share(
        &mut self,
        id: usize,
        whole: &Item,
        part: &Item,
        share: &Share,
        cost: &Result<Cost, String>,
    ) -> Result<(), StoreError> {
        let Key { place, mode, granularity, .. } = &self.key;
        self.add(Row::new(place, *mode, *granularity, id, part, cost).part_of(whole, share))
    }

    fn add(&mut self, row: Row) -> Result<(), StoreError> {
        let text = encode(std::slice::from_ref(&row), self.rows.is_empty() && self.shares.is_empty());
        let error = |source| StoreError::File { path: self.path.clone(), source };
        self.file.write_all(&text.map_err(error)?).and_then(|()| self.file.flush()).map_err(error)?;
        let rows = if row.share().is_some() { &mut self.shares } else { &mut self.rows };
        rows.push(row);
        Ok(())
    }

    /// Puts the rows into the order of the model, once all are there, those of parts behind the others.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(&mut self) -> Result<(), StoreError> {
        self.rows.sort_by_key(|row| row.id);
        self.shares.sort_by_key(|row| row.id);
        self.rewrite()
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
        profile::{Item, measure::Cost},
        statistics::Statistics,
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
        Cost { time, cpu: Micros(2.0), kernels: None, workspace: Bytes(3), held: Bytes(4), disturbed: 0.125 }
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
        store.finish().unwrap();
        assert_eq!(store.rows().iter().map(|r| r.id).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(Store::open(folder.path(), &key).unwrap().rows(), store.rows());
    }

    #[test]
    fn parts_of_items_stay_apart_from_them_and_go_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let (key, item) = (key("this"), Item::new(&Graph::new(), Vec::new()));
        let share = Share { axis: 1, fraction: 0.25, copied: Bytes(8) };
        let mut store = Store::open(folder.path(), &key).unwrap();
        store.record_share(0, &item, &item, &share, &Ok(cost(3.0))).unwrap();
        store.add(row(&key, 0, Ok(cost(12.5)))).unwrap();
        let mut store = Store::open(folder.path(), &key).unwrap();
        assert_eq!((store.rows().len(), store.shares().len(), store.known().len()), (1, 1, 1));
        assert_eq!((store.shares()[0].share(), store.shares()[0].cost()), (Some(share), Some(cost(3.0))));
        store.keep(std::slice::from_ref(&item)).unwrap();
        assert_eq!(store.shares().len(), 1);
        store.keep(&[]).unwrap();
        assert_eq!((store.rows().len(), Store::open(folder.path(), &key).unwrap().shares().len()), (0, 0));
    }

    #[test]
    fn profiles_without_the_columns_of_parts_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let key = key("this");
        let mut store = Store::open(folder.path(), &key).unwrap();
        store.add(row(&key, 0, Ok(cost(12.5)))).unwrap();
        let text = fs::read_to_string(store.path()).unwrap();
        let old: String = text
            .lines()
            .map(|line| format!("{}\n", line.replace(",axis,fraction,copied_bytes", "").trim_end_matches(",,,")))
            .collect();
        // The note is empty, and the columns of parts stand behind it.
        fs::write(store.path(), old.replace(",0.125\n", ",0.125,\n")).unwrap();
        assert_eq!(Store::open(folder.path(), &key).unwrap().rows(), store.rows());
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
