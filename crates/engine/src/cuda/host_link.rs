//! Measures copies between main memory and a GPU, to which the cost of a link is fitted.

use std::{sync::Arc, time::Instant};

use super::{
    device_memory::DeviceMemory,
    driver::{GpuDriver, GpuError},
};
use crate::statistics::median;
use edgecut_graph::units::{Bytes, Micros};

/// Kinds of main memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostMemory {
    /// Ordinary memory, which the driver copies to a staging buffer. Tensors of a run are in it.
    Pageable,
    /// Page-locked memory, which the GPU accesses directly.
    Pinned,
}

/// Measured copies in both directions: size and median time.
#[derive(Debug, Clone, PartialEq)]
pub struct HostLink {
    pub memory: HostMemory,
    pub to_device: Vec<(Bytes, Micros)>,
    pub from_device: Vec<(Bytes, Micros)>,
}

/// Sizes grow by factors of four between these.
const SMALLEST: usize = 1 << 10;
const LARGEST: usize = 64 << 20;
/// Copies of each size.
const COPIES: usize = 7;

impl HostLink {
    /// Measures copies to and from `memory`.
    pub(super) fn measure(device: &Arc<DeviceMemory>, memory: HostMemory) -> Result<HostLink, GpuError> {
        let driver = device.driver();
        let target = device.allocate(LARGEST)?;
        let mut buffer = HostBuffer::new(driver, memory, LARGEST)?;
        let (mut to_device, mut from_device) = (Vec::new(), Vec::new());
        let mut size = SMALLEST;
        while size <= LARGEST {
            let to = median_time(|| {
                driver.write(target.address(), &buffer.bytes()[..size])?;
                driver.synchronise()
            })?;
            let from = median_time(|| driver.read(target.address(), &mut buffer.bytes_mut()[..size]))?;
            to_device.push((Bytes(size as u64), to));
            from_device.push((Bytes(size as u64), from));
            size *= 4;
        }
        Ok(HostLink { memory, to_device, from_device })
    }
}

/// The median time of [`COPIES`] copies, after a warm-up.
fn median_time(mut copy: impl FnMut() -> Result<(), GpuError>) -> Result<Micros, GpuError> {
    copy()?;
    let mut times = Vec::with_capacity(COPIES);
    for _ in 0..COPIES {
        let start = Instant::now();
        copy()?;
        times.push(Micros::from(start.elapsed()));
    }
    Ok(median(&times))
}

/// A buffer in main memory of one kind.
enum HostBuffer<'c> {
    Pageable(Vec<u8>),
    Pinned { driver: &'c dyn GpuDriver, first: *mut u8, bytes: usize },
}

impl HostBuffer<'_> {
    fn new(driver: &dyn GpuDriver, memory: HostMemory, bytes: usize) -> Result<HostBuffer<'_>, GpuError> {
        let mut buffer = match memory {
            HostMemory::Pageable => HostBuffer::Pageable(vec![0; bytes]),
            HostMemory::Pinned => HostBuffer::Pinned { driver, first: driver.lock_memory(bytes)?, bytes },
        };
        // Zeroed memory would be one physical page.
        buffer.bytes_mut().fill(1);
        Ok(buffer)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            HostBuffer::Pageable(bytes) => bytes,
            // SAFETY: the buffer owns this many bytes until dropped, and `new` initialised them.
            HostBuffer::Pinned { first, bytes, .. } => unsafe { std::slice::from_raw_parts(*first, *bytes) },
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            HostBuffer::Pageable(bytes) => bytes,
            // SAFETY: as in `bytes`, and the borrow is exclusive.
            HostBuffer::Pinned { first, bytes, .. } => unsafe { std::slice::from_raw_parts_mut(*first, *bytes) },
        }
    }
}

impl Drop for HostBuffer<'_> {
    fn drop(&mut self) {
        if let HostBuffer::Pinned { driver, first, .. } = self {
            driver.unlock_memory(*first);
        }
    }
}
