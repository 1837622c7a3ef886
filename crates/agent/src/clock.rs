//! Monotonic clocks and the offset between two of them.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use edgecut_graph::units::Micros;

/// Microseconds since the process started; monotonic.
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

/// The time on this machine's calendar clock, since 1970.
pub(crate) fn since_1970() -> Micros {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(Micros::ZERO, Micros::from)
}

/// The offset of an agent's clock from this process's clock: subtracted from its times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockOffset {
    pub offset: Micros,
    /// Upper bound on the error: half of the round trip of the estimate.
    pub uncertainty: Micros,
}

impl ClockOffset {
    /// Estimates the offset from exchanges (sent, answered on the other clock, received). The exchange with the shortest
    /// round trip bounds it best (D. L. Mills, RFC 5905, section 8). `None` without exchanges.
    pub fn estimate(exchanges: &[(Micros, Micros, Micros)]) -> Option<ClockOffset> {
        let best = exchanges.iter().min_by(|a, b| (a.2 - a.0).0.total_cmp(&(b.2 - b.0).0))?;
        let (sent, answered, received) = *best;
        let offset = Micros(answered.0 - (sent.0 + received.0) / 2.0);
        Some(ClockOffset { offset, uncertainty: Micros((received - sent).0 / 2.0) })
    }

    /// A time of the other clock, on this one.
    pub fn to_local(self, there: Micros) -> Micros {
        there - self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_round_trip_decides() {
        let exchanges = [
            (Micros(100.0), Micros(1300.0), Micros(400.0)),
            (Micros(500.0), Micros(1510.0), Micros(520.0)),
            (Micros(600.0), Micros(1690.0), Micros(700.0)),
        ];
        let found = ClockOffset::estimate(&exchanges).unwrap();
        assert_eq!(found, ClockOffset { offset: Micros(1000.0), uncertainty: Micros(10.0) });
        assert_eq!(found.to_local(Micros(1510.0)), Micros(510.0));
        assert_eq!(ClockOffset::estimate(&[]), None);
    }
}
