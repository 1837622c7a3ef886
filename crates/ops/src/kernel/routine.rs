//! tract's vectorised functions of one element: sigmoid and the hyperbolic tangent clamp their arguments, and so lose NaN.

use tract_core::internal::TractResult;
use tract_linalg::element_wise::ElementWise;

/// Elements that are checked for NaN together.
const CHUNK: usize = 4096;

/// Applies `routine` to all elements; NaN stays NaN.
pub(crate) fn run_keeping_nan(routine: &dyn ElementWise<f32>, elements: &mut [f32]) -> TractResult<()> {
    for chunk in elements.chunks_mut(CHUNK) {
        // A sum, because the search for the first one is not vectorised.
        let lost = match chunk.iter().map(|x| u32::from(x.is_nan())).sum::<u32>() {
            0 => Vec::new(),
            _ => (0..chunk.len()).filter(|i| chunk[*i].is_nan()).collect(),
        };
        routine.run(chunk)?;
        lost.into_iter().for_each(|i| chunk[i] = f32::NAN);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tract_linalg::routines::Func;

    #[test]
    fn nan_stays_nan() {
        for function in [Func::Sigmoid, Func::Tanh] {
            let mut elements: Vec<f32> = (0..CHUNK + 9).map(|i| if i % 1000 == 7 { f32::NAN } else { 0.5 }).collect();
            run_keeping_nan(&*function.ew_f32().unwrap(), &mut elements).unwrap();
            assert!(elements.iter().enumerate().all(|(i, x)| x.is_nan() == (i % 1000 == 7)));
        }
    }
}
