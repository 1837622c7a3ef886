//! Layout strings: which axis of a tensor is which, and which axes are stored in blocks.
//!
//! An upper-case letter is an axis, a lower-case one with a number before it the inner part of that axis in
//! blocks of that size: `NCHW16c` is (N, C/16, H, W, 16).

use smallvec::SmallVec;
use tract_core::internal::*;
use tract_core::ops::array::{Pad, PadMode};

use super::{Call, TypeError, kernel::Wiring};
use crate::graph::{Dim, Shape, TensorType};

/// A parsed layout string. Letters are unique; every blocked axis also stands as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout(SmallVec<[Axis; 6]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    /// Upper case.
    letter: char,
    /// The block size if this is the inner part.
    block: Option<u64>,
}

impl Layout {
    /// # Errors
    /// If `text` is no layout: the reason.
    pub fn parse(text: &str) -> Result<Layout, String> {
        let error = |why: &str| format!("`{text}` is not a layout: {why}");
        let mut axes: SmallVec<[Axis; 6]> = SmallVec::new();
        let mut block: Option<u64> = None;
        for c in text.chars() {
            let axis = match c {
                '0'..='9' => {
                    let digit = u64::from(c) - u64::from('0');
                    let value = block.unwrap_or(0).checked_mul(10).and_then(|n| n.checked_add(digit));
                    block = Some(value.filter(|n| *n <= 1 << 32).ok_or_else(|| error("the block is too large"))?);
                    continue;
                }
                'A'..='Z' if block.is_none() => Axis { letter: c, block: None },
                'a'..='z' => {
                    let size = block.take().filter(|n| *n > 0).ok_or_else(|| error("a block needs a size"))?;
                    Axis { letter: c.to_ascii_uppercase(), block: Some(size) }
                }
                _ => return Err(error("expected letters, and sizes before lower-case letters")),
            };
            if axes.iter().any(|a| a.letter == axis.letter && a.block.is_some() == axis.block.is_some()) {
                return Err(error(&format!("{c} stands twice")));
            }
            axes.push(axis);
        }
        if block.is_some() {
            return Err(error("it ends in a number"));
        }
        let whole = |letter| axes.iter().any(|a| a.letter == letter && a.block.is_none());
        if let Some(lost) = axes.iter().find(|a| !whole(a.letter)) {
            return Err(error(&format!("{} is only there in blocks", lost.letter)));
        }
        Ok(Layout(axes))
    }

    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Where the whole axis (or its outer part) `letter` stands.
    pub fn position(&self, letter: char) -> Option<usize> {
        self.0.iter().position(|a| a.letter == letter && a.block.is_none())
    }

    /// The block size of `letter`; `None` if it is not blocked.
    pub fn block(&self, letter: char) -> Option<u64> {
        self.0.iter().find_map(|a| a.block.filter(|_| a.letter == letter))
    }

    /// Whether the whole axes are exactly `letters`, in any order.
    pub fn has_exactly(&self, letters: &str) -> bool {
        let whole = self.0.iter().filter(|a| a.block.is_none()).count();
        whole == letters.chars().count() && letters.chars().all(|l| self.position(l).is_some())
    }

    /// Sizes of the axes `letters` of a tensor of `shape` in this layout, blocks multiplied in.
    /// `None` if the rank differs or a letter is missing.
    pub fn sizes(&self, shape: &[Dim], letters: &str) -> Option<Vec<Dim>> {
        let size = |letter| {
            let outer = *shape.get(self.position(letter)?)?;
            Some(map_dim(outer, |n| n.saturating_mul(self.block(letter).unwrap_or(1))))
        };
        (shape.len() == self.rank()).then(|| letters.chars().map(size).collect()).flatten()
    }

    /// The shape in this layout of a tensor whose axes `letters` have `sizes`; blocks are filled up.
    /// `None` if a letter of the layout is not among them.
    pub fn shape(&self, letters: &str, sizes: &[Dim]) -> Option<Shape> {
        let axis = |a: &Axis| match a.block {
            Some(block) => Some(Dim::Known(block)),
            None => {
                let at = letters.chars().position(|l| l == a.letter)?;
                Some(map_dim(*sizes.get(at)?, |n| n.div_ceil(self.block(a.letter).unwrap_or(1))))
            }
        };
        self.0.iter().map(axis).collect()
    }

    /// Wires the change of `outlet` from layout `self` to `to`. Blocks that a size does not fill are filled
    /// with zeros.
    ///
    /// # Errors
    /// If the layouts are not about the same axes.
    pub fn wire(&self, to: &Layout, wiring: &mut Wiring<'_>, outlet: OutletId) -> TractResult<OutletId> {
        if self == to {
            return Ok(outlet);
        }
        let mut at = outlet;
        let mut axes = self.0.clone();
        while let Some(inner) = axes.iter().position(|a| a.block.is_some() && !to.0.contains(a)) {
            at = merge_block(&mut axes, inner, wiring, at)?;
        }
        for wanted in to.0.iter().filter(|a| a.block.is_some()) {
            if !axes.contains(wanted) {
                at = split_block(&mut axes, *wanted, wiring, at)?;
            }
        }
        for (target, wanted) in to.0.iter().enumerate() {
            let from = axes.iter().position(|a| a == wanted).context("the layouts are about other axes")?;
            if from != target {
                at = wiring.one(AxisOp::Move(from, target), &[at])?;
                let moved = axes.remove(from);
                axes.insert(target, moved);
            }
        }
        ensure!(axes.len() == to.rank(), "the layouts are about other axes");
        Ok(at)
    }
}

/// Moves the inner part at `inner` behind its outer part and joins them.
fn merge_block(
    axes: &mut SmallVec<[Axis; 6]>,
    inner: usize,
    wiring: &mut Wiring<'_>,
    mut at: OutletId,
) -> TractResult<OutletId> {
    let part = axes.remove(inner);
    let outer = axes.iter().position(|a| a.letter == part.letter).context("a block without its axis")?;
    if outer + 1 != inner {
        at = wiring.one(AxisOp::Move(inner, outer + 1), &[at])?;
    }
    let shape = &wiring.fact(at)?.shape;
    let parts = tvec![shape[outer].clone(), shape[outer + 1].clone()];
    let joined = parts[0].clone() * &parts[1];
    wiring.one(AxisOp::Reshape(outer, parts, tvec![joined]), &[at])
}

/// Splits the whole axis of `wanted` into blocks, the inner part right behind the outer one.
fn split_block(
    axes: &mut SmallVec<[Axis; 6]>,
    wanted: Axis,
    wiring: &mut Wiring<'_>,
    mut at: OutletId,
) -> TractResult<OutletId> {
    let outer = axes.iter().position(|a| a.letter == wanted.letter).context("the layouts are about other axes")?;
    let block = wanted.block.context("an inner part has a size")? as usize;
    let fact = wiring.fact(at)?;
    let (size, rank, dtype) = (fact.shape[outer].to_usize()?, fact.rank(), fact.datum_type);
    let missing = size.next_multiple_of(block) - size;
    if missing > 0 {
        let mut pads = vec![(0, 0); rank];
        pads[outer] = (0, missing);
        let zero = Tensor::zero_scalar_dt(dtype)?.into_arc_tensor();
        at = wiring.one(Pad { pads, mode: PadMode::Constant(zero) }, &[at])?;
    }
    let parts = tvec![(size + missing).div_euclid(block).to_dim(), block.to_dim()];
    axes.insert(outer + 1, wanted);
    wiring.one(AxisOp::Reshape(outer, tvec![(size + missing).to_dim()], parts), &[at])
}

impl Call<'_> {
    /// The layout attribute `key`, which must name exactly the axes `letters`; an empty one is the default.
    pub(super) fn layout(&self, key: &str, default: &'static str, letters: &str) -> Result<Layout, TypeError> {
        let text = match self.text(key, default)? {
            "" => default,
            text => text,
        };
        let layout = Layout::parse(text).map_err(|e| self.error(format!("{key}: {e}")))?;
        match layout.has_exactly(letters) {
            true => Ok(layout),
            false => Err(self.error(format!("{key}=\"{text}\" must name the axes {letters}"))),
        }
    }

    /// The layout attribute `out_layout`, where an empty one means `same`.
    pub(super) fn out_layout(&self, same: &Layout, letters: &str) -> Result<Layout, TypeError> {
        match self.text("out_layout", "")? {
            "" => Ok(same.clone()),
            _ => self.layout("out_layout", "", letters),
        }
    }

    /// The sizes of the axes `letters` of a tensor stored in `layout`.
    pub(super) fn sizes_in(&self, layout: &Layout, ty: &TensorType, letters: &str) -> Result<Vec<Dim>, TypeError> {
        let wanted = || self.error(format!("{ty} does not have the {} dimensions of its layout", layout.rank()));
        layout.sizes(&ty.shape, letters).ok_or_else(wanted)
    }

    /// Dimensions that must be known; `what` they belong to.
    pub(super) fn known(&self, dims: &[Dim], what: &str) -> Result<Vec<u64>, TypeError> {
        let known: Option<Vec<u64>> = dims.iter().map(|d| d.get()).collect();
        known.ok_or_else(|| self.error(format!("{what} has unknown dimensions")))
    }
}

/// A dimension of another size and the same kind; `?` stays.
pub(super) fn map_dim(dim: Dim, size: impl FnOnce(u64) -> u64) -> Dim {
    match dim {
        Dim::Known(n) => Dim::Known(size(n)),
        Dim::Wide(n) => Dim::Wide(size(n)),
        Dim::Any => Dim::Any,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_into_blocks_and_back() {
        let blocked = Layout::parse("NCHW4c").unwrap();
        let shape = Shape::of(&[1, 2, 6, 7, 4]);
        let sizes = blocked.sizes(&shape, "NCHW").unwrap();
        assert_eq!(sizes, *Shape::of(&[1, 8, 6, 7]));
        assert_eq!(blocked.shape("NCHW", &sizes), Some(shape));
        let kernel = Layout::parse("OIHW4i8o").unwrap();
        assert_eq!(
            kernel.shape("OIHW", &Shape::of(&[16, 8, 3, 3])),
            Some(Shape::of(&[2, 2, 3, 3, 4, 8])),
            "each axis is divided by its own block"
        );
        assert_eq!(blocked.shape("NCHW", &[Dim::Any, Dim::Known(5), Dim::Any, Dim::Known(1)]).unwrap()[1], 2.into());
    }

    #[test]
    fn what_is_no_layout_is_refused() {
        for bad in ["NCHW4", "NCHWc", "NCHW4x", "NCCH", "NC0c", "N-C", "NC4c8c", "4N", "NC99999999999999999999c"] {
            assert!(Layout::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_change_of_layout_there_and_back_is_the_identity() {
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
        assert_eq!(filled, Tensor::zero::<f32>(filled.shape()).unwrap(), "blocks are filled with zeros");
    }
}
