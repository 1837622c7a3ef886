//! What `edgecut memory` writes into folders: figures of a placement, liveness reports.

use std::path::Path;

use miette::Report;

use super::{Memory, subject::Subject};
use crate::{
    cli::{Failure, Outcome, file},
    cluster::LinkTable,
    graph::OperatorId,
    memory::{g10, liveness::Trace, place::Placements, trace::trace},
    report::memory::{aidge, charts, charts::Link, layout::Layout, map, page, perfetto, text},
    units::{Bytes, Rate},
};

/// Where measured links are kept.
const LINKS: &str = "profiles/links.csv";

/// Liveness reports and figures, where they are wanted.
pub fn write(memory: &Memory, subject: &Subject, placements: &Placements, layout: &Layout) -> Outcome {
    let best = &placements.best;
    let time = |id: OperatorId| subject.time(id);
    let made = subject.sharing(memory.align, |sharing| trace(&subject.graph, &best.order, sharing, &time));
    if let Some(folder) = &memory.liveness {
        write_reports(folder, &made, memory)?;
    }
    let Some(folder) = &memory.figures else { return Ok(()) };
    let look = map::Look { display_names: memory.display_names };
    let name = |id: OperatorId| subject.names[id.0 as usize].clone();
    let links = links(memory)?;
    let drawn = [
        ("arena", page::alone(&map::map(layout, look))),
        ("consumption", page::alone(&charts::consumption(&made))),
        ("idle", page::alone(&charts::idle_times(&made))),
        ("sizes", page::alone(&charts::sizes(&made, &links))),
    ];
    let mut files = vec![("memory.html".to_string(), page::page(layout, &made, &links, look).into_bytes())];
    for (name, svg) in drawn {
        #[cfg(feature = "png")]
        files.push((format!("{name}.png"), crate::report::memory::png::png(&svg).map_err(Failure::failed)?));
        files.push((format!("{name}.svg"), svg.into_bytes()));
    }
    let info = aidge::memory_info(&subject.graph, &best.order, &best.lifetimes, &best.packing, &name);
    files.push(("arena.txt".to_string(), text::map(layout).into_bytes()));
    files.push(("trace.json".to_string(), perfetto::trace(layout).into_bytes()));
    files.push(("memory_info.txt".to_string(), info.into_bytes()));
    write_all(folder, &files)
}

/// G10's files and the same as tables.
pub fn write_reports(folder: &Path, trace: &Trace, memory: &Memory) -> Outcome {
    let mut files = g10::files(trace, &memory.run_name, memory.g10_compat);
    files.extend(g10::tables(trace));
    let files: Vec<(String, Vec<u8>)> =
        files.into_iter().map(|(name, content)| (name.to_string(), content.into_bytes())).collect();
    write_all(folder, &files)
}

/// Writes the files and says which.
fn write_all(folder: &Path, files: &[(String, Vec<u8>)]) -> Outcome {
    let unwritable = |error| Failure::unwritable(&folder.display().to_string(), &error);
    std::fs::create_dir_all(folder).map_err(unwritable)?;
    files.iter().try_for_each(|(name, content)| {
        let path = folder.join(name);
        file::write(&path, content)?;
        eprintln!("wrote {} ({})", path.display(), Bytes(content.len() as u64));
        Ok(())
    })
}

/// The links of the command line, or those that were measured.
fn links(memory: &Memory) -> Result<Vec<Link>, Failure> {
    if !memory.link.is_empty() {
        return Ok(memory.link.clone());
    }
    let path = Path::new(LINKS);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let table = LinkTable::read(&file::read(path)?[..])
        .map_err(|error| Failure::BadInput(Report::msg(format!("{}: {error}", path.display()))))?;
    Ok(table
        .rows
        .iter()
        .map(|row| Link { name: format!("{} → {}", row.from, row.to), rate: row.bytes_per_us })
        .collect())
}

/// `pcie=12GB/s`, or a rate alone.
pub fn link(text: &str) -> Result<Link, String> {
    let (name, rate) = text.split_once('=').unwrap_or((text, text));
    let rate: Rate = rate.parse().map_err(|error| format!("{error}"))?;
    Ok(Link { name: name.to_string(), rate })
}
