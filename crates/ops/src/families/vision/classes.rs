//! Non-maximum suppression per class, with boxes per class or shared by all classes.
//!
//! After `topi/vision/nms.py` and `nms_util.py` of TVM 0.14.

use crate::{AttrDef, AttrKind, Call, OpDef, TypeError};
use edgecut_graph::{DType, Dim, Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new(
        "vision.all_class_non_max_suppression",
        &["boxes", "scores", "max_output_boxes_per_class", "iou_threshold", "score_threshold"],
        all_class_type,
    )
    .attrs(
        "relay.attrs.AllClassNonMaximumSuppressionAttrs",
        &[AttrDef::new("output_format", AttrKind::Str, "\"onnx\"")],
    )
    .attrs_in_metadata()
    .wire(kernel!(all_class)),
    OpDef::new("vision.regular_non_max_suppression", &["boxes", "scores"], regular_type)
        .attrs(
            "relay.attrs.RegularNonMaximumSuppressionAttrs",
            &[
                AttrDef::required("max_detections_per_class", AttrKind::Int),
                AttrDef::required("max_detections", AttrKind::Int),
                AttrDef::required("num_classes", AttrKind::Int),
                AttrDef::required("iou_threshold", AttrKind::Float),
                AttrDef::required("score_threshold", AttrKind::Float),
            ],
        )
        .attrs_in_metadata()
        .wire(kernel!(regular)),
];

/// The shapes of both operands, which must have rank 3.
fn shapes<'a>(call: &Call<'a>) -> Result<(&'a [Dim], &'a [Dim]), TypeError> {
    let (boxes, scores) = (call.tensor(0)?, call.tensor(1)?);
    match (boxes.shape.rank(), scores.shape.rank()) {
        (3, 3) => Ok((&boxes.shape, &scores.shape)),
        _ => Err(call.error(format!("the operands are {boxes} and {scores}, expected rank 3"))),
    }
}

fn tensor(dtype: DType, dims: impl IntoIterator<Item = Dim>) -> Type {
    TensorType::new(dtype, Shape::from_iter(dims)).into()
}

fn all_class_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (boxes, scores) = shapes(call)?;
    let product = |dims: &[Dim]| Dim::from(dims.iter().try_fold(1u64, |n, d| n.checked_mul(d.get()?)));
    Ok(Type::Tuple(match call.text("output_format", "onnx")? {
        "onnx" => {
            let total = product(&[boxes[0], scores[1], boxes[1]]);
            vec![tensor(DType::I64, [total, 3.into()]), tensor(DType::I64, [1.into()])]
        }
        "tensorflow" => {
            let each = product(&[scores[1], boxes[1]]);
            vec![
                tensor(DType::I64, [boxes[0], each, 2.into()]),
                tensor(DType::F32, [boxes[0], each]),
                tensor(DType::I64, [boxes[0]]),
            ]
        }
        other => return Err(call.error(format!("output_format is {other:?}, expected onnx or tensorflow"))),
    }))
}

fn regular_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (boxes, _) = shapes(call)?;
    let most = u64::try_from(call.int("max_detections", 0)?).map_err(|_| call.error("max_detections is negative"))?;
    let (images, most) = (boxes[0], Dim::Known(most));
    Ok(Type::Tuple(vec![
        tensor(DType::F32, [images, most, 4.into()]),
        tensor(DType::F32, [images, most]),
        tensor(DType::F32, [images, most]),
        tensor(DType::I32, [images]),
    ]))
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

    /// Indices of the boxes that remain among those of one class with a score above `least`, best first.
    fn kept(boxes: &[f64], scores: &[f64], least: f64, most: usize, threshold: f64) -> Vec<usize> {
        let corners = |index: usize| Corners::of(&boxes[index * 4..]);
        let mut order: Vec<usize> = (0..scores.len()).filter(|i| scores[*i] > least).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let mut kept: Vec<usize> = Vec::new();
        if threshold <= 0.0 {
            return kept;
        }
        for index in order {
            if kept.len() == most {
                break;
            }
            // Boxes whose score is not positive are never suppressed.
            let struck = scores[index] > 0.0 && kept.iter().any(|k| corners(*k).overlap(&corners(index)) >= threshold);
            if !struck {
                kept.push(index);
            }
        }
        kept
    }

    /// For ONNX rows (image, class, box) and their number; for TensorFlow rows (class, box) and scores per image. Unused rows
    /// are zero.
    pub(super) fn all_class(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let facts = call.out.tensors().into_iter().map(crate::kernel::fact).collect::<TractResult<TVec<_>>>()?;
        let onnx = call.text("output_format", "onnx")? == "onnx";
        let [images, classes, boxes] = wiring.concrete(inputs[1])?[..] else { bail!("the scores must have rank 3") };
        let operands = inputs.to_vec();
        wiring.custom("AllClassNonMaxSuppression", facts, &operands, move |inputs| {
            let (corners, scores) = (numbers(&inputs[0])?, numbers(&inputs[1])?);
            let scalar = |index: usize, otherwise: f64| -> TractResult<f64> {
                let given = inputs.get(index).map(|t| numbers(t)).transpose()?;
                Ok(given.and_then(|n| n.first().copied()).unwrap_or(otherwise))
            };
            let most = Some(scalar(2, -1.0)?).filter(|n| *n > 0.0).map_or(usize::MAX, |n| n as usize);
            let (threshold, least) = (scalar(3, 0.5)?, scalar(4, f64::NEG_INFINITY)?);
            let (mut rows, mut values, mut counts) = (Vec::<i64>::new(), Vec::<f32>::new(), Vec::<i64>::new());
            for image in 0..images {
                let mut count = 0;
                for class in 0..classes {
                    let of_class = &scores[(image * classes + class) * boxes..][..boxes];
                    for index in kept(&corners[image * boxes * 4..][..boxes * 4], of_class, least, most, threshold) {
                        rows.extend(onnx.then_some(image as i64).into_iter().chain([class as i64, index as i64]));
                        values.push(of_class[index] as f32);
                        count += 1;
                    }
                }
                counts.push(count);
                if !onnx {
                    rows.resize((image + 1) * classes * boxes * 2, 0);
                    values.resize((image + 1) * classes * boxes, 0.0);
                }
            }
            if onnx {
                rows.resize(images * classes * boxes * 3, 0);
                let total = counts.iter().sum::<i64>();
                return Ok(tvec![Tensor::from_shape(&[images * classes * boxes, 3], &rows)?, tensor1(&[total])]);
            }
            Ok(tvec![
                Tensor::from_shape(&[images, classes * boxes, 2], &rows)?,
                Tensor::from_shape(&[images, classes * boxes], &values)?,
                tensor1(&counts)
            ])
        })
    }

    /// The best boxes over all classes after suppression per class: corners, classes, scores and their number.
    pub(super) fn regular(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let facts = call.out.tensors().into_iter().map(crate::kernel::fact).collect::<TractResult<TVec<_>>>()?;
        let [images, boxes, columns] = wiring.concrete(inputs[1])?[..] else { bail!("the scores must have rank 3") };
        let count = |key| -> TractResult<usize> { Ok(usize::try_from(call.int(key, 0)?)?) };
        let (per_class, most, classes) =
            (count("max_detections_per_class")?, count("max_detections")?, count("num_classes")?);
        ensure!(classes <= columns, "expected scores for {classes} classes, found {columns}");
        let (threshold, least) = (call.float("iou_threshold", 0.5)?, call.float("score_threshold", 0.0)?);
        let background = columns - classes;
        wiring.custom("RegularNonMaxSuppression", facts, inputs, move |inputs| {
            let (corners, scores) = (numbers(&inputs[0])?, numbers(&inputs[1])?);
            let (mut shown, mut kinds, mut values) =
                (vec![0.0; images * most * 4], vec![0.0; images * most], vec![0.0; images * most]);
            let mut counts = vec![];
            for image in 0..images {
                let corners = &corners[image * boxes * 4..][..boxes * 4];
                let mut found: Vec<(f64, usize, usize)> = Vec::new();
                for class in 0..classes {
                    let score = |index: usize| scores[(image * boxes + index) * columns + class + background];
                    let mut order: Vec<usize> = (0..boxes).filter(|i| score(*i) >= least).collect();
                    order.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
                    let mut of_class: Vec<usize> = Vec::new();
                    for index in order {
                        let overlaps =
                            |k: &usize| Corners::of(&corners[k * 4..]).overlap(&Corners::of(&corners[index * 4..]));
                        if of_class.len() < per_class && !of_class.iter().any(|k| overlaps(k) > threshold) {
                            of_class.push(index);
                        }
                    }
                    found.extend(of_class.iter().map(|index| (score(*index), class, *index)));
                    found.sort_by(|a, b| b.0.total_cmp(&a.0));
                    found.truncate(most);
                }
                for (place, (score, class, index)) in found.iter().enumerate() {
                    let at = image * most + place;
                    shown[at * 4..][..4].copy_from_slice(&corners[index * 4..][..4]);
                    (kinds[at], values[at]) = (*class as f64, *score);
                }
                counts.push(found.len() as i32);
            }
            let dtype = DatumType::F32;
            Ok(tvec![
                tensor_of(&shown, &[images, most, 4], dtype)?,
                tensor_of(&kinds, &[images, most], dtype)?,
                tensor_of(&values, &[images, most], dtype)?,
                tensor1(&counts)
            ])
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn each_class_keeps_its_best() {
            let boxes = [0., 0., 1., 1., 0., 0., 1., 1.1, 3., 3., 4., 4.];
            assert_eq!(kept(&boxes, &[0.5, 0.9, 0.7], 0.0, 9, 0.5), [1, 2]);
            assert_eq!(kept(&boxes, &[0.5, 0.9, 0.7], 0.6, 1, 0.5), [1]);
            assert_eq!(kept(&boxes, &[0.5, 0.9, 0.7], 0.0, 9, 0.95), [1, 2, 0]);
        }
    }
}
