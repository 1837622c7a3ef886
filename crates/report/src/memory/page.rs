//! One self-contained HTML page with all memory figures.

use std::fmt::Write;

use super::{
    charts::{self, OffloadLink},
    layout::{BlockKind, Layout},
    map::{self, MapOptions},
    svg::{STYLE, escape},
};
use edgecut_memory::liveness::Trace;

/// Limit on the rows of the table at the peak.
const MAX_ROWS: usize = 40;

const PAGE_STYLE: &str = "<style>:root{color-scheme:light dark;--ink:#1b1b1b;--paper:#fff}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e6e6;--paper:#16181c}}\
body{font:14px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1140px;margin:24px auto;padding:0 16px}\
@media(prefers-color-scheme:dark){.all{stroke:#d8a66f}.active{stroke:#63d27c}.dot{fill:#8fb0ff}.capacity{stroke:#6af}}\
svg:not(.inner){width:100%;height:auto}svg text{fill:var(--ink)}svg .name{fill:#111;pointer-events:none}.load{stroke:var(--ink)}\
.inner *{vector-effect:non-scaling-stroke}.near .fine.block{stroke:#fff8}.near .fine.load{stroke-opacity:1}.tools{color:#888}\
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(320px,1fr));gap:16px}\
table{border-collapse:collapse}td,th{padding:2px 12px 2px 0;text-align:left}td.n{text-align:right;font-variant-numeric:tabular-nums}\
.key span{display:inline-block;width:12px;height:12px;margin:0 4px 0 14px;vertical-align:-1px}\
.key .input{background:#4c9be8}.key .activation{background:#56b881}.key .in-place{background:#c9a227}.key .output{background:#d2706e}\
.key .workspace{background:#9a86c9}rect.block:hover{opacity:.7}</style>";

const ZOOM: &str = include_str!("zoom.js");
/// Controls, hidden until the script runs.
const TOOLS: &str = "<p class=\"tools\" hidden><button type=\"button\">Whole arena</button> Wheel zooms, over an axis that \
axis alone; dragging moves. Keys, with the map in focus: + and −, arrows to move, Shift and arrows to zoom one axis, 0 for \
the whole.</p>";

/// The page as HTML.
pub fn page(layout: &Layout, trace: &Trace, links: &[OffloadLink], options: MapOptions) -> String {
    let peak = layout.peak();
    let title = escape(&layout.title);
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}: memory</title>{STYLE}{PAGE_STYLE}</head><body><h1>{title}</h1>"
    );
    let lost = 100.0 * (layout.height.0 as f64 / layout.bound.0.max(1) as f64 - 1.0);
    let _ = write!(
        html,
        "<p>{} operators, {} buffers. Arena <b>{}</b> ({} bytes), lower bound {}, gap {lost:.2} %. Peak load {} at step {}. \
         Parameters {} are held apart.</p>",
        layout.steps.len(),
        layout.blocks.len(),
        layout.height,
        layout.height.0,
        layout.bound,
        peak.bytes,
        peak.from,
        layout.parameters
    );
    html += "<h2>Arena</h2><p class=\"key\">";
    for kind in BlockKind::ALL.into_iter().filter(|kind| layout.blocks.iter().any(|block| block.kind == *kind)) {
        let _ = write!(html, "<span class=\"{0}\"></span>{0}", kind.name());
    }
    let _ = write!(html, "</p>{}{TOOLS}", map::map(layout, options));
    let _ = write!(html, "<h2>Memory over time</h2>{}", charts::consumption(trace));
    let (times, sizes) = (charts::idle_times(trace), charts::sizes(trace, links));
    let _ = write!(html, "<h2>Idle periods</h2><div class=\"pair\"><div>{times}</div><div>{sizes}</div></div>");
    let alive = layout.live(peak.from);
    let _ = write!(
        html,
        "<h2>Alive at the peak</h2><table><tr><th>buffer</th><th>kind</th><th>size</th><th>offset</th><th>steps</th></tr>"
    );
    for block in alive.iter().take(MAX_ROWS) {
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}–{}</td></tr>",
            escape(&block.name),
            block.kind.name(),
            block.size,
            block.offset.0,
            block.lower,
            block.upper.saturating_sub(1)
        );
    }
    html += "</table>";
    if alive.len() > MAX_ROWS {
        let rest: edgecut_graph::units::Bytes = alive[MAX_ROWS..].iter().map(|b| b.size).sum();
        let _ = write!(html, "<p>and {} more, {rest} together</p>", alive.len() - MAX_ROWS);
    }
    let _ = write!(html, "<script>{ZOOM}</script></body></html>");
    html + "\n"
}

/// A standalone figure: `svg` with its style embedded.
pub fn standalone(svg: &str) -> String {
    svg.replacen("</title>", &format!("</title>{STYLE}"), 1)
}
