//! Figures of a placement, as files of one folder.

use std::path::Path;

use edgecut_agent::{LinkRow, LinkTable};
use edgecut_graph::{
    OperatorId,
    units::{Rate, UnitError},
};
use edgecut_interop::aidge;
use edgecut_memory::trace::trace;
pub use edgecut_report::memory::{charts::OffloadLink, files::NamedFile};
use edgecut_report::memory::{files, map::MapOptions};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::place::Placed;
use crate::{
    Error, input as file, option_values,
    profile::{DEFAULT_FOLDER, link_table_in},
};

/// What is drawn in addition to the placement.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FigureOptions {
    /// Links in the figure of sizes and idle times, as `RATE` or `NAME=RATE`. By default, the measured links of the
    /// folder `profiles`, without those of loopback.
    #[serde(deserialize_with = "offload_links")]
    pub link: Vec<OffloadLink>,
    /// Write all names into the arena map, even where they do not fit.
    pub display_names: bool,
}

impl Placed {
    /// All figures: one HTML page, SVG (and PNG with the feature `png`), a text map, counters for Perfetto, Aidge's
    /// memory_info.txt.
    ///
    /// # Errors
    /// If measured links cannot be read, or a figure cannot be drawn.
    pub fn figures(&self, options: &FigureOptions) -> Result<Vec<NamedFile>, Error> {
        let (problem, best) = (&self.problem, &self.placements.best);
        let time = |id: OperatorId| problem.time(id);
        let made = problem.storage_rules(self.align, |rules| trace(&problem.graph, &best.order, rules, &time));
        let links = if options.link.is_empty() { measured_links()? } else { options.link.clone() };
        let map = MapOptions { display_names: options.display_names };
        let mut files = files::figures(&self.layout, &made, &links, map).map_err(Error::failed)?;
        let name = |id: OperatorId| problem.names[id.0 as usize].clone();
        let info = aidge::memory_info(&problem.graph, &best.order, &best.lifetimes, &best.packing, &name);
        files.push(("memory_info.txt".to_string(), info.into_bytes()));
        Ok(files)
    }
}

/// Whether an address is one of this machine's own: what such a link takes says nothing of a network.
fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The links that were measured, if any, without those of loopback.
fn measured_links() -> Result<Vec<OffloadLink>, Error> {
    let path = link_table_in(Path::new(DEFAULT_FOLDER));
    if !path.exists() {
        return Ok(Vec::new());
    }
    let table = LinkTable::read(&file::read(&path)?[..])
        .map_err(|error| Error::BadInput(format!("{}: {error}", path.display()).into()))?;
    let link = |row: &LinkRow| OffloadLink { name: format!("{} → {}", row.from, row.to), rate: row.bytes_per_us };
    let rows = table.rows.iter().filter(|row| !is_loopback(&row.from_address) && !is_loopback(&row.to_address));
    Ok(rows.map(link).collect())
}

/// Parses `pcie=12GB/s`, or a rate alone.
///
/// # Errors
/// If the rate is not a rate.
pub fn offload_link(text: &str) -> Result<OffloadLink, UnitError> {
    let (name, rate) = text.split_once('=').unwrap_or((text, text));
    let rate: Rate = rate.parse()?;
    Ok(OffloadLink { name: name.to_string(), rate })
}

fn offload_links<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<OffloadLink>, D::Error> {
    let texts: Vec<String> = option_values::list(deserializer)?;
    let link = |text: &String| offload_link(text).map_err(|error| D::Error::custom(format!("`{text}`: {error}")));
    texts.iter().map(link).collect()
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
