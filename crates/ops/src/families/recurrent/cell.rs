//! Cells of recurrent layers: the next state of one sequence from its gates.

/// A kind of cell, with ONNX's order of gates and default activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecurrentCell {
    /// Gates: input, output, forget, candidate.
    Lstm,
    /// Gates: update, reset, candidate. If `linear_before_reset`, the reset gate scales the product of the hidden state with
    /// the candidate's weights, else the hidden state before that product.
    Gru {
        linear_before_reset: bool,
    },
    Rnn,
}

impl RecurrentCell {
    /// Parts of the weights, each of as many rows as hidden units.
    pub fn gates(self) -> usize {
        match self {
            RecurrentCell::Lstm => 4,
            RecurrentCell::Gru { .. } => 3,
            RecurrentCell::Rnn => 1,
        }
    }

    /// Functions, and operations of arithmetic, for one hidden unit in one step.
    pub(super) fn operations(self) -> (u64, u64) {
        match self {
            RecurrentCell::Lstm => (5, 4),
            RecurrentCell::Gru { .. } => (3, 4),
            RecurrentCell::Rnn => (1, 0),
        }
    }
}

#[cfg(feature = "kernels")]
pub(crate) mod kernel {
    use tract_core::internal::TractResult;
    use tract_linalg::{element_wise::ElementWise, routines::Func};

    use crate::kernel::routine::run_keeping_nan;

    /// tract's vectorised activations.
    #[derive(Debug)]
    pub(crate) struct Activations {
        sigmoid: Box<dyn ElementWise<f32>>,
        tanh: Box<dyn ElementWise<f32>>,
    }

    /// `to` plus `from`.
    fn add(to: &mut [f32], from: &[f32]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
    }

    /// `to` times `by`.
    fn multiply(to: &mut [f32], by: &[f32]) {
        to.iter_mut().zip(by).for_each(|(to, by)| *to *= by);
    }

    /// Overwrites `to` by `function` of it and two other vectors.
    fn combine(to: &mut [f32], a: &[f32], b: &[f32], function: impl Fn(f32, f32, f32) -> f32) {
        for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
            *to = function(*to, *a, *b);
        }
    }

    impl Activations {
        pub fn new() -> TractResult<Activations> {
            Ok(Activations { sigmoid: Func::Sigmoid.ew_f32()?, tanh: Func::Tanh.ew_f32()? })
        }

        /// The next hidden and cell state of an LSTM. `gates` is what the input adds to the gates, and is overwritten;
        /// `from_state` is what the hidden state adds.
        pub fn lstm(
            &self,
            gates: &mut [f32],
            from_state: &[f32],
            hidden: &mut [f32],
            cell: &mut [f32],
        ) -> TractResult<()> {
            let units = hidden.len();
            add(gates, from_state);
            let (logistic, candidate) = gates.split_at_mut(3 * units);
            run_keeping_nan(&*self.sigmoid, logistic)?;
            run_keeping_nan(&*self.tanh, candidate)?;
            let (input, rest) = logistic.split_at(units);
            let (output, forget) = rest.split_at(units);
            multiply(candidate, input);
            combine(cell, forget, candidate, |cell, forget, added| cell * forget + added);
            hidden.copy_from_slice(cell);
            run_keeping_nan(&*self.tanh, hidden)?;
            multiply(hidden, output);
            Ok(())
        }

        /// The update and reset gates of a GRU, in the first two thirds of `gates`.
        pub(crate) fn gru_gates(&self, gates: &mut [f32], from_state: &[f32], units: usize) -> TractResult<()> {
            let gates = &mut gates[..2 * units];
            add(gates, from_state);
            run_keeping_nan(&*self.sigmoid, gates)
        }

        /// The next hidden state of a GRU, from its gates and what the hidden state adds to the candidate.
        pub fn gru(&self, gates: &mut [f32], from_state: &[f32], hidden: &mut [f32]) -> TractResult<()> {
            let (update, candidate) = gates.split_at_mut(2 * hidden.len());
            add(candidate, from_state);
            run_keeping_nan(&*self.tanh, candidate)?;
            // (1 - z) c + z h
            combine(hidden, update, candidate, |hidden, update, candidate| candidate + update * (hidden - candidate));
            Ok(())
        }

        /// The next hidden state of a plain cell.
        pub fn rnn(&self, gates: &mut [f32], from_state: &[f32], hidden: &mut [f32]) -> TractResult<()> {
            add(gates, from_state);
            run_keeping_nan(&*self.tanh, gates)?;
            hidden.copy_from_slice(gates);
            Ok(())
        }
    }
}
