//! `vision.yolo_reorg`: Darknet's rearrangement of space into channels.

use crate::{AttrDef, AttrKind, Call, OpDef, TypeError, layout::map_dim};
use edgecut_graph::{Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[OpDef::new("vision.yolo_reorg", &["data"], reorg_type)
    .attrs("relay.attrs.YoloReorgAttrs", &[AttrDef::new("stride", AttrKind::OptionalInt, "1")])
    .wire(kernel!(reorg))];

fn reorg_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let stride = u64::try_from(call.int("stride", 1)?).ok().filter(|n| *n > 0);
    let stride = stride.ok_or_else(|| call.error("stride must be at least 1"))?;
    let [n, c, h, w] = data.shape[..] else { return Err(call.error(format!("{data} must have rank 4"))) };
    let times = |dim, by: u64| map_dim(dim, |n| n.saturating_mul(by));
    let over = |dim| map_dim(dim, |n| n / stride);
    let shape: Shape = [n, times(c, stride * stride), over(h), over(w)].into_iter().collect();
    Ok(TensorType::new(data.dtype, shape).into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use tract_core::internal::*;

    use crate::{
        Typed,
        kernel::{Wiring, element::for_dtype},
    };

    /// As in TVM: element (k, j, i) of the result, indexed in the shape of the data, is the data's element number
    /// `((k mod q)·s²·H + (j·s + ⌊k/q⌋/s)·s)·W + i·s + ⌊k/q⌋ mod s` with `q = C/s²`; indices run over the ends of rows.
    pub(super) fn reorg(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let s = usize::try_from(call.int("stride", 1)?)?;
        let fact = wiring.fact(inputs[0])?.datum_type.fact(&*call.dims()?);
        let [n, c, h, w] = wiring.concrete(inputs[0])?[..] else { bail!("the data must have rank 4") };
        let q = c / (s * s);
        ensure!(n == 1, "the batch size must be 1");
        ensure!(q > 0, "expected at least {s}² channels, found {c}");
        let dtype = fact.datum_type;
        let out = call.dims()?;
        wiring.custom("YoloReorg", tvec![fact], inputs, move |inputs| {
            for_dtype!(dtype, T in any => {
                let plain = inputs[0].try_as_plain_ram()?;
                let data = plain.as_slice::<T>()?;
                let mut made = Vec::with_capacity(data.len());
                for (k, j, i) in (0..c).flat_map(|k| (0..h).flat_map(move |j| (0..w).map(move |i| (k, j, i)))) {
                    let at = ((k % q) * s * s * h + (j * s + k / q / s) * s) * w + i * s + k / q % s;
                    made.push(data.get(at).copied().unwrap_or_default());
                }
                Ok(tvec![Tensor::from_shape(&out, &made)?])
            })
        })
    }
}
