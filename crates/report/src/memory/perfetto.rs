//! Memory counters as a Chrome trace for Perfetto: live bytes and the arena's top over the operators.

use serde_json::{Value, json};

use super::layout::Layout;

/// The trace as JSON.
pub fn trace(layout: &Layout) -> String {
    let mut events: Vec<Value> = vec![
        json!({"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": layout.title}}),
        json!({"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "operators"}}),
    ];
    let mut now = 0.0;
    let mut loads = layout.loads.iter().peekable();
    for (index, step) in (0u64..).zip(&layout.steps) {
        while let Some(load) = loads.next_if(|load| load.from <= index) {
            let top = layout.blocks.iter().filter(|b| b.lower <= load.from && load.from < b.upper);
            let top = top.map(|b| (b.offset + b.size).0).max().unwrap_or(0);
            let args = json!({"live_bytes": load.bytes.0, "arena_top": top});
            events.push(json!({"ph": "C", "name": "memory", "pid": 1, "tid": 1, "ts": now, "args": args}));
        }
        let (name, time) = (&step.name, step.time.0);
        let args = json!({"step": index});
        events.push(json!({"ph": "X", "name": name, "cat": "operator", "pid": 1, "tid": 1, "ts": now, "dur": time, "args": args}));
        now += time;
    }
    json!({"traceEvents": events, "displayTimeUnit": "ns"}).to_string()
}

#[cfg(test)]
mod tests {
    use super::{super::layout::tests::layout, *};

    #[test]
    fn counters_change_where_steps_begin() {
        let trace: Value = serde_json::from_str(&trace(&layout())).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let counters = events.iter().filter(|event| event["ph"] == "C");
        let figures =
            counters.map(|c| [&c["ts"], &c["args"]["live_bytes"], &c["args"]["arena_top"]].map(Value::to_string));
        let want = [["0.0", "100", "100"], ["1.0", "300", "300"], ["3.0", "200", "300"]];
        assert_eq!(figures.collect::<Vec<_>>(), want.map(|row| row.map(String::from)));
        assert_eq!(events.iter().filter(|event| event["ph"] == "X").count(), 3);
    }
}
