//! Repeating and reversing elements, and moving them between channels and space.

use edgecut_graph::DType;

use crate::export::write::Write::{self, One};
use crate::{
    error::Result,
    export::{builder::OnnxValue, scope::Scope},
};

pub(super) const OPS: &[(&str, Write)] = &[
    ("nn.depth_to_space", One(depth_to_space)),
    ("nn.space_to_depth", One(space_to_depth)),
    ("repeat", One(repeat)),
    ("reverse", One(reverse)),
    ("reverse_sequence", One(reverse_sequence)),
    ("tile", One(tile)),
];

/// Missing axes come first and have length 1.
fn tile(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, mut dims, rank) = (scope.x(0)?, scope.dims(0)?, scope.out()?.shape.rank());
    let mut repeats = scope.ints("reps")?.unwrap_or_default();
    while dims.len() < rank {
        dims.insert(0, 1);
    }
    while repeats.len() < rank {
        repeats.insert(0, 1);
    }
    let x = scope.builder.reshape(&x, &dims)?;
    let repeats = scope.builder.ints(&repeats)?;
    scope.builder.node("Tile", &[&x, &repeats]).one(x.dtype)
}

/// Every element several times, along an axis or flattened.
fn repeat(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (mut x, mut dims, out) = (scope.x(0)?, scope.dims(0)?, scope.out_dims()?);
    let at = match scope.checked(scope.call.optional_int("axis"))? {
        Some(_) => scope.axis("axis", 0, dims.len())?,
        None => {
            x = scope.builder.flat(&x)?;
            dims = vec![dims.iter().product()];
            0
        }
    };
    let mut spread = dims.clone();
    spread.insert(at + 1, 1);
    let apart = scope.builder.reshape(&x, &spread)?;
    spread[at + 1] = scope.int("repeats", 1)?;
    let expanded = scope.builder.expand(&apart, &spread)?;
    scope.builder.reshape(&expanded, &out)
}

fn reverse(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, rank) = (scope.x(0)?, scope.rank(0)?);
    let axis = scope.axis("axis", 0, rank)?;
    // The end is before the first element, whatever the length.
    scope.builder.slice(&x, &[axis as i64], &[-1], &[i64::MIN], &[-1])
}

/// ONNX allows only axes 0 and 1: one is the batch, the other the sequence.
fn reverse_sequence(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, lengths, rank) = (scope.x(0)?, scope.x(1)?, scope.rank(0)?);
    let (time, batch) = (scope.axis("seq_axis", 1, rank)?, scope.axis("batch_axis", 0, rank)?);
    if time.min(batch) != 0 || time.max(batch) != 1 {
        return Err(format!("axes {batch} and {time} have no equivalent: expected 0 and 1"));
    }
    let lengths = scope.builder.cast(&lengths, DType::I64)?;
    let node = scope.builder.node("ReverseSequence", &[&x, &lengths]);
    node.int("time_axis", time as i64).int("batch_axis", batch as i64).one(x.dtype)
}

/// (N, C, H, W), the only layout that ONNX has.
fn in_first_layout(scope: &Scope<'_>) -> Result<()> {
    match scope.text("layout", "NCHW")? {
        "NCHW" => Ok(()),
        other => Err(format!("layout `{other}` has no equivalent")),
    }
}

fn depth_to_space(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    in_first_layout(scope)?;
    let (x, block, mode) = (scope.x(0)?, scope.int("block_size", 1)?, scope.text("mode", "DCR")?);
    scope.builder.node("DepthToSpace", &[&x]).int("blocksize", block).text("mode", mode).one(x.dtype)
}

fn space_to_depth(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    in_first_layout(scope)?;
    let (x, block) = (scope.x(0)?, scope.int("block_size", 1)?);
    scope.builder.node("SpaceToDepth", &[&x]).int("blocksize", block).one(x.dtype)
}
