//! tract's vectorised functions of one element: sigmoid and the hyperbolic tangent clamp their arguments, and so lose NaN.

use multiversion::multiversion;
use tract_core::internal::TractResult;
use tract_linalg::{element_wise::ElementWise, routines::Func};

/// Elements that are checked for NaN together.
const CHUNK: usize = 4096;

/// The routine in single precision of an operator, by Relay's name.
pub fn routine(operator: &str) -> Option<Box<dyn ElementWise<f32>>> {
    let function = match operator {
        "sigmoid" => Func::Sigmoid,
        "tanh" | "fast_tanh" => Func::Tanh,
        _ => return None,
    };
    function.ew_f32().ok()
}

/// Applies `routine` to all elements; NaN stays NaN.
///
/// # Errors
/// If the routine fails.
pub fn run_keeping_nan(routine: &dyn ElementWise<f32>, elements: &mut [f32]) -> TractResult<()> {
    for chunk in elements.chunks_mut(CHUNK) {
        let lost = match has_nan(chunk) {
            false => Vec::new(),
            true => (0..chunk.len()).filter(|i| chunk[*i].is_nan()).collect(),
        };
        routine.run(chunk)?;
        lost.into_iter().for_each(|i| chunk[i] = f32::NAN);
    }
    Ok(())
}

/// A sum, because the search for the first one is not vectorised.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx2+fma", "aarch64+neon"))]
fn has_nan(elements: &[f32]) -> bool {
    elements.iter().map(|x| u32::from(x.is_nan())).sum::<u32>() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_stays_nan() {
        for operator in ["sigmoid", "tanh"] {
            let mut elements: Vec<f32> = (0..CHUNK + 9).map(|i| if i % 1000 == 7 { f32::NAN } else { 0.5 }).collect();
            run_keeping_nan(&*routine(operator).unwrap(), &mut elements).unwrap();
            assert!(elements.iter().enumerate().all(|(i, x)| x.is_nan() == (i % 1000 == 7)));
        }
    }
}
