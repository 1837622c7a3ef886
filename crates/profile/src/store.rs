//! Profiles on disk: one CSV file for each model, device, mode and granularity.
//!
//! Rows are appended as they are measured, so an interruption loses nothing; measuring the same profile again reads
//! them back and continues. Several processes may have a profile open: each change is made under a lock, and rows that another
//! process has added meanwhile are kept.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use crate::{
    Cost, Item, Measurement, MeasurementMode, ProfileError, ProfileKey, ProfileRow, ProfiledShard, Signature,
    csv_file::{encode, replace, summary_path},
    reader,
};
use edgecut_values::{
    files::{FileLock, lock},
    input_file::{self, MAX_TABLE_BYTES},
};

/// The file of one profile.
#[derive(Debug)]
pub struct ProfileStore {
    key: ProfileKey,
    path: PathBuf,
    /// Rows of whole items.
    rows: Vec<ProfileRow>,
    /// Rows of shards of items.
    shards: Vec<ProfileRow>,
}

impl ProfileStore {
    /// Opens the profile of `key` below `folder` and reads its rows. If there is a file of the binding as one of several, it is
    /// used. An incomplete last line, left by an interruption, is dropped.
    ///
    /// # Errors
    /// If the file cannot be read or written, or is not a profile of this device.
    pub fn open(folder: &Path, key: &ProfileKey) -> Result<ProfileStore, ProfileError> {
        let (rows, shards) = Default::default();
        let among_several = key.among_several();
        let key = if folder.join(among_several.file()).is_file() { &among_several } else { key };
        let mut store = ProfileStore { key: key.clone(), path: folder.join(key.file()), rows, shards };
        let _lock = store.lock()?;
        for row in store.read()? {
            store.keep(row);
        }
        store.write()?;
        Ok(store)
    }

    fn lock(&self) -> Result<FileLock, ProfileError> {
        lock(&self.path).map_err(|source| self.error(source))
    }

    fn error(&self, source: std::io::Error) -> ProfileError {
        ProfileError::File { path: self.path.clone(), source }
    }

    /// The rows on disk, up to the last complete line.
    fn read(&self) -> Result<Vec<ProfileRow>, ProfileError> {
        let text = match input_file::read(&self.path, MAX_TABLE_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(self.error(error)),
        };
        // An interruption may leave a part of a line, and even of a character.
        let whole = &text[..text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)];
        let content = |what| ProfileError::Content { path: self.path.clone(), what };
        let rows = std::str::from_utf8(whole).map_err(|error| error.to_string()).and_then(reader::parse);
        let rows = rows.map_err(|what| content(format!("not a profile that can be read: {what}")))?;
        match rows.iter().find(|row| !self.key.matches(row)) {
            Some(ProfileRow { server, device, hardware, .. }) => Err(content(format!(
                "not a profile of this device: it contains a row of {server}/{device} on {hardware}"
            ))),
            None => Ok(rows),
        }
    }

    /// Adds `row` in memory, unless there is one of the same item or shard.
    fn keep(&mut self, row: ProfileRow) {
        let is_known = match row.shard() {
            None => self.rows.iter().any(|known| known.id == row.id),
            Some(shard) => self
                .shards
                .iter()
                .any(|known| known.id == row.id && known.shard().is_some_and(|known| known.same_cost(&shard))),
        };
        if !is_known {
            let rows = if row.shard().is_some() { &mut self.shards } else { &mut self.rows };
            rows.push(row);
        }
    }

    /// Replaces the file with the rows in memory.
    fn write(&self) -> Result<(), ProfileError> {
        let all: Vec<&ProfileRow> = self.rows.iter().chain(&self.shards).collect();
        replace(&self.path, &all)
    }

    /// Replaces all rows with `rows`, which were measured elsewhere.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn replace_rows(&mut self, rows: Vec<ProfileRow>) -> Result<(), ProfileError> {
        (self.shards, self.rows) = rows.into_iter().partition(|row| row.shard().is_some());
        self.sort();
        let _lock = self.lock()?;
        self.write()
    }

    /// Removes the rows that do not describe `items`: of a model read with other dimensions, or grouped differently by
    /// another version. Rows of an older version get the columns that they lack.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn retain_items(&mut self, items: &[Item]) -> Result<(), ProfileError> {
        let _lock = self.lock()?;
        for row in self.read()? {
            self.keep(row);
        }
        let before = self.rows.len();
        self.rows.retain(|row| items.get(row.id).is_some_and(|item| row.is_of(item)));
        let is_same = self.rows.len() == before;
        let all = self.rows.iter_mut().chain(&mut self.shards);
        let completed = all.filter_map(|row| Some(row.complete(items.get(row.id)?))).filter(|lacked| *lacked).count();
        if is_same {
            return if completed > 0 { self.write() } else { Ok(()) };
        }
        let rows = &self.rows;
        self.shards.retain(|shard| rows.iter().any(|row| (row.id, &row.operators) == (shard.id, &shard.operators)));
        self.write()?;
        // The summary describes the removed rows.
        let summary = summary_path(&self.path);
        match fs::remove_file(&summary) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(ProfileError::File { path: summary, source: error })
            }
            _ => Ok(()),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Rows of whole items.
    pub fn rows(&self) -> &[ProfileRow] {
        &self.rows
    }

    /// Rows of shards, in the order in which they were measured.
    pub fn shards(&self) -> &[ProfileRow] {
        &self.shards
    }

    /// Removes all rows.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn clear(&mut self) -> Result<(), ProfileError> {
        self.rows.clear();
        self.shards.clear();
        let _lock = self.lock()?;
        self.write()
    }

    /// The signatures that are measured already.
    pub fn known(&self) -> HashSet<Signature> {
        self.rows.iter().map(|row| row.signature.clone()).collect()
    }

    /// Adds the row of a measured item; in isolated mode, also those of all items with the same signature that have
    /// none yet. The rows are on disk when this returns, unless they cannot be written: then they are kept in memory, and
    /// [`ProfileStore::finish`] tries again.
    ///
    /// # Errors
    /// If the file has become one of another profile.
    pub fn record(&mut self, items: &[Item], measured: &Measurement) -> Result<(), ProfileError> {
        let Some(item) = items.get(measured.item) else { return Ok(()) };
        for (id, other) in items.iter().enumerate() {
            let same = match self.key.mode {
                MeasurementMode::Isolated => other.signature == item.signature,
                MeasurementMode::InSitu => id == measured.item,
            };
            if same && self.rows.iter().all(|row| row.id != id) {
                self.add(self.row(id, other, &measured.cost))?;
            }
        }
        Ok(())
    }

    /// Adds missing rows of measured signatures: an interruption can come between rows of one signature.
    ///
    /// # Errors
    /// As [`ProfileStore::record`].
    pub fn complete(&mut self, items: &[Item]) -> Result<(), ProfileError> {
        for row in self.rows.clone() {
            let cost = row.cost().ok_or(row.note);
            self.record(items, &Measurement { item: row.id, cost })?;
        }
        Ok(())
    }

    /// Adds the row of `shard` of item `id`, which as a whole is `whole`; `part` is the item that was measured for it.
    /// As [`ProfileStore::record`].
    ///
    /// # Errors
    /// As [`ProfileStore::record`].
    pub fn record_shard(
        &mut self,
        id: usize,
        whole: &Item,
        part: &Item,
        shard: &ProfiledShard,
        cost: &Result<Cost, String>,
    ) -> Result<(), ProfileError> {
        self.add(self.row(id, part, cost).into_shard_of(whole, shard))
    }

    /// The row of `item`, which is item `id` of the model or a shard of it.
    fn row(&self, id: usize, item: &Item, cost: &Result<Cost, String>) -> ProfileRow {
        let ProfileKey { device, mode, granularity, binding, .. } = &self.key;
        let binding = binding.label().to_string();
        ProfileRow { binding, ..ProfileRow::new(device, *mode, *granularity, id, item, cost) }
    }

    /// Appends `row` to the file if that can be written, and keeps it in any case.
    fn add(&mut self, row: ProfileRow) -> Result<(), ProfileError> {
        let appended = match self.append(&row) {
            // A full disk, for one: what is measured is worth more than its file.
            Err(ProfileError::File { .. }) => Ok(()),
            appended => appended,
        };
        self.keep(row);
        appended
    }

    /// Appends `row` to the file, which another process may have replaced since, or left with a part of a line.
    fn append(&mut self, row: &ProfileRow) -> Result<(), ProfileError> {
        let _lock = self.lock()?;
        let mut file = self.open_to_append()?;
        if !ends_a_line(&mut file).map_err(|source| self.error(source))? {
            for row in self.read()? {
                self.keep(row);
            }
            self.write()?;
            file = self.open_to_append()?;
        }
        let appended = file.metadata().and_then(|about| {
            let text = encode(std::slice::from_ref(row), about.len() == 0)?;
            file.write_all(&text)
        });
        appended.map_err(|source| self.error(source))
    }

    fn open_to_append(&self) -> Result<File, ProfileError> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(&self.path);
        file.map_err(|source| self.error(source))
    }

    /// Sorts the rows by position in the model, shards after whole items, and rewrites the file with them and those that other
    /// processes have added.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn finish(&mut self) -> Result<(), ProfileError> {
        let _lock = self.lock()?;
        for row in self.read()? {
            self.keep(row);
        }
        self.sort();
        self.write()
    }

    fn sort(&mut self) {
        self.rows.sort_by_key(|row| row.id);
        self.shards.sort_by_key(|row| row.id);
    }
}

/// Whether `file` ends with the end of a line, or is empty.
fn ends_a_line(file: &mut File) -> std::io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conditions, ProfiledBinding, ProfiledDevice};
    use edgecut_engine::{EngineId, statistics::Statistics};
    use edgecut_graph::{
        Granularity, Graph,
        units::{Bytes, Micros},
    };

    fn key(hardware: &str) -> ProfileKey {
        let engine = EngineId { name: "tract".to_string(), version: "1".to_string() };
        let (server, name) = ("lab one".to_string(), "cpu".to_string());
        let device = ProfiledDevice { server, device: name, hardware: hardware.to_string(), engine, threads: 1 };
        let (mode, granularity) = (MeasurementMode::Isolated, Granularity::Fused);
        let (model, model_hash) = ("a/b".to_string(), "0123456789abcdef".to_string());
        ProfileKey { model, model_hash, device, mode, granularity, binding: ProfiledBinding::default() }
    }

    fn row(key: &ProfileKey, id: usize, cost: Result<Cost, String>) -> ProfileRow {
        let item = Item::new(&Graph::new(), Vec::new());
        ProfileRow::new(&key.device, key.mode, key.granularity, id, &item, &cost)
    }

    fn cost(median: f64) -> Cost {
        let median = Micros(median);
        let time = Statistics { n: 7, median, mad: Micros(0.25), min: Micros(1.0), p95: Micros(9.0) };
        Cost {
            time,
            cpu: Micros(2.0),
            kernels: None,
            workspace: Bytes(3),
            held: Bytes(4),
            disturbed: 0.125,
            energy: None,
            conditions: Conditions::default(),
        }
    }

    #[test]
    fn an_interrupted_profile_keeps_complete_lines_and_continues() {
        let folder = tempfile::tempdir().unwrap();
        let key = key("Some CPU, 8 cores");
        let mut store = ProfileStore::open(folder.path(), &key).unwrap();
        store.add(row(&key, 2, Ok(cost(12.5)))).unwrap();
        store.add(row(&key, 1, Err("no, \"this\"\ncannot be".to_string()))).unwrap();
        let path = store.path().to_path_buf();
        drop(store);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        // Ends within a character of two bytes.
        file.write_all(b"lab one,cpu,\"Some \xc3").unwrap();

        let mut interrupted = ProfileStore { key: key.clone(), path: path.clone(), rows: vec![], shards: vec![] };
        interrupted.add(row(&key, 3, Ok(cost(1.0)))).unwrap();
        assert_eq!(interrupted.rows().iter().map(|r| r.id).collect::<Vec<_>>(), [2, 1, 3]);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"lab one,cpu,\"Some \xc3").unwrap();
        let mut store = ProfileStore::open(folder.path(), &key).unwrap();
        assert_eq!(store.rows().iter().map(|r| r.id).collect::<Vec<_>>(), [2, 1, 3]);
        assert_eq!(store.rows()[0].cost(), Some(cost(12.5)));
        assert_eq!((store.rows()[1].cost(), store.rows()[1].note.as_str()), (None, "no, \"this\" cannot be"));
        store.add(row(&key, 0, Ok(cost(1.0)))).unwrap();
        assert_eq!(store.known().len(), 1);
        store.finish().unwrap();
        assert_eq!(store.rows().iter().map(|r| r.id).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(ProfileStore::open(folder.path(), &key).unwrap().rows(), store.rows());
    }

    #[test]
    fn rows_that_cannot_be_written_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let key = key("Some CPU, 8 cores");
        let mut store = ProfileStore::open(folder.path(), &key).unwrap();
        let path = store.path().to_path_buf();
        // A folder in its place can be neither opened nor replaced.
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        store.add(row(&key, 1, Ok(cost(1.0)))).unwrap();
        store.add(row(&key, 0, Ok(cost(2.0)))).unwrap();
        assert!(matches!(store.finish(), Err(ProfileError::File { .. })));
        fs::remove_dir(&path).unwrap();
        store.finish().unwrap();
        assert_eq!(ProfileStore::open(folder.path(), &key).unwrap().rows(), store.rows());
    }

    #[cfg(unix)]
    #[test]
    fn a_complete_profile_is_not_written_again() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let key = key("Some CPU, 8 cores");
        let mut store = ProfileStore::open(folder.path(), &key).unwrap();
        store.add(row(&key, 0, Ok(cost(1.0)))).unwrap();
        store.finish().unwrap();
        let file = fs::metadata(store.path()).unwrap().ino();
        let mut again = ProfileStore::open(folder.path(), &key).unwrap();
        again.finish().unwrap();
        assert_eq!(fs::metadata(store.path()).unwrap().ino(), file);
    }

    #[test]
    fn processes_that_measure_one_profile_keep_each_others_rows() {
        let folder = tempfile::tempdir().unwrap();
        let key = key("Some CPU, 8 cores");
        let mut first = ProfileStore::open(folder.path(), &key).unwrap();
        first.add(row(&key, 0, Ok(cost(1.0)))).unwrap();
        let mut second = ProfileStore::open(folder.path(), &key).unwrap();
        first.add(row(&key, 1, Ok(cost(2.0)))).unwrap();
        second.add(row(&key, 2, Ok(cost(3.0)))).unwrap();
        second.add(row(&key, 1, Ok(cost(4.0)))).unwrap();
        second.finish().unwrap();
        first.add(row(&key, 3, Ok(cost(5.0)))).unwrap();
        first.finish().unwrap();
        let ids = |store: &ProfileStore| store.rows().iter().map(|row| row.id).collect::<Vec<_>>();
        assert_eq!(ids(&first), [0, 1, 2, 3]);
        assert_eq!(ids(&ProfileStore::open(folder.path(), &key).unwrap()), [0, 1, 2, 3]);
    }

    #[test]
    fn rows_of_shards_are_separate_and_removed_with_their_item() {
        let folder = tempfile::tempdir().unwrap();
        let (key, item) = (key("this"), Item::new(&Graph::new(), Vec::new()));
        let shard = ProfiledShard { axis: 1, fraction: 0.25, copied: Bytes(8) };
        let mut store = ProfileStore::open(folder.path(), &key).unwrap();
        store.record_shard(0, &item, &item, &shard, &Ok(cost(3.0))).unwrap();
        store.add(row(&key, 0, Ok(cost(12.5)))).unwrap();
        let mut store = ProfileStore::open(folder.path(), &key).unwrap();
        assert_eq!((store.rows().len(), store.shards().len(), store.known().len()), (1, 1, 1));
        assert_eq!((store.shards()[0].shard(), store.shards()[0].cost()), (Some(shard), Some(cost(3.0))));
        store.retain_items(std::slice::from_ref(&item)).unwrap();
        assert_eq!(store.shards().len(), 1);
        store.retain_items(&[]).unwrap();
        assert_eq!((store.rows().len(), ProfileStore::open(folder.path(), &key).unwrap().shards().len()), (0, 0));
    }

    #[test]
    fn profiles_without_the_latest_columns_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let key = key("this");
        let mut store = ProfileStore::open(folder.path(), &key).unwrap();
        store.add(row(&key, 0, Ok(cost(12.5)))).unwrap();
        let text = fs::read_to_string(store.path()).unwrap();
        let old: String = text
            .lines()
            .map(|line| {
                format!(
                    "{}\n",
                    line.replace(",axis,fraction,copied_bytes,layer,tensors,measured_at,governor,load", "")
                        .trim_end_matches(",,,,,,,,")
                )
            })
            .collect();
        // The note is empty; the columns of shards, layers, tensors and conditions follow it.
        fs::write(store.path(), old.replace(",0.125\n", ",0.125,\n")).unwrap();
        assert_eq!(ProfileStore::open(folder.path(), &key).unwrap().rows(), store.rows());
    }

    #[test]
    fn another_machine_has_another_file_and_its_rows_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (key("this"), key("that"));
        assert_ne!(here.file(), there.file());
        let text = here.file().display().to_string();
        assert!(text.starts_with("a-b-01234567/lab-one-cpu-") && text.ends_with("-1t-isolated-fused.csv"), "{text}");
        let mut store = ProfileStore::open(folder.path(), &here).unwrap();
        store.add(row(&there, 0, Ok(cost(1.0)))).unwrap();
        drop(store);
        let error = ProfileStore::open(folder.path(), &here).unwrap_err().to_string();
        assert!(error.contains("not a profile of this device"), "{error}");
    }

    #[test]
    fn a_single_binding_resumes_its_file_as_one_of_several() {
        let folder = tempfile::tempdir().unwrap();
        let of = |binding| ProfileKey { binding, ..key("this") };
        let item = Item::new(&Graph::new(), Vec::new());
        let measure = |binding| {
            let mut store = ProfileStore::open(folder.path(), &of(binding)).unwrap();
            store.record(std::slice::from_ref(&item), &Measurement { item: 0, cost: Ok(cost(1.0)) }).unwrap();
            store.rows()[0].binding.clone()
        };
        let sole = || ProfiledBinding::Sole("w=1".to_string());
        assert_eq!(measure(sole()), "");
        let own = fs::read_to_string(folder.path().join(of(sole()).file())).unwrap();
        assert!(!own.contains("binding"), "{own}");
        assert_eq!(measure(ProfiledBinding::OneOfSeveral("w=1".to_string())), "w=1");
        assert_eq!(measure(ProfiledBinding::OneOfSeveral("w=2".to_string())), "w=2");
        assert_eq!(measure(sole()), "w=1");
        let long = ProfiledBinding::OneOfSeveral("dimension=1 ".repeat(100));
        assert!(of(long).file().file_name().unwrap().len() < 200);
    }
}
