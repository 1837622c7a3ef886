//! A convolution's attributes and operand types in canonical form, shared by its type rule, cost and kernels.

use crate::{
    Call, TypeError, Typed,
    layout::Layout,
    window::{Rounding, Window},
};
use edgecut_graph::{DType, Dim, TensorType, Type};

/// Axes of the data of a convolution over 1, 2 and 3 spatial axes.
pub(crate) const DATA_AXES: [&str; 4] = ["NC", "NCW", "NCHW", "NCDHW"];

/// Axes of the weight of a convolution over 1, 2 and 3 spatial axes.
pub(crate) const KERNEL_AXES: [&str; 4] = ["OI", "OIW", "OIHW", "OIDHW"];

/// A convolution over `RANK` spatial axes. Sizes are in canonical order, independent of the layouts.
#[derive(Debug, Clone)]
pub(crate) struct Convolution<const RANK: usize> {
    pub data: Layout,
    pub kernel: Layout,
    pub out: Layout,
    pub batch: Dim,
    pub channels_in: Dim,
    pub channels_out: Dim,
    pub groups: u64,
    /// Spatial sizes of the data.
    pub spatial: Vec<Dim>,
    /// By spatial axis: the window.
    pub windows: Vec<Window>,
    pub form: WeightForm,
    pub out_dtype: DType,
}

/// How the first two axes of a weight represent the channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WeightForm {
    /// (channels out, channels in / groups).
    OutIn,
    /// Depthwise, one group per channel: (channels in, channels out / channels in).
    Depthwise,
}

impl<const RANK: usize> Convolution<RANK> {
    pub const DATA: &'static str = DATA_AXES[RANK];
    pub const KERNEL: &'static str = KERNEL_AXES[RANK];

    /// The convolution of a call whose types are known.
    pub fn of(call: &Call<'_>) -> Result<Self, TypeError> {
        Self::read(call, call.tensor(0)?, Some(call.tensor(1)?))
    }

    /// The convolution of a call on `data`. A known weight is checked; without one, `channels` and `kernel_size` are
    /// required.
    pub fn read(call: &Call<'_>, data: &TensorType, weight: Option<&TensorType>) -> Result<Self, TypeError> {
        let data_layout = call.layout("data_layout", Self::DATA, Self::DATA)?;
        let kernel = call.layout("kernel_layout", Self::KERNEL, Self::KERNEL)?;
        let out = call.out_layout(&data_layout, Self::DATA)?;
        let sizes = call.sizes_in(&data_layout, data, Self::DATA)?;
        let (batch, channels_in, spatial) = (sizes[0], sizes[1], sizes[2..].to_vec());
        let groups = call.groups()?;
        let weight_sizes = weight.map(|w| call.sizes_in(&kernel, w, Self::KERNEL)).transpose()?;
        let kernel_size = match (call.attr("kernel_size"), &weight_sizes) {
            (Some(_), _) => call.steps("kernel_size", RANK, 1)?,
            (None, Some(sizes)) => call.known(&sizes[2..], "the weight")?,
            (None, None) => return Err(call.error("the weight's type cannot be inferred without kernel_size")),
        };
        let windows = call.windows(&kernel_size)?;
        let channels = call.optional_int("channels")?.map(|n| u64::try_from(n).map(Dim::Known));
        let channels = channels.transpose().map_err(|_| call.error("channels must not be negative"))?;
        let mut conv = Convolution {
            form: WeightForm::OutIn,
            channels_out: channels.unwrap_or(Dim::Any),
            out_dtype: call.dtype("out_dtype")?.unwrap_or(data.dtype),
            data: data_layout,
            kernel,
            out,
            batch,
            channels_in,
            groups,
            spatial,
            windows,
        };
        match (weight_sizes, channels) {
            (Some(sizes), _) => conv.apply_weight(call, &sizes, channels)?,
            (None, Some(_)) => conv.form = conv.likely_form(),
            (None, None) => return Err(call.error("the weight's type cannot be inferred without channels")),
        }
        Ok(conv)
    }

    /// The form of a weight of unknown shape: a kernel layout that ends with the output before the input channel (`HWOI`)
    /// is depthwise.
    fn likely_form(&self) -> WeightForm {
        let depthwise = self.channels_in.get() == Some(self.groups) && self.groups > 1;
        match (self.kernel.position('W'), self.kernel.position('O'), self.kernel.position('I')) {
            (Some(w), Some(o), Some(i)) if depthwise && w < o && o < i => WeightForm::Depthwise,
            _ => WeightForm::OutIn,
        }
    }

    /// Checks the weight's shape and derives from it what the attributes omit.
    fn apply_weight(&mut self, call: &Call<'_>, weight: &[Dim], channels: Option<Dim>) -> Result<(), TypeError> {
        let fits = |found: Dim, want: Option<u64>| found.get().is_none_or(|n| want.is_none_or(|w| n == w));
        let (first, second) = (weight[0], weight[1]);
        let multiplied = first.get().zip(second.get()).and_then(|(a, b)| a.checked_mul(b));
        let per_group = self.channels_in.get().map(|c| c / self.groups);
        let wanted = channels.and_then(Dim::get);
        let plain = fits(first, wanted) && fits(second, per_group);
        let depthwise = self.groups > 1
            && self.channels_in.get() == Some(self.groups)
            && fits(first, Some(self.groups))
            && fits(second, wanted.map(|c| c / self.groups));
        self.form = match (plain, depthwise) {
            (true, _) => WeightForm::OutIn,
            (false, true) => WeightForm::Depthwise,
            (false, false) => {
                let (c, g) = (self.channels_in, self.groups);
                let says = wanted.map_or(String::new(), |n| format!(" and channels={n}"));
                return Err(call.error(format!(
                    "a weight with {first} output and {second} input channels does not fit {c} channels in {g} groups{says}"
                )));
            }
        };
        if self.channels_in.get().is_some_and(|c| c % self.groups != 0) {
            return Err(
                call.error(format!("{} channels are not divisible into {} groups", self.channels_in, self.groups))
            );
        }
        if channels.is_none() {
            self.channels_out = match self.form {
                WeightForm::OutIn => first,
                WeightForm::Depthwise => multiplied.map_or(Dim::Any, Dim::Known),
            };
        }
        let sizes = self.windows.iter().map(|w| w.size);
        if !weight[2..].iter().zip(sizes).all(|(found, size)| fits(*found, Some(size))) {
            return Err(call.error("kernel_size differs from the weight's shape"));
        }
        Ok(())
    }

    /// The weight's type; `None` if a dimension is unknown.
    pub fn weight_type(&self, dtype: DType) -> Option<TensorType> {
        let (channels_in, channels_out) = (self.channels_in.get()?, self.channels_out.get()?);
        let mut sizes = match self.form {
            WeightForm::OutIn => vec![channels_out.into(), (channels_in / self.groups).into()],
            WeightForm::Depthwise => vec![channels_in.into(), (channels_out / channels_in.max(1)).into()],
        };
        sizes.extend(self.windows.iter().map(|w| Dim::Known(w.size)));
        Some(TensorType::new(dtype, self.kernel.shape(Self::KERNEL, &sizes)?))
    }

    /// The result's type.
    pub fn out_type(&self, call: &Call<'_>) -> Result<TensorType, TypeError> {
        let mut sizes = vec![self.batch, self.channels_out];
        for (n, window) in self.spatial.iter().zip(&self.windows) {
            sizes.push(call.windowed(*n, window, Rounding::Floor)?);
        }
        let shape = self.out.shape(Self::DATA, &sizes).ok_or_else(|| call.error("out_layout has other axes"))?;
        Ok(TensorType::new(self.out_dtype, shape))
    }

    /// Multiply-adds per element of the result; 0 if unknown.
    pub fn taps(&self) -> u64 {
        let window = self.windows.iter().map(|w| w.size).fold(1, u64::saturating_mul);
        self.channels_in.get().map_or(0, |c| (c / self.groups).saturating_mul(window))
    }
}

/// The type of a convolution's result.
pub(crate) fn conv_type<const RANK: usize>(call: &Call<'_>) -> Result<Type, TypeError> {
    Ok(Convolution::<RANK>::of(call)?.out_type(call)?.into())
}

/// The weight's type from `channels` and `kernel_size`.
pub(crate) fn conv_operands<const RANK: usize>(call: &Call<'_>, known: &mut [Option<Type>]) -> Result<(), TypeError> {
    if let [Some(Type::Tensor(data)), weight @ None, ..] = known
        && call.attr("channels").is_some()
        && call.attr("kernel_size").is_some()
    {
        let conv = Convolution::<RANK>::read(call, data, None)?;
        *weight = conv.weight_type(data.dtype).map(Type::from);
    }
    Ok(())
}

/// Two operations per tap of each output element.
pub(crate) fn conv_flops<const RANK: usize>(call: &Typed<'_>) -> u64 {
    let outputs: u64 = call.out.tensors().iter().filter_map(|t| t.shape.elements()).sum();
    Convolution::<RANK>::of(call).map_or(0, |conv| outputs.saturating_mul(conv.taps()).saturating_mul(2))
}

impl Call<'_> {
    pub(crate) fn groups(&self) -> Result<u64, TypeError> {
        let groups = u64::try_from(self.int("groups", 1)?).ok();
        groups.filter(|g| *g > 0).ok_or_else(|| self.error("groups must be at least 1"))
    }
}

/// The result type of a convolution, without a check of the weight's shape.
pub(crate) fn unchecked_type<const RANK: usize>(call: &Call<'_>) -> Result<Type, TypeError> {
    Ok(Convolution::<RANK>::read(call, call.tensor(0)?, None)?.out_type(call)?.into())
}
