//! Pooling: sliding, global and adaptive windows over one, two and three axes, and gradients.

mod adaptive;
mod gradient;
mod sliding;

use self::{
    adaptive::{adaptive, global},
    gradient::gradient,
    sliding::sliding,
};
use super::def::AttrKind::{Bool, Ints, OptionalInts, Str};
use super::{AttrDef, Call, OpDef, TypeError, Typed, kernel::Wiring, layout::Layout, split::SplitAxis};
use crate::graph::{Dim, TensorType};
use tract_core::internal::*;

pub(super) const OPS: &[OpDef] = &[
    sliding::<1, MAX>("nn.max_pool1d", "relay.attrs.MaxPool1DAttrs", &window_attrs("[1]", "[0]", "\"NCW\"")),
    sliding::<2, MAX>("nn.max_pool2d", "relay.attrs.MaxPool2DAttrs", &window_attrs("[1, 1]", "[0, 0]", "\"NCHW\"")),
    sliding::<3, MAX>(
        "nn.max_pool3d",
        "relay.attrs.MaxPool3DAttrs",
        &window_attrs("[1, 1, 1]", "[0, 0, 0]", "\"NCDHW\""),
    ),
    sliding::<1, AVERAGE>("nn.avg_pool1d", "relay.attrs.AvgPool1DAttrs", &counting("[1]", "[0]", "\"NCW\"")),
    sliding::<2, AVERAGE>("nn.avg_pool2d", "relay.attrs.AvgPool2DAttrs", AVERAGE2D),
    sliding::<3, AVERAGE>(
        "nn.avg_pool3d",
        "relay.attrs.AvgPool3DAttrs",
        &counting("[1, 1, 1]", "[0, 0, 0]", "\"NCDHW\""),
    ),
    gradient::<MAX>("nn.max_pool2d_grad", "relay.attrs.MaxPool2DAttrs", &window_attrs("[1, 1]", "[0, 0]", "\"NCHW\"")),
    gradient::<AVERAGE>("nn.avg_pool2d_grad", "relay.attrs.AvgPool2DAttrs", AVERAGE2D).attrs_in_metadata(),
    global::<MAX>("nn.global_max_pool2d"),
    global::<AVERAGE>("nn.global_avg_pool2d"),
    adaptive::<1, MAX>("nn.adaptive_max_pool1d", "relay.attrs.AdaptivePool1DAttrs", &sized("\"NCW\"")),
    adaptive::<2, MAX>("nn.adaptive_max_pool2d", "relay.attrs.AdaptivePool2DAttrs", &sized("\"NCHW\"")),
    adaptive::<3, MAX>("nn.adaptive_max_pool3d", "relay.attrs.AdaptivePool3DAttrs", &sized("\"NCDHW\"")),
    adaptive::<1, AVERAGE>("nn.adaptive_avg_pool1d", "relay.attrs.AdaptivePool1DAttrs", &sized("\"NCW\"")),
    adaptive::<2, AVERAGE>("nn.adaptive_avg_pool2d", "relay.attrs.AdaptivePool2DAttrs", &sized("\"NCHW\"")),
    adaptive::<3, AVERAGE>("nn.adaptive_avg_pool3d", "relay.attrs.AdaptivePool3DAttrs", &sized("\"NCDHW\"")),
];

/// What becomes of the elements of a window, as a const parameter: their largest, or their mean.
const MAX: bool = true;
const AVERAGE: bool = false;

pub(super) const AVERAGE2D: &[AttrDef] = &counting("[1, 1]", "[0, 0]", "\"NCHW\"");

const fn window_attrs(ones: &'static str, zeros: &'static str, layout: &'static str) -> [AttrDef; 7] {
    [
        AttrDef::required("pool_size", Ints),
        AttrDef::new("strides", Ints, ones),
        AttrDef::new("dilation", Ints, ones),
        AttrDef::new("padding", Ints, zeros),
        AttrDef::new("layout", Str, layout),
        AttrDef::new("out_layout", Str, "\"\""),
        AttrDef::new("ceil_mode", Bool, "False"),
    ]
}

const fn counting(ones: &'static str, zeros: &'static str, layout: &'static str) -> [AttrDef; 8] {
    let [size, strides, dilation, padding, layout, out_layout, ceil_mode] = window_attrs(ones, zeros, layout);
    let count = AttrDef::new("count_include_pad", Bool, "False");
    [size, strides, dilation, padding, layout, out_layout, ceil_mode, count]
}

const fn sized(layout: &'static str) -> [AttrDef; 3] {
    [
        AttrDef::new("output_size", OptionalInts, "[]"),
        AttrDef::new("layout", Str, layout),
        AttrDef::new("out_layout", Str, "\"\""),
    ]
}

/// Default layout over 1, 2 and 3 spatial axes.
const LAYOUTS: [&str; 4] = ["NC", "NCW", "NCHW", "NCDHW"];

/// The tensor that is pooled: its layout and where its spatial axes stand.
struct Pooled {
    layout: Layout,
    at: Vec<usize>,
}

impl Pooled {
    /// Reads the layout of the operand `data`, which may have any axes besides the spatial ones.
    fn read<const RANK: usize>(call: &Call<'_>, data: &TensorType) -> Result<Pooled, TypeError> {
        let layout = Layout::parse(call.text("layout", LAYOUTS[RANK])?).map_err(|e| call.error(e))?;
        if layout.rank() != data.shape.rank() {
            return Err(call.error(format!("{data} does not have the {} dimensions of its layout", layout.rank())));
        }
        let letters = &LAYOUTS[RANK][2..];
        let at = letters.chars().map(|l| layout.position(l).filter(|_| !layout.splits(l)));
        let at = at.collect::<Option<_>>();
        let at = at.ok_or_else(|| call.error(format!("the layout must have the axes {letters}, not in blocks")))?;
        Ok(Pooled { layout, at })
    }

    /// The type of `data` with its spatial sizes replaced.
    fn with_sizes(&self, data: &TensorType, sizes: &[Dim]) -> TensorType {
        let mut out = data.clone();
        self.at.iter().zip(sizes).for_each(|(at, size)| out.shape[*at] = *size);
        out
    }

    fn sizes(&self, data: &TensorType) -> Vec<Dim> {
        self.at.iter().map(|at| data.shape[*at]).collect()
    }

    /// The axes that are not pooled over: shaped like those of the `operands`.
    fn others(&self, call: &Typed<'_>, operands: &[usize]) -> Vec<SplitAxis> {
        let free = (0..self.layout.rank()).filter(|axis| !self.at.contains(axis));
        let along = |axis| SplitAxis::along(call, axis);
        free.map(|axis| operands.iter().fold(along(axis), |split, index| split.operand(*index, axis))).collect()
    }

    /// Wires axes before the spatial ones, the spatial ones in order, axes behind them; returns how many stand
    /// behind. Nothing is moved if the spatial axes stand together.
    fn wire(&self, wiring: &mut Wiring<'_>, data: OutletId) -> TractResult<(OutletId, Moves)> {
        let first = self.at.iter().copied().min().unwrap_or(0);
        let mut order: Vec<usize> = (0..self.layout.rank()).collect();
        let (mut moves, mut at) = (Vec::new(), data);
        for (i, axis) in self.at.iter().enumerate() {
            let from = order.iter().position(|a| a == axis).context("an axis stands once")?;
            if from != first + i {
                at = wiring.one(AxisOp::Move(from, first + i), &[at])?;
                moves.push((from, first + i));
                let moved = order.remove(from);
                order.insert(first + i, moved);
            }
        }
        Ok((at, Moves { moves, first }))
    }
}

/// How the spatial axes were brought together, from axis `first` on.
struct Moves {
    moves: Vec<(usize, usize)>,
    first: usize,
}

impl Moves {
    /// Wires the way back.
    fn undo(&self, wiring: &mut Wiring<'_>, outlet: OutletId) -> TractResult<OutletId> {
        self.moves.iter().rev().try_fold(outlet, |at, (from, to)| wiring.one(AxisOp::Move(*to, *from), &[at]))
    }
}
