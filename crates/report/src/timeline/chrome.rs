//! The trace event format, JSON that Perfetto and `chrome://tracing` show. Times are microseconds.
//!
//! Format: "Trace Event Format", Google, <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>.

use serde_json::{Map, Value, json};

use super::{Detail, Timeline, TrackContent};

/// The timeline as JSON.
pub fn json(timeline: &Timeline) -> String {
    let mut events = Vec::new();
    for (pid, group) in timeline.groups.iter().enumerate() {
        events.push(json!({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": group.name}}));
        for (tid, track) in group.tracks.iter().enumerate() {
            match &track.content {
                TrackContent::Spans(spans) => {
                    let args = json!({"name": track.name});
                    events.push(json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": args}));
                    events.extend(spans.iter().map(|span| {
                        let details = span.details.iter().map(|(name, detail)| ((*name).to_string(), value(detail)));
                        let args = Map::from_iter(details);
                        json!({"ph": "X", "name": span.name, "cat": track.name, "pid": pid, "tid": tid, "ts": span.start.0,
                               "dur": span.time.0, "args": args})
                    }));
                }
                TrackContent::Counter { points, .. } => events.extend(points.iter().map(|(at, value)| {
                    let args = json!({"value": value});
                    json!({"ph": "C", "name": track.name, "pid": pid, "tid": tid, "ts": at.0, "args": args})
                })),
            }
        }
    }
    json!({"traceEvents": events, "displayTimeUnit": "ms"}).to_string() + "\n"
}

fn value(detail: &Detail) -> Value {
    match detail {
        Detail::Number(number) => json!(number),
        Detail::Text(text) => json!(text),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::perfetto::tests::timeline, *};

    #[test]
    fn spans_have_durations_and_counters_values() {
        let trace: Value = serde_json::from_str(&json(&timeline())).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
        assert_eq!((of("M").len(), of("X").len(), of("C").len()), (2, 3, 2));
        assert_eq!((&of("X")[2]["ts"], &of("X")[2]["dur"]), (&json!(1.5), &json!(2.0)));
        assert_eq!((&of("X")[0]["args"]["group"], &of("C")[1]["args"]["value"]), (&json!(7), &json!(5.0)));
    }
}
