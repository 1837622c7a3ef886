//! What a packing reports while it is made, and how it is ended before its effort is used up.

use std::ops::ControlFlow;

use edgecut_graph::units::Bytes;

/// The best packing so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// `None` until there is a packing.
    pub height: Option<Bytes>,
    /// Lower bound on the height over all packings.
    pub bound: Bytes,
}

/// Receives the standing about every millisecond, and ends the search by a break.
pub type Watcher<'a> = dyn FnMut(Standing) -> ControlFlow<()> + 'a;

/// Work between two calls of the watcher, in units of [`super::PackOptions::effort`]: about 1 ms.
const INTERVAL: u64 = 30_000;

/// A watcher and the standing that it receives once every [`INTERVAL`] of work.
pub(super) struct Watch<'a> {
    watcher: &'a mut Watcher<'a>,
    standing: Standing,
    since: u64,
    stop: ControlFlow<()>,
}

impl<'a> Watch<'a> {
    pub fn new(watcher: &'a mut Watcher<'a>, bound: u64) -> Watch<'a> {
        let standing = Standing { height: None, bound: Bytes(bound) };
        Watch { watcher, standing, since: 0, stop: ControlFlow::Continue(()) }
    }

    /// A packing of this height is known.
    pub fn reached(&mut self, height: u64) {
        let lowest = self.standing.height.map_or(height, |lowest| lowest.0.min(height));
        self.standing.height = Some(Bytes(lowest));
    }

    /// Whether to stop, after `work` more was done.
    pub fn stops(&mut self, work: u64) -> bool {
        self.since = self.since.saturating_add(work);
        if self.stop.is_continue() && self.since >= INTERVAL {
            self.since = 0;
            self.stop = (self.watcher)(self.standing);
        }
        self.has_stopped()
    }

    /// Whether the watcher has ended the search.
    pub fn has_stopped(&self) -> bool {
        self.stop.is_break()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watcher_is_told_the_lowest_height_and_asked_until_it_stops() {
        let mut heights = Vec::new();
        let mut watcher = |standing: Standing| {
            heights.push(standing.height);
            if heights.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut watch = Watch::new(&mut watcher, 7);
        assert!(!watch.stops(INTERVAL - 1) && !watch.stops(1));
        watch.reached(9);
        watch.reached(11);
        assert!(watch.stops(INTERVAL) && watch.stops(INTERVAL) && watch.has_stopped());
        assert_eq!(heights, [None, Some(Bytes(9))]);
    }
}
