//! The arena as SVG: steps to the right, addresses upwards, one rectangle per buffer. On a page, `zoom.js` pans and zooms
//! the area inside the axes.

use std::fmt::Write;

use super::{
    layout::{Block, Layout},
    svg::{LETTER, Plot, SHADES, byte_ticks, step_ticks},
};
use crate::html::escape;
use edgecut_graph::units::{Bytes, Micros};

/// Below this width of a step, blocks have no border and the load curve is thin.
const FINE_STEP_WIDTH: f64 = 3.0;

/// Options of the map.
#[derive(Debug, Clone, Copy, Default)]
pub struct MapOptions {
    /// Label every block, even where the name does not fit.
    pub display_names: bool,
}

/// The map, without a style.
pub fn map(layout: &Layout, options: MapOptions) -> String {
    let end = layout.end();
    let top = layout.height.max(layout.capacity.unwrap_or_default()).0 as f64;
    let plot = Plot::new(1100.0, 480.0, (0.0, end as f64), (0.0, top.max(1.0) * 1.04));
    let mut svg = plot.open(&layout.title, "step", &step_ticks(end), &byte_ticks(top));
    let fine = if plot.px(1.0) - plot.px(0.0) < FINE_STEP_WIDTH { " fine" } else { "" };
    let all = if options.display_names { " data-all=\"\"" } else { "" };
    svg += &plot.open_inner(&format!(" data-steps=\"{end}\" data-bytes=\"{}\"{all}", plot.y.1));
    for (index, block) in layout.blocks.iter().enumerate() {
        let colour = block.class.map_or(String::new(), |class| format!(" made{class} shade{}", index % SHADES));
        rectangle(&mut svg, &plot, layout, block, &format!("block{fine} {}{colour}", block.kind.name()));
    }
    let capacity = layout.capacity.map(|capacity| ("capacity", capacity));
    let lines: Vec<(&str, Bytes)> = [("peak", layout.height)].into_iter().chain(capacity).collect();
    let (left, right) = (plot.px(0.0), plot.px(end as f64));
    for (class, bytes) in &lines {
        let y = plot.py(bytes.0 as f64);
        let _ = write!(svg, "<path class=\"{class}\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>");
    }
    let curve = curve(layout, &plot);
    let _ = write!(svg, "<path class=\"load{fine}\" d=\"{curve}\"><title>sum of live bytes</title></path>");
    let peak = layout.peak();
    let (x, y) = (plot.px(peak.from as f64 + 0.5), plot.py(peak.bytes.0 as f64));
    let (bytes, from) = (peak.bytes, peak.from);
    let _ = write!(
        svg,
        "<path class=\"mark\" d=\"M{x:.1} {y:.1}h.01\"><title>peak load {bytes} at step {from}</title></path></svg>"
    );
    for (class, bytes) in &lines {
        let (word, y) = (if *class == "peak" { "arena" } else { class }, plot.py(bytes.0 as f64) - 3.0);
        let _ = write!(svg, "<text class=\"tag\" data-at=\"{}\" x=\"{right:.1}\" y=\"{y:.1}\"", bytes.0);
        let _ = write!(svg, " text-anchor=\"end\">{word} {bytes}</text>");
    }
    svg += "<g class=\"names\">";
    layout.blocks.iter().for_each(|block| label(&mut svg, &plot, block, options));
    let capacity = capacity.map(|_| ("capacity", "capacity"));
    let legend: Vec<_> = [("load", "sum of live bytes"), ("peak", "arena")].into_iter().chain(capacity).collect();
    svg + "</g>" + &plot.legend(&legend) + "</svg>"
}

/// Left, top, width and height of a block.
fn area(plot: &Plot, block: &Block) -> (f64, f64, f64, f64) {
    let (x0, x1) = (plot.px(block.lower as f64), plot.px(block.upper as f64));
    let (low, high) = (block.offset.0 as f64, (block.offset + block.size).0 as f64);
    let (y0, y1) = (plot.py(high), plot.py(low));
    (x0, y0, x1 - x0, y1 - y0)
}

fn rectangle(svg: &mut String, plot: &Plot, layout: &Layout, block: &Block, classes: &str) {
    let (x0, y0, width, height) = area(plot, block);
    let _ = write!(
        svg,
        "<rect class=\"{classes}\" x=\"{x0:.2}\" y=\"{y0:.2}\" width=\"{width:.2}\" height=\"{height:.2}\"><title>{}</title></rect>",
        escape(&tooltip(layout, block))
    );
}

/// The block's name, where it fits.
fn label(svg: &mut String, plot: &Plot, block: &Block, options: MapOptions) {
    let (x0, y0, width, height) = area(plot, block);
    let fits = height >= 11.0 && width >= LETTER * block.name.chars().count() as f64;
    if fits || options.display_names {
        let (x, y) = (x0 + 3.0, y0 + (height + 8.0) / 2.0);
        let _ = write!(svg, "<text class=\"name\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(&block.name));
    }
}

fn tooltip(layout: &Layout, block: &Block) -> String {
    let step = |at: u64| layout.steps.get(at as usize).map_or("end".to_string(), |s| s.name.clone());
    let time = |until: u64| layout.steps.iter().take(until as usize).map(|s| s.time).sum::<Micros>();
    format!(
        "{} ({})\n{} at {}\nfrom step {} {} ({})\nto step {} {} ({})\n{}",
        block.name,
        block.kind.name(),
        block.size,
        block.offset,
        block.lower,
        step(block.lower),
        time(block.lower),
        block.upper.saturating_sub(1),
        step(block.upper.saturating_sub(1)),
        time(block.upper),
        block.detail
    )
}

/// The load as a step curve.
fn curve(layout: &Layout, plot: &Plot) -> String {
    let mut path = format!("M{:.1} {:.1}", plot.px(0.0), plot.py(0.0));
    for load in &layout.loads {
        let _ = write!(path, "H{:.1}V{:.1}", plot.px(load.from as f64), plot.py(load.bytes.0 as f64));
    }
    path
}
