//! The agent's clock, and the offset between two of them.

use std::time::Instant;

use crate::units::Micros;

/// Microseconds since the agent started, never going back.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    pub fn now(&self) -> Micros {
        self.0.elapsed().into()
    }
}

/// What must be subtracted from a time on an agent's clock to get the time on ours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockOffset {
    pub offset: Micros,
    /// Half of the round trip that the estimate is from: it is wrong by no more.
    pub uncertainty: Micros,
}

impl ClockOffset {
    /// From exchanges (sent, answered on the other clock, received): the one with the shortest round trip tells
    /// most, since its answer was given nearest to the middle (D. L. Mills, RFC 5905, section 8).
    pub fn estimate(exchanges: &[(Micros, Micros, Micros)]) -> Option<ClockOffset> {
        let best = exchanges.iter().min_by(|a, b| (a.2 - a.0).0.total_cmp(&(b.2 - b.0).0))?;
        let (sent, answered, received) = *best;
        let offset = Micros(answered.0 - (sent.0 + received.0) / 2.0);
        Some(ClockOffset { offset, uncertainty: Micros((received - sent).0 / 2.0) })
    }

    /// A time of the other clock on ours.
    pub fn here(&self, there: Micros) -> Micros {
        there - self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quickest_exchange_decides() {
        let exchanges = [
            (Micros(100.0), Micros(1300.0), Micros(400.0)),
            (Micros(500.0), Micros(1510.0), Micros(520.0)),
            (Micros(600.0), Micros(1690.0), Micros(700.0)),
        ];
        let found = ClockOffset::estimate(&exchanges).unwrap();
        assert_eq!(found, ClockOffset { offset: Micros(1000.0), uncertainty: Micros(10.0) });
        assert_eq!(found.here(Micros(1510.0)), Micros(510.0));
        assert_eq!(ClockOffset::estimate(&[]), None);
    }
}
