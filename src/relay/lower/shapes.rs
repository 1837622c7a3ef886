//! Shapes that the results of operators had before: a model repeats few, and equal ones share their memory.

use crate::graph::{Shape, TensorType};

/// The shapes that were seen last, the last used first.
#[derive(Default)]
pub(super) struct Recent(Vec<Shape>);

/// Shapes that are kept; a block of a network has fewer.
const KEPT: usize = 16;

impl Recent {
    /// Makes the shape of `ty` one with an equal one that was seen before.
    pub fn share(&mut self, ty: &mut TensorType) {
        match self.0.iter().position(|known| *known == ty.shape) {
            Some(at) => {
                self.0[..=at].rotate_right(1);
                ty.shape.clone_from(&self.0[0]);
            }
            None => {
                self.0.truncate(KEPT - 1);
                self.0.insert(0, ty.shape.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::DType;

    #[test]
    fn equal_shapes_share_their_dimensions() {
        let mut recent = Recent::default();
        let mut types = [[2, 3], [4, 5], [2, 3]].map(|dims| TensorType::of(DType::F32, &dims));
        types.iter_mut().for_each(|ty| recent.share(ty));
        assert_eq!(types[0].shape.as_ptr(), types[2].shape.as_ptr());
        assert_ne!(types[0].shape.as_ptr(), types[1].shape.as_ptr());
        assert_eq!(types[2], TensorType::of(DType::F32, &[2, 3]));
    }
}
