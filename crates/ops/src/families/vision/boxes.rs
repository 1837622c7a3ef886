//! Boxes and their intersection over union.

/// Two opposite corners, in any order: (x, y, x, y) or (y, x, y, x).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Corners(pub [f64; 4]);

impl Corners {
    /// The first four of `numbers`; zeros where there are fewer.
    pub fn of(numbers: &[f64]) -> Corners {
        let mut corners = [0.0; 4];
        corners.iter_mut().zip(numbers).for_each(|(corner, number)| *corner = *number);
        Corners(corners)
    }

    /// Smallest and largest coordinate along the first (0) or second (1) axis.
    fn span(&self, axis: usize) -> (f64, f64) {
        let (a, b) = (self.0[axis], self.0[axis + 2]);
        (a.min(b), a.max(b))
    }

    /// Intersection over union; 0 for boxes without area.
    pub fn overlap(&self, other: &Corners) -> f64 {
        let length = |(low, high): (f64, f64)| high - low;
        let shared = |axis| {
            let ((a, b), (c, d)) = (self.span(axis), other.span(axis));
            (b.min(d) - a.max(c)).max(0.0)
        };
        let area = |of: &Corners| length(of.span(0)) * length(of.span(1));
        let intersection = shared(0) * shared(1);
        let union = area(self) + area(other) - intersection;
        if union <= 0.0 { 0.0 } else { intersection / union }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_does_not_depend_on_the_order_of_corners() {
        let (a, b) = (Corners([0., 0., 2., 2.]), Corners([3., 2., 1., 0.]));
        assert_eq!(a.overlap(&b), 2.0 / 6.0);
        assert_eq!(a.overlap(&a), 1.0);
        assert_eq!(a.overlap(&Corners([5., 5., 6., 6.])), 0.0);
        assert_eq!(Corners([1., 1., 1., 1.]).overlap(&a), 0.0);
    }
}
