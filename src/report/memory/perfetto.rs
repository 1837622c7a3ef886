//! Memory as counters of a Chrome trace, which Perfetto opens: live bytes and arena bytes over the operators.

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
