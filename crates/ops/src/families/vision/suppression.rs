//! Non-maximum suppression: `vision.get_valid_counts` and `vision.non_max_suppression`.
//!
//! After `topi/vision/nms.py` of TVM 0.14.

use crate::{AttrDef, AttrKind, Call, OpDef, TypeError};
use edgecut_graph::{DType, Dim, Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("vision.get_valid_counts", &["data", "score_threshold"], counts_type)
        .attrs(
            "relay.attrs.GetValidCountsAttrs",
            &[
                AttrDef::required("score_threshold", AttrKind::OptionalFloat),
                AttrDef::new("id_index", AttrKind::Int, "0"),
                AttrDef::new("score_index", AttrKind::Int, "1"),
            ],
        )
        .attrs_in_metadata()
        .wire(kernel!(valid_counts)),
    OpDef::new(
        "vision.non_max_suppression",
        &["data", "valid_count", "indices", "max_output_size", "iou_threshold"],
        suppressed_type,
    )
    .attrs(
        "relay.attrs.NonMaximumSuppressionAttrs",
        &[
            AttrDef::new("force_suppress", AttrKind::Bool, "False"),
            AttrDef::new("top_k", AttrKind::Int, "-1"),
            AttrDef::new("coord_start", AttrKind::Int, "2"),
            AttrDef::new("score_index", AttrKind::Int, "1"),
            AttrDef::new("id_index", AttrKind::Int, "0"),
            AttrDef::new("return_indices", AttrKind::Bool, "True"),
            AttrDef::new("invalid_to_bottom", AttrKind::Bool, "False"),
        ],
    )
    .attrs_in_metadata()
    .wire(kernel!(suppress)),
];

/// Number of images, boxes per image and numbers per box.
fn dims(call: &Call<'_>) -> Result<[Dim; 3], TypeError> {
    let data = call.tensor(0)?;
    match data.shape[..] {
        [images, boxes, numbers] => Ok([images, boxes, numbers]),
        _ => Err(call.error(format!("the data is {data}, expected rank 3"))),
    }
}

fn whole(dims: impl IntoIterator<Item = Dim>) -> Type {
    TensorType::new(DType::I32, Shape::from_iter(dims)).into()
}

fn counts_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let [images, boxes, _] = dims(call)?;
    Ok(Type::Tuple(vec![whole([images]), call.tensor(0)?.clone().into(), whole([images, boxes])]))
}

fn suppressed_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let [images, boxes, _] = dims(call)?;
    Ok(match call.flag("return_indices", true)? {
        true => Type::Tuple(vec![whole([images, boxes]), whole([images, 1.into()])]),
        false => call.tensor(0)?.clone().into(),
    })
}

#[cfg(feature = "kernels")]
mod kernel {
    use tract_core::internal::*;

    use crate::families::vision::boxes::Corners;
    use crate::{
        Typed,
        kernel::{
            Wiring,
            custom::{numbers, tensor_of},
        },
    };

    /// The boxes whose score is above the threshold, compacted to the front; the rest is −1.
    pub(super) fn valid_counts(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let (id, score) = (call.int("id_index", 0)?, usize::try_from(call.int("score_index", 1)?)?);
        let id = usize::try_from(id).ok();
        let [images, boxes, width] = wiring.concrete(inputs[0])?[..] else { bail!("the data must have rank 3") };
        ensure!(score < width && id.is_none_or(|id| id < width), "a box has {width} numbers");
        let dtype = wiring.fact(inputs[0])?.datum_type;
        let fallback = call.float("score_threshold", 0.0)?;
        let facts = tvec![i32::fact([images]), dtype.fact([images, boxes, width]), i32::fact([images, boxes])];
        wiring.custom("GetValidCounts", facts, inputs, move |inputs| {
            let data = numbers(&inputs[0])?;
            let threshold =
                inputs.get(1).map(|t| numbers(t)).transpose()?.and_then(|t| t.first().copied()).unwrap_or(fallback);
            let (mut counts, mut kept, mut indices) = (vec![], vec![-1.0; data.len()], vec![-1i32; images * boxes]);
            for image in 0..images {
                let rows = &data[image * boxes * width..][..boxes * width];
                let mut count = 0;
                for (index, row) in rows.chunks_exact(width).enumerate() {
                    if row[score] > threshold && id.is_none_or(|id| row[id] >= 0.0) {
                        kept[(image * boxes + count) * width..][..width].copy_from_slice(row);
                        indices[image * boxes + count] = index as i32;
                        count += 1;
                    }
                }
                counts.push(count as i32);
            }
            let kept = tensor_of(&kept, &[images, boxes, width], dtype)?;
            Ok(tvec![tensor1(&counts), kept, Tensor::from_shape(&[images, boxes], &indices)?])
        })
    }

    /// The attributes of a suppression.
    #[derive(Debug, Clone, Copy)]
    struct Suppression {
        force: bool,
        top_k: usize,
        coordinates: usize,
        score: usize,
        id: Option<usize>,
        /// Maximum number of boxes; `None` for no limit.
        most: Option<usize>,
        /// Overlap from which the worse box is suppressed; none is if it is not positive.
        threshold: f64,
    }

    impl Suppression {
        /// Suppresses among the first `valid` boxes of `rows`. Returns row indices by rank of score, `None` where the box is
        /// suppressed; the length is that of `rows`.
        fn run(&self, rows: &[&[f64]], valid: usize) -> Vec<Option<usize>> {
            let mut places = vec![None; rows.len()];
            if self.threshold <= 0.0 {
                places.iter_mut().take(valid).enumerate().for_each(|(i, place)| *place = Some(i));
                return places;
            }
            let mut order: Vec<usize> = (0..valid).collect();
            order.sort_by(|a, b| rows[*b][self.score].total_cmp(&rows[*a][self.score]));
            order.truncate(self.top_k);
            let mut count = 0;
            let mut better: Vec<&[f64]> = Vec::new();
            for (place, index) in places.iter_mut().zip(order) {
                let row = rows[index];
                if Some(count) == self.most {
                    break;
                }
                // A box without a positive score is dropped and suppresses none.
                if row[self.score] <= 0.0 || !better.iter().any(|other| self.suppresses(other, row)) {
                    *place = Some(index);
                    count += usize::from(row[self.score] > 0.0);
                    better.push(row);
                }
            }
            places
        }

        fn suppresses(&self, better: &[f64], row: &[f64]) -> bool {
            let counts = better[self.score] > 0.0 && self.id.is_none_or(|id| better[id] >= 0.0);
            let same_kind = self.force || self.id.is_none_or(|id| better[id] == row[id]);
            let corners = |row: &[f64]| Corners::of(&row[self.coordinates..]);
            counts && same_kind && corners(row).overlap(&corners(better)) >= self.threshold
        }
    }

    pub(super) fn suppress(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let [images, boxes, width] = wiring.concrete(inputs[0])?[..] else { bail!("the data must have rank 3") };
        let written = Suppression {
            force: call.flag("force_suppress", false)?,
            top_k: usize::try_from(call.int("top_k", -1)?).ok().filter(|k| *k > 0).unwrap_or(usize::MAX),
            coordinates: usize::try_from(call.int("coord_start", 2)?)?,
            score: usize::try_from(call.int("score_index", 1)?)?,
            id: usize::try_from(call.int("id_index", 0)?).ok(),
            most: None,
            threshold: 0.0,
        };
        let last = [written.coordinates + 3, written.score, written.id.unwrap_or(0)].into_iter().max();
        ensure!(last < Some(width), "a box has {width} numbers");
        let (indices_asked, to_bottom) = (call.flag("return_indices", true)?, call.flag("invalid_to_bottom", false)?);
        let dtype = wiring.fact(inputs[0])?.datum_type;
        let facts = match indices_asked {
            true => tvec![i32::fact([images, boxes]), i32::fact([images, 1])],
            false => tvec![dtype.fact([images, boxes, width])],
        };
        wiring.custom("NonMaxSuppression", facts, inputs, move |inputs| {
            let (data, valid, names) = (numbers(&inputs[0])?, numbers(&inputs[1])?, numbers(&inputs[2])?);
            let scalar =
                |index: usize| -> TractResult<f64> { Ok(numbers(&inputs[index])?.first().copied().unwrap_or(-1.0)) };
            let suppression = Suppression {
                most: Some(scalar(3)?).filter(|n| *n >= 0.0).map(|n| n as usize),
                threshold: scalar(4)?,
                ..written
            };
            let (mut kept, mut indices, mut counts) = (vec![-1.0; data.len()], vec![-1i32; images * boxes], vec![]);
            for image in 0..images {
                let rows: Vec<&[f64]> = data[image * boxes * width..][..boxes * width].chunks_exact(width).collect();
                let places = suppression.run(&rows, (valid[image].max(0.0) as usize).min(boxes));
                let (mut count, mut packed) = (0, 0);
                for (place, index) in places.iter().enumerate() {
                    let Some(index) = *index else { continue };
                    // Compaction treats a box as invalid if its first number is negative.
                    let target = match to_bottom {
                        true if rows[index][0] < 0.0 => None,
                        true => Some(packed),
                        false => Some(place),
                    };
                    if let Some(target) = target {
                        kept[(image * boxes + target) * width..][..width].copy_from_slice(rows[index]);
                        packed += 1;
                    }
                    let name = names[image * boxes + index] as i32;
                    if name >= 0 {
                        indices[image * boxes + count] = name;
                        count += 1;
                    }
                }
                counts.push(count as i32);
            }
            Ok(match indices_asked {
                true => {
                    tvec![Tensor::from_shape(&[images, boxes], &indices)?, Tensor::from_shape(&[images, 1], &counts)?]
                }
                false => tvec![tensor_of(&kept, &[images, boxes, width], dtype)?],
            })
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_better_of_two_overlapping_boxes_remains() {
            let data = [
                [0., 0.5, 0., 0., 2., 2.],
                [0., 0.9, 0., 0., 2., 2.1],
                [1., 0.7, 0., 0., 2., 2.],
                [0., 0.1, 5., 5., 6., 6.],
            ];
            let rows: Vec<&[f64]> = data.iter().map(|r| r.as_slice()).collect();
            let by_class = Suppression {
                force: false,
                top_k: 99,
                coordinates: 2,
                score: 1,
                id: Some(0),
                most: None,
                threshold: 0.5,
            };
            assert_eq!(by_class.run(&rows, 4), [Some(1), Some(2), None, Some(3)]);
            assert_eq!(Suppression { force: true, ..by_class }.run(&rows, 4), [Some(1), None, None, Some(3)]);
            assert_eq!(Suppression { most: Some(1), ..by_class }.run(&rows, 4), [Some(1), None, None, None]);
            assert_eq!(Suppression { top_k: 2, ..by_class }.run(&rows, 3), [Some(1), Some(2), None, None]);
        }
    }
}
