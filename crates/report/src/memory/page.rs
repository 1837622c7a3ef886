//! One self-contained HTML page with all memory figures.

use std::fmt::Write;

use super::{
    charts::{self, OffloadLink},
    layout::{BlockKind, Layout},
    map::{self, MapOptions},
    svg::{STYLE, classes},
};
use crate::{
    class::CLASSES,
    html::{Document, PALETTE, escape},
};
use edgecut_memory::liveness::Trace;

/// Limit on the rows of the table at the peak.
const MAX_ROWS: usize = 40;

/// Colours and sizes that figures on the page have in place of their own.
const PAGE_STYLE: &str = "
body{font:14px/1.5 system-ui,sans-serif;color:var(--text);background:var(--back);max-width:1140px;margin:24px auto;padding:0 16px}
.figure{overflow-x:auto}.figure>svg{width:100%;min-width:1000px;height:auto}.pair .figure>svg{min-width:500px}
svg text{fill:var(--text)}svg .name{fill:#000;pointer-events:none}.load{stroke:var(--text)}.grid{stroke:var(--grid)}
.peak{stroke:var(--bad)}.capacity{stroke:var(--accent)}.all{stroke:var(--c4)}.active{stroke:var(--c2)}.dot{fill:var(--c0)}
.link{stroke:var(--faint)}.output,.in-place{stroke:var(--mark)}
.inner *{vector-effect:non-scaling-stroke}.near .fine.block{stroke:#fff8}.near .fine.load{stroke-opacity:1}.tools{color:var(--faint)}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:16px}
.scroll{overflow-x:auto}table{border-collapse:collapse}td,th{padding:2px 12px 2px 0;text-align:left}
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.key{display:flex;flex-wrap:wrap;gap:2px 16px}.key i{display:inline-block;width:12px;height:12px;margin-right:5px;vertical-align:-1px}
.key .input{background:#b9c4d0}.key .workspace{background:#f0e442}.key .output{border:2px solid var(--mark)}
.key .in-place{border:1px dashed var(--mark)}rect.block:hover{opacity:.7}
button{font:inherit;color:inherit;background:var(--panel);border:1px solid var(--line);border-radius:5px;padding:2px 10px}
@media print{.tools{display:none}.figure{overflow:visible}}
";

const ZOOM: &str = include_str!("zoom.js");
/// Controls, hidden until the script runs.
const TOOLS: &str = "<p class=\"tools\" hidden><button type=\"button\">Whole arena</button> Wheel zooms, over an axis that \
axis alone; dragging moves. Keys, with the map in focus: + and −, arrows to move, Shift and arrows to zoom one axis, 0 for \
the whole.</p>";

/// The page as HTML.
pub fn page(layout: &Layout, trace: &Trace, links: &[OffloadLink], options: MapOptions) -> String {
    let peak = layout.peak();
    let title = escape(&layout.title);
    let mut html = format!("<h1>{title}</h1>");
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
    let figure = |svg: String| format!("<div class=\"figure\">{svg}</div>");
    let _ = write!(html, "<h2>Arena</h2>{}{}{TOOLS}", key(layout), figure(map::map(layout, options)));
    let _ = write!(html, "<h2>Memory over time</h2>{}", figure(charts::consumption(trace)));
    let (times, sizes) = (figure(charts::idle_times(trace)), figure(charts::sizes(trace, links)));
    let _ = write!(html, "<h2>Idle periods</h2><div class=\"pair\">{times}{sizes}</div>");
    let alive = layout.live(peak.from);
    let _ = write!(
        html,
        "<h2>Alive at the peak</h2><div class=\"scroll\"><table><tr><th>buffer</th><th>kind</th><th>size</th><th>offset</th><th>steps</th></tr>"
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
    html += "</table></div>";
    if alive.len() > MAX_ROWS {
        let rest: edgecut_graph::units::Bytes = alive[MAX_ROWS..].iter().map(|b| b.size).sum();
        let _ = write!(html, "<p>and {} more, {rest} together</p>", alive.len() - MAX_ROWS);
    }
    let style = format!("{STYLE}{}{PAGE_STYLE}", classes(|class| format!("var(--c{class})")));
    Document { title: &format!("{}: memory", layout.title), style: &style, body: &html, script: ZOOM }.html()
}

/// What colours and borders of blocks mean.
fn key(layout: &Layout) -> String {
    let mut key = "<p class=\"key\">".to_string();
    for (class, name) in CLASSES.iter().enumerate() {
        if layout.blocks.iter().any(|block| block.class == Some(class)) {
            let _ = write!(key, "<span><i class=\"made{class}\"></i>made by {name}</span>");
        }
    }
    let plain =
        |kind: &BlockKind| *kind != BlockKind::Activation && layout.blocks.iter().any(|block| block.kind == *kind);
    for kind in BlockKind::ALL.into_iter().filter(plain) {
        let _ = write!(key, "<span><i class=\"{0}\"></i>{0}</span>", kind.name());
    }
    key + "</p>"
}

/// A standalone figure: `svg` with its style embedded.
pub(crate) fn standalone(svg: &str) -> String {
    let colours = classes(|class| PALETTE[class % PALETTE.len()].to_string());
    svg.replacen("</title>", &format!("</title><style>{STYLE}{colours}</style>"), 1)
}
