//! The allocator that ONNX Runtime gets: the process's own, so that its tensors and weights are counted.

use std::{
    alloc::{Layout, alloc, dealloc},
    ffi::c_void,
    ptr::null_mut,
    sync::OnceLock,
};

use ort::{AsPointer, Error, environment::Environment, sys};

/// Alignment of a block, the widest that ONNX Runtime's kernels ask for. The size of a block is stored that many bytes
/// before it.
const ALIGNMENT: usize = 64;

/// Allocates through the global allocator, which [`CountingAllocator`](crate::CountingAllocator) may be.
#[repr(C)]
struct GlobalOrtAllocator {
    /// The first field: ONNX Runtime passes its address to the functions below.
    functions: sys::OrtAllocator,
    info: *const sys::OrtMemoryInfo,
}

// SAFETY: both are written once, before ONNX Runtime gets them, and only read later.
unsafe impl Send for GlobalOrtAllocator {}
// SAFETY: as above.
unsafe impl Sync for GlobalOrtAllocator {}

static ALLOCATOR: OnceLock<GlobalOrtAllocator> = OnceLock::new();

/// The layout of a block of `size` bytes, with the place for its size.
fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(ALIGNMENT)?, ALIGNMENT).ok()
}

/// Allocates `size` bytes; null without any, and if there is no memory.
fn try_allocate(size: usize) -> *mut c_void {
    let Some(layout) = layout(size).filter(|_| size > 0) else { return null_mut() };
    // SAFETY: the layout is not empty; the block starts with at least ALIGNMENT bytes for its size.
    unsafe {
        let block = alloc(layout);
        if block.is_null() {
            return null_mut();
        }
        block.cast::<usize>().write(size);
        block.add(ALIGNMENT).cast()
    }
}

/// Allocates `size` bytes for ONNX Runtime. Without memory it throws `std::bad_alloc`, as ONNX Runtime's own allocator does:
/// the run then ends with an error, whereas kernels write to the address that they get, null or not.
unsafe extern "C-unwind" fn allocate(_: *mut sys::OrtAllocator, size: usize) -> *mut c_void {
    let block = try_allocate(size);
    if block.is_null()
        && size > 0
        && let Some(throw) = bad_alloc()
    {
        // SAFETY: the exception passes frames of this function alone, which own nothing, to a caller in C++.
        unsafe { throw() };
    }
    block
}

unsafe extern "C-unwind" fn reserve(_: *const sys::OrtAllocator, size: usize) -> *mut c_void {
    // SAFETY: `allocate` does not use the allocator that it is called on.
    unsafe { allocate(null_mut(), size) }
}

/// `std::__throw_bad_alloc`.
type Throw = unsafe extern "C-unwind" fn();

/// What throws `std::bad_alloc` in the C++ library that ONNX Runtime is linked to; `None` if that is another one.
#[cfg(target_os = "linux")]
fn bad_alloc() -> Option<Throw> {
    static THROW: OnceLock<Option<Throw>> = OnceLock::new();
    *THROW.get_or_init(|| {
        // SAFETY: the library is loaded already or not at all, and stays loaded; the function has this signature.
        unsafe {
            let library = libc::dlopen(c"libstdc++.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
            let found = (!library.is_null()).then(|| libc::dlsym(library, c"_ZSt17__throw_bad_allocv".as_ptr()));
            found.filter(|symbol| !symbol.is_null()).map(|symbol| std::mem::transmute::<*mut c_void, Throw>(symbol))
        }
    })
}

#[cfg(not(target_os = "linux"))]
fn bad_alloc() -> Option<Throw> {
    None
}

unsafe extern "system" fn free(_: *mut sys::OrtAllocator, pointer: *mut c_void) {
    if pointer.is_null() {
        return;
    }
    // SAFETY: `pointer` came from `allocate`, which stored the size of the block before it.
    unsafe {
        let block = pointer.cast::<u8>().sub(ALIGNMENT);
        if let Some(layout) = layout(block.cast::<usize>().read()) {
            dealloc(block, layout);
        }
    }
}

unsafe extern "system" fn info(this: *const sys::OrtAllocator) -> *const sys::OrtMemoryInfo {
    // SAFETY: ONNX Runtime passes the address of `functions`, which is that of the whole.
    unsafe { (*this.cast::<GlobalOrtAllocator>()).info }
}

/// Registers the allocator with the environment: sessions use it that ask for the environment's allocators.
///
/// # Errors
/// If ONNX Runtime refuses it.
pub(super) fn register(environment: &Environment) -> Result<(), Error> {
    let mut memory: *mut sys::OrtMemoryInfo = null_mut();
    // SAFETY: the description is written before it is read, and lives as long as the process.
    unsafe {
        let status = (ort::api().CreateCpuMemoryInfo)(
            sys::OrtAllocatorType::OrtDeviceAllocator,
            sys::OrtMemType::OrtMemTypeDefault,
            &mut memory,
        );
        Error::result_from_status(status)?;
    }
    type Alloc = unsafe extern "C-unwind" fn(*mut sys::OrtAllocator, usize) -> *mut c_void;
    type Reserve = unsafe extern "C-unwind" fn(*const sys::OrtAllocator, usize) -> *mut c_void;
    type PlainAlloc = unsafe extern "system" fn(*mut sys::OrtAllocator, usize) -> *mut c_void;
    type PlainReserve = unsafe extern "system" fn(*const sys::OrtAllocator, usize) -> *mut c_void;
    // SAFETY: the calling convention is the same where anything is thrown; the callers are in C++.
    let (alloc, reserve) = unsafe {
        (std::mem::transmute::<Alloc, PlainAlloc>(allocate), std::mem::transmute::<Reserve, PlainReserve>(reserve))
    };
    let mut functions = sys::OrtAllocator {
        version: sys::ORT_API_VERSION,
        Alloc: Some(alloc),
        Free: Some(free),
        Info: Some(info),
        Reserve: None,
    };
    functions.Reserve = Some(reserve);
    let allocator = ALLOCATOR.get_or_init(|| GlobalOrtAllocator { functions, info: memory });
    let functions = std::ptr::from_ref(&allocator.functions).cast_mut();
    // SAFETY: the environment is alive; ONNX Runtime does not write to the allocator, which is static.
    unsafe { Error::result_from_status((ort::api().RegisterAllocator)(environment.ptr().cast_mut(), functions)) }
}

/// The registered allocator, for tensors that this crate creates; null before it is registered.
pub(super) fn allocator() -> *mut sys::OrtAllocator {
    ALLOCATOR.get().map_or(null_mut(), |allocator| std::ptr::from_ref(&allocator.functions).cast_mut())
}

/// The description of main memory; null before the allocator is registered.
pub(super) fn info_of_allocator() -> *const sys::OrtMemoryInfo {
    ALLOCATOR.get().map_or(std::ptr::null(), |allocator| allocator.info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_counted_by_the_thread_that_allocates() {
        let meter = crate::AllocationMeter::new().unwrap();
        let _joined = meter.join();
        // SAFETY: what is allocated is freed once.
        unsafe {
            let block = try_allocate(1000);
            assert_eq!((block as usize % ALIGNMENT, meter.live()), (0, 1000 + ALIGNMENT as i64));
            assert!(try_allocate(0).is_null() && try_allocate(usize::MAX).is_null());
            free(null_mut(), block);
            free(null_mut(), null_mut());
        }
        assert_eq!(meter.live(), 0);
    }
}
