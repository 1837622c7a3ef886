//! States: what one inference leaves to the next.

use super::{
    tests::{Harness, beginning, check, partition, render, setup, tensor, terminal},
    *,
};

#[test]
fn a_state_goes_from_one_inference_to_the_next() {
    // Stage 0 reads the state 1, whose next content is 2, and the input.
    let stages = partition("cpu", &[(&[0, 1], &[2, 3])]);
    let state = State { operand: ValueId(1), result: ValueId(2) };
    let (source, sink) = (terminal(&[0], Some(0)), terminal(&[3], Some(0)));
    let setup = Arc::new(Setup { source, sink, states: vec![state], ..setup(&[4, 8, 8, 1], vec![stages], &[]) });
    let mut harness = Harness::new(&setup);
    assert_eq!(harness.apply("start 0 continues"), "NoState(1)");
    let mut harness = Harness::new(&setup);
    let mut content = Vec::new();
    for (inference, continues) in [(0, false), (1, true), (2, true), (3, false)] {
        let start = Start { continues, ..beginning(inference) };
        harness.state.start(start, &[tensor(vec![7; 4])], Micros(1.0)).unwrap();
        let task = harness.state.next_stage(0).unwrap();
        content.push(task.operands[1].bytes()[0]);
        let run =
            StageRun { results: vec![tensor(vec![inference as u8 + 1; 8]), tensor(vec![0])], ..StageRun::default() };
        let effects = harness.state.finish_stage(0, task.stage, run).unwrap();
        assert_eq!(render(&effects), format!("outputs {inference}, finished {inference}"));
        assert_eq!(harness.live(), [8, 0], "the state stays");
    }
    assert_eq!(content, [0, 1, 2, 0]);
    assert_eq!(harness.state.peak(0), Bytes(12));
}

#[test]
fn each_sequence_in_flight_has_its_own_states() {
    // Stage 0 reads the input 0 and the state 1, whose next content is 2, and computes the output 3.
    let stages = partition("cpu", &[(&[0, 1], &[2, 3])]);
    let state = State { operand: ValueId(1), result: ValueId(2) };
    let (source, sink) = (terminal(&[0], Some(0)), terminal(&[3], Some(0)));
    let of_both = Setup { source, sink, states: vec![state], ..setup(&[4, 8, 8, 1], vec![stages], &[]) };
    let mut harness = Harness::new(&Arc::new(Setup { in_flight: 2, ..of_both }));
    let start = |harness: &mut Harness, inference, sequence, continues| {
        let start = Start { sequence, continues, ..beginning(inference) };
        harness.state.start(start, &[tensor(vec![7; 4])], Micros(1.0)).map(|_| ())
    };
    // By inference: its sequence, and the content that it finds.
    for (inference, (sequence, continues, found)) in
        [(0, false, 0), (1, false, 0), (1, true, 2), (0, true, 1), (0, true, 4), (1, false, 0)].into_iter().enumerate()
    {
        let inference = inference as u64;
        start(&mut harness, inference, sequence, continues).unwrap();
        let task = harness.state.next_stage(0).unwrap();
        assert_eq!(task.operands[1].bytes()[0], found, "{inference}");
        let results = vec![tensor(vec![inference as u8 + 1; 8]), tensor(vec![0])];
        harness.state.finish_stage(0, task.stage, StageRun { results, ..StageRun::default() }).unwrap();
    }
    assert_eq!(harness.live(), [16, 0], "the states of both stay");
    start(&mut harness, 6, 0, true).unwrap();
    let in_flight = RunStateError::SequenceInFlight { inference: 7, sequence: 0 };
    assert_eq!(start(&mut harness, 7, 0, false), Err(in_flight));
    let none = RunStateError::NoSequence { inference: 7, sequence: 2, sequences: 2 };
    assert_eq!(start(&mut harness, 7, 2, false), Err(none));
    start(&mut harness, 7, 1, true).unwrap();
}

#[test]
fn states_that_others_make_are_received_and_kept() {
    // The peer computes 2, the next content of the state 1.
    let stages = partition("cpu", &[(&[1], &[3])]);
    let state = State { operand: ValueId(1), result: ValueId(2) };
    let setup = Arc::new(Setup { states: vec![state], ..setup(&[4, 8, 8, 1], vec![stages], &[3]) });
    assert_eq!(setup.received(), [ValueId(2)].into());
    let script = "start 0 -> -
         next 0 -> run 0.0 ready 1
         finish 0 -> send 0.0
         sent 0 0 -> -
         begin 0 2 -> -
         receive 0 2 -> finished 0
         start 1 continues -> -";
    check(&setup, &[("reader", script)]);
}

#[test]
fn phases_have_their_own_stages_and_one_state() {
    // Decode: stage 0 reads the state 1 and the input 0, and leaves 2 and the output 3. Prefill: stage 1 the same with the
    // values 4 to 7, of which the input is larger; a peer sends 8, which stage 2 of prefill sends on.
    let stages = partition("cpu", &[(&[0, 1], &[2, 3]), (&[4, 5], &[6, 7]), (&[8], &[9])]);
    let state = |operand, result| State { operand: ValueId(operand), result: ValueId(result) };
    let states = vec![state(1, 2), state(5, 6)];
    let (source, sink) = (terminal(&[0, 4], Some(0)), terminal(&[3, 7], Some(0)));
    let mut setup = Setup { source, sink, states, ..setup(&[1, 8, 8, 1, 4, 8, 8, 2, 1, 1], vec![stages], &[9]) };
    for value in 4..10 {
        setup.values[value].phase = Phase::Prefill;
    }
    setup.values[5].name = setup.values[1].name.clone();
    setup.check_states(&BTreeSet::new()).unwrap();
    let setup = Arc::new(setup);
    let mut harness = Harness::new(&setup);
    let mut content = Vec::new();
    for (inference, phase, continues) in
        [(0, Phase::Prefill, false), (1, Phase::Prefill, true), (2, Phase::Decode, true)]
    {
        let start = Start { phase, continues, ..beginning(inference) };
        let (inputs, output) = if phase == Phase::Prefill { (4, 2) } else { (1, 1) };
        harness.state.start(start, &[tensor(vec![7; inputs])], Micros(1.0)).unwrap();
        let task = harness.state.next_stage(0).unwrap();
        assert_eq!(task.stage.index, usize::from(phase == Phase::Prefill));
        content.push(task.operands[1].bytes()[0]);
        let results = vec![tensor(vec![inference as u8 + 1; 8]), tensor(vec![0; output])];
        let run = StageRun { results, ..StageRun::default() };
        let effects = harness.state.finish_stage(0, task.stage, run).unwrap();
        let (_, outputs) = effects.outputs.clone().unwrap();
        assert_eq!(outputs.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [u32::from(phase == Phase::Prefill)]);
        if phase == Phase::Decode {
            assert_eq!(render(&effects), format!("outputs {inference}, finished {inference}"));
            assert_eq!(harness.apply("next 0"), "idle", "no stage of the other phase");
            continue;
        }
        let refused = harness.state.start(Start { phase: Phase::Decode, ..start }, &[], Micros(1.0)).unwrap_err();
        assert_eq!(refused, RunStateError::SequenceInFlight { inference, sequence: 0 });
        let begun = harness.state.begin_receive(inference, ValueId(0), Micros(1.0)).unwrap_err();
        assert_eq!(begun, RunStateError::OtherPhase(inference));
        for (event, effects) in [
            (format!("begin {inference} 8"), "-".to_string()),
            (format!("receive {inference} 8"), "-".to_string()),
            // Of five events for each inference, the second one completes the operand.
            ("next 0".to_string(), format!("run {inference}.2 ready {}", 5 * inference + 2)),
            ("finish 0".to_string(), format!("send {inference}.0")),
            (format!("sent {inference} 0"), format!("finished {inference}")),
        ] {
            assert_eq!(harness.apply(&event), effects, "{event}");
        }
    }
    assert_eq!(content, [0, 1, 2], "both phases read what the step before left");
}
