//! Layout strings of convolutions and pooling: values are brought to the layouts that ONNX knows, NCHW and OIHW.
//!
//! An upper-case letter is an axis; a lower-case letter after a number is the inner part of that axis in blocks of that
//! size: `NCHW16c` is (N, C/16, H, W, 16).

use super::builder::{ModelBuilder, OnnxValue};
use crate::error::Result;

/// The axes of a stored tensor, outermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlockedLayout(Vec<Part>);

/// A whole axis or, at a level above 0, a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    letter: char,
    /// 0 for an axis or its outermost part, then inwards.
    level: usize,
    /// Size of an inner part.
    size: i64,
}

impl BlockedLayout {
    pub fn parse(text: &str) -> Result<BlockedLayout> {
        let wrong = || format!("`{text}` is not a layout");
        let (mut parts, mut block): (Vec<Part>, i64) = (Vec::new(), 0);
        for c in text.chars() {
            let letter = c.to_ascii_uppercase();
            match c.to_digit(10) {
                Some(digit) => block = (block * 10 + i64::from(digit)).min(1 << 30),
                None if c.is_ascii_uppercase() => parts.push(Part { letter, level: 0, size: 0 }),
                None if c.is_ascii_lowercase() && block > 0 => {
                    let level = 1 + parts.iter().filter(|part| part.letter == letter && part.level > 0).count();
                    parts.push(Part { letter, level, size: block });
                    block = 0;
                }
                None => return Err(wrong()),
            }
        }
        Ok(BlockedLayout(parts))
    }

    /// The position of an axis, or of its outermost part.
    pub fn position(&self, letter: char) -> Option<usize> {
        self.0.iter().position(|part| part.letter == letter && part.level == 0)
    }

    /// Whether an axis is one part.
    pub fn is_whole(&self, letter: char) -> bool {
        self.0.iter().all(|part| part.letter != letter || part.level == 0)
    }

    /// The size of an axis of a tensor with the sizes `dims`.
    pub fn size(&self, dims: &[i64], letter: char) -> Option<i64> {
        let parts = self.0.iter().zip(dims).filter(|(part, _)| part.letter == letter);
        self.position(letter).map(|_| parts.map(|(_, size)| size).product())
    }

    /// The axes, each once.
    pub fn letters(&self) -> String {
        self.0.iter().filter(|part| part.level == 0).map(|part| part.letter).collect()
    }

    /// Nodes that bring `x`, stored like this with the sizes `dims` (if they are known), to unblocked axes in the order
    /// `letters`.
    pub fn unpack(
        &self,
        builder: &mut ModelBuilder,
        x: &OnnxValue,
        dims: Option<&[i64]>,
        letters: &str,
    ) -> Result<OnnxValue> {
        let mut order = Vec::new();
        for letter in letters.chars() {
            let mut parts: Vec<(usize, usize)> =
                self.0.iter().enumerate().filter(|(_, p)| p.letter == letter).map(|(at, p)| (p.level, at)).collect();
            parts.sort_unstable();
            order.extend(parts.into_iter().map(|(_, at)| at));
        }
        if order.len() != self.0.len() || letters.chars().any(|letter| self.position(letter).is_none()) {
            return Err(format!("a layout with the axes {} where {letters} are expected", self.letters()));
        }
        let turned = builder.transpose(x, &order)?;
        if letters.len() == self.0.len() {
            return Ok(turned);
        }
        let dims = dims.ok_or("blocked axes of unknown sizes")?;
        let sizes: Option<Vec<i64>> = letters.chars().map(|letter| self.size(dims, letter)).collect();
        builder.reshape(&turned, &sizes.ok_or("a layout without one of its axes")?)
    }

    /// Nodes that store like this `x`, whose unblocked axes `letters` have the sizes `sizes` (if they are known).
    /// Incomplete blocks are padded with zeros.
    pub fn pack(
        &self,
        builder: &mut ModelBuilder,
        x: &OnnxValue,
        sizes: Option<&[i64]>,
        letters: &str,
    ) -> Result<OnnxValue> {
        if self.letters().len() != letters.len() || letters.chars().any(|letter| self.position(letter).is_none()) {
            return Err(format!("a layout with the axes {} where {letters} are expected", self.letters()));
        }
        let mut at = x.clone();
        let mut parts: Vec<(char, usize)> = letters.chars().map(|letter| (letter, 0)).collect();
        if self.0.len() > letters.len() {
            let sizes = sizes.ok_or("blocked axes of unknown sizes")?;
            let (mut widths, mut dims) = (Vec::new(), Vec::new());
            parts.clear();
            for (letter, size) in letters.chars().zip(sizes) {
                let mut inner: Vec<&Part> = self.0.iter().filter(|p| p.letter == letter && p.level > 0).collect();
                inner.sort_unstable_by_key(|part| part.level);
                let block: i64 = inner.iter().map(|part| part.size).product();
                let outer = (size + block - 1) / block;
                widths.push((0, outer * block - size));
                dims.push(outer);
                parts.push((letter, 0));
                dims.extend(inner.iter().map(|part| part.size));
                parts.extend(inner.iter().map(|part| (letter, part.level)));
            }
            let zero = builder.scalar(0.0, at.dtype)?;
            at = builder.pad(&at, &widths, &zero)?;
            at = builder.reshape(&at, &dims)?;
        }
        let from = |wanted: &Part| parts.iter().position(|part| *part == (wanted.letter, wanted.level));
        let order: Option<Vec<usize>> = self.0.iter().map(from).collect();
        builder.transpose(&at, &order.ok_or("a layout without one of its axes")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_axes_have_the_product_of_their_parts() {
        let layout = BlockedLayout::parse("NCHW16c").unwrap();
        assert_eq!(layout.size(&[1, 2, 7, 7, 16], 'C'), Some(32));
        assert_eq!((layout.position('W'), layout.is_whole('C'), layout.is_whole('H')), (Some(3), false, true));
        assert!(BlockedLayout::parse("NCHWc").is_err());
    }
}
