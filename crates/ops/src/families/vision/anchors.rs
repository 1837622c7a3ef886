//! Anchor boxes of single-shot detectors (SSD), and decoding of the boxes predicted relative to them.
//!
//! After `topi/vision/ssd/multibox.py` of TVM 0.14.

use crate::{AttrDef, AttrKind, Call, OpDef, TypeError, rules::unify};
use edgecut_graph::{DType, Dim, Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("vision.multibox_prior", &["data"], prior_type)
        .attrs(
            "relay.attrs.MultiBoxPriorAttrs",
            &[
                AttrDef::new("sizes", AttrKind::Floats, "[1f]"),
                AttrDef::new("ratios", AttrKind::Floats, "[1f]"),
                AttrDef::new("steps", AttrKind::Floats, "[-1f, -1f]"),
                AttrDef::new("offsets", AttrKind::Floats, "[0.5f, 0.5f]"),
                AttrDef::new("clip", AttrKind::Bool, "False"),
            ],
        )
        .wire(kernel!(prior)),
    OpDef::new("vision.multibox_transform_loc", &["cls_prob", "loc_pred", "anchor"], transform_type)
        .attrs(
            "relay.attrs.MultiBoxTransformLocAttrs",
            &[
                AttrDef::new("clip", AttrKind::Bool, "True"),
                AttrDef::new("threshold", AttrKind::Float, "0.01f"),
                AttrDef::new("variances", AttrKind::Floats, "[0.1f, 0.1f, 0.2f, 0.2f]"),
                AttrDef::new("keep_background", AttrKind::Bool, "False"),
            ],
        )
        .wire(kernel!(transform)),
];

impl Call<'_> {
    /// The attribute `key`, a list of numbers, or its default.
    fn numbers_or(&self, key: &str, default: &[f64]) -> Result<Vec<f64>, TypeError> {
        Ok(self.floats(key)?.unwrap_or_else(|| default.to_vec()))
    }
}

fn prior_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let [_, _, height, width] = data.shape[..] else {
        return Err(call.error(format!("the data is {data}, expected rank 4")));
    };
    let kinds = call.numbers_or("sizes", &[1.0])?.len() + call.numbers_or("ratios", &[1.0])?.len();
    let count =
        height.get().zip(width.get()).and_then(|(h, w)| h.checked_mul(w)?.checked_mul(kinds.checked_sub(1)? as u64));
    let shape: Shape = [1.into(), Dim::from(count), 4.into()].into_iter().collect();
    Ok(TensorType::new(data.dtype, shape).into())
}

fn transform_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (classes, places, anchors) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let (&[images, _, count], &[_, _], &[_, boxes, _]) = (&classes.shape[..], &places.shape[..], &anchors.shape[..])
    else {
        return Err(call.error(format!("operands are {classes}, {places} and {anchors}, expected rank 3, 2 and 3")));
    };
    let boxes = unify(boxes, count)
        .ok_or_else(|| call.error(format!("{classes} and {anchors} differ in the number of boxes")))?;
    let rows = TensorType::new(classes.dtype, [images, boxes, 6.into()].into_iter().collect());
    let counts = TensorType::new(DType::I32, [images].into_iter().collect::<Shape>());
    Ok(Type::Tuple(vec![rows.into(), counts.into()]))
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::{
        Typed,
        kernel::{
            Wiring,
            custom::{numbers, tensor_of},
        },
    };

    impl Call<'_> {
        /// As [`Call::numbers_or`], with exactly `N` numbers.
        fn numbers_of<const N: usize>(&self, key: &str, default: [f64; N]) -> Result<[f64; N], TypeError> {
            let found = self.numbers_or(key, &default)?;
            <[f64; N]>::try_from(found)
                .map_err(|found| self.error(format!("{key} has {} numbers, expected {N}", found.len())))
        }
    }

    /// Around every element: one box per size, and one of the first size per further aspect ratio.
    pub(super) fn prior(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let shape = wiring.concrete(inputs[0])?;
        let (height, width) = (shape[2] as f64, shape[3] as f64);
        let (sizes, ratios) = (call.numbers_or("sizes", &[1.0])?, call.numbers_or("ratios", &[1.0])?);
        let steps = call.numbers_of("steps", [-1.0, -1.0])?;
        let offsets = call.numbers_of("offsets", [0.5, 0.5])?;
        let first = sizes.first().copied().context("sizes is empty")?;
        let ratio = ratios
            .iter()
            .skip(1)
            .map(|ratio| (first * height / width * ratio.sqrt() / 2.0, first / ratio.sqrt() / 2.0));
        let halves: Vec<(f64, f64)> = sizes.iter().map(|s| (s * height / width / 2.0, s / 2.0)).chain(ratio).collect();
        let step = |axis: usize, n: f64| if steps[axis] > 0.0 { steps[axis] } else { 1.0 / n };
        let (down, right) = (step(0, height), step(1, width));
        let clip = call.flag("clip", false)?;
        let mut boxes = Vec::new();
        for (i, j) in (0..shape[2]).flat_map(|i| (0..shape[3]).map(move |j| (i, j))) {
            let (y, x) = ((i as f64 + offsets[0]) * down, (j as f64 + offsets[1]) * right);
            for (w, h) in &halves {
                let corners = [x - w, y - h, x + w, y + h];
                boxes.extend(corners.map(|c| if clip { c.clamp(0.0, 1.0) } else { c }));
            }
        }
        let dtype = wiring.fact(inputs[0])?.datum_type;
        Ok(tvec![wiring.constant(tensor_of(&boxes, &call.dims()?, dtype)?)?])
    }

    /// Rows (class, score, corners) of the boxes that are not background, compacted to the front; the rest is −1.
    pub(super) fn transform(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let [images, classes, boxes] = wiring.concrete(inputs[0])?[..] else { bail!("the scores must have rank 3") };
        ensure!(
            wiring.concrete(inputs[1])? == [images, boxes * 4],
            "expected four predictions for each of {boxes} boxes"
        );
        let dtype = wiring.fact(inputs[0])?.datum_type;
        let (clip, keep) = (call.flag("clip", true)?, call.flag("keep_background", false)?);
        let threshold = call.float("threshold", 0.01)?;
        let variances = call.numbers_of("variances", [0.1, 0.1, 0.2, 0.2])?;
        let facts = tvec![dtype.fact([images, boxes, 6]), i32::fact([images])];
        wiring.custom("MultiBoxTransformLoc", facts, inputs, move |inputs| {
            let (scores, places, anchors) = (numbers(&inputs[0])?, numbers(&inputs[1])?, numbers(&inputs[2])?);
            let (mut rows, mut counts) = (vec![-1.0; images * boxes * 6], vec![]);
            for image in 0..images {
                let mut count = 0;
                for index in 0..boxes {
                    let score = |class: usize| scores[(image * classes + class) * boxes + index];
                    let (mut best, mut class) = (-1.0, 0);
                    for k in usize::from(!keep)..classes {
                        if score(k) > best {
                            (best, class) = (score(k), k);
                        }
                    }
                    if class > 0 && best < threshold {
                        class = 0;
                    }
                    if keep || class > 0 {
                        let number = class as f64 - if keep { 0.0 } else { 1.0 };
                        let corners = decode(&anchors[index * 4..], &places[(image * boxes + index) * 4..], &variances);
                        let row = &mut rows[(image * boxes + count) * 6..][..6];
                        row[..2].copy_from_slice(&[number, best]);
                        row[2..].copy_from_slice(&corners.map(|c| if clip { c.clamp(0.0, 1.0) } else { c }));
                        count += 1;
                    }
                }
                counts.push(count as i32);
            }
            Ok(tvec![tensor_of(&rows, &[images, boxes, 6], dtype)?, tensor1(&counts)])
        })
    }

    /// The corners of the box that `offsets` predicts relative to `anchor`.
    fn decode(anchor: &[f64], offsets: &[f64], variances: &[f64; 4]) -> [f64; 4] {
        let (w, h) = (anchor[2] - anchor[0], anchor[3] - anchor[1]);
        let x = offsets[0] * variances[0] * w + (anchor[0] + anchor[2]) / 2.0;
        let y = offsets[1] * variances[1] * h + (anchor[1] + anchor[3]) / 2.0;
        let (half_w, half_h) =
            ((offsets[2] * variances[2]).exp() * w / 2.0, (offsets[3] * variances[3]).exp() * h / 2.0);
        [x - half_w, y - half_h, x + half_w, y + half_h]
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn zero_offsets_decode_to_the_anchor() {
            let anchor = [0.25, 0.5, 0.75, 1.0];
            assert_eq!(decode(&anchor, &[0.0; 4], &[0.1, 0.1, 0.2, 0.2]), anchor);
            assert_eq!(decode(&anchor, &[1.0, 0.0, 0.0, 0.0], &[0.5, 0.1, 0.2, 0.2]), [0.5, 0.5, 1.0, 1.0]);
        }
    }
}
