//! Changes that may lower the memory at the fullest step: for every value that lies idle there, sending it away, or
//! moving the operator that makes it or uses it next; where the step is on the way to making something again, holding
//! what is made on that way too.

use smallvec::SmallVec;

use super::{
    super::program::{OperatorIndex, Program, ValueIndex},
    choice::{Choice, Mode, Move, NONE, ReadIndex, Transfer},
    unfold::{Step, Touch, Unfold},
};

/// Who stands between whom, to move operators.
pub struct Neighbours {
    pub before: Vec<SmallVec<[OperatorIndex; 4]>>,
    pub after: Vec<SmallVec<[OperatorIndex; 4]>>,
}

impl Neighbours {
    pub fn of(program: &Program) -> Neighbours {
        let before = program.predecessors();
        let mut after: Vec<SmallVec<[OperatorIndex; 4]>> = vec![SmallVec::new(); before.len()];
        for (index, list) in (0..).zip(&before) {
            for &earlier in list {
                after[earlier as usize].push(index);
            }
        }
        Neighbours { before, after }
    }

    /// The first and the last place at which an operator may stand while all others keep their order.
    pub fn range(&self, program: &Program, places: &[u32], operator: OperatorIndex) -> (u32, u32) {
        let at = operator as usize;
        if program.operators[at].first {
            return (places[at], places[at]);
        }
        let fixed = program.operators.iter().take_while(|o| o.first).count() as u32;
        let low = self.before[at].iter().map(|&o| places[o as usize] + 1).max().unwrap_or(0).max(fixed);
        let last = places.len() as u32 - 1;
        let high = self.after[at].iter().map(|&o| places[o as usize] - 1).min().unwrap_or(last);
        (low, high)
    }
}

/// For each operator its place in the order.
pub fn places(order: &[OperatorIndex]) -> Vec<u32> {
    let mut places = vec![0; order.len()];
    for (place, &operator) in (0..).zip(order) {
        places[operator as usize] = place;
    }
    places
}

/// Values that are made again on the way to the operator of the order before which a step stands, and could have been
/// held; what takes longest to make first. `unfold` must have traced `choice`.
pub fn to_hold(unfold: &Unfold<'_>, choice: &Choice, found: &mut Vec<Move>) {
    let program = unfold.program();
    let Some(peak) = fullest(unfold) else { return };
    let after = unfold.place.partition_point(|&step| step < peak);
    let begin = after.checked_sub(1).map_or(0, |before| unfold.place[before] + 1);
    let end = unfold.place.get(after).copied().unwrap_or(u32::MAX);
    let mut made = vec![false; program.values.len()];
    let mut again: Vec<(f64, ValueIndex)> = Vec::new();
    for touch in unfold.touches.iter().filter(|touch| touch.made && touch.step < end) {
        let before = std::mem::replace(&mut made[touch.value as usize], true);
        if before && touch.step >= begin && !choice.held[touch.value as usize] {
            let producer = program.value(touch.value).producer;
            again.push((producer.map_or(0.0, |producer| program.operator(producer).time), touch.value));
        }
    }
    again.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    again.dedup_by_key(|entry| entry.1);
    found.extend(again.iter().map(|entry| Move::Hold(entry.1)));
}

/// The last of the steps that need most.
fn fullest(unfold: &Unfold<'_>) -> Option<u32> {
    (0..unfold.load.len()).rev().max_by_key(|&step| unfold.load[step]).map(|step| step as u32)
}

/// What surrounds the fullest step for one value.
#[derive(Clone, Copy)]
struct Idle {
    before: Option<Touch>,
    after: Option<Touch>,
    /// The next read by the order.
    read: ReadIndex,
}

/// Changes worth trying, with the most promising first. `unfold` must have traced `choice`.
pub fn candidates(
    unfold: &Unfold<'_>,
    neighbours: &Neighbours,
    choice: &Choice,
    limit: u64,
    most: usize,
    found: &mut Vec<Move>,
) {
    found.clear();
    let program = unfold.program();
    let Some(peak) = fullest(unfold) else { return };
    let mut idle = vec![Idle { before: None, after: None, read: NONE }; program.values.len()];
    for touch in &unfold.touches {
        let entry = &mut idle[touch.value as usize];
        if touch.step <= peak {
            entry.before = Some(*touch);
        } else {
            entry.after = entry.after.or(Some(*touch));
            if entry.read == NONE && touch.read != NONE {
                entry.read = touch.read;
            }
        }
    }
    let mut over = Vec::with_capacity(unfold.load.len() + 1);
    over.push(0u32);
    for &load in &unfold.load {
        over.push(over[over.len() - 1] + u32::from(load > limit));
    }
    let places = places(&choice.order);
    let peak_place = unfold.place.partition_point(|&step| step < peak) as u32;
    let mut scored: Vec<(f64, Move)> = Vec::new();
    let mut copies: Vec<(f64, Move)> = Vec::new();
    let mut shifts: Vec<(u64, Move)> = Vec::new();
    for (value, idle) in (0..).zip(&idle) {
        let (Some(before), Some(after)) = (idle.before, idle.after) else { continue };
        let bytes = program.value(value).bytes;
        if bytes == 0 || before.step == peak || after.made || idle.read == NONE {
            continue;
        }
        let gained = bytes as f64 * f64::from((over[after.step as usize] - over[before.step as usize + 1]).max(1));
        let mode = choice.modes[idle.read as usize];
        let producer = program.value(value).producer;
        if let Some(producer) = producer.filter(|&p| program.operator(p).repeatable) {
            let to = if matches!(mode, Mode::Keep | Mode::Copy) { Mode::Again } else { Mode::Late };
            let score = gained / (program.operator(producer).time + 1.0);
            scored.push((score, Move::Mode(idle.read, to)));
        }
        if mode != Mode::Copy
            && program.host.is_some()
            && let Some(transfer) = transfer(unfold, choice, value, idle.read, before.step, after.step)
        {
            copies.push((gained, Move::Copy(transfer)));
        }
        if before.made
            && let (Some(producer), Step::Run(user)) = (producer, unfold.steps[after.step as usize])
            && unfold.steps[before.step as usize] == Step::Run(producer)
        {
            let to = neighbours.range(program, &places, producer).1.min(places[user as usize].saturating_sub(1));
            if to >= peak_place && to > places[producer as usize] {
                shifts.push((bytes, Move::Shift(producer, to)));
            }
        }
        if let Step::Run(user) = unfold.steps[after.step as usize] {
            let to = neighbours.range(program, &places, user).0;
            if to < peak_place && to < places[user as usize] {
                shifts.push((bytes, Move::Shift(user, to)));
            }
        }
    }
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    copies.sort_by(|a, b| b.0.total_cmp(&a.0));
    shifts.sort_by_key(|s| std::cmp::Reverse(s.0));
    found.extend(shifts.iter().take(most).map(|s| s.1));
    found.extend(copies.iter().take(most).map(|s| s.1));
    found.extend(scored.iter().take(most).map(|s| s.1));
}

/// Windows of the copying stream that are free for a value between two of its uses: the earliest for the store,
/// the latest for the load.
pub fn transfer(
    unfold: &Unfold<'_>,
    choice: &Choice,
    value: ValueIndex,
    read: ReadIndex,
    from: u32,
    until: u32,
) -> Option<Transfer> {
    let program = unfold.program();
    let time = program.copy_time(value)?;
    let order = &choice.order;
    let busy: Vec<(f64, f64)> = unfold
        .steps
        .iter()
        .zip(&unfold.starts)
        .filter_map(|(step, &start)| match step {
            Step::Store(v) | Step::Load(v) => Some((start, start + program.copy_time(*v)?)),
            Step::Run(_) => None,
        })
        .collect();
    let free = |start: f64| busy.iter().all(|&(from, until)| start + time <= from + 1e-6 || start >= until - 1e-6);
    let start_of = |place: u32| unfold.starts[unfold.place[place as usize] as usize];
    let first = unfold.place.partition_point(|&step| step <= from) as u32;
    let last = unfold.place.partition_point(|&step| step < until) as u32;
    if first >= last || last as usize >= order.len() {
        return None;
    }
    let store = (first..last).find(|&place| free(start_of(place)))?;
    let stored = start_of(store) + time;
    let needed = unfold.starts[until as usize];
    let fits = |&place: &u32| {
        let start = start_of(place);
        start >= stored - 1e-6 && start + time <= needed + 1e-6 && free(start)
    };
    let load = (store + 1..last).rev().find(fits)?;
    Some(Transfer { read, store: order[store as usize], load: order[load as usize] })
}
