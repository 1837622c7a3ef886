//! Scripts of events and their effects, memory over a run, and random interleavings against a data-flow reference.

use proptest::prelude::*;

use super::*;
use crate::protocol::{
    peer::Peer,
    setup::{EnforcedLimit, Outgoing, Partition, Stage, Terminal, Value},
};
use edgecut_graph::{DType, Graph, TensorType};
use edgecut_plan::TransferFormat;

pub(super) fn partition(device: &str, stages: &[(&[u32], &[u32])]) -> Partition {
    let ids = |ids: &[u32]| ids.iter().copied().map(ValueId).collect();
    let stage = |(operands, results): &(&[u32], &[u32])| Stage {
        name: String::new(),
        graph: Graph::new(),
        steps: vec![],
        operands: ids(operands),
        results: ids(results),
    };
    Partition {
        device: device.into(),
        memory: None,
        enforced: EnforcedLimit::default(),
        threads: None,
        engine: None,
        activations: Bytes::ZERO,
        stages: stages.iter().map(stage).collect(),
    }
}

/// A server whose values have `sizes`; those in `sends` go to one peer.
pub(super) fn setup(sizes: &[u64], partitions: Vec<Partition>, sends: &[u32]) -> Setup {
    let value = |(index, size): (usize, &u64)| Value {
        name: index.to_string().into(),
        ty: TensorType::of(DType::U8, &[*size]),
        phase: Phase::default(),
    };
    let peer = Peer { server: "peer".into(), address: "peer:1".to_string(), tls_name: None };
    Setup {
        session: "session".to_string(),
        server: "server".into(),
        peers: vec![peer],
        senders: vec![],
        values: sizes.iter().enumerate().map(value).collect(),
        partitions,
        sends: sends
            .iter()
            .map(|value| Outgoing { value: ValueId(*value), peer: 0, format: TransferFormat::Exact })
            .collect(),
        source: None,
        sink: None,
        states: vec![],
        in_flight: 1,
        wait: None,
        is_shared: false,
        streamed: vec![],
        reported: Default::default(),
    }
}

pub(super) fn terminal(values: &[u32], partition: Option<u32>) -> Option<Terminal> {
    Some(Terminal { values: values.iter().copied().map(ValueId).collect(), partition })
}

pub(super) fn tensor(bytes: Vec<u8>) -> TensorData {
    TensorData::new(DType::U8, [bytes.len() as u64], bytes).unwrap()
}

/// A run state with what the outside holds: the stage that each partition runs, and the time, one microsecond an event.
pub(super) struct Harness {
    pub state: RunState,
    running: Vec<Option<StageTask>>,
    now: f64,
}

impl Harness {
    pub fn new(setup: &Arc<Setup>) -> Harness {
        let running = setup.partitions.iter().map(|_| None).collect();
        Harness { state: RunState::new(setup), running, now: 0.0 }
    }

    fn zeros(&self, value: ValueId) -> TensorData {
        tensor(vec![0; self.state.setup.values[value.0 as usize].bytes().0 as usize])
    }

    /// Applies an event written as `name inference-or-partition [value-or-send]`, and renders its effects.
    pub fn apply(&mut self, event: &str) -> String {
        self.now += 1.0;
        let now = Micros(self.now);
        let words: Vec<&str> = event.split_whitespace().collect();
        let number = |index: usize| words[index].parse::<u64>().unwrap();
        let effects = match words[0] {
            "start" => {
                let values = self.state.setup.source.iter().flat_map(|source| &source.values);
                let inputs: Vec<TensorData> = values.map(|value| self.zeros(*value)).collect();
                let continues = words.len() > 2;
                self.state.start(Start { continues, ..beginning(number(1)) }, &inputs, now)
            }
            "begin" => {
                let begun = self.state.begin_receive(number(1), ValueId(number(2) as u32), now);
                begun.map(|()| Effects::default())
            }
            "receive" => {
                let value = ValueId(number(2) as u32);
                let data = self.zeros(value);
                self.state.finish_receive(number(1), value, data, now)
            }
            "receive-short" => self.state.finish_receive(number(1), ValueId(number(2) as u32), tensor(vec![]), now),
            "next" => {
                let partition = number(1) as usize;
                let Some(task) = self.state.next_stage(partition) else { return "idle".to_string() };
                let ScheduledStage { inference, index, ready } = task.stage;
                self.running[partition] = Some(task);
                return format!("run {inference}.{index} ready {}", ready.0);
            }
            "finish" => {
                let partition = number(1) as usize;
                let stage = self.running[partition].take().unwrap().stage;
                let results = &self.state.setup.partitions[partition].stages[stage.index].results;
                let results = results.iter().map(|value| self.zeros(*value)).collect();
                let run = StageRun { results, start: now, end: now, ..StageRun::default() };
                self.state.finish_stage(partition, stage, run)
            }
            "sent" => Ok(self.sent(number(1), number(2) as usize)),
            other => panic!("unknown event {other}"),
        };
        match effects {
            Ok(effects) => render(&effects),
            Err(error) => format!("{error:?}"),
        }
    }

    fn sent(&mut self, inference: u64, send: usize) -> Effects {
        let (value, now) = (self.state.setup.sends[send].value, Micros(self.now));
        let time = TransferTime { value, to: "peer".into(), ready: now, start: now, end: now, bytes: Bytes::ZERO };
        self.state.finish_send(inference, send, time)
    }

    pub fn live(&self) -> Vec<u64> {
        self.state.memory.iter().map(|memory| memory.live.0).collect()
    }
}

pub(super) fn render(effects: &Effects) -> String {
    let sends = effects.sends.iter().map(|send| format!("send {}.{}", send.inference, send.send));
    let outputs = effects.outputs.iter().map(|(inference, _)| format!("outputs {inference}"));
    let finished = effects.finished.iter().map(|trace| format!("finished {}", trace.inference));
    let all: Vec<String> = sends.chain(outputs).chain(finished).collect();
    if all.is_empty() { "-".to_string() } else { all.join(", ") }
}

/// The start of an inference that begins a sequence, the first one of its setup.
pub(super) fn beginning(inference: u64) -> Start {
    Start { inference, phase: Phase::default(), sequence: 0, continues: false }
}

/// Source and sink on one server. Value 0 is the input, 1 comes from a peer; stage 0 computes 2 from 0, which is sent;
/// stage 1 computes the output, 3, from 0 and 1.
fn source_and_sink(in_flight: u32) -> Arc<Setup> {
    let stages = partition("cpu", &[(&[0], &[2]), (&[1, 0], &[3])]);
    let source = terminal(&[0], Some(0));
    let sink = terminal(&[3], Some(0));
    Arc::new(Setup { source, sink, in_flight, ..setup(&[4, 8, 2, 1], vec![stages], &[2]) })
}

/// A server in the middle: value 0 comes from a peer, stage 0 computes 1 from nothing, stage 1 sends 2 on.
fn middle(in_flight: u32) -> Arc<Setup> {
    let stages = partition("cpu", &[(&[], &[1]), (&[0, 1], &[2])]);
    Arc::new(Setup { in_flight, ..setup(&[4, 4, 4], vec![stages], &[2]) })
}

/// Runs scripts of `event -> effects` lines.
pub(super) fn check(setup: &Arc<Setup>, scripts: &[(&str, &str)]) {
    for (name, script) in scripts {
        let mut harness = Harness::new(setup);
        for (line, text) in script.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
            let (event, expected) = text.split_once(" -> ").unwrap();
            assert_eq!(harness.apply(event), expected, "{name}, line {}: {event}", line + 1);
        }
    }
}

#[test]
fn events_have_these_effects_on_the_source() {
    let complete = "
        start 0 -> -
        next 0 -> run 0.0 ready 1
        next 0 -> idle
        finish 0 -> send 0.0
        begin 0 1 -> -
        next 0 -> idle
        receive 0 1 -> -
        next 0 -> run 0.1 ready 7
        sent 0 0 -> -
        finish 0 -> outputs 0, finished 0
        next 0 -> idle";
    let scripts = [
        ("in order", complete),
        (
            "a value arrives before the start",
            "begin 0 1 -> -
             receive 0 1 -> -
             next 0 -> idle
             start 0 -> -
             next 0 -> run 0.0 ready 4
             finish 0 -> send 0.0
             next 0 -> run 0.1 ready 4
             finish 0 -> outputs 0
             sent 0 0 -> finished 0",
        ),
        (
            "a value that no peer sends",
            "start 0 -> -
             begin 0 2 -> UnexpectedValue(2)
             begin 0 9 -> UnexpectedValue(9)",
        ),
        (
            "a value twice, before and after its use",
            "begin 0 1 -> -
             begin 0 1 -> DuplicateValue(1)
             receive 0 1 -> -
             start 0 -> -
             next 0 -> run 0.0 ready 4
             finish 0 -> send 0.0
             next 0 -> run 0.1 ready 4
             begin 0 1 -> DuplicateValue(1)",
        ),
        (
            "an inference that starts twice",
            "start 0 -> -
             start 0 -> DuplicateValue(0)",
        ),
        (
            "too few bytes",
            "begin 0 1 -> -
             receive-short 0 1 -> SizeMismatch { value: 1, found: Bytes(0), expected: Bytes(8) }",
        ),
        (
            "beyond the inferences in flight",
            "start 1 -> NotInFlight { inference: 1, from: 0, to: 0 }
             begin 1 1 -> NotInFlight { inference: 1, from: 0, to: 0 }",
        ),
    ];
    check(&source_and_sink(1), &scripts);
    let second = "
        start 1 -> -
        begin 1 1 -> -
        receive 1 1 -> -
        next 0 -> run 1.0 ready 12
        finish 0 -> send 1.0
        sent 1 0 -> -
        next 0 -> run 1.1 ready 14
        finish 0 -> outputs 1, finished 1";
    let late = "
        start 0 -> NotInFlight { inference: 0, from: 1, to: 1 }
        begin 0 1 -> NotInFlight { inference: 0, from: 1, to: 1 }";
    let scripts = [
        ("one after the other", &format!("{complete}{second}")[..]),
        ("an inference that is finished", &format!("{complete}{late}")),
    ];
    check(&source_and_sink(1), &scripts);
}

#[test]
fn several_inferences_in_flight_share_a_partition() {
    let scripts = [
        (
            "the earlier inference goes first, the later one does not wait for it",
            "start 0 -> -
             start 1 -> -
             next 0 -> run 0.0 ready 1
             finish 0 -> send 0.0
             begin 1 1 -> -
             receive 1 1 -> -
             next 0 -> run 1.0 ready 2
             begin 0 1 -> -
             receive 0 1 -> -
             finish 0 -> send 1.0
             next 0 -> run 0.1 ready 9
             finish 0 -> outputs 0
             next 0 -> run 1.1 ready 6
             finish 0 -> outputs 1
             sent 1 0 -> finished 1
             sent 0 0 -> finished 0",
        ),
        (
            "a later inference finishes first, and another takes its place",
            "start 0 -> -
             start 1 -> -
             next 0 -> run 0.0 ready 1
             finish 0 -> send 0.0
             next 0 -> run 1.0 ready 2
             finish 0 -> send 1.0
             begin 1 1 -> -
             receive 1 1 -> -
             next 0 -> run 1.1 ready 8
             finish 0 -> outputs 1
             sent 1 0 -> finished 1
             start 1 -> NotInFlight { inference: 1, from: 0, to: 127 }
             start 128 -> NotInFlight { inference: 128, from: 0, to: 127 }
             start 2 -> -
             start 3 -> TooMany { inference: 3, most: 2 }",
        ),
    ];
    check(&source_and_sink(2), &scripts);
}

#[test]
fn a_stage_without_operands_waits_for_the_start() {
    let scripts = [(
        "middle",
        "begin 0 0 -> -
         receive 0 0 -> -
         next 0 -> idle
         start 0 -> -
         next 0 -> run 0.0 ready 0
         finish 0 -> -
         next 0 -> run 0.1 ready 6
         finish 0 -> send 0.0
         sent 0 0 -> finished 0",
    )];
    check(&middle(1), &scripts);
}

#[test]
fn memory_is_held_from_production_to_the_last_use() {
    let mut harness = Harness::new(&source_and_sink(1));
    harness.state.set_parameters(0, Bytes(100), Bytes(120));
    // The input takes 4 bytes, the received value 8, the sent one 2, the output 1.
    for (event, live) in [
        ("start 0", 4),
        ("next 0", 4),
        ("finish 0", 6),
        ("begin 0 1", 14),
        ("receive 0 1", 14),
        ("next 0", 2),
        ("sent 0 0", 0),
        ("finish 0", 0),
    ] {
        harness.apply(event);
        assert_eq!(harness.live(), [live, 0], "{event}");
    }
    assert_eq!(harness.state.peak(0), Bytes(114));
    assert!(harness.state.inferences.is_empty());
    let memory = &harness.state.memory()[0];
    assert_eq!((memory.parameters, memory.loading, memory.peak), (Bytes(100), Bytes(120), Bytes(114)));
}

/// Two partitions that exchange values on one server, with one value from a peer, three sends and two outputs.
fn two_partitions(source: Option<u32>, sink: Option<u32>, in_flight: u32) -> Arc<Setup> {
    let first = partition("cpu", &[(&[0], &[2]), (&[1, 2], &[4])]);
    let second = partition("gpu0", &[(&[0], &[3]), (&[3, 4, 1], &[5])]);
    let (source, sink) = (terminal(&[0], source), terminal(&[5, 4], sink));
    Arc::new(Setup { source, sink, in_flight, ..setup(&[4, 8, 2, 1, 16, 3], vec![first, second], &[3, 5, 2]) })
}

/// The content of a stage's result: depends on the stage and all bytes of its operands.
fn compute(value: u32, size: usize, operands: &[TensorData]) -> TensorData {
    let bytes = operands.iter().flat_map(|operand| operand.bytes().iter());
    let hash = bytes.fold(u64::from(value) + 1, |hash, byte| hash.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte));
    tensor((0..size).map(|i| (hash >> (8 * (i % 8))) as u8).collect())
}

/// The outputs of an inference, computed in data-flow order.
fn expected(inference: u64) -> Vec<TensorData> {
    let input = compute(0, 4, &[tensor(vec![inference as u8])]);
    let received = compute(1, 8, &[tensor(vec![inference as u8])]);
    let two = compute(2, 2, std::slice::from_ref(&input));
    let three = compute(3, 1, &[input]);
    let four = compute(4, 16, &[received.clone(), two]);
    vec![compute(5, 3, &[three, four.clone(), received]), four]
}

/// Runs `total` inferences with events in a random order that the protocol allows; returns their outputs.
fn simulate(setup: &Arc<Setup>, total: u64, seed: u64) -> BTreeMap<u64, Vec<TensorData>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut harness = Harness::new(setup);
    let (mut started, mut begun, mut received) = (0, BTreeSet::new(), BTreeSet::new());
    let (mut sends, mut runs) = (Vec::<PendingSend>::new(), BTreeSet::new());
    let (mut outputs, mut finished) = (BTreeMap::new(), BTreeSet::new());
    loop {
        let first = harness.state.first_unfinished;
        let window = first..total.min(first + u64::from(setup.in_flight));
        let mut actions: Vec<u32> = (0..6).collect();
        random.shuffle(&mut actions);
        let mut effects = None;
        for action in actions {
            harness.now += 1.0;
            let now = Micros(harness.now);
            effects = match action {
                0 if window.contains(&started) => {
                    let input = compute(0, 4, &[tensor(vec![started as u8])]);
                    started += 1;
                    Some(harness.state.start(beginning(started - 1), &[input], now).unwrap())
                }
                1 => window.clone().find(|n| !begun.contains(n) && random.bool()).map(|n| {
                    begun.insert(n);
                    harness.state.begin_receive(n, ValueId(1), now).unwrap();
                    Effects::default()
                }),
                2 => begun.difference(&received).next().copied().map(|n: u64| {
                    received.insert(n);
                    let data = compute(1, 8, &[tensor(vec![n as u8])]);
                    harness.state.finish_receive(n, ValueId(1), data, now).unwrap()
                }),
                3 if !sends.is_empty() => {
                    let send = sends.swap_remove(random.usize(..sends.len()));
                    Some(harness.sent(send.inference, send.send))
                }
                4 => (0..2).filter(|p| harness.running[*p].is_none()).collect::<Vec<_>>().into_iter().find_map(|p| {
                    let task = harness.state.next_stage(p)?;
                    assert!(runs.insert((p, task.stage.inference, task.stage.index)), "a stage runs twice");
                    harness.running[p] = Some(task);
                    Some(Effects::default())
                }),
                5 => (0..2).find_map(|p| harness.running[p].take().map(|task| (p, task))).map(|(p, task)| {
                    let results = &setup.partitions[p].stages[task.stage.index].results;
                    let size = |value: &ValueId| setup.values[value.0 as usize].bytes().0 as usize;
                    let results = results.iter().map(|value| compute(value.0, size(value), &task.operands)).collect();
                    let run = StageRun { results, start: now, end: now, ..StageRun::default() };
                    harness.state.finish_stage(p, task.stage, run).unwrap()
                }),
                _ => None,
            };
            if effects.is_some() {
                break;
            }
        }
        let Some(effects) = effects else {
            if begun.len() as u64 == total || window.is_empty() {
                break;
            }
            continue;
        };
        sends.extend(effects.sends);
        if let Some((inference, found)) = effects.outputs {
            let found = found.into_iter().map(|(_, data)| data).collect();
            assert!(outputs.insert(inference, found).is_none(), "outputs are delivered twice");
        }
        if let Some(trace) = effects.finished {
            assert_eq!((trace.stages.len(), trace.transfers.len(), trace.arrivals.len()), (4, 3, 1));
            assert!(finished.insert(trace.inference), "an inference finishes twice");
        }
    }
    assert_eq!(finished, (0..total).collect());
    assert_eq!(runs.len() as u64, 4 * total);
    assert_eq!(harness.live(), [0, 0, 0]);
    outputs
}

proptest! {
    #[test]
    fn any_order_of_events_gives_the_same_outputs(
        seed in any::<u64>(), total in 1..6u64, in_flight in 1..4u32,
        source in prop::option::of(0..2u32), sink in prop::option::of(0..2u32),
    ) {
        let outputs = simulate(&two_partitions(source, sink, in_flight), total, seed);
        let expected: BTreeMap<u64, Vec<TensorData>> = (0..total).map(|n| (n, expected(n))).collect();
        prop_assert_eq!(outputs, expected);
    }
}

#[test]
fn what_is_received_counts_against_the_limit_from_its_first_byte() {
    // The input takes 4 bytes, what comes from the peer 8 for each inference.
    for (limit, wanted) in
        [(36, [true, true, true]), (35, [true, true, false]), (24, [true, true, false]), (12, [true, false, false])]
    {
        let setup = source_and_sink(3);
        let mut state = RunState::new(&setup);
        state.set_limit(0, MemoryLimit::Own(Bytes(limit)));
        let received: Vec<bool> = (0..3)
            .map(|number| {
                let input = TensorData::new(DType::U8, [4], vec![0; 4]).unwrap();
                state.start(beginning(number), &[input], Micros::ZERO).is_ok()
                    && state.begin_receive(number, ValueId(1), Micros::ZERO).is_ok()
            })
            .collect();
        assert_eq!(received, wanted, "{limit}");
    }
    let setup = source_and_sink(1);
    let mut state = RunState::new(&setup);
    state.set_limit(0, MemoryLimit::Own(Bytes(7)));
    let error = state.begin_receive(0, ValueId(1), Micros::ZERO).unwrap_err();
    assert_eq!(error.to_string(), "device cpu cannot hold another tensor of 8 B: 1 B more than the limit");
}
