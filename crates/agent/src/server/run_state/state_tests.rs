//! States: what one inference leaves to the next.

use super::{
    tests::{Harness, check, partition, render, setup, tensor, terminal},
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
        let start = Start { inference, continues };
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
