//! Convolutions with pre-transformed weights: Winograd, and tiled for GEMM.
//!
//! They are computed as ordinary convolutions after inverting the weight transformation, which tract constant-folds for a
//! constant weight. After `topi/nn/winograd_util.py` and `topi/nn/conv2d.py` of TVM 0.14.

use super::{
    geometry::{Convolution, unchecked_type},
    schema::{CONV2D, CONV3D, OPERANDS},
};
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, layout::map_dim, rules::per_output};
use edgecut_graph::{Dim, Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    packed::<2>("nn.contrib_conv2d_gemm_without_weight_transform", "relay.attrs.Conv2DAttrs", CONV2D)
        .wire(kernel!(gemm)),
    packed::<2>(
        "nn.contrib_conv2d_winograd_without_weight_transform",
        "relay.attrs.Conv2DWinogradAttrs",
        &after_tile_size(CONV2D),
    )
    .wire(kernel!(winograd::<2>)),
    packed::<3>(
        "nn.contrib_conv3d_winograd_without_weight_transform",
        "relay.attrs.Conv3DWinogradAttrs",
        &after_tile_size(CONV3D),
    )
    .wire(kernel!(winograd::<3>)),
    transform("nn.contrib_conv2d_winograd_weight_transform", "relay.attrs.ConvWinogradWeightTransformAttrs", TILE_SIZE)
        .wire(kernel!(winograd_weight)),
    transform("nn.contrib_conv3d_winograd_weight_transform", "relay.attrs.ConvWinogradWeightTransformAttrs", TILE_SIZE)
        .wire(kernel!(winograd_weight)),
    OpDef::new("nn.contrib_conv2d_winograd_nnpack_weight_transform", &["weight"], |call| {
        let weight = call.tensor(0)?;
        let [o, i, _, _] = weight.shape[..] else { return Err(call.error(format!("{weight} must have rank 4"))) };
        let dtype = call.dtype("out_dtype")?.unwrap_or(weight.dtype);
        Ok(TensorType::new(dtype, [o, i, 8.into(), 8.into()].into_iter().collect()).into())
    })
    .attrs(
        "relay.attrs.Conv2DWinogradNNPACKWeightTransformAttrs",
        &[
            AttrDef::required("convolution_algorithm", AttrKind::Int),
            AttrDef::new("out_dtype", AttrKind::DType, "\"\""),
        ],
    )
    .without_kernel("the weight format of NNPACK is not documented"),
    OpDef::new("nn.contrib_conv2d_gemm_weight_transform", &["weights"], tiled_type)
        .attrs(
            "relay.attrs.ConvGemmWeightTransformAttrs",
            &[AttrDef::required("tile_rows", AttrKind::Int), AttrDef::required("tile_cols", AttrKind::Int)],
        )
        .class(FusionClass::OutFusable)
        .wire(kernel!(tile)),
];

const TILE_SIZE: &[AttrDef] = &[AttrDef::required("tile_size", AttrKind::Int)];

const fn after_tile_size(attrs: &[AttrDef]) -> [AttrDef; 11] {
    let mut all = [TILE_SIZE[0]; 11];
    let mut i = 0;
    while i < 10 {
        all[i + 1] = attrs[i];
        i += 1;
    }
    all
}

/// A convolution without a check of the weight's shape.
const fn packed<const RANK: usize>(name: &'static str, key: &'static str, attrs: &'static [AttrDef]) -> OpDef {
    OpDef::new(name, OPERANDS, unchecked_type::<RANK>)
        .attrs(key, attrs)
        .flops(|call| {
            let conv = call.tensor(0).and_then(|data| Convolution::<RANK>::read(call, data, None));
            per_output::<2>(call).saturating_mul(conv.map_or(0, |conv| conv.taps()))
        })
        .class(FusionClass::OutFusable)
}

const fn transform(name: &'static str, key: &'static str, attrs: &'static [AttrDef]) -> OpDef {
    OpDef::new(name, &["weight"], winograd_weight_type)
        .attrs(key, attrs)
        .flops(per_output::<2>)
        .class(FusionClass::OutFusable)
}

/// Whether the depth axis of a weight (O, I, D, H, W) is transformed too.
fn transforms_depth(depth: usize) -> bool {
    (3..8).contains(&depth)
}

fn tile_size(call: &Call<'_>) -> Result<usize, TypeError> {
    let size = usize::try_from(call.int("tile_size", 0)?).ok();
    size.filter(|n| (1..=16).contains(n)).ok_or_else(|| call.error("tile_size must be between 1 and 16"))
}

fn winograd_weight_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let weight = call.tensor(0)?;
    let tile = tile_size(call)? as u64;
    let grown = |dim: Dim| map_dim(dim, |n| n.saturating_add(tile).saturating_sub(1));
    let shape: Shape = match weight.shape[..] {
        [o, i, h, w] => [grown(h), grown(w), o, i].into_iter().collect(),
        [o, i, d, h, w] if d.get().is_some_and(|d| transforms_depth(d as usize)) => {
            [grown(d), grown(h), grown(w), o, i].into_iter().collect()
        }
        [o, i, d, h, w] => [grown(h), grown(w), d, o, i].into_iter().collect(),
        _ => return Err(call.error(format!("the weight is {weight}, expected rank 4 or 5"))),
    };
    Ok(TensorType::new(weight.dtype, shape).into())
}

/// The tile sizes (rows, columns).
fn tiles(call: &Call<'_>) -> Result<[u64; 2], TypeError> {
    let size = |key| {
        let size = u64::try_from(call.int(key, 0)?).ok().filter(|n| (1..1 << 16).contains(n));
        size.ok_or_else(|| call.error(format!("{key} must be positive")))
    };
    Ok([size("tile_rows")?, size("tile_cols")?])
}

fn tiled_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let weight = call.tensor(0)?;
    let [rows, columns] = tiles(call)?;
    if weight.shape.rank() != 4 {
        return Err(call.error(format!("the weight is {weight}, expected rank 4")));
    }
    let sizes = call.known(&weight.shape, "the weight")?;
    let terms = sizes[..3].iter().fold(1, |n: u64, d| n.saturating_mul(*d)).next_multiple_of(columns * 4);
    let shape = Shape::of(&[sizes[3].div_ceil(rows), terms / columns, rows, columns]);
    Ok(TensorType::new(weight.dtype, shape).into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::{
        internal::*,
        ops::{
            array::{Pad, PadMode, Slice},
            einsum::EinSum,
        },
    };

    use crate::families::conv::forward::convolve;
    use crate::{
        Typed,
        kernel::{self, Wiring},
    };

    /// Interpolation points of Winograd convolution, without the point at infinity.
    fn points(count: usize) -> Option<&'static [f64]> {
        const SMALL: [f64; 6] = [0.0, -1.0, 1.0, 0.5, -2.0, -0.5];
        const LARGE: [f64; 10] = [0.0, -1.0, 1.0, 0.5, -0.5, 2.0, -2.0, -0.25, 4.0, 0.75];
        const ELEVEN: [f64; 11] = [0.0, -1.0, 1.0, 0.5, -0.5, 2.0, -2.0, -0.25, 4.0, 0.75, -4.0 / 3.0];
        const TWELVE: [f64; 12] = [0.0, -1.0, 1.0, 0.5, -0.5, 2.0, -2.0, -0.25, 4.0, 0.75, -4.0 / 3.0, 0.25];
        const THIRTEEN: [f64; 13] = [0.0, -1.0, 1.0, 0.5, -0.5, 2.0, -2.0, -0.25, 4.0, 0.25, -0.75, 4.0 / 3.0, -4.0];
        const TEN: [f64; 10] = [0.0, -1.0, 1.0, 0.5, -0.5, 2.0, -2.0, -0.25, 0.75, -4.0 / 3.0];
        match count {
            3..=6 => SMALL.get(..count),
            7..=9 => LARGE.get(..count),
            10 => Some(&TEN),
            11 => Some(&ELEVEN),
            12 => Some(&TWELVE),
            13 => Some(&THIRTEEN),
            _ => None,
        }
    }

    /// The rows of the matrix `G`, which transforms `taps` weights to `tile + taps − 1`.
    fn transform_matrix(tile: usize, taps: usize) -> TractResult<Vec<Vec<f64>>> {
        let points = points(tile + taps - 2)
            .with_context(|| format!("no interpolation points for tiles of {tile} and {taps} taps"))?;
        let row = |(i, point): (usize, &f64)| {
            let others = points.iter().enumerate().filter(|(k, _)| *k != i);
            let scale: f64 = others.map(|(_, other)| point - other).product();
            let scale = if i == 0 { scale.abs() } else { scale };
            (0..taps).map(|power| point.powi(power as i32) / scale).collect::<Vec<f64>>()
        };
        let mut rows: Vec<Vec<f64>> = points.iter().enumerate().map(row).collect();
        rows.push((0..taps).map(|power| f64::from(u8::from(power + 1 == taps))).collect());
        Ok(rows)
    }

    /// The rows of the pseudoinverse `(GᵀG)⁻¹ Gᵀ`.
    fn pseudoinverse(rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let taps = rows.first().map_or(0, Vec::len);
        // Gauss–Jordan elimination on (GᵀG | Gᵀ); GᵀG is positive definite, so pivots are nonzero.
        let normal = |i: usize, j: usize| rows.iter().map(|row| row[i] * row[j]).sum::<f64>();
        let mut both: Vec<Vec<f64>> =
            (0..taps).map(|i| (0..taps).map(|j| normal(i, j)).chain(rows.iter().map(|row| row[i])).collect()).collect();
        for pivot in 0..taps {
            let scale = both[pivot][pivot];
            both[pivot].iter_mut().for_each(|x| *x /= scale);
            let reference = both[pivot].clone();
            for (i, row) in both.iter_mut().enumerate().filter(|(i, _)| *i != pivot) {
                debug_assert_ne!(i, pivot);
                let factor = row[pivot];
                row.iter_mut().zip(&reference).for_each(|(x, r)| *x -= factor * r);
            }
        }
        both.into_iter().map(|row| row[taps..].to_vec()).collect()
    }

    fn matrix(wiring: &mut Wiring<'_>, rows: &[Vec<f64>], dtype: DatumType) -> TractResult<OutletId> {
        let flat: Vec<f64> = rows.iter().flatten().copied().collect();
        let shape = [rows.len(), rows.first().map_or(0, Vec::len)];
        let tensor = Tensor::from_shape(&shape, &flat)?.cast_to_dt(dtype)?.into_owned();
        wiring.constant(tensor)
    }

    pub(super) fn winograd_weight(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let (shape, dtype) = (wiring.concrete(inputs[0])?, wiring.fact(inputs[0])?.datum_type);
        let rows = transform_matrix(tile_size(call)?, *shape.last().context("a weight has axes")?)?;
        let g = matrix(wiring, &rows, dtype)?;
        let (axes, count) = match shape[..] {
            [_, _, _, _] => ("oihw,ah,bw->aboi", 2),
            [_, _, depth, _, _] if transforms_depth(depth) => ("oidhw,cd,ah,bw->caboi", 3),
            _ => ("oidhw,ah,bw->abdoi", 2),
        };
        let operands: TVec<OutletId> = std::iter::once(inputs[0]).chain(std::iter::repeat_n(g, count)).collect();
        wiring.wire(EinSum::new(axes.parse()?, dtype), &operands)
    }

    pub(super) fn winograd<const RANK: usize>(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let conv = Convolution::<RANK>::read(call, call.tensor(0)?, None)?;
        let taps: Vec<usize> = conv.windows.iter().map(|w| w.size as usize).collect();
        let (shape, dtype) = (wiring.concrete(inputs[1])?, wiring.fact(inputs[1])?.datum_type);
        ensure!(shape.len() == RANK + 2, "a transformed weight of shape {shape:?} is not in TVM's layout");
        let inverse = pseudoinverse(&transform_matrix(tile_size(call)?, *taps.last().context("a window has axes")?)?);
        let inverse = matrix(wiring, &inverse, dtype)?;
        let (axes, count) = match taps[..] {
            [_, _] => ("aboi,ha,wb->oihw", 2),
            [depth, _, _] if transforms_depth(depth) => ("caboi,dc,ha,wb->oidhw", 3),
            _ => ("abdoi,ha,wb->oidhw", 2),
        };
        let operands: TVec<OutletId> = std::iter::once(inputs[1]).chain(std::iter::repeat_n(inverse, count)).collect();
        let weight = wiring.one(EinSum::new(axes.parse()?, dtype), &operands)?;
        let plain = conv.weight_type(edgecut_graph::DType::F32).and_then(|ty| ty.shape.fixed());
        let found = wiring.concrete(weight)?;
        ensure!(
            plain.as_ref().is_some_and(|want| want.iter().map(|d| *d as usize).eq(found.iter().copied())),
            "the inverse transform has shape {found:?}, expected {plain:?}"
        );
        convolve(&conv, wiring, inputs[0], weight, kernel::fact(call.result()?)?.datum_type)
    }

    /// The weight as a matrix (H · W · I, O), padded to whole tiles, which are stored transposed.
    pub(super) fn tile(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let [n, k, rows, columns] = call.dims()?[..] else { bail!("a tiled weight has rank 4") };
        let shape = wiring.concrete(inputs[0])?;
        let (terms, channels) = (shape[..3].iter().product::<usize>(), shape[3]);
        let flat = wiring.reshape(inputs[0], &[terms, channels])?;
        let pads = vec![(0, k * columns - terms), (0, n * rows - channels)];
        let zero = Tensor::zero_scalar_dt(wiring.fact(flat)?.datum_type)?.into_arc_tensor();
        let filled = wiring.one(Pad { pads, mode: PadMode::Constant(zero) }, &[flat])?;
        let cut = wiring.reshape(filled, &[k, columns, n, rows])?;
        Ok(tvec![wiring.permute(cut, &[2, 0, 3, 1])?])
    }

    pub(super) fn gemm(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let conv = Convolution::<2>::read(call, call.tensor(0)?, None)?;
        let size = |dim: Dim| dim.get().map(|n| n as usize).context("the channels are unknown");
        let (per_group, channels) = (size(map_dim(conv.channels_in, |c| c / conv.groups))?, size(conv.channels_out)?);
        let window: Vec<usize> = conv.windows.iter().map(|w| w.size as usize).collect();
        let terms = window[0] * window[1] * per_group;
        let [n, k, rows, columns] = wiring.concrete(inputs[1])?[..] else { bail!("a tiled weight has rank 4") };
        ensure!(terms <= k * columns && channels <= n * rows, "{n} by {k} tiles are too few for the weight");
        let joined = wiring.permute(inputs[1], &[1, 3, 0, 2])?;
        let filled = wiring.reshape(joined, &[k * columns, n * rows])?;
        let cut = wiring.one(Slice::new(0, 0, terms), &[filled])?;
        let cut = wiring.one(Slice::new(1, 0, channels), &[cut])?;
        let weight = wiring.reshape(cut, &[window[0], window[1], per_group, channels])?;
        let weight = wiring.permute(weight, &[3, 2, 0, 1])?;
        convolve(&conv, wiring, inputs[0], weight, kernel::fact(call.result()?)?.datum_type)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_transform_of_f_2_3_is_the_published_one() {
            // Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", up to the order of rows.
            let g = transform_matrix(2, 3).unwrap();
            assert_eq!(g, [[1.0, 0.0, 0.0], [0.5, -0.5, 0.5], [0.5, 0.5, 0.5], [0.0, 0.0, 1.0]]);
        }

        #[test]
        fn the_pseudoinverse_inverts_the_transform() {
            for (tile, taps) in [(2, 3), (4, 3), (6, 3), (2, 5), (4, 5)] {
                let (g, inverse) =
                    (transform_matrix(tile, taps).unwrap(), pseudoinverse(&transform_matrix(tile, taps).unwrap()));
                for (i, row) in inverse.iter().enumerate() {
                    for j in 0..taps {
                        let product: f64 = row.iter().zip(&g).map(|(a, b)| a * b[j]).sum();
                        assert!((product - f64::from(u8::from(i == j))).abs() < 1e-9, "F({tile}, {taps}) at {i}, {j}");
                    }
                }
            }
        }
    }
}
