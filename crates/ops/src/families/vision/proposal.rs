//! `vision.proposal`: regions predicted by a region proposal network relative to its anchors.
//!
//! After `topi/vision/rcnn/proposal.py` of TVM 0.14.

use crate::{AttrDef, AttrKind, Call, OpDef, TypeError, layout::map_dim};
use edgecut_graph::{Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] =
    &[OpDef::new("vision.proposal", &["cls_prob", "bbox_pred", "im_info"], proposal_type)
        .attrs(
            "relay.attrs.ProposalAttrs",
            &[
                AttrDef::new("scales", AttrKind::Floats, "[4f, 8f, 16f, 32f]"),
                AttrDef::new("ratios", AttrKind::Floats, "[0.5f, 1f, 2f]"),
                AttrDef::new("feature_stride", AttrKind::Int, "16"),
                AttrDef::new("threshold", AttrKind::Float, "0.7f"),
                AttrDef::new("rpn_pre_nms_top_n", AttrKind::Int, "6000"),
                AttrDef::new("rpn_post_nms_top_n", AttrKind::Int, "300"),
                AttrDef::new("rpn_min_size", AttrKind::Int, "16"),
                AttrDef::new("iou_loss", AttrKind::Bool, "False"),
            ],
        )
        .attrs_in_metadata()
        .wire(kernel!(proposal))];

fn proposal_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let scores = call.tensor(0)?;
    let most = u64::try_from(call.int("rpn_post_nms_top_n", 300)?)
        .map_err(|_| call.error("rpn_post_nms_top_n is negative"))?;
    let &[images, _, _, _] = &scores.shape[..] else {
        return Err(call.error(format!("the scores are {scores}, expected rank 4")));
    };
    let shape: Shape = [map_dim(images, |n| n.saturating_mul(most)), 5.into()].into_iter().collect();
    Ok(TensorType::new(scores.dtype, shape).into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use tract_core::internal::*;

    use crate::{
        Typed,
        kernel::{
            Wiring,
            custom::{numbers, tensor_of},
        },
    };

    /// The attributes of a proposal operator.
    #[derive(Debug, Clone)]
    struct Proposal {
        /// Corners of the anchors at the first element.
        anchors: Vec<[f64; 4]>,
        stride: f64,
        threshold: f64,
        /// Numbers of boxes before and after suppression.
        before: usize,
        after: usize,
        least: f64,
        /// Predictions are corner offsets instead of shifts and scales.
        of_corners: bool,
    }

    /// Corners and score.
    type Scored = [f64; 5];

    pub(super) fn proposal(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let stride = call.int("feature_stride", 16)? as f64;
        let list = |key: &str, default: &[f64]| -> TractResult<Vec<f64>> {
            Ok(call.floats(key)?.unwrap_or_else(|| default.to_vec()))
        };
        let (scales, ratios) = (list("scales", &[4., 8., 16., 32.])?, list("ratios", &[0.5, 1., 2.])?);
        let anchors = ratios.iter().flat_map(|ratio| scales.iter().map(move |scale| anchor(*ratio, *scale, stride)));
        let proposal = Proposal {
            anchors: anchors.collect(),
            stride,
            threshold: call.float("threshold", 0.7)?,
            before: usize::try_from(call.int("rpn_pre_nms_top_n", 6000)?).ok().filter(|n| *n > 0).unwrap_or(usize::MAX),
            after: usize::try_from(call.int("rpn_post_nms_top_n", 300)?)?,
            least: call.int("rpn_min_size", 16)? as f64,
            of_corners: call.flag("iou_loss", false)?,
        };
        let [images, channels, height, width] = wiring.concrete(inputs[0])?[..] else {
            bail!("the scores must have rank 4")
        };
        let count = proposal.anchors.len();
        ensure!(channels == 2 * count, "{channels} channels of scores for {count} anchors");
        ensure!(
            wiring.concrete(inputs[1])? == [images, 4 * count, height, width],
            "bbox_pred and cls_prob have incompatible shapes"
        );
        ensure!(wiring.concrete(inputs[2])? == [images, 3], "im_info must have three numbers per image");
        let dtype = wiring.fact(inputs[0])?.datum_type;
        let out = [images * proposal.after, 5];
        wiring.custom("Proposal", tvec![dtype.fact(out)], inputs, move |inputs| {
            let (scores, places, sizes) = (numbers(&inputs[0])?, numbers(&inputs[1])?, numbers(&inputs[2])?);
            let plane = height * width;
            let mut made = vec![0.0; out[0] * 5];
            for image in 0..images {
                let size = &sizes[image * 3..][..3];
                let mut boxes: Vec<Scored> = Vec::with_capacity(plane * count);
                for (at, k) in (0..plane).flat_map(|at| (0..count).map(move |k| (at, k))) {
                    let place = [0, 1, 2, 3].map(|i| places[((image * count + k) * 4 + i) * plane + at]);
                    let score = scores[((image * 2 + 1) * count + k) * plane + at];
                    boxes.push(proposal.predict(k, [at / width, at % width], place, score, size));
                }
                boxes.sort_by(|a, b| b[4].total_cmp(&a[4]));
                boxes.truncate(proposal.before);
                let kept = proposal.suppress(&boxes);
                // Too few boxes are repeated cyclically.
                let rows = made[image * proposal.after * 5..].chunks_exact_mut(5).take(proposal.after);
                for (row, kept) in rows.zip(kept.iter().cycle()) {
                    row[0] = image as f64;
                    row[1..].copy_from_slice(&boxes[*kept][..4]);
                }
            }
            Ok(tvec![tensor_of(&made, &out, dtype)?])
        })
    }

    /// The anchor with this ratio and scale at the first element.
    fn anchor(ratio: f64, scale: f64, stride: f64) -> [f64; 4] {
        let centre = 0.5 * (stride - 1.0);
        let width = ((stride * stride / ratio).floor().sqrt() + 0.5).floor() * scale;
        let height = (width / scale * ratio + 0.5).floor() * scale;
        let (w, h) = (0.5 * (width - 1.0), 0.5 * (height - 1.0));
        [centre - w, centre - h, centre + w, centre + h]
    }

    impl Proposal {
        /// The box that `place` predicts for anchor `k` at an element; `size` is the image's height, width and scale.
        fn predict(&self, k: usize, [row, column]: [usize; 2], place: [f64; 4], score: f64, size: &[f64]) -> Scored {
            let (down, right) = (row as f64 * self.stride, column as f64 * self.stride);
            let [x0, y0, x1, y1] = self.anchors[k];
            let [x0, y0, x1, y1] = [x0 + right, y0 + down, x1 + right, y1 + down];
            let corners = if self.of_corners {
                [x0 + place[0], y0 + place[1], x1 + place[2], y1 + place[3]]
            } else {
                let (w, h) = (x1 - x0 + 1.0, y1 - y0 + 1.0);
                let (x, y) = (place[0] * w + x0 + 0.5 * (w - 1.0), place[1] * h + y0 + 0.5 * (h - 1.0));
                let (w, h) = (0.5 * (place[2].exp() * w - 1.0), 0.5 * (place[3].exp() * h - 1.0));
                [x - w, y - h, x + w, y + h]
            };
            let limits = [size[1], size[0], size[1], size[0]];
            let mut at = 0;
            let [x0, y0, x1, y1] = corners.map(|corner| {
                at += 1;
                corner.min(limits[at - 1] - 1.0).max(0.0)
            });
            let least = size[2] * self.least;
            if x1 - x0 + 1.0 < least || y1 - y0 + 1.0 < least {
                let half = least / 2.0;
                return [x0 - half, y0 - half, x1 + half, y1 + half, -1.0];
            }
            let outside = row >= (size[0] / self.stride) as usize || column >= (size[1] / self.stride) as usize;
            [x0, y0, x1, y1, if outside { -1.0 } else { score }]
        }

        /// Greedy non-maximum suppression of boxes sorted by score; returns the indices of the remaining ones.
        fn suppress(&self, boxes: &[Scored]) -> Vec<usize> {
            let mut kept: Vec<usize> = Vec::new();
            for (index, candidate) in boxes.iter().enumerate() {
                if !kept.iter().any(|k| overlap(&boxes[*k], candidate) > self.threshold) {
                    kept.push(index);
                }
            }
            kept
        }
    }

    /// Intersection over union of boxes with inclusive corners.
    fn overlap(a: &Scored, b: &Scored) -> f64 {
        let shared = |axis: usize| (a[axis + 2].min(b[axis + 2]) - a[axis].max(b[axis]) + 1.0).max(0.0);
        let area = |of: &Scored| (of[2] - of[0] + 1.0) * (of[3] - of[1] + 1.0);
        let intersection = shared(0) * shared(1);
        intersection / (area(a) + area(b) - intersection)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn anchors_are_those_of_faster_rcnn() {
            // The table in generate_anchors.py of py-faster-rcnn, for ratios 0.5, 1 and 2 at scale 8.
            assert_eq!(anchor(0.5, 8.0, 16.0), [-84., -40., 99., 55.]);
            assert_eq!(anchor(1.0, 8.0, 16.0), [-56., -56., 71., 71.]);
            assert_eq!(anchor(2.0, 8.0, 16.0), [-36., -80., 51., 95.]);
        }
    }
}
