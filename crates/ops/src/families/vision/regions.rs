//! Region pooling: `vision.roi_align` and `vision.roi_pool` resample regions of a feature map to one size.
//!
//! After `topi/vision/rcnn/roi_align.py` and `roi_pool.py` of TVM 0.14.

use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, rules::per_output, split::batch};
use edgecut_graph::{TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("vision.roi_align", &["data", "rois"], region_type)
        .attrs(
            "relay.attrs.ROIAlignAttrs",
            &[
                AttrDef::required("pooled_size", AttrKind::Ints),
                AttrDef::required("spatial_scale", AttrKind::Float),
                AttrDef::new("sample_ratio", AttrKind::Int, "-1"),
                AttrDef::new("layout", AttrKind::Str, "\"NCHW\""),
                AttrDef::new("mode", AttrKind::Str, "\"avg\""),
            ],
        )
        .attrs_in_metadata()
        .class(FusionClass::Opaque)
        .flops(|call| {
            let ratio = call.int("sample_ratio", -1).ok().and_then(|n| u64::try_from(n).ok()).unwrap_or(1).max(1);
            per_output::<8>(call).saturating_mul(ratio * ratio)
        })
        .split(|call| Ok(batch(call, &[1])))
        .wire(kernel!(align)),
    OpDef::new("vision.roi_pool", &["data", "rois"], region_type)
        .attrs(
            "relay.attrs.ROIPoolAttrs",
            &[
                AttrDef::required("pooled_size", AttrKind::Ints),
                AttrDef::required("spatial_scale", AttrKind::Float),
                AttrDef::new("layout", AttrKind::Str, "\"NCHW\""),
            ],
        )
        .attrs_in_metadata()
        .class(FusionClass::Opaque)
        .flops(per_output::<1>)
        .split(|call| Ok(batch(call, &[1])))
        .wire(kernel!(pool)),
];

fn region_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, regions) = (call.tensor(0)?, call.tensor(1)?);
    let layout = call.layout("layout", "NCHW", "NCHW")?;
    let mut sizes = call.sizes_in(&layout, data, "NCHW")?;
    let size = call.steps("pooled_size", 2, 1)?;
    let &[count, _] = &regions.shape[..] else {
        return Err(call.error(format!("the regions are {regions}, expected rows of 5")));
    };
    (sizes[0], sizes[2], sizes[3]) = (count, size[0].into(), size[1].into());
    let shape = layout.shape("NCHW", &sizes).ok_or_else(|| call.error("the layout has other axes"))?;
    Ok(TensorType::new(data.dtype, shape).into())
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
        layout::Layout,
    };

    pub(super) fn align(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let sampling = Sampling {
            ratio: usize::try_from(call.int("sample_ratio", -1)?).ok().filter(|n| *n > 0),
            largest: call.text("mode", "avg")? == "max",
        };
        regions(wiring, call, inputs, move |map, region, size, cell| sampling.cell(map, region, size, cell))
    }

    pub(super) fn pool(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        regions(wiring, call, inputs, pooled)
    }

    /// One channel of a feature map.
    struct Map<'a> {
        values: &'a [f64],
        height: usize,
        width: usize,
    }

    /// A region in map coordinates: x, y, x, y.
    type Region = [f64; 4];

    /// Wires a function that computes one cell of a region from the map, the region, the number of cells (rows, columns) and
    /// the cell (row, column).
    fn regions(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
        cell: impl Fn(&Map<'_>, Region, [usize; 2], [usize; 2]) -> f64 + Send + Sync + 'static,
    ) -> TractResult<TVec<OutletId>> {
        let layout = call.layout("layout", "NCHW", "NCHW")?;
        let plain = Layout::parse("NCHW").map_err(TractError::msg)?;
        let data = layout.wire(&plain, wiring, inputs[0])?;
        let [images, channels, height, width] = wiring.concrete(data)?[..] else { bail!("the data must have rank 4") };
        ensure!(wiring.concrete(inputs[1])?.get(1) == Some(&5), "a region must have five numbers");
        let size = call.steps("pooled_size", 2, 1)?;
        let (size, scale) = ([size[0] as usize, size[1] as usize], call.float("spatial_scale", 1.0)?);
        let (count, dtype) = (wiring.concrete(inputs[1])?[0], wiring.fact(data)?.datum_type);
        let out = [count, channels, size[0], size[1]];
        let made = wiring.custom("Regions", tvec![dtype.fact(out)], &[data, inputs[1]], move |inputs| {
            let (data, regions) = (numbers(&inputs[0])?, numbers(&inputs[1])?);
            let mut made = Vec::with_capacity(out.iter().product());
            for region in regions.chunks_exact(5) {
                ensure!(
                    (0.0..images as f64).contains(&region[0]),
                    "a region has image index {} of {images}",
                    region[0]
                );
                let corners = [1, 2, 3, 4].map(|i| region[i] * scale);
                for channel in 0..channels {
                    let from = (region[0] as usize * channels + channel) * height * width;
                    let map = Map { values: &data[from..][..height * width], height, width };
                    for (y, x) in (0..size[0]).flat_map(|y| (0..size[1]).map(move |x| (y, x))) {
                        made.push(cell(&map, corners, size, [y, x]));
                    }
                }
            }
            Ok(tvec![tensor_of(&made, &out, dtype)?])
        })?[0];
        Ok(tvec![plain.wire(&layout, wiring, made)?])
    }

    /// How a cell is sampled: `ratio` points per side, or as many as the cell has elements.
    #[derive(Debug, Clone, Copy)]
    struct Sampling {
        ratio: Option<usize>,
        largest: bool,
    }

    impl Sampling {
        fn cell(&self, map: &Map<'_>, [x0, y0, x1, y1]: Region, size: [usize; 2], [row, column]: [usize; 2]) -> f64 {
            // An empty region counts as one element.
            let (height, width) = ((y1 - y0).max(1.0) / size[0] as f64, (x1 - x0).max(1.0) / size[1] as f64);
            let points = |extent: f64| self.ratio.unwrap_or(extent.ceil() as usize).max(1);
            let (down, right) = (points(height), points(width));
            let along = |start: f64, cell: usize, extent: f64, i: usize, n: usize| {
                start + (cell as f64 + (i as f64 + 0.5) / n as f64) * extent
            };
            let samples = (0..down)
                .flat_map(|i| (0..right).map(move |j| (i, j)))
                .map(|(i, j)| map.sample(along(y0, row, height, i, down), along(x0, column, width, j, right)));
            match self.largest {
                true => samples.fold(f64::NEG_INFINITY, f64::max),
                false => samples.sum::<f64>() / (down * right) as f64,
            }
        }
    }

    impl Map<'_> {
        /// Bilinear interpolation; zero more than one element outside the map.
        fn sample(&self, y: f64, x: f64) -> f64 {
            let (height, width) = (self.height as f64, self.width as f64);
            if y < -1.0 || x < -1.0 || y > height || x > width || self.values.is_empty() {
                return 0.0;
            }
            let (y, x) = (y.clamp(0.0, height - 1.0), x.clamp(0.0, width - 1.0));
            let weighed = |at: f64, n: usize| {
                let (low, part) = (at.floor() as usize, at - at.floor());
                [(low, 1.0 - part), ((low + 1).min(n - 1), part)]
            };
            let (rows, columns) = (weighed(y, self.height), weighed(x, self.width));
            let terms = rows.iter().flat_map(|(i, v)| columns.iter().map(move |(j, w)| (i * self.width + j, v * w)));
            terms.map(|(at, weight)| self.values[at] * weight).sum()
        }
    }

    /// The maximum of the cell; zero if it is empty.
    fn pooled(map: &Map<'_>, region: Region, size: [usize; 2], cell: [usize; 2]) -> f64 {
        let [x0, y0, x1, y1] = region.map(f64::round);
        let span = |start: f64, end: f64, axis: usize, n: usize| {
            let extent = (end - start + 1.0).max(1.0) / size[axis] as f64;
            // The epsilons keep integers exact despite rounding errors.
            let low = (cell[axis] as f64 * extent + 1e-5).floor() + start;
            let high = ((cell[axis] + 1) as f64 * extent - 1e-5).ceil() + start;
            low.clamp(0.0, n as f64) as usize..high.clamp(0.0, n as f64) as usize
        };
        let (rows, columns) = (span(y0, y1, 0, map.height), span(x0, x1, 1, map.width));
        if rows.is_empty() || columns.is_empty() {
            return 0.0;
        }
        let elements = rows.flat_map(|y| columns.clone().map(move |x| map.values[y * map.width + x]));
        elements.fold(f64::NEG_INFINITY, f64::max)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        const VALUES: [f64; 6] = [0., 1., 2., 3., 4., 5.];

        #[test]
        fn samples_are_bilinear_inside_and_zero_far_outside() {
            let map = Map { values: &VALUES, height: 2, width: 3 };
            assert_eq!(map.sample(0.5, 1.5), 3.0);
            assert_eq!(map.sample(-0.5, 0.0), 0.0);
            assert_eq!(map.sample(1.9, 2.0), 5.0);
            assert_eq!(map.sample(0.0, 3.5), 0.0);
        }

        #[test]
        fn a_region_of_the_whole_map_pools_its_cells() {
            let map = Map { values: &VALUES, height: 2, width: 3 };
            assert_eq!(pooled(&map, [0.0, 0.0, 2.0, 1.0], [2, 1], [0, 0]), 2.0);
            assert_eq!(pooled(&map, [0.0, 0.0, 2.0, 1.0], [2, 1], [1, 0]), 5.0);
            assert_eq!(pooled(&map, [9.0, 9.0, 9.0, 9.0], [1, 1], [0, 0]), 0.0);
        }
    }
}
