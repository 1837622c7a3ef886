//! Files that `edgecut memory` writes into folders: figures of a placement, liveness reports.

use std::path::Path;

use crate::stderr::status;
use edgecut_agent::LinkTable;
use edgecut_graph::{
    OperatorId,
    units::{Bytes, Rate},
};
use edgecut_interop::aidge;
use edgecut_memory::{place::PlacementResult, problem::MemoryProblem, trace::trace};
use edgecut_report::memory::{charts::OffloadLink, files, layout::Layout, map::MapOptions};
use edgecut_session::error::Message;

use crate::{Failure, Outcome, source_file};

/// Where measured links are kept.
const LINKS: &str = "profiles/links.csv";

/// What is drawn in addition to the placement.
pub struct Figures<'a> {
    /// In place of measured links.
    pub links: &'a [OffloadLink],
    pub display_names: bool,
    pub align: u64,
}

impl Figures<'_> {
    /// Writes all figures of a placement into a folder.
    pub fn write(
        &self,
        folder: &Path,
        problem: &MemoryProblem,
        placements: &PlacementResult,
        layout: &Layout,
    ) -> Outcome {
        let best = &placements.best;
        let time = |id: OperatorId| problem.time(id);
        let made = problem.storage_rules(self.align, |rules| trace(&problem.graph, &best.order, rules, &time));
        let links = if self.links.is_empty() { measured_links()? } else { self.links.to_vec() };
        let options = MapOptions { display_names: self.display_names };
        let mut files = files::figures(layout, &made, &links, options).map_err(Failure::failed)?;
        let name = |id: OperatorId| problem.names[id.0 as usize].clone();
        let info = aidge::memory_info(&problem.graph, &best.order, &best.lifetimes, &best.packing, &name);
        files.push(("memory_info.txt".to_string(), info.into_bytes()));
        write_all(folder, &files)
    }
}

/// Writes files into a folder and says which.
pub fn write_all(folder: &Path, files: &[(String, Vec<u8>)]) -> Outcome {
    source_file::create_folder(folder)?;
    files.iter().try_for_each(|(name, content)| {
        let path = folder.join(name);
        source_file::write(&path, content)?;
        status!("wrote {} ({})", path.display(), Bytes(content.len() as u64));
        Ok(())
    })
}

/// Whether an address is one of this machine's own: what such a link takes says nothing of a network.
fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The links that were measured, if any, without those of loopback.
fn measured_links() -> Result<Vec<OffloadLink>, Failure> {
    let path = Path::new(LINKS);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let table = LinkTable::read(&source_file::read(path)?[..])
        .map_err(|error| Failure::BadInput(Message::from(format!("{}: {error}", path.display()))))?;
    let link = |row: &edgecut_agent::LinkRow| OffloadLink {
        name: format!("{} → {}", row.from, row.to),
        rate: row.bytes_per_us,
    };
    let rows = table.rows.iter().filter(|row| !is_loopback(&row.from_address) && !is_loopback(&row.to_address));
    Ok(rows.map(link).collect())
}

/// `pcie=12GB/s`, or a rate alone.
pub fn link(text: &str) -> Result<OffloadLink, String> {
    let (name, rate) = text.split_once('=').unwrap_or((text, text));
    let rate: Rate = rate.parse().map_err(|error| format!("{error}"))?;
    Ok(OffloadLink { name: name.to_string(), rate })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_told_apart() {
        for (address, wanted) in [
            ("127.0.0.1:7700", true),
            ("[::1]:7700", true),
            ("localhost:7700", true),
            ("192.168.1.2:7700", false),
            ("edge:7700", false),
            ("-", false),
        ] {
            assert_eq!(is_loopback(address), wanted, "{address}");
        }
    }
}
