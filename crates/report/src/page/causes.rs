//! What each group and each transfer of a plan waits for, from the plan's times alone, and the critical chain: the events
//! that follow one another without a gap from the start of the input to the arrival of the result.

use edgecut_plan::Plan;

/// A group or a transfer of a plan, by its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    Group(usize),
    Transfer(usize),
}

impl Event {
    /// A group as its index, a transfer as -1, -2, …
    pub fn code(self) -> i64 {
        match self {
            Event::Group(index) => index as i64,
            Event::Transfer(index) => -1 - index as i64,
        }
    }
}

/// What happened last before the events of a plan begin.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Causes {
    /// By group: the event whose end it begins at; `None` for what begins with the input, or after a pause that the plan
    /// does not explain.
    pub of_groups: Vec<Option<Event>>,
    pub of_transfers: Vec<Option<Event>>,
    /// Whether a group or transfer is on a critical chain.
    pub critical_groups: Vec<bool>,
    pub critical_transfers: Vec<bool>,
}

/// Times that differ by this share of the latency are the same: sums of times are rounded.
const SAME: f64 = 1e-7;

/// The start, the end, and the devices of an event.
struct Span {
    event: Event,
    start: f64,
    end: f64,
    from: u32,
    to: u32,
}

impl Causes {
    pub fn of(plan: &Plan) -> Causes {
        let spans = spans(plan);
        let same = SAME * plan.predicted.latency_us.0.max(1.0);
        let mut by_end: Vec<usize> = (0..spans.len()).collect();
        by_end.sort_by(|a, b| spans[*a].end.total_cmp(&spans[*b].end));
        let causes: Vec<Vec<usize>> = spans
            .iter()
            .map(|span| {
                let first = by_end.partition_point(|at| spans[*at].end < span.start - same);
                let ending = by_end[first..].iter().copied().take_while(|at| spans[*at].end <= span.start + same);
                ending.filter(|at| precedes(&spans[*at], span)).collect()
            })
            .collect();
        // Operators that take no time end when they begin: earlier spans come first, so that chains go back in time.
        let cause = |at: usize| {
            let found = causes[at].iter().map(|cause| &spans[*cause]);
            found
                .max_by(|a, b| a.end.total_cmp(&b.end).then(rank(a, &spans[at]).cmp(&rank(b, &spans[at]))))
                .map(|s| s.event)
        };
        let critical = critical(&spans, &causes, same);
        let groups = plan.groups.len();
        Causes {
            of_groups: (0..groups).map(cause).collect(),
            of_transfers: (groups..spans.len()).map(cause).collect(),
            critical_groups: critical[..groups].to_vec(),
            critical_transfers: critical[groups..].to_vec(),
        }
    }
}

/// Groups first, then transfers, in the plan's order.
fn spans(plan: &Plan) -> Vec<Span> {
    let groups = plan.groups.iter().enumerate().map(|(index, group)| Span {
        event: Event::Group(index),
        start: group.start_us.0,
        end: group.start_us.0 + group.time_us.0,
        from: group.device.0,
        to: group.device.0,
    });
    let transfers = plan.transfers.iter().enumerate().map(|(index, transfer)| Span {
        event: Event::Transfer(index),
        start: transfer.start_us.0,
        end: transfer.start_us.0 + transfer.time_us.0,
        from: transfer.from.0,
        to: transfer.to.0,
    });
    groups.chain(transfers).collect()
}

/// Whether `after` can wait for `before`: for the device or link that both use, or for what `before` produces.
fn precedes(before: &Span, after: &Span) -> bool {
    let is_earlier = before.start < after.start || (before.start <= after.start && before.event < after.event);
    let shares = match (before.event, after.event) {
        (Event::Transfer(_), Event::Transfer(_)) => {
            (before.from, before.to) == (after.from, after.to) || before.to == after.from
        }
        _ => before.to == after.from,
    };
    is_earlier && shares
}

/// A transfer says more about why a group begins than the group before it on the device does.
fn rank(cause: &Span, of: &Span) -> usize {
    usize::from(matches!((cause.event, of.event), (Event::Transfer(_), Event::Group(_))))
}

/// Whether each span leads to the last one without a gap.
fn critical(spans: &[Span], causes: &[Vec<usize>], same: f64) -> Vec<bool> {
    let end = spans.iter().map(|span| span.end).fold(0.0, f64::max);
    let mut is_critical = vec![false; spans.len()];
    let mut open: Vec<usize> = (0..spans.len()).filter(|at| spans[*at].end >= end - same).collect();
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut is_critical[at], true) {
            open.extend(&causes[at]);
        }
    }
    is_critical
}

#[cfg(test)]
mod tests {
    use super::{super::testing, *};

    #[test]
    fn the_chain_goes_back_from_the_end_without_gaps() {
        // `a` 0..10, sent 10..12, `b` 12..17; `c` runs aside, 10..11.
        let causes = Causes::of(&testing::plan());
        assert_eq!(causes.of_groups, [None, Some(Event::Transfer(0)), Some(Event::Group(0))]);
        assert_eq!(causes.of_transfers, [Some(Event::Group(0))]);
        assert_eq!((causes.critical_groups, causes.critical_transfers), (vec![true, true, false], vec![true]));
        assert_eq!([Event::Group(3), Event::Transfer(0)].map(Event::code), [3, -1]);
    }
}
