//! What a computation on the GPU is compared with: the peak of the GPU, and NVIDIA's libraries called directly.

use std::time::{Duration, Instant};

use cudarc::{
    cublas::{CudaBlas, Gemm, GemmConfig, sys::cublasOperation_t},
    driver::{CudaContext, CudaStream},
};
use edgecut::engine::Gpu;

/// The median time of a call on the GPU's stream.
pub fn median(stream: &CudaStream, mut call: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..30)
        .map(|_| {
            stream.synchronize().unwrap();
            let start = Instant::now();
            call();
            stream.synchronize().unwrap();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// What the GPU could compute at most: one multiply-add a clock on each of 128 single-precision units of a
/// multiprocessor, at its highest clock. Some GPUs have 64 such units: of those the share is half of the true one.
fn peak(gpu: &Gpu) -> f64 {
    f64::from(gpu.multiprocessors) * f64::from(gpu.clock_khz) * 1e3 * 256.0
}

/// Prints how much of the peak a computation reaches, and a library called directly in the same process.
pub fn compare(what: &str, gpu: &Gpu, flops: f64, ours: f64, library: &str, theirs: f64) {
    let rate =
        |seconds: f64| format!("{:.2} TFLOP/s ({:.1} %)", flops / seconds / 1e12, 100.0 * flops / seconds / peak(gpu));
    println!(
        "{what}: {} of {:.1} TFLOP/s (128 units a multiprocessor at the highest clock); {library} called directly {}: \
         {:.0} % of its speed",
        rate(ours),
        peak(gpu) / 1e12,
        rate(theirs),
        100.0 * theirs / ours
    );
}

/// Seconds that cuBLAS takes for a product of such matrices, called directly; nothing, said aloud, without it.
pub fn by_cublas(rows: usize, columns: usize, depth: usize) -> Option<f64> {
    // SAFETY: this only tries to open the library.
    if !unsafe { cudarc::cublas::sys::is_culib_present() } {
        eprintln!(
            "SKIPPED, NOT RUN: the comparison with cuBLAS, which needs libcublas.so.12, or libcublas.so for CUDA 13"
        );
        return None;
    }
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let blas = CudaBlas::new(stream.clone()).unwrap();
    let zeros = |count: usize| stream.alloc_zeros::<f32>(count).unwrap();
    let (a, b, mut c) = (zeros(rows * depth), zeros(depth * columns), zeros(rows * columns));
    let configuration = GemmConfig {
        transa: cublasOperation_t::CUBLAS_OP_T,
        transb: cublasOperation_t::CUBLAS_OP_N,
        m: rows as i32,
        n: columns as i32,
        k: depth as i32,
        alpha: 1f32,
        lda: depth as i32,
        ldb: depth as i32,
        beta: 0f32,
        ldc: rows as i32,
    };
    // SAFETY: three matrices of these sizes.
    Some(median(&stream, || unsafe { blas.gemm(configuration, &a, &b, &mut c).unwrap() }).as_secs_f64())
}
