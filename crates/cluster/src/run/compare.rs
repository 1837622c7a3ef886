//! Whether a plan's outputs are those of one device, within what float arithmetic in another order may change.

use std::fmt;

use edgecut_graph::TensorData;

/// The largest allowed |a − b| is this and [`RELATIVE`]·|b|.
const ABSOLUTE: f64 = 1e-4;
const RELATIVE: f64 = 1e-3;

/// How far two lists of tensors are apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Largest |a − b|; infinite where types differ, or exactly one of a and b is NaN.
    pub largest: f64,
    /// Elements that are further apart than is allowed.
    pub wrong: u64,
    pub elements: u64,
}

impl Difference {
    /// Compares `found` with `wanted` element by element.
    pub fn between(found: &[TensorData], wanted: &[TensorData]) -> Difference {
        let mut difference = Difference { largest: 0.0, wrong: 0, elements: 0 };
        if found.len() != wanted.len() {
            return Difference { largest: f64::INFINITY, wrong: 1, elements: 0 };
        }
        for (found, wanted) in found.iter().zip(wanted) {
            if found.bytes() == wanted.bytes() && found.ty() == wanted.ty() {
                difference.elements += found.shape().iter().product::<u64>();
                continue;
            }
            match (found.to_f64s(), wanted.to_f64s()) {
                (Some(a), Some(b)) if found.ty() == wanted.ty() => {
                    a.iter().zip(&b).for_each(|(a, b)| difference.add(*a, *b));
                }
                _ => {
                    difference.largest = f64::INFINITY;
                    difference.wrong += 1;
                }
            }
        }
        difference
    }

    fn add(&mut self, a: f64, b: f64) {
        self.elements += 1;
        let apart = match a == b || (a.is_nan() && b.is_nan()) {
            true => 0.0,
            false if a.is_nan() || b.is_nan() => f64::INFINITY,
            false => (a - b).abs(),
        };
        self.largest = self.largest.max(apart);
        let is_tolerable = apart == 0.0 || apart <= ABSOLUTE + RELATIVE * b.abs();
        self.wrong += u64::from(!is_tolerable);
    }

    pub fn is_tolerable(&self) -> bool {
        self.wrong == 0
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { largest, wrong, elements } = self;
        match (wrong, *largest) {
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
            let found = Difference::between(&[floats(other)], &base);
            assert_eq!((found.largest, found.wrong, found.elements), (largest, wrong, 3), "{found}");
            assert_eq!(found.is_tolerable(), wrong == 0);
        }
        assert!(!Difference::between(&[], &base).is_tolerable());
        assert!(!Difference::between(&[floats(&[1.0])], &base).is_tolerable());
    }
}
