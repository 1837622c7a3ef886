//! Pooling with sliding windows, global and adaptive pooling.

use edgecut_graph::DType;
use edgecut_ops::window::Window;

use super::conv::{DATA, check_indices, columns, each, is_byte, layout, pads};
use crate::export::write::Write::{self, One};
use crate::{
    error::Result,
    export::{
        builder::{ModelBuilder, OnnxValue},
        layout::BlockedLayout,
        scope::{Scope, known, table_entries},
    },
};

pub(super) const OPS: &[(&str, Write)] = &[
    ("nn.adaptive_avg_pool1d", One(|scope| adaptive(scope, 1, Pooling::Average))),
    ("nn.adaptive_avg_pool2d", One(|scope| adaptive(scope, 2, Pooling::Average))),
    ("nn.adaptive_avg_pool3d", One(|scope| adaptive(scope, 3, Pooling::Average))),
    ("nn.adaptive_max_pool1d", One(|scope| adaptive(scope, 1, Pooling::Largest))),
    ("nn.adaptive_max_pool2d", One(|scope| adaptive(scope, 2, Pooling::Largest))),
    ("nn.adaptive_max_pool3d", One(|scope| adaptive(scope, 3, Pooling::Largest))),
    ("nn.avg_pool1d", One(|scope| sliding(scope, 1, Pooling::Average))),
    ("nn.avg_pool2d", One(|scope| sliding(scope, 2, Pooling::Average))),
    ("nn.avg_pool3d", One(|scope| sliding(scope, 3, Pooling::Average))),
    ("nn.global_avg_pool2d", One(|scope| global(scope, 2, Pooling::Average))),
    ("nn.global_max_pool2d", One(|scope| global(scope, 2, Pooling::Largest))),
    ("nn.max_pool1d", One(|scope| sliding(scope, 1, Pooling::Largest))),
    ("nn.max_pool2d", One(|scope| sliding(scope, 2, Pooling::Largest))),
    ("nn.max_pool3d", One(|scope| sliding(scope, 3, Pooling::Largest))),
];

#[derive(Clone, Copy, PartialEq)]
enum Pooling {
    Largest,
    Average,
}

/// What the sum of a window is divided by.
#[derive(Clone, Copy, PartialEq)]
enum Divisor {
    /// The number of its elements.
    Inside,
    /// That with explicit padding.
    Padded,
    Same(i64),
}

/// The operand of a pooling with its axes in the order of [`DATA`].
struct Pooled {
    x: OnnxValue,
    /// Its sizes, if they are known.
    dims: Option<Vec<i64>>,
    data: BlockedLayout,
    rank: usize,
}

impl Pooled {
    fn read(scope: &mut Scope<'_>, rank: usize) -> Result<Pooled> {
        let data = layout(scope, "layout", DATA[rank])?;
        if !matches!(scope.text("out_layout", "")?, "")
            && scope.text("out_layout", "")? != scope.text("layout", DATA[rank])?
        {
            return Err("its out_layout differs from its layout".to_string());
        }
        let (x, stored) = (scope.x(0)?, known(&scope.ty(0)?.shape).ok());
        let x = data.unpack(scope.builder, &x, stored.as_deref(), DATA[rank])?;
        let dims = stored.and_then(|dims| DATA[rank].chars().map(|letter| data.size(&dims, letter)).collect());
        Ok(Pooled { x, dims, data, rank })
    }

    fn dims(&self) -> Result<&[i64]> {
        self.dims.as_deref().ok_or_else(|| "its shape is not known before it runs".to_string())
    }

    /// Brings a result back to the layout of the operand.
    fn stored(&self, scope: &mut Scope<'_>, y: &OnnxValue) -> Result<OnnxValue> {
        let out = scope.out_dims().ok();
        let sizes: Option<Vec<i64>> =
            out.and_then(|dims| DATA[self.rank].chars().map(|letter| self.data.size(&dims, letter)).collect());
        self.data.pack(scope.builder, y, sizes.as_deref(), DATA[self.rank])
    }
}

fn sliding(scope: &mut Scope<'_>, rank: usize, pooling: Pooling) -> Result<OnnxValue> {
    let pooled = Pooled::read(scope, rank)?;
    let size = scope.checked(scope.call.steps("pool_size", rank, 1))?;
    let windows = scope.checked(scope.call.windows(&size))?;
    let out = scope.out_dims()?;
    let counts: Option<Vec<i64>> = DATA[rank].chars().skip(2).map(|letter| pooled.data.size(&out, letter)).collect();
    let counts = counts.ok_or("its layout lacks an axis")?;
    let dims = pooled.dims()?.to_vec();
    let y = match pooling {
        Pooling::Largest => largest(scope.builder, &pooled.x, &dims, &windows, &counts)?,
        Pooling::Average => {
            let divisor = match scope.checked(scope.call.optional_int("divisor_override"))? {
                Some(divisor) => Divisor::Same(divisor),
                None if scope.flag("count_include_pad", false)? => Divisor::Padded,
                None => Divisor::Inside,
            };
            average(scope.builder, &pooled.x, &dims, &windows, &counts, divisor)?
        }
    };
    pooled.stored(scope, &y)
}

/// The same windows, with the padding at the end that gives exactly `counts` positions: TVM keeps an incomplete last
/// window even where it begins in the padding.
fn exact(windows: &[Window], dims: &[i64], counts: &[i64]) -> Vec<Window> {
    let adjust = |((window, n), count): ((&Window, &i64), &i64)| {
        let reach = (count - 1) * window.stride as i64 + window.extent() as i64;
        let after = (reach - n - window.before as i64).max(window.after as i64);
        Window { after: after as u64, ..*window }
    };
    windows.iter().zip(&dims[2..]).zip(counts).map(adjust).collect()
}

fn largest(
    builder: &mut ModelBuilder,
    x: &OnnxValue,
    dims: &[i64],
    windows: &[Window],
    counts: &[i64],
) -> Result<OnnxValue> {
    let windows = exact(windows, dims, counts);
    let is_wide = windows.iter().any(|w| w.before >= w.size || w.after >= w.size);
    if is_wide || x.dtype == DType::I64 {
        let lowest = match x.dtype.is_float() {
            true => builder.scalar(f64::from(f32::MIN), x.dtype)?,
            false => builder.integers(&[super::activation::range(x.dtype).0 as i64], x.dtype, &[])?,
        };
        let all = columns(builder, x, dims, &windows, counts, &lowest)?;
        let most = builder.reduce("ReduceMax", &all, &[2], false)?;
        return builder.reshape(&most, &[&dims[..2], counts].concat());
    }
    let node = builder.node("MaxPool", &[x]).ints("kernel_shape", &each(&windows, |w| w.size));
    let mut node = node.ints("strides", &each(&windows, |w| w.stride)).ints("pads", &pads(&windows));
    if windows.iter().any(|window| window.dilation != 1) {
        node = node.ints("dilations", &each(&windows, |w| w.dilation));
    }
    node.one(x.dtype)
}

fn average(
    builder: &mut ModelBuilder,
    x: &OnnxValue,
    dims: &[i64],
    windows: &[Window],
    counts: &[i64],
    divisor: Divisor,
) -> Result<OnnxValue> {
    let exact = exact(windows, dims, counts);
    let is_wide = exact.iter().any(|w| w.before >= w.size || w.after >= w.size);
    let is_longer = exact.iter().zip(windows).any(|(exact, window)| exact.after != window.after);
    let is_dilated = exact.iter().any(|window| window.dilation != 1);
    let is_float = matches!(x.dtype, DType::F32 | DType::F16 | DType::Bf16);
    let padded = divisor == Divisor::Padded;
    if is_wide || is_dilated || !is_float || (padded && is_longer) || matches!(divisor, Divisor::Same(_)) {
        return averaged_columns(builder, x, dims, windows, counts, divisor);
    }
    builder
        .node("AveragePool", &[x])
        .ints("kernel_shape", &each(&exact, |w| w.size))
        .ints("strides", &each(&exact, |w| w.stride))
        .ints("pads", &pads(&exact))
        .int("count_include_pad", padded.into())
        .one(x.dtype)
}

/// Averages of the elements under every window, for what `AveragePool` cannot express.
fn averaged_columns(
    builder: &mut ModelBuilder,
    x: &OnnxValue,
    dims: &[i64],
    windows: &[Window],
    counts: &[i64],
    divisor: Divisor,
) -> Result<OnnxValue> {
    check_indices(dims, windows, counts)?;
    let mut divisors = vec![1i64];
    for ((window, n), count) in windows.iter().zip(&dims[2..]).zip(counts) {
        let inside = |at: i64| match divisor {
            Divisor::Padded => window.padded_len(at as u64, *n as u64),
            Divisor::Inside => window.inside(at as u64, *n as u64).count() as i64,
            Divisor::Same(_) => 1,
        };
        divisors = divisors.iter().flat_map(|all| (0..*count).map(move |at| all * inside(at))).collect();
    }
    if let Divisor::Same(divisor) = divisor {
        divisors.fill(divisor);
    }
    if divisor != Divisor::Padded {
        divisors.iter_mut().for_each(|n| *n = (*n).max(1));
    }
    let zero = builder.scalar(0.0, x.dtype)?;
    let all = columns(builder, x, dims, windows, counts, &zero)?;
    let sums = builder.reduce("ReduceSum", &all, &[2], false)?;
    let divisors = builder.integers(&divisors, x.dtype, &[divisors.len() as u64])?;
    let means = builder.binary("Div", &sums, &divisors)?;
    builder.reshape(&means, &[&dims[..2], counts].concat())
}

fn global(scope: &mut Scope<'_>, rank: usize, pooling: Pooling) -> Result<OnnxValue> {
    let pooled = Pooled::read(scope, rank)?;
    let y = whole(scope.builder, &pooled, pooling)?;
    pooled.stored(scope, &y)
}

/// One result for all spatial positions.
fn whole(builder: &mut ModelBuilder, pooled: &Pooled, pooling: Pooling) -> Result<OnnxValue> {
    let (x, axes): (&OnnxValue, Vec<usize>) = (&pooled.x, (2..2 + pooled.rank).collect());
    let has_kernel = x.dtype.is_float() && x.dtype != DType::F64;
    match (pooling, has_kernel) {
        (Pooling::Largest, true) => builder.unary("GlobalMaxPool", x),
        (Pooling::Average, true) => builder.unary("GlobalAveragePool", x),
        (Pooling::Largest, false) => builder.reduce("ReduceMax", x, &axes, true),
        (Pooling::Average, false) => {
            let sum = builder.reduce("ReduceSum", x, &axes, true)?;
            let count: i64 = pooled.dims()?[2..].iter().product();
            builder.with_number("Div", &sum, count as f64)
        }
    }
}

fn adaptive(scope: &mut Scope<'_>, rank: usize, pooling: Pooling) -> Result<OnnxValue> {
    let pooled = Pooled::read(scope, rank)?;
    let out = scope.out_dims()?;
    let counts: Option<Vec<i64>> = DATA[rank].chars().skip(2).map(|letter| pooled.data.size(&out, letter)).collect();
    let counts = counts.ok_or("its layout lacks an axis")?;
    if counts.iter().all(|count| *count == 1) {
        let y = whole(scope.builder, &pooled, pooling)?;
        return pooled.stored(scope, &y);
    }
    let dims = pooled.dims()?.to_vec();
    if dims[2..] == counts[..] {
        return scope.x(0);
    }
    let is_even = dims[2..].iter().zip(&counts).all(|(n, count)| *count > 0 && n % count == 0);
    let y = if is_even && (pooled.x.dtype.is_float() || pooling == Pooling::Average || is_byte(pooled.x.dtype)) {
        let size = |(n, count): (&i64, &i64)| (n / count) as u64;
        let windows: Vec<Window> = dims[2..]
            .iter()
            .zip(&counts)
            .map(size)
            .map(|size| Window { size, stride: size, dilation: 1, before: 0, after: 0 })
            .collect();
        match pooling {
            Pooling::Largest => largest(scope.builder, &pooled.x, &dims, &windows, &counts)?,
            Pooling::Average => average(scope.builder, &pooled.x, &dims, &windows, &counts, Divisor::Inside)?,
        }
    } else {
        uneven(scope.builder, &pooled.x, &dims, &counts, pooling)?
    };
    pooled.stored(scope, &y)
}

/// Windows of different sizes, one axis after the other: elements under each window are gathered, short windows with
/// repetitions for the maximum and with zeros for the sum.
fn uneven(
    builder: &mut ModelBuilder,
    x: &OnnxValue,
    dims: &[i64],
    counts: &[i64],
    pooling: Pooling,
) -> Result<OnnxValue> {
    table_entries(counts)?;
    let (mut y, mut sizes) = (x.clone(), dims.to_vec());
    let mut divisors = vec![1i64];
    for (axis, (n, count)) in dims[2..].iter().zip(counts).enumerate() {
        let (n, count) = (*n, *count);
        // Neighbouring spans share at most one element.
        table_entries(&[n.saturating_add(count).saturating_mul(2)])?;
        let spans: Vec<(i64, i64)> = (0..count).map(|i| (i * n / count, ((i + 1) * n + count - 1) / count)).collect();
        let longest = spans.iter().map(|(start, end)| end - start).max().unwrap_or(1);
        let past = if pooling == Pooling::Average { n } else { -1 };
        let at = |(start, end): &(i64, i64)| {
            let (start, end) = (*start, *end);
            (0..longest).map(move |k| match start + k < end {
                true => start + k,
                false if past < 0 => end - 1,
                false => past,
            })
        };
        let indices: Vec<i64> = spans.iter().flat_map(at).collect();
        let mut widths = vec![(0, 0); sizes.len()];
        if pooling == Pooling::Average {
            widths[axis + 2].1 = 1;
        }
        let zero = builder.scalar(0.0, y.dtype)?;
        y = builder.pad(&y, &widths, &zero)?;
        let indices = builder.integers(&indices, DType::I64, &[count as u64, longest as u64])?;
        y = builder.gather(&y, &indices, axis + 2)?;
        let op = if pooling == Pooling::Largest { "ReduceMax" } else { "ReduceSum" };
        y = builder.reduce(op, &y, &[axis + 3], false)?;
        sizes[axis + 2] = count;
        divisors = divisors.iter().flat_map(|all| spans.iter().map(move |(start, end)| all * (end - start))).collect();
    }
    if pooling == Pooling::Largest {
        return Ok(y);
    }
    let shape: Vec<u64> = counts.iter().map(|n| *n as u64).collect();
    let divisors = builder.integers(&divisors, y.dtype, &shape)?;
    builder.binary("Div", &y, &divisors)
}
