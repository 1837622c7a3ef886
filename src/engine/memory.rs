//! Counts what is allocated, so that the memory a computation needs is measured and not guessed.
//!
//! [`CountingAllocator`] wraps the system's allocator. It keeps one count for the process and one for each
//! [`Meter`], a count of the threads that take part in one computation. A binary that wants workspace and
//! memory figures installs it:
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

use super::heap::advise_large_pages;
use crate::units::Bytes;

/// The system's allocator with counters. Every allocation costs two relaxed additions; where
/// [`prepare_heap`](super::prepare_heap) was called, large ones ask for large pages.
pub struct CountingAllocator;

/// Bytes that are allocated now, and the most that were since the peak was last reset.
struct Count {
    live: AtomicI64,
    peak: AtomicI64,
}

/// Counts the allocations of the threads that joined it, from its start.
///
/// What a thread frees counts against the meter it has joined, whoever allocated it; a computation
/// that frees what came from outside must therefore account for that itself.
#[derive(Debug)]
pub struct Meter {
    slot: usize,
}

/// Makes the current thread count for a meter until dropped.
#[derive(Debug)]
pub struct Joined {
    before: usize,
}

const SLOTS: usize = 256;
/// Slot 0 is the process; the others are handed to meters.
static COUNTS: [Count; SLOTS] = [const { Count { live: AtomicI64::new(0), peak: AtomicI64::new(0) } }; SLOTS];
static TAKEN: [AtomicBool; SLOTS] = [const { AtomicBool::new(false) }; SLOTS];

thread_local! {
    static SLOT: Cell<usize> = const { Cell::new(0) };
}

impl Count {
    fn add(&self, bytes: i64) {
        let live = self.live.fetch_add(bytes, Relaxed) + bytes;
        if bytes > 0 && live > self.peak.load(Relaxed) {
            self.peak.fetch_max(live, Relaxed);
        }
    }
}

fn count(bytes: i64) {
    COUNTS[0].add(bytes);
    let slot = SLOT.try_with(Cell::get).unwrap_or(0);
    if slot != 0 {
        COUNTS[slot].add(bytes);
    }
}

// SAFETY: every call is handed to `System` unchanged; counting and advice allocate nothing and cannot unwind.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise on `layout` is `System`'s requirement.
        let pointer = unsafe { System.alloc(layout) };
        if !pointer.is_null() {
            advise_large_pages(pointer, layout.size());
            count(layout.size() as i64);
        }
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        if !pointer.is_null() {
            advise_large_pages(pointer, layout.size());
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
        // SAFETY: as in `dealloc`, and `size` obeys the caller's promise.
        let moved = unsafe { System.realloc(pointer, layout, size) };
        if !moved.is_null() {
            advise_large_pages(moved, size);
            count(size as i64 - layout.size() as i64);
        }
        moved
    }
}

impl CountingAllocator {
    /// Whether this binary counts its allocations at all: a process that runs has allocated something.
    pub fn is_installed() -> bool {
        COUNTS[0].peak.load(Relaxed) > 0
    }

    /// Bytes the process has allocated now.
    pub fn live() -> Bytes {
        Bytes(COUNTS[0].live.load(Relaxed).max(0) as u64)
    }

    /// Most bytes the process had allocated at one time since the last [`CountingAllocator::reset_peak`].
    pub fn peak() -> Bytes {
        Bytes(COUNTS[0].peak.load(Relaxed).max(0) as u64)
    }

    /// Starts the search for the process's peak anew.
    pub fn reset_peak() {
        COUNTS[0].peak.store(COUNTS[0].live.load(Relaxed), Relaxed);
    }
}

impl Meter {
    /// A meter of its own; `None` if all of the process's are in use.
    pub fn new() -> Option<Meter> {
        let free = |taken: &AtomicBool| taken.compare_exchange(false, true, Relaxed, Relaxed).is_ok();
        let slot = (1..SLOTS).find(|slot| free(&TAKEN[*slot]))?;
        COUNTS[slot].live.store(0, Relaxed);
        COUNTS[slot].peak.store(0, Relaxed);
        Some(Meter { slot })
    }

    /// From here on the current thread's allocations count for this meter.
    pub fn join(&self) -> Joined {
        Joined { before: SLOT.with(|slot| slot.replace(self.slot)) }
    }

    /// Runs `work` without counting it for the meter that the current thread has joined.
    pub fn pause<R>(work: impl FnOnce() -> R) -> R {
        let _paused = Joined { before: SLOT.with(|slot| slot.replace(0)) };
        work()
    }

    /// Makes the present count the zero from which [`Meter::live`] and [`Meter::peak`] count.
    pub fn reset(&self) {
        COUNTS[self.slot].live.store(0, Relaxed);
        COUNTS[self.slot].peak.store(0, Relaxed);
    }

    /// Bytes allocated less bytes freed since the last reset; negative if more was freed.
    pub fn live(&self) -> i64 {
        COUNTS[self.slot].live.load(Relaxed)
    }

    /// The largest [`Meter::live`] since the last reset.
    pub fn peak(&self) -> i64 {
        COUNTS[self.slot].peak.load(Relaxed)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        TAKEN[self.slot].store(false, Relaxed);
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        SLOT.with(|slot| slot.set(self.before));
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
        assert!(CountingAllocator::is_installed());
        let meter = Meter::new().unwrap();
        let other = std::thread::spawn(|| drop(vec![0u8; 1 << 20]));
        let kept = {
            let _joined = meter.join();
            drop(vec![0u8; 5000]);
            Meter::pause(|| drop(vec![0u8; 1 << 20]));
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
