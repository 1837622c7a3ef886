//! Which of tract's matrix kernels multiplies in single precision on Intel CPUs with AMX (Sapphire Rapids and later).
//!
//! tract 0.23.9 has one cost model for all Intel CPUs with AVX-512. On these it chooses kernels that take 1.18 times as long
//! as the best one (mean of 170 products of the sizes that networks have; at worst 2.9 times).

use tract_core::internal::DatumType;
use tract_linalg::{
    cache::cache_info,
    isa::{Arch, Isa, IsaSet},
    mmm::{LinearCostModel, Query, Suitable},
    mmm_tiers::MmmTier,
};

/// Above all tiers of tract.
const TIER_PRECEDENCE: u8 = 20;

/// Seconds for each multiply-add of whole tiles, for each tile, and for each call: fitted by least squares of the
/// relative error to 170 products on one core of a Xeon with AMX (family 6, model 167, L2 of 2 MiB; November 2026), operands packed. Kernels whose operands tract packs element by element (panels of 5, 48, 64 or 80)
/// are left out: operands that are not constant are packed in every run.
const COST_MODEL: LinearCostModel<'static> = LinearCostModel {
    default_kernel: "avx512_mmm_f32_32x6",
    kernels: &[
        "avx512_mmm_f32_16x12",
        "avx512_mmm_f32_16x8",
        "avx512_mmm_f32_32x6",
        "fma_mmm_f32_16x6",
        "fma_mmm_f32_24x4",
        "fma_mmm_f32_8x8",
    ],
    coeffs: &[
        [1.083e-11, 1.111e-7, 8.6e-8],
        [1.247e-11, 9.395e-8, 3.0e-8],
        [1.004e-11, 1.166e-7, 1.39e-7],
        [1.612e-11, 7.770e-8, 0.0],
        [1.654e-11, 7.102e-8, 2.7e-8],
        [1.946e-11, 6.836e-8, 0.0],
    ],
    restream: 0.0,
};

inventory::submit! {
    MmmTier { arch: Some(Arch::X86_64), precedence: TIER_PRECEDENCE, name: "intel-amx-f32", applies, preferred }
}

fn applies(isa: &IsaSet) -> bool {
    isa.has(Isa::X86_64Avx512f) && isa.has(Isa::X86_64Fma) && isa.has(Isa::X86_64AmxInt8)
}

/// The fastest kernel of a product of matrices of which at least one fits in the second-level cache. Products with vectors
/// are left to tract, as are those that stream both operands, for which the model was not fitted.
fn preferred(_: &IsaSet, accumulator: DatumType, query: &Query, suitable: &[Suitable]) -> Option<&'static str> {
    let (m, k, n) = (query.m?, query.k?, query.n?);
    let fits = |width: usize| width.saturating_mul(k).saturating_mul(size_of::<f32>()) <= cache_info().l2;
    let is_covered = accumulator == DatumType::F32 && m.min(n) > 1 && (fits(m) || fits(n));
    is_covered.then(|| COST_MODEL.preferred(suitable, Some(m), Some(k), Some(n))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tract_linalg::MmmDispatch;

    #[test]
    fn the_tier_is_asked_where_it_applies() {
        let dispatch = MmmDispatch::native();
        let tiers = dispatch.tiers();
        let is_registered = tract_linalg::mmm_tiers::declared().any(|tier| tier.name == "intel-amx-f32");
        assert!(is_registered || !cfg!(target_arch = "x86_64"));
        if tiers.iter().any(|tier| tier.name == "intel-amx-f32") {
            let query = Query::plain(DatumType::F32, Some(256), Some(2304), Some(196));
            let chosen = dispatch.pick(&query).map(|(kernel, ..)| kernel.name().to_string());
            assert_eq!(chosen.as_deref(), Some("avx512_mmm_f32_32x6"));
        }
    }
}
