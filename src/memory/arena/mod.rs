//! Offsets: where each buffer lies in the one range of bytes that a device reserves.
//!
//! A portfolio of first-fit orders ([`first_fit`]) is nearly always enough; it stops as soon as it reaches the
//! lower bound.

mod first_fit;
mod problem;

pub use problem::ArenaError;

use problem::Problem;

use super::{Buffer, Packing, bound};
use crate::units::Bytes;

/// How hard to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Placements that may be tried beyond the first-fit portfolio. Counted, not timed, so that the same input
    /// always gives the same packing.
    pub effort: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { effort: 200_000 }
    }
}

/// Gives every buffer an offset so that the arena is small.
///
/// # Errors
/// If an alignment is 0, a lifetime ends before it begins, fixed offsets overlap, or the sizes' sum does not fit in 63 bits.
pub fn pack(buffers: &[Buffer], _options: &Options) -> Result<Packing, ArenaError> {
    let problem = Problem::new(buffers)?;
    let bound = bound::arena(buffers);
    let offsets = first_fit::portfolio(&problem, bound.0);
    let height = problem.height(&offsets);
    Ok(Packing { offsets: offsets.into_iter().map(Bytes).collect(), height: Bytes(height), bound })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::check;

    fn buffers() -> impl Strategy<Value = Vec<Buffer>> {
        let buffer = (0u64..40, 1u64..12, 0u64..50, 0u32..4)
            .prop_map(|(lower, long, size, align)| Buffer::new(lower, lower + long, Bytes(size)).align(1 << align));
        prop::collection::vec(buffer, 0..40)
    }

    proptest! {
        #[test]
        fn packings_are_right(buffers in buffers()) {
            let packing = pack(&buffers, &Options::default()).unwrap();
            prop_assert_eq!(check::packing(&buffers, &packing), Ok(()));
        }

        #[test]
        fn fixed_offsets_are_kept(mut buffers in buffers()) {
            let packing = pack(&buffers, &Options::default()).unwrap();
            for (buffer, offset) in buffers.iter_mut().zip(&packing.offsets).step_by(3) {
                buffer.fixed = Some(*offset);
            }
            let again = pack(&buffers, &Options::default()).unwrap();
            prop_assert_eq!(check::packing(&buffers, &again), Ok(()));
        }
    }
}
