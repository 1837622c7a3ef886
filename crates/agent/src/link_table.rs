//! The table of measured links (`links.csv`), kept between commands so that each link is probed once.

use std::{io, path::Path};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::{cluster::Cluster, link::Link};
use edgecut_graph::{
    LinkCost,
    units::{Bytes, Micros, Rate},
};
use edgecut_values::{
    files::{lock, write_atomic},
    input_file::{self, MAX_TABLE_BYTES},
};

/// One measured direction. Addresses are part of the key: a server at a new address is measured again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkRow {
    pub from: SmolStr,
    pub from_address: String,
    pub to: SmolStr,
    pub to_address: String,
    pub latency_us: Micros,
    pub bytes_per_us: Rate,
    /// Median of |predicted − measured| / measured over the probe's transfers.
    pub fit_error: f64,
    /// The largest timed transfer.
    pub largest_bytes: Bytes,
    /// Number of timed transfers.
    pub n: u32,
}

/// All measured links, in the order of their first measurement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LinkTable {
    pub rows: Vec<LinkRow>,
}

impl LinkTable {
    /// Reads a table; empty if the file does not exist.
    ///
    /// # Errors
    /// If the file cannot be read or is not such a table.
    pub fn load(path: &Path) -> Result<LinkTable, csv::Error> {
        match input_file::read(path, MAX_TABLE_BYTES) {
            Ok(text) => LinkTable::read(text.as_slice()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(LinkTable::default()),
            Err(e) => Err(e.into()),
        }
    }

    /// Adds `rows` to the table at `path`, in place of earlier measurements of the same links. Other processes may do so at
    /// the same time.
    ///
    /// # Errors
    /// If the file cannot be read or written, or is not such a table.
    pub fn update(path: &Path, rows: impl IntoIterator<Item = LinkRow>) -> Result<(), csv::Error> {
        let _lock = lock(path)?;
        let mut table = LinkTable::load(path)?;
        rows.into_iter().for_each(|row| table.insert(row));
        write_atomic(path, |file| table.write(file))
    }

    /// Reads CSV.
    ///
    /// # Errors
    /// If it is not CSV with the columns of [`LinkRow`]; the error names the line.
    pub fn read(reader: impl io::Read) -> Result<LinkTable, csv::Error> {
        let rows = csv::Reader::from_reader(reader).into_deserialize().collect::<Result<_, _>>()?;
        Ok(LinkTable { rows })
    }

    /// Writes CSV.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn write(&self, writer: impl io::Write) -> Result<(), csv::Error> {
        let mut writer = csv::Writer::from_writer(writer);
        for row in &self.rows {
            writer.serialize(row)?;
        }
        writer.flush()?;
        Ok(())
    }

    /// Adds `row`, or replaces an earlier measurement of the same link.
    pub fn insert(&mut self, row: LinkRow) {
        match self.rows.iter_mut().find(|r| r.key() == row.key()) {
            Some(old) => *old = row,
            None => self.rows.push(row),
        }
    }

    /// The link between two servers of `cluster` at their current addresses, if it was measured.
    pub fn find(&self, cluster: &Cluster, from: &str, to: &str) -> Option<&LinkRow> {
        let (from_address, to_address) =
            (cluster.server(from)?.endpoint.to_string(), cluster.server(to)?.endpoint.to_string());
        self.rows.iter().find(|r| r.key() == (from, from_address.as_str(), to, to_address.as_str()))
    }
}

impl LinkRow {
    fn key(&self) -> (&str, &str, &str, &str) {
        (&self.from, &self.from_address, &self.to, &self.to_address)
    }

    pub fn link(&self) -> Link {
        let cost = LinkCost { latency: self.latency_us, rate: self.bytes_per_us };
        Link { from: self.from.clone(), to: self.to.clone(), cost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip_and_are_replaced() {
        let row = |latency| LinkRow {
            from: "a".into(),
            from_address: "h:1".into(),
            to: "b".into(),
            to_address: "h:2".into(),
            latency_us: Micros(latency),
            bytes_per_us: Rate(117.5),
            fit_error: 0.01,
            largest_bytes: Bytes(1 << 24),
            n: 40,
        };
        let mut table = LinkTable::default();
        table.insert(row(300.0));
        table.insert(row(310.0));
        let mut text = Vec::new();
        table.write(&mut text).unwrap();
        assert_eq!(LinkTable::read(text.as_slice()).unwrap(), table);
        let servers = "[[server]]\nname = \"a\"\naddress = \"h:1\"\n[[server]]\nname = \"b\"\naddress = \"h:2\"\n";
        let cluster = Cluster::parse(servers, std::path::Path::new("")).unwrap();
        assert_eq!(table.find(&cluster, "a", "b").map(|r| r.latency_us), Some(Micros(310.0)));
        assert_eq!(table.find(&cluster, "b", "a"), None);
    }

    #[test]
    fn processes_that_measure_links_keep_each_others_rows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("links.csv");
        let row = |to: usize| LinkRow {
            from: "a".into(),
            from_address: "h:1".into(),
            to: to.to_string().into(),
            to_address: "h:2".into(),
            latency_us: Micros(1.0),
            bytes_per_us: Rate(117.5),
            fit_error: 0.01,
            largest_bytes: Bytes(1 << 24),
            n: 40,
        };
        std::thread::scope(|scope| {
            for to in 0..16 {
                let path = &path;
                scope.spawn(move || LinkTable::update(path, [row(to)]).unwrap());
            }
        });
        assert_eq!(LinkTable::load(&path).unwrap().rows.len(), 16);
    }
}
