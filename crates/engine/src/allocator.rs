//! A global allocator that counts, so that the memory of a computation is measured.
//!
//! [`CountingAllocator`] wraps the system allocator. It keeps one counter for the process, and one for each
//! [`AllocationMeter`], which counts the threads of one computation. Binaries that report memory install it:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: edgecut::engine::CountingAllocator = edgecut::engine::CountingAllocator;
//! ```

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
};

use crate::heap::advise_huge_pages;
use edgecut_graph::units::Bytes;

/// The system allocator with counters. Every allocation costs two relaxed additions; after
/// [`configure_heap`](crate::configure_heap), large allocations request huge pages.
pub struct CountingAllocator;

/// Live bytes, and their peak since the last reset.
struct Counter {
    live: AtomicI64,
    peak: AtomicI64,
}

/// Counts the allocations of the threads that joined it.
///
/// Freed memory counts for the meter of the freeing thread, not of the allocating one: a computation that frees memory
/// allocated outside must correct for that.
#[derive(Debug)]
pub struct AllocationMeter {
    slot: usize,
}

/// While it exists, the current thread counts for a meter.
#[derive(Debug)]
pub struct MeterGuard {
    previous: usize,
}

const SLOTS: usize = 256;

/// Slot 0 counts the process; the others are assigned to meters.
static COUNTERS: [Counter; SLOTS] = [const { Counter { live: AtomicI64::new(0), peak: AtomicI64::new(0) } }; SLOTS];
static TAKEN: [AtomicBool; SLOTS] = [const { AtomicBool::new(false) }; SLOTS];

thread_local! {
    static SLOT: Cell<usize> = const { Cell::new(0) };
}

impl Counter {
    fn add(&self, bytes: i64) {
        let live = self.live.fetch_add(bytes, Relaxed) + bytes;
        if bytes > 0 && live > self.peak.load(Relaxed) {
            self.peak.fetch_max(live, Relaxed);
        }
    }
}

fn count(bytes: i64) {
    COUNTERS[0].add(bytes);
    let slot = SLOT.try_with(Cell::get).unwrap_or(0);
    if slot != 0 {
        COUNTERS[slot].add(bytes);
    }
}

// SAFETY: every call is forwarded to `System` unchanged; counting and advice neither allocate nor unwind.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `System` has the same requirements on `layout` as this method.
        let pointer = unsafe { System.alloc(layout) };
        if !pointer.is_null() {
            advise_huge_pages(pointer, layout.size());
            count(layout.size() as i64);
        }
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        if !pointer.is_null() {
            advise_huge_pages(pointer, layout.size());
            count(layout.size() as i64);
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` through this allocator with this `layout`.
        unsafe { System.dealloc(pointer, layout) };
        count(-(layout.size() as i64));
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`; `System` has the same requirements on `size` as this method.
        let moved = unsafe { System.realloc(pointer, layout, size) };
        if !moved.is_null() {
            advise_huge_pages(moved, size);
            count(size as i64 - layout.size() as i64);
        }
        moved
    }
}

impl CountingAllocator {
    /// Live bytes of the process.
    pub fn live() -> Bytes {
        Bytes(COUNTERS[0].live.load(Relaxed).max(0) as u64)
    }

    /// Peak of the live bytes since the last [`CountingAllocator::reset_peak`].
    pub fn peak() -> Bytes {
        Bytes(COUNTERS[0].peak.load(Relaxed).max(0) as u64)
    }

    /// Resets the peak to the live bytes.
    pub fn reset_peak() {
        COUNTERS[0].peak.store(COUNTERS[0].live.load(Relaxed), Relaxed);
    }
}

impl AllocationMeter {
    /// A new meter; `None` if all slots are in use.
    pub fn new() -> Option<AllocationMeter> {
        let free = |taken: &AtomicBool| taken.compare_exchange(false, true, Relaxed, Relaxed).is_ok();
        let slot = (1..SLOTS).find(|slot| free(&TAKEN[*slot]))?;
        COUNTERS[slot].live.store(0, Relaxed);
        COUNTERS[slot].peak.store(0, Relaxed);
        Some(AllocationMeter { slot })
    }

    /// Counts the current thread's allocations for this meter until the guard is dropped.
    pub fn join(&self) -> MeterGuard {
        MeterGuard { previous: SLOT.with(|slot| slot.replace(self.slot)) }
    }

    /// Runs `work` without counting it for the meter that the current thread has joined.
    pub(crate) fn pause<R>(work: impl FnOnce() -> R) -> R {
        let _paused = MeterGuard { previous: SLOT.with(|slot| slot.replace(0)) };
        work()
    }

    /// Resets live bytes and peak to zero.
    pub fn reset(&self) {
        COUNTERS[self.slot].live.store(0, Relaxed);
        COUNTERS[self.slot].peak.store(0, Relaxed);
    }

    /// Bytes allocated minus bytes freed since the last reset; may be negative.
    pub fn live(&self) -> i64 {
        COUNTERS[self.slot].live.load(Relaxed)
    }

    /// Maximum of [`AllocationMeter::live`] since the last reset.
    pub fn peak(&self) -> i64 {
        COUNTERS[self.slot].peak.load(Relaxed)
    }
}

impl Drop for AllocationMeter {
    fn drop(&mut self) {
        TAKEN[self.slot].store(false, Relaxed);
    }
}

impl Drop for MeterGuard {
    fn drop(&mut self) {
        SLOT.with(|slot| slot.set(self.previous));
    }
}

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_counts_the_threads_that_joined_it() {
        assert!(CountingAllocator::peak() > Bytes::ZERO);
        let meter = AllocationMeter::new().unwrap();
        let other = std::thread::spawn(|| drop(vec![0u8; 1 << 20]));
        let kept = {
            let _joined = meter.join();
            drop(vec![0u8; 5000]);
            AllocationMeter::pause(|| drop(vec![0u8; 1 << 20]));
            vec![0u8; 3000]
        };
        drop(vec![0u8; 1 << 20]);
        other.join().unwrap();
        assert_eq!((meter.live(), meter.peak()), (3000, 5000));
        assert!(CountingAllocator::live() >= Bytes(kept.len() as u64));
        assert!(CountingAllocator::peak() >= CountingAllocator::live());
        meter.reset();
        assert_eq!((meter.live(), meter.peak()), (0, 0));
    }
}
