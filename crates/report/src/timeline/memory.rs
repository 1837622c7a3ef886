//! A memory layout as a timeline: the operators, and live bytes and the arena's top over them.

use super::{CounterUnit, Detail, Span, Timeline, TrackContent, TrackGroup};
use crate::memory::layout::Layout;
use edgecut_graph::units::Micros;

/// The layout's operators one after the other.
pub fn timeline(layout: &Layout) -> Timeline {
    let mut now = Micros::ZERO;
    let mut loads = layout.loads.iter().peekable();
    let (mut spans, mut live, mut top) = (Vec::new(), Vec::new(), Vec::new());
    for (index, step) in (0u64..).zip(&layout.steps) {
        while let Some(load) = loads.next_if(|load| load.from <= index) {
            let blocks = layout.blocks.iter().filter(|b| b.lower <= load.from && load.from < b.upper);
            live.push((now, load.bytes.0 as f64));
            top.push((now, blocks.map(|b| (b.offset + b.size).0).max().unwrap_or(0) as f64));
        }
        let details = vec![("step", Detail::Number(index))];
        spans.push(Span { name: step.name.clone(), start: now, time: step.time, details });
        now += step.time;
    }
    let mut group = TrackGroup { name: layout.title.clone(), tracks: Vec::new() };
    group.push("operators", TrackContent::Spans(spans));
    let unit = CounterUnit::Bytes;
    group.push("live bytes", TrackContent::Counter { unit, points: live });
    group.push("top of the arena", TrackContent::Counter { unit, points: top });
    Timeline { groups: vec![group] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::layout::tests::layout;

    #[test]
    fn counters_change_where_steps_begin() {
        let timeline = timeline(&layout());
        let tracks = &timeline.groups[0].tracks;
        let points = |track: usize| match &tracks[track].content {
            TrackContent::Counter { points, .. } => points.iter().map(|(at, value)| (at.0, *value)).collect(),
            TrackContent::Spans(_) => vec![],
        };
        assert_eq!(points(1), [(0.0, 100.0), (1.0, 300.0), (3.0, 200.0)]);
        assert_eq!(points(2), [(0.0, 100.0), (1.0, 300.0), (3.0, 300.0)]);
        assert!(matches!(&tracks[0].content, TrackContent::Spans(spans) if spans.len() == 3));
    }
}
