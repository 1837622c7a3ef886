//! How much slower groups are in context than in isolation.

use edgecut_graph::units::Micros;

/// Times in isolation and in context, of one group or summed over several.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Times {
    pub isolated: Micros,
    pub in_context: Micros,
}

/// Sums over all times of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Slowdown {
    pub whole: Times,
    pub parts: Times,
}

impl Times {
    pub fn add(&mut self, other: Times) {
        self.isolated += other.isolated;
        self.in_context += other.in_context;
    }

    /// The slowdown in context; `None` without times.
    pub fn ratio(self) -> Option<f64> {
        (self.isolated.0 > 0.0 && self.in_context.0 > 0.0).then(|| self.in_context.0 / self.isolated.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdowns_are_of_summed_times() {
        let times = |isolated, in_context| Times { isolated: Micros(isolated), in_context: Micros(in_context) };
        let mut sum = Times::default();
        assert_eq!(sum.ratio(), None);
        sum.add(times(10.0, 12.0));
        sum.add(times(30.0, 32.0));
        assert_eq!(sum.ratio(), Some(1.1));
    }
}
