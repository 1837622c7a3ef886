//! Coordinate transformations and interpolation methods of resizing.
//!
//! After `topi/image/resize.py` of TVM 0.14, whose coordinates are computed in single precision; with a scale, after ONNX's
//! `Resize`, as ONNX Runtime computes it (`upsample.h`).

use crate::taps::Taps;
use smallvec::SmallVec;

/// Maps indices of the result, of length `m`, to positions in the data, of length `n`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Coordinates {
    HalfPixel,
    AlignCorners,
    Asymmetric,
    PytorchHalfPixel,
    TfHalfPixelForNn,
    /// ONNX's alone.
    HalfPixelSymmetric,
    /// The crop in units of the last index of the axis.
    TfCropAndResize {
        start: f32,
        end: f32,
    },
}

/// The rounding of nearest-neighbour interpolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nearest {
    /// Half away from zero.
    Round,
    RoundPreferFloor,
    RoundPreferCeil,
    Floor,
    Ceil,
    /// Floor where the axis is enlarged, ceil where it is reduced: ONNX's until operator set 10.
    Simple,
}

/// The interpolation method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Method {
    Nearest(Nearest),
    Linear,
    Cubic {
        alpha: f32,
        /// Elements out of bounds have weight zero; else the edge is repeated.
        exclude_outside: bool,
    },
}

impl Coordinates {
    /// The position in the data of index `x` of the result. ONNX's `scale` is by how much the axis grows, Relay's is
    /// that of the sizes.
    pub fn source(self, x: usize, n: usize, m: usize, scale: Option<f32>) -> f32 {
        let (at, n, m) = (x as f32, n as f32, m as f32);
        if let Some(scale) = scale {
            return self.scaled(at, n, m, scale);
        }
        let scale = n / m;
        match self {
            Coordinates::HalfPixelSymmetric => (at + 0.5) * scale - 0.5,
            Coordinates::HalfPixel => (at + 0.5) * scale - 0.5,
            Coordinates::PytorchHalfPixel if m > 1.0 => (at + 0.5) * scale - 0.5,
            Coordinates::PytorchHalfPixel => 0.0,
            Coordinates::AlignCorners => (n - 1.0) / (m - 1.0).max(1.0) * at,
            Coordinates::Asymmetric => scale * at,
            Coordinates::TfHalfPixelForNn => (at + 0.5) * scale,
            Coordinates::TfCropAndResize { start, end } if m > 1.0 => {
                start * (n - 1.0) + at * (end - start) * (n - 1.0) / (m - 1.0)
            }
            Coordinates::TfCropAndResize { start, end } => 0.5 * (start + end) * (n - 1.0),
        }
    }

    fn scaled(self, at: f32, n: f32, m: f32, scale: f32) -> f32 {
        match self {
            Coordinates::HalfPixel => (at + 0.5) / scale - 0.5,
            Coordinates::HalfPixelSymmetric => {
                let offset = n / 2.0 * (1.0 - m / (scale * n));
                offset + (at + 0.5) / scale - 0.5
            }
            Coordinates::PytorchHalfPixel if m > 1.0 => (at + 0.5) / scale - 0.5,
            Coordinates::Asymmetric => at / scale,
            Coordinates::TfHalfPixelForNn => (at + 0.5) / scale,
            Coordinates::AlignCorners if m > 1.0 => at * (n - 1.0) / (m - 1.0),
            Coordinates::TfCropAndResize { start, end } if m > 1.0 => {
                start * (n - 1.0) + (at * (end - start) * (n - 1.0)) / (m - 1.0)
            }
            Coordinates::TfCropAndResize { start, end } => 0.5 * (start + end) * (n - 1.0),
            Coordinates::PytorchHalfPixel | Coordinates::AlignCorners => 0.0,
        }
    }

    /// By index of the result: the index itself, or `None` where a crop reads out of bounds.
    pub fn inside(self, n: usize, m: usize, scale: Option<f32>) -> Vec<Option<usize>> {
        let cropped = matches!(self, Coordinates::TfCropAndResize { .. });
        let seen = |x: &usize| !cropped || (0.0..=n as f32 - 1.0).contains(&self.source(*x, n, m, scale));
        (0..m).map(|x| Some(x).filter(seen)).collect()
    }
}

impl Nearest {
    fn index(self, position: f32, scale: Option<f32>) -> f32 {
        match (self, scale) {
            (Nearest::RoundPreferCeil | Nearest::Round, Some(_)) => return position.round(),
            (Nearest::Simple, Some(scale)) if scale < 1.0 => return position.ceil(),
            (Nearest::Floor | Nearest::Simple, Some(_)) => return position.floor(),
            (Nearest::Ceil, Some(_)) => return position.ceil(),
            _ => {}
        }
        // The epsilons keep positions that are integers up to rounding errors.
        match self {
            Nearest::Round => position.round(),
            Nearest::RoundPreferFloor => (position - 0.5).ceil(),
            Nearest::RoundPreferCeil => (position + 0.5).floor(),
            Nearest::Floor | Nearest::Simple => (position + 1e-5).floor(),
            Nearest::Ceil => (position - 1e-5).ceil(),
        }
    }
}

impl Method {
    /// The elements around `position` on an axis of length `n`, and their weights; indices are clamped.
    pub fn taps(self, position: f32, n: usize, scale: Option<f32>) -> SmallVec<[(usize, f32); 4]> {
        let clamp = |index: f32| index.clamp(0.0, n.saturating_sub(1) as f32) as usize;
        let (whole, part) = (position.floor(), position - position.floor());
        match self {
            Method::Nearest(nearest) => [(clamp(nearest.index(position, scale)), 1.0)].into_iter().collect(),
            Method::Linear => [(clamp(whole), 1.0 - part), (clamp(whole + 1.0), part)].into_iter().collect(),
            Method::Cubic { alpha, exclude_outside } => {
                let mut weights = cubic(part, alpha);
                if exclude_outside {
                    for (i, weight) in weights.iter_mut().enumerate() {
                        let index = whole - 1.0 + i as f32;
                        *weight = if index < 0.0 || index > n as f32 - 1.0 { 0.0 } else { *weight };
                    }
                    let sum: f32 = weights.iter().sum();
                    weights.iter_mut().for_each(|w| *w /= sum);
                }
                weights.iter().enumerate().map(|(i, w)| (clamp(whole - 1.0 + i as f32), *w)).collect()
            }
        }
    }

    /// The taps of an axis resized from length `n` to `m`. With `repeats`, asymmetric nearest-neighbour enlargement by an
    /// integer factor repeats each element, regardless of rounding, because TVM then uses integer division. With a
    /// `scale`, by ONNX's rules.
    pub fn axis(self, coordinates: Coordinates, n: usize, m: usize, repeats: bool, scale: Option<f32>) -> Taps {
        let repeats = repeats && scale.is_none();
        let whole = repeats && n > 0 && m.is_multiple_of(n) && coordinates == Coordinates::Asymmetric;
        let factor = m.checked_div(n).unwrap_or(0);
        if whole && matches!(self, Method::Nearest(_)) && factor as f64 <= 1.0 / (1e-5 * (n as f64 + 1.0)) {
            return (0..m).map(|x| [(x / factor, 1.0)].into_iter().collect()).collect();
        }
        (0..m).map(|x| self.taps(coordinates.source(x, n, m, scale), n, scale)).collect()
    }

    /// Number of taps per output position with antialiasing, for an axis that is resized by `scale`.
    pub fn antialiased_taps(self, scale: f32) -> u64 {
        let radius = match self {
            Method::Nearest(_) => return 1,
            Method::Linear => 1.0,
            Method::Cubic { .. } => 2.0,
        };
        ((radius / scale.min(1.0)).ceil() as u64).saturating_mul(2)
    }

    /// The weight of an element at `distance` from the position, in elements.
    fn weight(self, distance: f32) -> f32 {
        let at = distance.abs();
        match self {
            Method::Nearest(_) => f32::from(u8::from(at <= 0.5)),
            Method::Linear => (1.0 - at).max(0.0),
            Method::Cubic { .. } if at >= 2.0 => 0.0,
            Method::Cubic { alpha, .. } => cubic(at - at.floor(), alpha)[if at < 1.0 { 1 } else { 0 }],
        }
    }
}

/// Weights of cubic convolution for four neighbours, at fraction `part` between the second and the third.
pub(crate) fn cubic(part: f32, alpha: f32) -> [f32; 4] {
    let (t, t2, t3) = (part, part * part, part * part * part);
    [
        alpha * (t3 - 2.0 * t2 + t),
        (alpha + 2.0) * t3 - (3.0 + alpha) * t2 + 1.0,
        -(alpha + 2.0) * t3 + (3.0 + 2.0 * alpha) * t2 - alpha * t,
        -alpha * t3 + alpha * t2,
    ]
}

#[cfg(feature = "kernels")]
pub(crate) mod kernel {
    use super::*;
    use crate::kernel::remap::Remap;

    impl Method {
        /// Like [`Method::axis`], with ONNX's antialiasing: where the axis shrinks, the filter is wider by 1 / `scale` (`_linear_coeffs_antialias`
        /// and `_cubic_coeffs_antialias` of ONNX's reference implementation). Nearest-neighbour interpolation has no filter.
        pub fn antialiased_axis(self, coordinates: Coordinates, n: usize, m: usize, scale: f32) -> Taps {
            let exclude_outside = match self {
                Method::Linear => false,
                Method::Cubic { exclude_outside, .. } => exclude_outside,
                Method::Nearest(_) => return self.axis(coordinates, n, m, false, Some(scale)),
            };
            let (shrink, first) = (scale.min(1.0), 1.0 - (self.antialiased_taps(scale) / 2) as f32);
            let last = n.saturating_sub(1) as f32;
            let of_position = |position: f32| {
                let (whole, part) = (position.floor(), position - position.floor());
                let offsets = (0..=(1.0 - 2.0 * first) as usize).map(|i| first + i as f32);
                let taps = offsets.map(|offset| {
                    let index = whole + offset;
                    let is_outside = exclude_outside && !(0.0..=last).contains(&index);
                    let weight = if is_outside { 0.0 } else { self.weight((offset - part) * shrink) };
                    (index.clamp(0.0, last) as usize, weight)
                });
                let mut taps: SmallVec<[(usize, f32); 4]> = taps.collect();
                let sum: f32 = taps.iter().map(|(_, weight)| weight).sum();
                taps.iter_mut().for_each(|(_, weight)| *weight /= sum);
                taps
            };
            (0..m).map(|x| of_position(coordinates.source(x, n, m, Some(scale)))).collect()
        }
    }

    /// Index tables that select, along each of `axes`, the nearest element; other axes of `shape` are unchanged.
    pub(crate) fn nearest(shape: &[usize], axes: &[(usize, Taps)]) -> Remap {
        let mut tables: Vec<Vec<Option<usize>>> = shape.iter().map(|n| (0..*n).map(Some).collect()).collect();
        for (axis, taps) in axes {
            tables[*axis] = taps.iter().map(|taps| taps.first().map(|(index, _)| *index)).collect();
        }
        Remap::new(tables)
    }

    #[cfg(test)]
    mod tests {
        use tract_core::internal::*;

        use super::*;
        use crate::kernel::taps::resampled;

        #[test]
        fn weights_sum_to_one_and_stay_inside() {
            let cubic = Method::Cubic { alpha: -0.5, exclude_outside: true };
            for method in [Method::Linear, cubic, Method::Nearest(Nearest::Round)] {
                for coordinates in [Coordinates::HalfPixel, Coordinates::AlignCorners, Coordinates::TfHalfPixelForNn] {
                    for taps in method.axis(coordinates, 4, 9, true, None) {
                        assert!((taps.iter().map(|t| t.1).sum::<f32>() - 1.0).abs() < 1e-6);
                        assert!(taps.iter().all(|t| t.0 < 4));
                    }
                }
            }
        }

        #[test]
        fn positions_of_onnx_come_from_the_scale() {
            use Coordinates::*;
            for (coordinates, n, m, scale, positions) in [
                (HalfPixel, 4, 6, 1.5, &[-0.166_666_63f32, 0.5, 1.166_666_7, 1.833_333_3, 2.5, 3.166_666_7][..]),
                (HalfPixel, 5, 8, 1.7, &[-0.205_882_34, 0.382_352_95]),
                (Asymmetric, 5, 7, 1.4, &[0.0, 0.714_285_7]),
                (PytorchHalfPixel, 4, 1, 0.3, &[0.0]),
                (HalfPixelSymmetric, 4, 2, 0.6, &[0.666_666_7]),
                (AlignCorners, 4, 7, 1.8, &[0.0, 0.5, 1.0]),
            ] {
                let found: Vec<f32> = (0..positions.len()).map(|x| coordinates.source(x, n, m, Some(scale))).collect();
                let near = found.iter().zip(positions).all(|(a, b)| (a - b).abs() < 1e-5);
                assert!(near, "{coordinates:?} of {n} by {scale}: {found:?}");
            }
        }

        #[test]
        fn antialiasing_averages_what_is_reduced() {
            let cubic = Method::Cubic { alpha: -0.75, exclude_outside: false };
            for (method, scale) in [(Method::Linear, 0.6f32), (Method::Linear, 0.25), (cubic, 0.5)] {
                let m = (8.0 * scale) as usize;
                for taps in method.antialiased_axis(Coordinates::HalfPixel, 8, m, scale) {
                    assert!((taps.iter().map(|tap| tap.1).sum::<f32>() - 1.0).abs() < 1e-6 && taps.len() > 3);
                }
            }
            let enlarged = Method::Linear.antialiased_axis(Coordinates::HalfPixel, 4, 8, 2.0);
            assert_eq!(enlarged, Method::Linear.axis(Coordinates::HalfPixel, 4, 8, false, Some(2.0)));
            // Halves of 0, 1, 2, 3 with the triangle (1, 3, 3, 1) / 8, the edges repeated.
            let halves = Method::Linear.antialiased_axis(Coordinates::HalfPixel, 4, 2, 0.5);
            let value = |taps: &SmallVec<[(usize, f32); 4]>| taps.iter().map(|(i, w)| *i as f32 * w).sum::<f32>();
            assert_eq!(halves.iter().map(value).collect::<Vec<_>>(), [0.625, 2.375]);
        }

        #[test]
        fn rounding_of_onnx_has_no_tolerance() {
            for (nearest, position, scale, index) in [
                (Nearest::Floor, 1.999_995, 1.5, 1.0),
                (Nearest::Ceil, 1.000_005, 1.5, 2.0),
                (Nearest::RoundPreferFloor, 2.5, 1.5, 2.0),
                (Nearest::RoundPreferCeil, 2.5, 1.5, 3.0),
                (Nearest::Simple, 1.2, 1.5, 1.0),
                (Nearest::Simple, 1.2, 0.5, 2.0),
            ] {
                assert_eq!(nearest.index(position, Some(scale)), index, "{nearest:?} of {position}");
            }
        }

        #[test]
        fn doubling_repeats_and_halving_averages() {
            let data = tensor2(&[[1f32, 3.0], [5.0, 7.0]]);
            let double = Method::Nearest(Nearest::Floor).axis(Coordinates::Asymmetric, 2, 4, true, None);
            let made = nearest(&[2, 2], &[(1, double)]).apply(&data, &tensor0(0f32)).unwrap();
            assert_eq!(made, tensor2(&[[1f32, 1., 3., 3.], [5., 5., 7., 7.]]));
            let halve = Method::Linear.axis(Coordinates::HalfPixel, 2, 1, true, None);
            assert_eq!(resampled::<f32>(&data, &[(0, halve.clone()), (1, halve)]).unwrap(), tensor2(&[[4f32]]));
        }
    }
}
