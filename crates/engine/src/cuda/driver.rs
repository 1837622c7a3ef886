//! The interface to a GPU: memory, copies, kernel launches, matrix products, convolutions, synchronisation and events.

use super::{arguments::Product, source::Kernel};
use crate::EngineError;
use edgecut_graph::units::{Bytes, Micros};

/// An address in device memory.
pub(super) type Address = u64;

/// A failed request, with its context.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum GpuError {
    #[error("{0}")]
    Failed(String),
    /// The context is not usable any longer: every later request fails too, until the process ends.
    #[error("{0}")]
    Lost(String),
}

impl From<GpuError> for EngineError {
    fn from(error: GpuError) -> EngineError {
        match error {
            GpuError::Failed(what) => EngineError::Other(format!("on the GPU: {what}")),
            GpuError::Lost(what) => EngineError::DeviceLost(format!("on the GPU: {what}")),
        }
    }
}

/// A point on the device's timeline.
pub(super) type Event = u64;

/// A GPU with one stream: requests are executed in order. Requests return immediately; [`GpuDriver::read`] and
/// [`GpuDriver::synchronise`] wait for all previous ones.
pub(super) trait GpuDriver: Send + Sync {
    /// # Errors
    /// If the device has not enough free memory.
    fn allocate(&self, bytes: usize) -> Result<Address, GpuError>;

    /// Frees memory returned by [`GpuDriver::allocate`] after all previous requests have finished with it.
    fn free(&self, address: Address);

    /// Copies `bytes` to the device. The caller may change them as soon as this returns.
    fn write(&self, to: Address, bytes: &[u8]) -> Result<(), GpuError>;

    /// Copies from the device to `bytes`.
    fn read(&self, from: Address, bytes: &mut [u8]) -> Result<(), GpuError>;

    /// Compiles a kernel; the first one of a family takes seconds.
    fn prepare(&self, kernel: &Kernel) -> Result<(), GpuError>;

    /// Launches a prepared kernel.
    fn launch(&self, launch: &Launch) -> Result<(), GpuError>;

    /// Multiplies matrices in single precision with the vendor's library. Returns `false` if there is none, or it does
    /// not support the strides.
    fn multiply(&self, product: &Product) -> Result<bool, GpuError>;

    /// A convolution by the vendor's library with a workspace of at most `max_workspace` bytes; `None` if there is no
    /// library, or it does not support the sizes.
    fn convolution(&self, sizes: &ConvolutionSizes, max_workspace: usize) -> Option<Box<dyn LibraryConvolution>>;

    /// Which library computes convolutions and matrix products, with its version, such as `cudnn9.10.2`.
    fn compute_library(&self) -> String;

    /// Allocates page-locked main memory, which may be uninitialised.
    fn lock_memory(&self, bytes: usize) -> Result<*mut u8, GpuError>;

    /// Frees memory returned by [`GpuDriver::lock_memory`].
    fn unlock_memory(&self, first: *mut u8);

    fn synchronise(&self) -> Result<(), GpuError>;

    /// Records an event between the previous and the following requests. Only the most recent events are kept.
    fn record_event(&self) -> Result<Event, GpuError>;

    /// Time between two events that have completed, by the device's clock.
    fn elapsed(&self, from: Event, to: Event) -> Result<Micros, GpuError>;

    /// Free and total device memory.
    fn memory(&self) -> Result<(Bytes, Bytes), GpuError>;
}

/// One kernel launch.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub kernel: Kernel,
    pub arguments: Vec<u64>,
    pub grid: Grid,
}

/// The size of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grid {
    /// This many independent threads.
    Threads(u32),
    /// This many blocks, whose threads cooperate.
    Blocks(u32),
}

/// A convolution that the vendor's library computes.
pub(super) trait LibraryConvolution: Send {
    /// Bytes of workspace.
    fn workspace(&self) -> usize;

    /// Enqueues the convolution of the tensors at these addresses.
    ///
    /// # Safety
    /// The tensors are live and have the sizes that the convolution was prepared for, and there is its workspace.
    unsafe fn enqueue(&self, data: Address, weight: Address, workspace: Address, to: Address) -> Result<(), GpuError>;
}

/// The sizes of a single-precision convolution on dense tensors with channels first. Spatial sizes are those of three
/// axes; missing ones are the first, and 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConvolutionSizes {
    pub images: i32,
    pub groups: i32,
    /// Channels of one group.
    pub channels_in: i32,
    pub channels_out: i32,
    pub from: [i32; 3],
    pub result: [i32; 3],
    pub size: [i32; 3],
    pub stride: [i32; 3],
    pub dilation: [i32; 3],
    /// Padding before and after.
    pub before: [i32; 3],
}

impl ConvolutionSizes {
    /// Number of spatial axes: two, or three if the first has an extent.
    pub(super) fn axes(&self) -> usize {
        let is_flat = [self.from[0], self.size[0], self.result[0]] == [1; 3] && self.before[0] == 0;
        if is_flat { 2 } else { 3 }
    }

    /// Values of the spatial axes.
    pub(super) fn spatial(&self, values: &[i32; 3]) -> Vec<i32> {
        values[3 - self.axes()..].to_vec()
    }

    /// The shape of the data.
    pub(super) fn data(&self) -> Vec<i32> {
        self.shape([self.images, self.groups * self.channels_in], &self.from)
    }

    /// The shape of the weights.
    pub(super) fn weight(&self) -> Vec<i32> {
        self.shape([self.groups * self.channels_out, self.channels_in], &self.size)
    }

    /// The shape of the result.
    pub(super) fn result(&self) -> Vec<i32> {
        self.shape([self.images, self.groups * self.channels_out], &self.result)
    }

    fn shape(&self, first: [i32; 2], spatial: &[i32; 3]) -> Vec<i32> {
        first.into_iter().chain(self.spatial(spatial)).collect()
    }

    /// Whether padding as much after the data as before it gives the result's size. If so, what is padded after the last
    /// window has no effect.
    pub(super) fn is_padded_evenly(&self) -> bool {
        (0..3).all(|axis| {
            let window = self.dilation[axis] * (self.size[axis] - 1) + 1;
            let free = self.from[axis] + 2 * self.before[axis] - window;
            free >= 0 && free / self.stride[axis] + 1 == self.result[axis]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes() -> ConvolutionSizes {
        ConvolutionSizes {
            images: 2,
            groups: 3,
            channels_in: 4,
            channels_out: 5,
            from: [1, 8, 9],
            result: [1, 4, 9],
            size: [1, 3, 3],
            stride: [1, 2, 1],
            dilation: [1, 1, 1],
            before: [0, 1, 1],
        }
    }

    #[test]
    fn shapes_have_the_axes_with_an_extent() {
        let flat = sizes();
        assert_eq!(
            (flat.data(), flat.weight(), flat.result()),
            (vec![2, 12, 8, 9], vec![15, 4, 3, 3], vec![2, 15, 4, 9])
        );
        assert_eq!(ConvolutionSizes { from: [6, 8, 9], ..flat }.data(), [2, 12, 6, 8, 9]);
        // The only window of the first axis is in its padding.
        let padded = ConvolutionSizes { before: [1, 1, 1], stride: [3, 2, 1], ..flat };
        assert!(padded.is_padded_evenly() && padded.axes() == 3);
    }

    #[test]
    fn padding_is_even_where_the_result_says_so() {
        for (change, even) in [
            (sizes(), true),
            // One window more than with even padding: the padding after is larger.
            (ConvolutionSizes { result: [1, 5, 9], ..sizes() }, false),
            // None after, whose one position less is the difference.
            (ConvolutionSizes { result: [1, 4, 8], ..sizes() }, false),
            (ConvolutionSizes { size: [1, 11, 3], result: [1, 1, 9], ..sizes() }, false),
        ] {
            assert_eq!(change.is_padded_evenly(), even, "{change:?}");
        }
    }
}
