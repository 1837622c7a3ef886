//! Runs of elements of an output along which broadcast operands are contiguous or constant: what a loop over several tensors
//! is vectorised along.

use tract_core::internal::*;

use crate::kernel::indexing::{broadcast_strides, flat, place};

/// The runs of a tensor along which every operand that is broadcast to it is contiguous or constant.
pub struct ContiguousRuns {
    /// Elements of a run.
    pub length: usize,
    /// The axes outside of the run.
    outer: TVec<usize>,
    /// By input: whether it is constant along the run, and its strides along the outer axes.
    pub inputs: TVec<(bool, TVec<usize>)>,
}

impl ContiguousRuns {
    /// The longest runs of an output of `shape`.
    pub fn new(shape: &[usize], inputs: &[&[usize]]) -> ContiguousRuns {
        let strides: TVec<TVec<usize>> = inputs.iter().map(|input| broadcast_strides(input, shape)).collect();
        let mut constant: TVec<Option<bool>> = tvec![None; inputs.len()];
        let (mut length, mut outer) = (1, shape.len());
        while outer > 0 {
            let axis = outer - 1;
            if shape[axis] != 1 {
                let kinds = strides.iter().zip(&constant).map(|(strides, constant)| match (strides[axis], constant) {
                    (0, None | Some(true)) => Some(true),
                    (step, None | Some(false)) if step == length => Some(false),
                    _ => None,
                });
                let Some(kinds) = kinds.collect::<Option<TVec<bool>>>() else { break };
                constant = kinds.into_iter().map(Some).collect();
                length *= shape[axis];
            }
            outer = axis;
        }
        let inputs = strides.into_iter().zip(constant);
        ContiguousRuns {
            length,
            outer: shape[..outer].into(),
            inputs: inputs.map(|(strides, constant)| (constant.unwrap_or(true), strides[..outer].into())).collect(),
        }
    }

    /// By input: the offset of run `index`.
    pub fn offsets(&self, index: usize) -> TVec<usize> {
        let place = place(&self.outer, index);
        self.inputs.iter().map(|(_, strides)| flat(strides, &place)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shape of an output, those of its inputs, and the length of a run.
    type Case = (&'static [usize], &'static [&'static [usize]], usize);

    #[test]
    fn runs_are_as_long_as_all_operands_allow() {
        let cases: &[Case] = &[
            (&[2, 3, 4], &[&[2, 3, 4], &[1, 1, 1]], 24),
            (&[2, 3, 4], &[&[2, 3, 4], &[2, 3, 1]], 4),
            (&[2, 3, 4], &[&[2, 3, 4], &[1, 3, 4]], 12),
            (&[2, 3, 4], &[&[2, 3, 4], &[2, 1, 4]], 4),
            (&[5, 1, 1], &[&[5, 1, 1], &[1, 1, 1]], 5),
            (&[], &[&[], &[]], 1),
        ];
        for (shape, inputs, length) in cases {
            assert_eq!(ContiguousRuns::new(shape, inputs).length, *length, "{shape:?} of {inputs:?}");
        }
        let runs = ContiguousRuns::new(&[2, 3, 4], &[&[2, 3, 4], &[1, 3, 1]]);
        assert_eq!((0..6).map(|run| runs.offsets(run).to_vec()).collect::<Vec<_>>()[4], [16, 1]);
    }
}
