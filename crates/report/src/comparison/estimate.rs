//! A median with its standard error, from what profiles and runs keep of their samples.

/// A value, and how far off it may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub value: f64,
    /// `None` if it is not a measurement, or of too few samples.
    pub standard_error: Option<f64>,
}

/// Fewest samples with a scatter. Of fewer, the deviation is so uncertain that one difference in ten would be significant by chance.
const FEWEST: usize = 8;

/// Most samples that count as independent. Those of one measurement follow each other within a second or so and share the state of
/// caches, clock and neighbours, which a second measurement does not have: of one model profiled three times on a busy virtual
/// machine, up to half of the operators differed by more than 3 standard errors of all samples, and none with these.
const INDEPENDENT: usize = 8;

/// Least standard error, as a fraction of the value: what differs between measurements and not within them, such as where tensors
/// lie in memory. Of all pairs of eleven profiles of resnet18 on a virtual machine 5.4 % of operators differ significantly with
/// it, of nine of bert_base 0.2 %; with 1 %, 15.2 % and 5.4 %. What is left is a layer whose median alone varies by a third.
const LEAST: f64 = 0.03;

impl Estimate {
    /// The median of `n` samples with this median absolute deviation. For normal samples the standard deviation is 1.4826 MAD,
    /// and the standard error of the median √(π/2) of that over √n, where n is at most [`INDEPENDENT`]; with it
    /// comes [`LEAST`].
    pub fn median(value: f64, mad: Option<f64>, n: usize) -> Estimate {
        let independent = n.min(INDEPENDENT) as f64;
        let error = |mad: f64| {
            joint_error((std::f64::consts::PI / 2.0).sqrt() * 1.4826 * mad / independent.sqrt(), LEAST * value)
        };
        Estimate { value, standard_error: mad.filter(|_| n >= FEWEST).map(error) }
    }

    /// What was not measured.
    pub fn exact(value: f64) -> Estimate {
        Estimate { value, standard_error: None }
    }

    /// The sum with the same measurement, or one of the same error.
    #[must_use]
    pub(crate) fn plus_same(self, other: Estimate) -> Estimate {
        let errors = self.standard_error.zip(other.standard_error);
        Estimate { value: self.value + other.value, standard_error: errors.map(|(a, b)| a + b) }
    }

    /// The sum with another measurement, whose error is independent.
    #[must_use]
    pub(crate) fn plus(self, other: Estimate) -> Estimate {
        let errors = self.standard_error.zip(other.standard_error);
        Estimate { value: self.value + other.value, standard_error: errors.map(|(a, b)| joint_error(a, b)) }
    }

    /// Of nothing.
    pub const ZERO: Estimate = Estimate { value: 0.0, standard_error: Some(0.0) };

    /// How many standard errors `b` is above `a`; `None` if an error is unknown, or both are zero.
    pub fn z(a: Estimate, b: Estimate) -> Option<f64> {
        let error = joint_error(a.standard_error?, b.standard_error?);
        (error > 0.0).then(|| (b.value - a.value) / error)
    }
}

/// The standard error of a sum of independent values. `f64::hypot` would need glibc 2.35.
fn joint_error(a: f64, b: f64) -> f64 {
    (a * a + b * b).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_medians_add_up_as_they_should() {
        let one = Estimate::median(10.0, Some(1.0), 100);
        assert!((one.standard_error.unwrap() - 0.72222).abs() < 1e-4, "{one:?}");
        let two = one.plus_same(one);
        assert_eq!(two.standard_error, one.standard_error.map(|error| 2.0 * error));
        let sum = one.plus(one);
        assert!((sum.standard_error.unwrap() - 0.72222 * 2f64.sqrt()).abs() < 1e-4);
        assert_eq!(Estimate::median(10.0, Some(1.0), 7).standard_error, None);
        assert_eq!(Estimate::z(one, Estimate::exact(3.0)), None);
        assert_eq!(Estimate::z(Estimate::ZERO, Estimate::ZERO), None);
        assert!((Estimate::z(one, two).unwrap() - 10.0 / 0.72222f64.hypot(2.0 * 0.72222)).abs() < 0.1);
    }
}
