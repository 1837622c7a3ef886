//! All figures of a placement as files of one folder.

use edgecut_memory::liveness::Trace;

use super::{
    charts::{self, OffloadLink},
    layout::Layout,
    map::{self, MapOptions},
    page, text,
};
use crate::timeline;

/// A file's name and content.
pub type NamedFile = (String, Vec<u8>);

/// Why a figure cannot be drawn; without the feature `png` none fails.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    #[cfg(feature = "png")]
    #[error(transparent)]
    Png(#[from] super::png::PngError),
}

/// One page with all figures, each figure as SVG (and PNG with the feature `png`), a text map, counters for Perfetto.
///
/// # Errors
/// If a figure cannot be drawn as PNG.
pub fn figures(
    layout: &Layout,
    trace: &Trace,
    links: &[OffloadLink],
    options: MapOptions,
) -> Result<Vec<NamedFile>, FigureError> {
    let drawn = [
        ("arena", page::standalone(&map::map(layout, options))),
        ("consumption", page::standalone(&charts::consumption(trace))),
        ("idle", page::standalone(&charts::idle_times(trace))),
        ("sizes", page::standalone(&charts::sizes(trace, links))),
    ];
    let mut files = vec![("memory.html".to_string(), page::page(layout, trace, links, options).into_bytes())];
    for (name, svg) in drawn {
        #[cfg(feature = "png")]
        files.push((format!("{name}.png"), super::png::png(&svg)?));
        files.push((format!("{name}.svg"), svg.into_bytes()));
    }
    files.push(("arena.txt".to_string(), text::map(layout).into_bytes()));
    let timeline = timeline::memory::timeline(layout);
    files.push(("trace.json".to_string(), timeline::chrome::json(&timeline).into_bytes()));
    files.push(("trace.pftrace".to_string(), timeline::perfetto::bytes(&timeline)));
    Ok(files)
}
