//! Layout strings: the order of a tensor's axes, and which of them are blocked.
//!
//! An upper-case letter is an axis; a lower-case letter with a number before it is the inner part of that axis in blocks
//! of that size: `NCHW16c` is (N, C/16, H, W, 16). An axis may be blocked more than once, outer parts first:
//! `OIHW4i16o4i` is (O/16, I/16, H, W, 4, 16, 4).

use crate::def::{Call, TypeError};
use edgecut_graph::{Dim, Shape, TensorType};
use smallvec::SmallVec;

/// A parsed layout string. Every blocked axis has an outer part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout(Parts);

type Parts = SmallVec<[Part; 6]>;

/// An axis of the stored tensor: a whole axis or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    /// Upper case.
    letter: char,
    /// 0 for an unblocked axis or its outermost part, then inwards.
    level: usize,
    /// Size of an inner part; 0 at level 0.
    size: u64,
}

impl Layout {
    /// # Errors
    /// If `text` is not a layout: the reason.
    pub fn parse(text: &str) -> Result<Layout, String> {
        let error = |why: &str| format!("`{text}` is not a layout: {why}");
        let mut parts = Parts::new();
        let mut block: Option<u64> = None;
        for c in text.chars() {
            let letter = c.to_ascii_uppercase();
            let inner = parts.iter().filter(|p| p.letter == letter && p.level > 0).count();
            match c {
                '0'..='9' => {
                    let digit = u64::from(c) - u64::from('0');
                    let size = block.unwrap_or(0) * 10 + digit;
                    block = Some(size).filter(|n| *n <= 1 << 20);
                    block.ok_or_else(|| error("a block is too large"))?;
                }
                'A'..='Z' if block.is_none() && !parts.iter().any(|p| p.letter == c && p.level == 0) => {
                    parts.push(Part { letter, level: 0, size: 0 });
                }
                'a'..='z' => {
                    let size = block.take().filter(|n| *n > 0).ok_or_else(|| error("a block has no size"))?;
                    parts.push(Part { letter, level: inner + 1, size });
                }
                _ => return Err(error("expected each axis once, and block sizes before lower-case letters")),
            }
        }
        if block.is_some() {
            return Err(error("it ends in a number"));
        }
        let layout = Layout(parts);
        match layout.0.iter().find(|p| layout.position(p.letter).is_none()) {
            Some(lost) => Err(error(&format!("{} has blocks but no outer part", lost.letter))),
            None => Ok(layout),
        }
    }

    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Position of the axis `letter`, or of its outermost part.
    pub fn position(&self, letter: char) -> Option<usize> {
        self.0.iter().position(|p| p.letter == letter && p.level == 0)
    }

    /// Block sizes of `letter`, from the outermost inwards.
    fn blocks(&self, letter: char) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().filter(move |p| p.letter == letter && p.level > 0).map(|p| p.size)
    }

    /// Product of the block sizes of `letter`; 1 if it is not blocked.
    pub fn block(&self, letter: char) -> u64 {
        self.blocks(letter).fold(1, u64::saturating_mul)
    }

    /// Whether the axis `letter` is blocked.
    pub fn splits(&self, letter: char) -> bool {
        self.blocks(letter).next().is_some()
    }

    /// The axes in order, blocks omitted.
    pub fn letters(&self) -> String {
        self.0.iter().filter(|p| p.level == 0).map(|p| p.letter).collect()
    }

    /// Whether the axes are exactly `letters`, in any order.
    pub fn has_exactly(&self, letters: &str) -> bool {
        let whole = self.letters();
        whole.len() == letters.len() && letters.chars().all(|l| whole.contains(l))
    }

    /// Sizes of the axes `letters` of a tensor of `shape` in this layout, in elements. `None` if the rank or a block size
    /// differs or a letter is missing.
    pub fn sizes(&self, shape: &[Dim], letters: &str) -> Option<Vec<Dim>> {
        let size = |letter| {
            let outer = *shape.get(self.position(letter)?)?;
            Some(map_dim(outer, |n| n.saturating_mul(self.block(letter))))
        };
        let fits = |(part, dim): (&Part, &Dim)| part.level == 0 || dim.get().is_none_or(|n| n == part.size);
        let fits = shape.len() == self.rank() && self.0.iter().zip(shape).all(fits);
        fits.then(|| letters.chars().map(size).collect()).flatten()
    }

    /// The shape in this layout of a tensor whose axes `letters` have `sizes`, padded to whole blocks. `None` if an axis of
    /// the layout is not among `letters`.
    pub fn shape(&self, letters: &str, sizes: &[Dim]) -> Option<Shape> {
        let dim = |part: &Part| match part.level {
            0 => {
                let at = letters.chars().position(|l| l == part.letter)?;
                Some(map_dim(*sizes.get(at)?, |n| n.div_ceil(self.block(part.letter))))
            }
            _ => Some(Dim::Known(part.size)),
        };
        self.0.iter().map(dim).collect()
    }
}

impl Call<'_> {
    /// The layout attribute `key`, which must have exactly the axes `letters`; empty means the default.
    pub(crate) fn layout(&self, key: &str, default: &'static str, letters: &str) -> Result<Layout, TypeError> {
        let text = match self.text(key, default)? {
            "" => default,
            text => text,
        };
        let layout = Layout::parse(text).map_err(|e| self.error(format!("{key}: {e}")))?;
        match layout.has_exactly(letters) {
            true => Ok(layout),
            false => Err(self.error(format!("{key}=\"{text}\" must have the axes {letters}"))),
        }
    }

    /// The layout attribute `out_layout`; empty means `same`.
    pub(crate) fn out_layout(&self, same: &Layout, letters: &str) -> Result<Layout, TypeError> {
        match self.text("out_layout", "")? {
            "" => Ok(same.clone()),
            _ => self.layout("out_layout", "", letters),
        }
    }

    /// The sizes of the axes `letters` of a tensor stored in `layout`.
    pub(crate) fn sizes_in(&self, layout: &Layout, ty: &TensorType, letters: &str) -> Result<Vec<Dim>, TypeError> {
        let wanted = || self.error(format!("{ty} does not match its layout, which has {} axes", layout.rank()));
        layout.sizes(&ty.shape, letters).ok_or_else(wanted)
    }

    /// The dimensions of `what`.
    ///
    /// # Errors
    /// If one is unknown.
    pub(crate) fn known(&self, dims: &[Dim], what: &str) -> Result<Vec<u64>, TypeError> {
        let known: Option<Vec<u64>> = dims.iter().map(|d| d.get()).collect();
        known.ok_or_else(|| self.error(format!("{what} has unknown dimensions")))
    }
}

/// A dimension with its size mapped and its integer type kept; `?` stays.
pub(crate) fn map_dim(dim: Dim, size: impl FnOnce(u64) -> u64) -> Dim {
    match dim {
        Dim::Known(n) => Dim::Known(size(n)),
        Dim::Wide(n) => Dim::Wide(size(n)),
        Dim::Any => Dim::Any,
    }
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;
    use tract_core::ops::array::{Pad, PadMode};

    use crate::kernel::wiring::Wiring;

    impl Layout {
        /// Wires the conversion of `outlet` from layout `self` to `to`. Incomplete blocks are padded with zeros.
        ///
        /// # Errors
        /// If the layouts have different axes.
        pub fn wire(&self, to: &Layout, wiring: &mut Wiring<'_>, outlet: OutletId) -> TractResult<OutletId> {
            ensure!(to.has_exactly(&self.letters()), "the layouts have different axes");
            let (mut at, mut parts) = (outlet, self.0.clone());
            for letter in self.letters().chars().filter(|l| !self.blocks(*l).eq(to.blocks(*l))) {
                at = merge(letter, &mut parts, wiring, at)?;
                at = split(letter, to, &mut parts, wiring, at)?;
            }
            let from = |wanted: &Part| parts.iter().position(|p| (p.letter, p.level) == (wanted.letter, wanted.level));
            let order: Option<Vec<usize>> = to.0.iter().map(from).collect();
            wiring.permute(at, &order.context("the layouts have different axes")?)
        }
    }

    /// Moves the inner parts of an axis behind its outer part and merges them.
    fn merge(letter: char, parts: &mut Parts, wiring: &mut Wiring<'_>, mut at: OutletId) -> TractResult<OutletId> {
        let levels = parts.iter().filter(|p| p.letter == letter).count();
        for level in (1..levels).rev() {
            let find = |level| parts.iter().position(|p| (p.letter, p.level) == (letter, level));
            let (outer, inner) = find(level - 1).zip(find(level)).context("a block has no outer part")?;
            let target = if inner < outer { outer } else { outer + 1 };
            if inner != target {
                at = wiring.one(AxisOp::Move(inner, target), &[at])?;
            }
            let part = parts.remove(inner);
            let outer = target - 1;
            let shape = wiring.concrete(at)?;
            let joined = shape[outer] * shape[target];
            let op =
                AxisOp::Reshape(outer, tvec![shape[outer].to_dim(), shape[target].to_dim()], tvec![joined.to_dim()]);
            at = wiring.one(op, &[at])?;
            debug_assert_eq!(part.level, level);
        }
        Ok(at)
    }

    /// Splits an unblocked axis into its parts in `to`, which are then adjacent.
    fn split(
        letter: char,
        to: &Layout,
        parts: &mut Parts,
        wiring: &mut Wiring<'_>,
        mut at: OutletId,
    ) -> TractResult<OutletId> {
        let block = to.block(letter) as usize;
        if !to.splits(letter) {
            return Ok(at);
        }
        let axis = parts.iter().position(|p| p.letter == letter).context("the layouts have different axes")?;
        let (shape, dtype) = (wiring.concrete(at)?, wiring.fact(at)?.datum_type);
        let filled = shape[axis].next_multiple_of(block);
        if filled > shape[axis] {
            let mut pads = vec![(0, 0); shape.len()];
            pads[axis] = (0, filled - shape[axis]);
            let zero = Tensor::zero_scalar_dt(dtype)?.into_arc_tensor();
            at = wiring.one(Pad { pads, mode: PadMode::Constant(zero) }, &[at])?;
        }
        let mut sizes = tvec![(filled / block).to_dim()];
        for (i, size) in to.blocks(letter).enumerate() {
            sizes.push(size.to_dim());
            parts.insert(axis + i + 1, Part { letter, level: i + 1, size });
        }
        wiring.one(AxisOp::Reshape(axis, tvec![filled.to_dim()], sizes), &[at])
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn blocked_shapes_and_sizes_round_trip() {
            let blocked = Layout::parse("NCHW4c").unwrap();
            let shape = Shape::of(&[1, 2, 6, 7, 4]);
            let sizes = blocked.sizes(&shape, "NCHW").unwrap();
            assert_eq!(sizes, *Shape::of(&[1, 8, 6, 7]));
            assert_eq!(blocked.shape("NCHW", &sizes), Some(shape));
            let kernel = Layout::parse("OIHW4i8o").unwrap();
            assert_eq!(
                kernel.shape("OIHW", &Shape::of(&[16, 8, 3, 3])),
                Some(Shape::of(&[2, 2, 3, 3, 4, 8])),
                "each axis has its own block size"
            );
            assert_eq!(
                blocked.shape("NCHW", &[Dim::Any, Dim::Known(5), Dim::Any, Dim::Known(1)]).unwrap()[1],
                2.into()
            );
        }

        #[test]
        fn an_axis_can_be_blocked_more_than_once() {
            let (plain, twice) = (Layout::parse("OI").unwrap(), Layout::parse("OI2i3o2i").unwrap());
            assert_eq!(twice.shape("OI", &Shape::of(&[6, 8])), Some(Shape::of(&[2, 2, 2, 3, 2])));
            let mut model = TypedModel::default();
            let data: Vec<i32> = (0..48).collect();
            let source = model.add_const("x", Tensor::from_shape(&[6, 8], &data).unwrap()).unwrap();
            let made = plain.wire(&twice, &mut Wiring::new(&mut model, "change"), source).unwrap();
            model.select_output_outlets(&[made]).unwrap();
            let made = model.into_runnable().unwrap().run(tvec![]).unwrap();
            // O = 1 · 3 + 2, I = 1 · 4 + 1 · 2 + 0
            assert_eq!(made[0].to_plain_array_view::<i32>().unwrap()[[1, 1, 1, 2, 0]], 5 * 8 + 6);
        }

        #[test]
        fn invalid_layouts_are_refused() {
            for bad in ["NCHW4", "NCHWc", "NCHW4x", "NCCH", "NC0c", "N-C", "4N", "NC99999999999999999999c"] {
                assert!(Layout::parse(bad).is_err(), "{bad}");
            }
        }

        #[test]
        fn converting_a_layout_and_back_is_the_identity() {
            let (plain, blocked) = (Layout::parse("NCHW").unwrap(), Layout::parse("NHCW3c").unwrap());
            let mut model = TypedModel::default();
            let data: Vec<f32> = (0..2 * 7 * 2 * 3).map(|n| n as f32).collect();
            let input = tract_core::ndarray::Array::from_shape_vec((2, 7, 2, 3), data).unwrap().into_tensor();
            let source = model.add_const("x", input.clone()).unwrap();
            let mut wiring = Wiring::new(&mut model, "change");
            let there = plain.wire(&blocked, &mut wiring, source).unwrap();
            assert_eq!(wiring.fact(there).unwrap().shape.as_concrete(), Some(&[2, 2, 3, 3, 3][..]));
            let back = blocked.wire(&plain, &mut wiring, there).unwrap();
            model.select_output_outlets(&[back]).unwrap();
            let result = model.into_runnable().unwrap().run(tvec![]).unwrap();
            let filled = result[0].slice(1, 7, 9).unwrap();
            assert_eq!(result[0].slice(1, 0, 7).unwrap(), input);
            assert_eq!(filled, Tensor::zero::<f32>(filled.shape()).unwrap(), "incomplete blocks are padded with zeros");
        }
    }
}
