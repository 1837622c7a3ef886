//! Perfetto's TrackEvent, a trace as protobuf: ui.perfetto.dev and `trace_processor` read it.
//!
//! The messages are those of perfetto/protos/perfetto/trace (Apache-2.0), with the fields that are used. Times are nanoseconds.

use prost::Message;

use super::{CounterUnit, Detail, Timeline, TrackContent};
use edgecut_graph::units::Micros;

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(enumeration = "EventType", tag = "9")]
    r#type: i32,
    #[prost(uint64, tag = "11")]
    track_uuid: u64,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(double, optional, tag = "44")]
    double_counter_value: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum EventType {
    Unspecified = 0,
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(string, tag = "10")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    uuid: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(string, tag = "6")]
    process_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct CounterDescriptor {
    /// `UNIT_SIZE_BYTES` is 3.
    #[prost(int32, tag = "3")]
    unit: i32,
    #[prost(string, tag = "6")]
    unit_name: String,
}

/// All packets are of one writer.
const SEQUENCE: u32 = 1;

/// The timeline as a trace.
pub fn bytes(timeline: &Timeline) -> Vec<u8> {
    let mut packets = Vec::new();
    let mut uuid = 0;
    for (pid, group) in (1..).zip(&timeline.groups) {
        uuid += 1;
        let parent = uuid;
        let process = ProcessDescriptor { pid, process_name: group.name.clone() };
        packets.push(descriptor(TrackDescriptor {
            uuid,
            name: group.name.clone(),
            process: Some(process),
            ..TrackDescriptor::default()
        }));
        for track in &group.tracks {
            uuid += 1;
            let counter = match track.content {
                TrackContent::Spans(_) => None,
                TrackContent::Counter { unit, .. } => Some(unit_of(unit)),
            };
            let (name, parent_uuid) = (track.name.clone(), Some(parent));
            packets.push(descriptor(TrackDescriptor { uuid, name, parent_uuid, counter, process: None }));
            packets.extend(events(uuid, &track.name, &track.content));
        }
    }
    Trace { packet: packets }.encode_to_vec()
}

fn descriptor(track: TrackDescriptor) -> TracePacket {
    TracePacket { track_descriptor: Some(track), trusted_packet_sequence_id: SEQUENCE, ..TracePacket::default() }
}

fn unit_of(unit: CounterUnit) -> CounterDescriptor {
    match unit {
        CounterUnit::Bytes => CounterDescriptor { unit: 3, unit_name: String::new() },
        CounterUnit::BytesPerSecond => CounterDescriptor { unit: 0, unit_name: "B/s".to_string() },
    }
}

/// The events of one track in the order of time; of one instant, ends come before beginnings.
fn events(track_uuid: u64, category: &str, content: &TrackContent) -> Vec<TracePacket> {
    let event = |kind: EventType| TrackEvent { r#type: kind as i32, track_uuid, ..TrackEvent::default() };
    let mut timed: Vec<(u64, TrackEvent)> = Vec::new();
    match content {
        TrackContent::Spans(spans) => {
            for span in spans {
                let details = span.details.iter().map(|(name, detail)| annotation(name, detail));
                let begin = TrackEvent {
                    name: Some(span.name.clone()),
                    categories: vec![category.to_string()],
                    debug_annotations: details.collect(),
                    ..event(EventType::SliceBegin)
                };
                let (from, to) = (nanoseconds(span.start), nanoseconds(span.start + span.time));
                if from == to {
                    // A slice that ends where it begins would end before it, as what precedes it does.
                    timed.push((from, TrackEvent { r#type: EventType::Instant as i32, ..begin }));
                    continue;
                }
                timed.push((from, begin));
                timed.push((to, event(EventType::SliceEnd)));
            }
        }
        TrackContent::Counter { points, .. } => timed.extend(points.iter().map(|(at, value)| {
            (nanoseconds(*at), TrackEvent { double_counter_value: Some(*value), ..event(EventType::Counter) })
        })),
    }
    timed.sort_by_key(|(at, event)| (*at, event.r#type != EventType::SliceEnd as i32));
    let packet = |(at, event)| TracePacket {
        timestamp: Some(at),
        track_event: Some(event),
        trusted_packet_sequence_id: SEQUENCE,
        ..TracePacket::default()
    };
    timed.into_iter().map(packet).collect()
}

fn annotation(name: &str, detail: &Detail) -> DebugAnnotation {
    let name = name.to_string();
    match detail {
        Detail::Number(number) => DebugAnnotation { name, uint_value: Some(*number), string_value: None },
        Detail::Text(text) => DebugAnnotation { name, uint_value: None, string_value: Some(text.clone()) },
    }
}

/// Of an instant after the beginning.
fn nanoseconds(at: Micros) -> u64 {
    (at.0.max(0.0) * 1e3).round() as u64
}

#[cfg(test)]
pub(super) mod tests {
    use super::{
        super::{Span, TrackGroup},
        *,
    };

    /// Two spans that touch, and a counter.
    pub fn timeline() -> Timeline {
        let span = |name: &str, start: f64, time: f64| Span {
            name: name.to_string(),
            start: Micros(start),
            time: Micros(time),
            details: vec![("group", Detail::Number(7)), ("part", Detail::Text("1of2".into()))],
        };
        let mut group = TrackGroup { name: "one/cpu".into(), tracks: vec![] };
        group
            .push("measured", TrackContent::Spans(vec![span("a", 0.5, 1.0), span("z", 1.5, 0.0), span("b", 1.5, 2.0)]));
        let points = vec![(Micros(0.0), 9.0), (Micros(2.0), 5.0)];
        group.push("memory", TrackContent::Counter { unit: CounterUnit::Bytes, points });
        group.push("nothing", TrackContent::Spans(vec![]));
        Timeline { groups: vec![group] }
    }

    #[test]
    fn slices_that_touch_end_before_the_next_begins() {
        let trace = Trace::decode(&bytes(&timeline())[..]).unwrap();
        let tracks: Vec<_> = trace.packet.iter().filter_map(|packet| packet.track_descriptor.clone()).collect();
        let found: Vec<_> = tracks.iter().map(|track| (track.uuid, track.parent_uuid, track.name.as_str())).collect();
        assert_eq!(found, [(1, None, "one/cpu"), (2, Some(1), "measured"), (3, Some(1), "memory")]);
        assert_eq!(tracks[2].counter.as_ref().unwrap().unit, 3);
        let events: Vec<_> = trace
            .packet
            .iter()
            .filter_map(|packet| Some((packet.timestamp?, packet.track_event.clone()?)))
            .map(|(at, event)| (at, event.track_uuid, event.r#type(), event.name.unwrap_or_default()))
            .collect();
        let slice = |at, kind, name: &str| (at, 2, kind, name.to_string());
        assert_eq!(
            events[..5],
            [
                slice(500, EventType::SliceBegin, "a"),
                slice(1500, EventType::SliceEnd, ""),
                slice(1500, EventType::Instant, "z"),
                slice(1500, EventType::SliceBegin, "b"),
                slice(3500, EventType::SliceEnd, ""),
            ]
        );
        assert_eq!(events[6], (2000, 3, EventType::Counter, String::new()));
    }
}
