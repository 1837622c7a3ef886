//! Times of operators that no profile has: the larger of computing and traffic, and the overhead of a call.

use edgecut_graph::{
    OperatorId,
    units::{Bytes, Micros},
};

use crate::model::GroupCosts;

/// A processor as a roofline: `time = call + max(operations / rate, bytes / bandwidth)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Roofline {
    pub operations_per_us: f64,
    pub bytes_per_us: f64,
    /// Overhead of a call.
    pub call: Micros,
}

impl Default for Roofline {
    /// One core of a small server: 20 GFLOP/s, 10 GB/s, 1 µs a call.
    fn default() -> Roofline {
        Roofline { operations_per_us: 20e3, bytes_per_us: 10e3, call: Micros(1.0) }
    }
}

impl Roofline {
    /// The time of a call with `flops` operations that reads and writes `bytes`.
    pub fn time(&self, flops: u64, bytes: Bytes) -> Micros {
        self.call + Micros((flops as f64 / self.operations_per_us).max(bytes.0 as f64 / self.bytes_per_us))
    }
}

impl GroupCosts for Roofline {
    /// In proportion to the share, the overhead of a call apart.
    fn part(&self, _: &[OperatorId], whole: Micros, share: f64) -> Micros {
        self.call + Micros((whole.0 - self.call.0).max(0.0) * share)
    }

    /// Every byte is read and written.
    fn copy(&self, bytes: Bytes) -> Micros {
        self.call + Micros(2.0 * bytes.0 as f64 / self.bytes_per_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_of_computing_and_traffic_counts() {
        let roofline = Roofline::default();
        assert_eq!(roofline.time(40_000, Bytes(10)), Micros(3.0));
        assert_eq!(roofline.time(10, Bytes(50_000)), Micros(6.0));
        assert_eq!(roofline.copy(Bytes(10_000)), Micros(3.0));
    }

    #[test]
    fn parts_pay_the_call_again() {
        let roofline = Roofline::default();
        let half = roofline.part(&[], Micros(11.0), 0.5);
        assert_eq!(half, Micros(6.0));
        assert!(2.0 * half.0 > 11.0);
        assert_eq!(roofline.part(&[], Micros(0.5), 0.5), Micros(1.0));
    }
}
