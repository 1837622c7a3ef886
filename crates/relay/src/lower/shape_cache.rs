//! A cache of recent shapes, so that equal shapes share memory: models repeat a few shapes many times.

use edgecut_graph::{Shape, TensorType};

/// Recently used shapes, most recent first.
#[derive(Default)]
pub(super) struct ShapeCache(Vec<Shape>);

/// Number of cached shapes; more than one block of a network has.
const CAPACITY: usize = 16;

impl ShapeCache {
    /// Replaces the shape of `ty` with an equal cached one, or caches it.
    pub fn share(&mut self, ty: &mut TensorType) {
        match self.0.iter().position(|known| *known == ty.shape) {
            Some(at) => {
                self.0[..=at].rotate_right(1);
                ty.shape.clone_from(&self.0[0]);
            }
            None => {
                self.0.truncate(CAPACITY - 1);
                self.0.insert(0, ty.shape.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::DType;

    #[test]
    fn equal_shapes_share_their_dimensions() {
        let mut recent = ShapeCache::default();
        let mut types = [[2, 3], [4, 5], [2, 3]].map(|dims| TensorType::of(DType::F32, &dims));
        types.iter_mut().for_each(|ty| recent.share(ty));
        assert_eq!(types[0].shape.as_ptr(), types[2].shape.as_ptr());
        assert_ne!(types[0].shape.as_ptr(), types[1].shape.as_ptr());
        assert_eq!(types[2], TensorType::of(DType::F32, &[2, 3]));
    }
}
