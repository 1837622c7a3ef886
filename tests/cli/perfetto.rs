//! `run --trace FILE.pftrace`, read back field by field as `protos/perfetto/trace` of Perfetto numbers them.

use std::{collections::BTreeMap, fs};

use crate::common::process::{planned, run};

/// A field of a protobuf message.
#[derive(Debug, Clone, Copy)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message by number, each in order. Encoding: <https://protobuf.dev/programming-guides/encoding/>.
fn fields(mut message: &[u8]) -> BTreeMap<u64, Vec<Field<'_>>> {
    fn varint(message: &mut &[u8]) -> u64 {
        let length = message.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let (bytes, rest) = message.split_at(length);
        *message = rest;
        bytes.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f))
    }
    let mut found: BTreeMap<u64, Vec<Field<'_>>> = BTreeMap::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut message)),
            1 => {
                let (bytes, rest) = message.split_first_chunk().unwrap();
                message = rest;
                Field::Number(u64::from_le_bytes(*bytes))
            }
            2 => {
                let length = varint(&mut message) as usize;
                let (bytes, rest) = message.split_at(length);
                message = rest;
                Field::Bytes(bytes)
            }
            other => panic!("no field of a trace has wire type {other}"),
        };
        found.entry(tag >> 3).or_default().push(field);
    }
    found
}

fn number(fields: &BTreeMap<u64, Vec<Field<'_>>>, number: u64) -> Option<u64> {
    fields.get(&number).map(|found| if let Field::Number(value) = found[0] { value } else { panic!("{found:?}") })
}

fn bytes<'a>(fields: &BTreeMap<u64, Vec<Field<'a>>>, number: u64) -> Option<&'a [u8]> {
    fields.get(&number).map(|found| if let Field::Bytes(value) = found[0] { value } else { panic!("{found:?}") })
}

/// What a track has.
#[derive(Debug, Default)]
struct Track {
    name: String,
    parent: Option<u64>,
    /// Begin of the slice that is open, and all that have ended.
    open: Option<u64>,
    slices: Vec<String>,
    counts: Vec<f64>,
    last: u64,
}

/// The tracks of a trace by their identity.
fn tracks(trace: &[u8]) -> BTreeMap<u64, Track> {
    let mut tracks: BTreeMap<u64, Track> = BTreeMap::new();
    let trace = fields(trace);
    assert_eq!(trace.keys().copied().collect::<Vec<_>>(), [1], "a trace has packets alone");
    for packet in &trace[&1] {
        let Field::Bytes(packet) = packet else { panic!("{packet:?}") };
        let packet = fields(packet);
        assert!(number(&packet, 10).is_some_and(|sequence| sequence > 0), "packets have a sequence");
        if let Some(descriptor) = bytes(&packet, 60).map(fields) {
            let name = String::from_utf8(bytes(&descriptor, 2).unwrap().to_vec()).unwrap();
            let track = Track { name, parent: number(&descriptor, 5), ..Track::default() };
            let before = tracks.insert(number(&descriptor, 1).unwrap(), track);
            assert!(before.is_none(), "{before:?} is described twice");
            continue;
        }
        let (at, event) = (number(&packet, 8).unwrap_or(0), fields(bytes(&packet, 11).unwrap()));
        let track = tracks.get_mut(&number(&event, 11).unwrap()).expect("a track is described before its events");
        assert!(at >= track.last, "{track:?} goes back in time");
        track.last = at;
        let name = || String::from_utf8(bytes(&event, 23).unwrap().to_vec()).unwrap();
        match number(&event, 9) {
            Some(1) => {
                assert_eq!(track.open.replace(at), None, "slices of one track are one after the other");
                track.slices.push(name());
            }
            Some(2) => assert!(track.open.take().is_some_and(|begin| begin < at)),
            Some(3) => track.slices.push(name()),
            Some(4) => track.counts.push(f64::from_bits(number(&event, 44).unwrap())),
            other => panic!("an event of type {other:?}"),
        }
    }
    tracks
}

#[test]
fn a_trace_has_what_was_predicted_and_measured_of_each_device() {
    let folder = planned("lstm");
    let here = folder.path();
    let (code, _, said) = run(here, "run plan.json --repeat 2 --trace t.pftrace");
    assert_eq!(code, Some(0), "{said}");
    let tracks = tracks(&fs::read(here.join("t.pftrace")).unwrap());
    assert!(tracks.values().all(|track| track.open.is_none()), "{tracks:?}");
    let device = tracks.iter().find(|(_, track)| track.name == "local/cpu").map(|(id, _)| *id).unwrap();
    let of = |name: &str| {
        let mut found = tracks.values().filter(|track| track.name == name && track.parent == Some(device));
        found.next().unwrap_or_else(|| panic!("no track {name}: {tracks:?}"))
    };
    let (predicted, measured) = (&of("predicted").slices, &of("measured").slices);
    assert!(!predicted.is_empty());
    assert_eq!(predicted, measured, "the same groups in the same order");
    let memory = &of("predicted memory").counts;
    assert!(memory.iter().any(|bytes| *bytes > 0.0), "{memory:?}");
}
