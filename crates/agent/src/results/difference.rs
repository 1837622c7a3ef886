//! How far a plan's outputs are from those of one device, and whether that is what float arithmetic in another order may
//! change.

use std::fmt;

use serde::{Deserialize, Serialize};

use edgecut_graph::TensorData;

use super::tolerance::{ABSOLUTE, MAX_ELEMENT_ERROR, MAX_NORM_ERROR, RELATIVE, Tolerance};

/// How far two lists of tensors are apart. Relative differences are those to the largest finite |b| of the tensor: to single
/// elements, which may be zero, they would say nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Largest and mean |a − b|; infinite where types differ, or just one of a and b is NaN or that infinity.
    #[serde(rename = "largest_error", deserialize_with = "or_infinite")]
    pub largest: f64,
    #[serde(rename = "mean_error", deserialize_with = "or_infinite")]
    pub mean: f64,
    #[serde(rename = "largest_relative_error", deserialize_with = "or_infinite")]
    pub largest_relative: f64,
    #[serde(rename = "mean_relative_error", deserialize_with = "or_infinite")]
    pub mean_relative: f64,
    /// Elements beyond the [`Tolerance`] of a plan with exact transfers.
    #[serde(rename = "elements_beyond_tolerance")]
    pub wrong: u64,
    /// Elements that are further apart than rounding explains, but not than quantisation does.
    #[serde(skip)]
    pub requantised: u64,
    pub elements: u64,
}

/// JSON has no infinite numbers: they are written `null`.
fn or_infinite<'de, D: serde::Deserializer<'de>>(number: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(number)?.unwrap_or(f64::INFINITY))
}

/// Sums over the elements so far.
#[derive(Default)]
struct Sums {
    absolute: f64,
    relative: f64,
}

impl Difference {
    /// Compares `found` with `wanted` element by element.
    pub fn between(found: &[TensorData], wanted: &[TensorData], tolerance: Tolerance) -> Difference {
        let mut difference = Difference::default();
        let mut sums = Sums::default();
        if found.len() != wanted.len() {
            difference.add_incomparable();
            return difference;
        }
        for (found, wanted) in found.iter().zip(wanted) {
            if found.bytes() == wanted.bytes() && found.ty() == wanted.ty() {
                difference.elements += found.shape().iter().product::<u64>();
                continue;
            }
            match (found.to_f64s(), wanted.to_f64s()) {
                (Some(a), Some(b)) if found.ty() == wanted.ty() => {
                    let scale = b.iter().map(|b| b.abs()).filter(|b| b.is_finite()).fold(0.0, f64::max);
                    let before = difference.wrong;
                    a.iter().zip(&b).for_each(|(a, b)| difference.add(*a, *b, scale, &mut sums));
                    let dtype = found.dtype();
                    let may_be_quantised = dtype.is_float() || dtype.size() <= 2;
                    if tolerance == Tolerance::Quantisation && may_be_quantised && is_within_quantisation(&a, &b) {
                        difference.requantised += difference.wrong - before;
                        difference.wrong = before;
                    }
                }
                _ => difference.add_incomparable(),
            }
        }
        if difference.elements > 0 && difference.largest.is_finite() {
            let count = difference.elements as f64;
            (difference.mean, difference.mean_relative) = (sums.absolute / count, sums.relative / count);
        }
        difference
    }

    /// Something that has no counterpart.
    fn add_incomparable(&mut self) {
        let infinite = f64::INFINITY;
        (self.largest, self.mean, self.largest_relative, self.mean_relative) = (infinite, infinite, infinite, infinite);
        self.wrong += 1;
    }

    /// An element of a tensor whose largest is `scale`.
    fn add(&mut self, a: f64, b: f64, scale: f64, sums: &mut Sums) {
        self.elements += 1;
        let apart = match a == b || (a.is_nan() && b.is_nan()) {
            true => 0.0,
            false if a.is_nan() || b.is_nan() => f64::INFINITY,
            false => (a - b).abs(),
        };
        if apart.is_infinite() {
            return self.add_incomparable();
        }
        let relative = if scale > 0.0 { apart / scale } else { apart };
        (sums.absolute, sums.relative) = (sums.absolute + apart, sums.relative + relative);
        self.largest = self.largest.max(apart);
        self.largest_relative = self.largest_relative.max(relative);
        let is_tolerable = apart == 0.0 || apart <= ABSOLUTE + RELATIVE * b.abs();
        self.wrong += u64::from(!is_tolerable);
    }

    /// Whether all elements are as near as those of a plan that converts nothing must be.
    pub fn is_tolerable(&self) -> bool {
        self.wrong == 0
    }

    /// Whether there are numbers to compare at all: the same types, and the same elements that are NaN or infinite.
    pub fn is_finite(&self) -> bool {
        self.largest.is_finite()
    }

    /// The errors in a line, for plans that convert what they send.
    pub fn errors(&self) -> String {
        let Difference { largest, mean, largest_relative, mean_relative, elements, .. } = self;
        format!(
            "largest error {largest:.1e}, mean {mean:.1e} ({elements} elements); relative to the largest element of an output \
             {largest_relative:.1e}, mean {mean_relative:.1e}"
        )
    }
}

/// Whether `a` is as near to `b` as [`Tolerance::Quantisation`] says. False if elements are not finite.
fn is_within_quantisation(a: &[f64], b: &[f64]) -> bool {
    let square = |x: f64| x * x;
    let errors = || a.iter().zip(b).map(|(a, b)| (a - b).abs());
    let distance: f64 = errors().map(square).sum();
    let norm: f64 = b.iter().copied().map(square).sum();
    let (largest_error, largest) = (errors().fold(0.0, f64::max), b.iter().map(|b| b.abs()).fold(0.0, f64::max));
    norm.is_finite() && distance.sqrt() <= MAX_NORM_ERROR * norm.sqrt() && largest_error <= MAX_ELEMENT_ERROR * largest
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { largest, wrong, requantised, elements, .. } = self;
        match (wrong, *largest) {
            (0, _) if *requantised > 0 => write!(
                f,
                "equal within quantisation ({requantised} of {elements} elements differ beyond rounding, by up to {largest:.1e})"
            ),
            (0, 0.0) => write!(f, "equal, bit for bit ({elements} elements)"),
            (0, _) => write!(f, "equal within {largest:.1e} ({elements} elements)"),
            _ => write!(f, "{wrong} of {elements} elements differ, by up to {largest:.1e}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::DType;

    fn floats(values: &[f32]) -> TensorData {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        TensorData::new(DType::F32, [values.len() as u64], bytes).unwrap()
    }

    #[test]
    fn what_rounding_changes_is_tolerated_and_nothing_else() {
        let base = [floats(&[1.0, f32::NAN, 1000.0])];
        for (other, largest, wrong) in [
            (&[1.0, f32::NAN, 1000.0], 0.0, 0),
            (&[1.0, f32::NAN, 1000.5], 0.5, 0),
            (&[1.5, f32::NAN, 1000.0], 0.5, 1),
            (&[1.0, 2.0, 1000.0], f64::INFINITY, 1),
        ] {
            let found = Difference::between(&[floats(other)], &base, Tolerance::Rounding);
            assert_eq!((found.largest, found.wrong, found.elements), (largest, wrong, 3), "{found}");
            assert_eq!(found.is_tolerable(), wrong == 0);
        }
        for other in [&[][..], &[floats(&[1.0])]] {
            let found = Difference::between(other, &base, Tolerance::Rounding);
            assert!(!found.is_tolerable() && !found.is_finite(), "{found}");
        }
    }

    #[test]
    fn tolerance_of_quantised_models_is_relative_to_the_norm() {
        let infinite = f32::INFINITY;
        for (wanted, other, wrong) in [
            ([3.0, 4.0, 0.0], [3.0, 4.0, 0.04], 0),
            ([3.0, 4.0, 0.0], [3.0, 4.0, 0.06], 1),
            ([3.0, 4.0, 0.0], [3.0, f32::NAN, 0.0], 1),
            ([3.0, infinite, 0.0], [3.0, 4.0, 0.0], 1),
        ] {
            let found = Difference::between(&[floats(&other)], &[floats(&wanted)], Tolerance::Quantisation);
            assert_eq!((found.wrong, found.requantised), (wrong, 1 - wrong), "{other:?}: {found}");
        }
        // The error of one element among many large ones has a small norm.
        let wanted = vec![10.0; 400];
        let mut other = wanted.clone();
        other[7] = 9.0;
        let found = Difference::between(&[floats(&other)], &[floats(&wanted)], Tolerance::Quantisation);
        assert_eq!(found.wrong, 1, "{found}");
        // Indices are no quantised numbers.
        let index = |index: i64| TensorData::new(DType::I64, [1], index.to_le_bytes().to_vec()).unwrap();
        let found = Difference::between(&[index(201)], &[index(200)], Tolerance::Quantisation);
        assert_eq!((found.wrong, found.requantised), (1, 0), "{found}");
    }

    #[test]
    fn errors_are_means_over_all_elements_and_relative_to_the_largest() {
        let wanted = [floats(&[1.0, -4.0, 0.0, f32::INFINITY]), floats(&[7.0, 7.0, 7.0, 7.0])];
        let found = [floats(&[1.0, -3.0, 0.5, f32::INFINITY]), wanted[1].clone()];
        let difference = Difference::between(&found, &wanted, Tolerance::Rounding);
        assert!(difference.is_finite());
        assert_eq!((difference.largest, difference.mean, difference.elements), (1.0, 1.5 / 8.0, 8));
        assert_eq!((difference.largest_relative, difference.mean_relative), (0.25, 0.375 / 8.0));
        let missing = [floats(&[1.0, -3.0, 0.5, 3.0]), wanted[1].clone()];
        let missing = Difference::between(&missing, &wanted, Tolerance::Rounding);
        assert!(!missing.is_finite() && missing.mean.is_infinite(), "{missing}");
        assert_eq!(Difference::between(&wanted, &wanted, Tolerance::Rounding).mean, 0.0);
    }
}
