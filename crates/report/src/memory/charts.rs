//! Memory over time and idle periods as SVG, after the figures of the G10 paper.

use std::fmt::Write;

use super::svg::{LETTER, Plot, byte_ticks, decades, step_ticks};
use crate::html::escape;
use edgecut_graph::units::Rate;
use edgecut_memory::liveness::Trace;

/// A link over which idle tensors could be offloaded.
#[derive(Debug, Clone, PartialEq)]
pub struct OffloadLink {
    pub name: String,
    pub rate: Rate,
}

/// Labels that fit on the axes of the smaller figures.
const LABELS_UP: usize = 12;
const LABELS_ACROSS: usize = 7;
/// Links whose rates differ by less than this factor are one line.
const SAME_RATE: f64 = 1.25;
/// Height of a line of the list of links.
const LINE: f64 = 14.0;

/// Limit on the decades by which an axis is extended for the lines of links.
const MAX_EXTRA_DECADES: f64 = 4.0;

/// Bytes by kernel: all live tensors, and those that kernels use (maximum over eight kernels).
pub(crate) fn consumption(trace: &Trace) -> String {
    let memory = trace.memory();
    let most = memory.iter().map(|m| m.total.0).max().unwrap_or(0) as f64;
    let plot = Plot::new(1100.0, 260.0, (0.0, memory.len().max(1) as f64), (0.0, most.max(1.0) * 1.05));
    let mut svg = plot.open("Memory over time", "kernel", &step_ticks(memory.len() as u64), &byte_ticks(most));
    let line = |values: &[u64]| {
        let mut path = String::new();
        for (index, value) in values.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", plot.px(index as f64 + 0.5), plot.py(*value as f64));
        }
        path
    };
    let total: Vec<u64> = memory.iter().map(|m| m.total.0).collect();
    let active: Vec<u64> = memory.iter().map(|m| m.active.0).collect();
    let rolling: Vec<u64> =
        (0..active.len()).map(|at| active[at.saturating_sub(7)..=at].iter().copied().max().unwrap_or(0)).collect();
    let _ = write!(svg, "<path class=\"all\" d=\"{}\"><title>live</title></path>", line(&total));
    let _ = write!(svg, "<path class=\"active\" d=\"{}\"><title>used by kernels</title></path>", line(&rolling));
    svg += &plot.legend(&[("all", "live, parameters included"), ("active", "used by kernels, maximum of eight")]);
    svg + "</svg>"
}

/// The distribution of idle periods: the share that is no longer than a time.
pub(crate) fn idle_times(trace: &Trace) -> String {
    let mut times: Vec<f64> = idle(trace).into_iter().map(|(_, time)| time.log10()).collect();
    times.sort_by(f64::total_cmp);
    let (low, high) = decade_range(&times);
    let plot = Plot::new(540.0, 300.0, (0.0, 100.0), (low, high));
    let shares = [0.0, 25.0, 50.0, 75.0, 100.0].map(|x| (x, format!("{x} %")));
    let mut svg = plot.open("Idle periods", "share of idle periods", &shares, &decades(low, high, LABELS_UP, duration));
    let mut path = String::new();
    for (index, time) in times.iter().enumerate() {
        let share = 100.0 * index as f64 / (times.len() - 1).max(1) as f64;
        let _ = write!(path, "{}{:.1} {:.1}", if index == 0 { 'M' } else { 'L' }, plot.px(share), plot.py(*time));
    }
    let _ = write!(svg, "<path class=\"active\" d=\"{path}\"/>");
    if times.is_empty() {
        svg += &plot.note("no tensor is idle between two uses");
    }
    svg + "</svg>"
}

/// Size over idle time, both logarithmic. Tensors to the right of a link's line can be offloaded over it without delay.
pub(crate) fn sizes(trace: &Trace, links: &[OffloadLink]) -> String {
    let idle = idle(trace);
    let logs: Vec<(f64, f64)> = idle.iter().map(|(bytes, time)| (time.log10(), bytes.log10())).collect();
    let (first, last) = decade_range(&logs.iter().map(|p| p.0).collect::<Vec<_>>());
    let (low, high) = decade_range(&logs.iter().map(|p| p.1).collect::<Vec<_>>());
    // Extend the axis to show the lines of links, within limits.
    let (mut left, mut right) = (first, last);
    for shift in links.iter().map(|link| (link.rate.0 / 2.0).log10()) {
        left = left.min((low - shift).floor().max(first - MAX_EXTRA_DECADES));
        right = right.max((high - shift).ceil().min(last + MAX_EXTRA_DECADES));
    }
    let links = by_rate(links);
    let mut plot = Plot::new(540.0, 300.0, (left, right), (low, high));
    // Names are listed below the axis: at the lines they would overprint one another.
    let list = LINE * links.len() as f64;
    (plot.height, plot.below) = (plot.height + list, plot.below + list);
    let (times, bytes) = (decades(left, right, LABELS_ACROSS, duration), decades(low, high, LABELS_UP, decimal));
    let mut svg = plot.open("Size and idle time", "idle time", &times, &bytes);
    for (number, (name, rate)) in links.iter().enumerate() {
        // Twice the size: out and back.
        let at = |time: f64| (10f64.powf(time) * rate.0 / 2.0).log10();
        let from = left.max(low - at(0.0));
        let until = right.min(high - at(0.0));
        let letter = char::from(b'A' + (number % 26) as u8);
        if from < until {
            let _ = write!(
                svg,
                "<line class=\"link\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"><title>{}</title></line>",
                plot.px(from),
                plot.py(at(from)),
                plot.px(until),
                plot.py(at(until)),
                escape(name)
            );
            // Lines are parallel and may be close: each has its letter at another height.
            let middle = from + (until - from) * (0.92 - 0.12 * (number % 7) as f64);
            let (x, y) = (plot.px(middle) - LETTER - 4.0, plot.py(at(middle)));
            let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\">{letter}</text>");
            let below = plot.height - plot.below + 33.0 + LINE * number as f64;
            let _ = write!(svg, "<text x=\"{:.1}\" y=\"{below:.1}\">{letter}: {}</text>", plot.left, escape(name));
        }
    }
    if logs.is_empty() {
        svg += &plot.note("no tensor is idle between two uses");
    }
    for (time, size) in logs {
        let _ =
            write!(svg, "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\"/>", plot.px(time), plot.py(size));
    }
    svg + "</svg>"
}

/// Links with about the same rate as one, slowest first.
fn by_rate(links: &[OffloadLink]) -> Vec<(String, Rate)> {
    let mut sorted: Vec<&OffloadLink> = links.iter().collect();
    sorted.sort_by(|a, b| a.rate.0.total_cmp(&b.rate.0));
    let mut groups: Vec<Vec<&OffloadLink>> = Vec::new();
    for link in sorted {
        match groups.last_mut().filter(|group| link.rate.0 < group[0].rate.0 * SAME_RATE) {
            Some(group) => group.push(link),
            None => groups.push(vec![link]),
        }
    }
    let name = |group: &Vec<&OffloadLink>| {
        let names: Vec<&str> = group.iter().map(|link| link.name.as_str()).collect();
        (format!("{} ({})", names.join(", "), group[group.len() / 2].rate), group[group.len() / 2].rate)
    };
    groups.iter().map(name).collect()
}

/// Size and time of every idle period; those of zero are omitted, as axes are logarithmic.
fn idle(trace: &Trace) -> Vec<(f64, f64)> {
    let lives = trace.liveness();
    let all = trace.tensors.iter().zip(&lives);
    let periods = all.flat_map(|(tensor, life)| life.idle.iter().map(|p| (tensor.bytes.0 as f64, p.time.0)));
    periods.filter(|(bytes, time)| *bytes > 0.0 && *time > 0.0).collect()
}

/// The whole decades that enclose `logs`.
fn decade_range(logs: &[f64]) -> (f64, f64) {
    let low = logs.iter().copied().fold(f64::INFINITY, f64::min);
    let high = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if low.is_finite() && high.is_finite() { (low.floor(), high.ceil().max(low.floor() + 1.0)) } else { (0.0, 1.0) }
}

/// A power of ten in units of time.
fn duration(time: f64) -> String {
    unit(time, &[(1e6, "s"), (1e3, "ms"), (1.0, "us"), (1e-3, "ns")])
}

/// A power of ten in decimal units of bytes.
fn decimal(bytes: f64) -> String {
    unit(bytes, &[(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")])
}

/// In the largest unit that is not above the value.
fn unit(value: f64, units: &[(f64, &str)]) -> String {
    let fits = |&&(unit, _): &&(f64, &str)| value >= unit * 0.999_999;
    let (unit, name) = units.iter().find(fits).or(units.last()).copied().unwrap_or((1.0, ""));
    format!("{} {name}", (value / unit * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::units::{Bytes, Micros};
    use edgecut_memory::liveness::{Kernel, TensorUse, TracedTensor};

    /// A weight of 1 MB, idle for a second.
    fn trace() -> Trace {
        let weight =
            TracedTensor { name: "w".into(), bytes: Bytes(1_000_000), global: true, ..TracedTensor::default() };
        let kernel = |inputs: &[usize], time| Kernel {
            inputs: inputs.iter().map(|&tensor| TensorUse { tensor, ..TensorUse::default() }).collect(),
            time: Micros(time),
            ..Kernel::default()
        };
        Trace { tensors: vec![weight], kernels: vec![kernel(&[0], 1.0), kernel(&[], 1e6)] }
    }

    #[test]
    fn links_are_lines_with_their_names() {
        let links = [OffloadLink { name: "a → b".into(), rate: Rate(100.0) }];
        let figure = sizes(&trace(), &links);
        assert_eq!((figure.matches("class=\"link\"").count(), figure.matches("a → b").count()), (1, 2));
        let link = |name: &str, rate| OffloadLink { name: name.into(), rate: Rate(rate) };
        let merged = by_rate(&[link("c", 300.0), link("b", 110.0), link("a", 100.0)]);
        assert_eq!(merged.iter().map(|(_, rate)| rate.0).collect::<Vec<_>>(), [110.0, 300.0]);
        assert!(merged[0].0.starts_with("a, b ("), "{merged:?}");
        assert_eq!(figure.matches("<circle").count(), 1);
        // A line too far to the right is omitted.
        assert!(!sizes(&trace(), &[OffloadLink { name: "far".into(), rate: Rate(1e-9) }]).contains("far"));
    }

    #[test]
    fn powers_of_ten_have_units() {
        assert_eq!([1e-3, 1.0, 100.0, 1e4, 1e6].map(duration), ["1 ns", "1 us", "100 us", "10 ms", "1 s"]);
        assert_eq!(decimal(1e5), "100 kB");
        assert!(idle_times(&Trace::default()).contains("no tensor is idle"));
    }
}
