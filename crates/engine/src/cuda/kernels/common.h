// Common definitions of all kernels. A kernel is written once, in the subset of C and CUDA that both compilers accept:
// NVRTC compiles it for the GPU; a C compiler turns it into a function that loops over all threads, which tests kernels
// on machines without a GPU.
//
// A kernel takes one struct by value. Addresses are 64-bit, sizes and strides 32-bit: tensors of 2^31 elements and more
// are rejected when they are translated. The Rust counterpart of every struct is in `arguments.rs`.

#ifdef __CUDACC_RTC__

// The struct stays in constant memory where possible: otherwise a thread that indexes its arrays dynamically first copies
// it to local memory.
#if __CUDA_ARCH__ >= 700 && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1107
#define ARGUMENTS const __grid_constant__ struct
#else
#define ARGUMENTS const struct
#endif
#define KERNEL(name, Arguments) extern "C" __global__ void name(ARGUMENTS Arguments a)
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define BLOCK (blockIdx.x)
#define LANE (threadIdx.x)
#define LANES (blockDim.x)
#define SHARED __shared__
#define BARRIER() __syncthreads()
#define HELPER static __device__ inline
#define INFINITE __int_as_float(0x7f800000)

#else

#include <math.h>

static _Thread_local unsigned edgecut_block, edgecut_thread, edgecut_threads;
#define KERNEL(name, Arguments)                                                                       \
    static void name##_thread(const struct Arguments a);                                              \
    const unsigned name##_size = sizeof(struct Arguments);                                            \
    void name(const void *arguments, unsigned blocks, unsigned threads) {                             \
        edgecut_threads = threads;                                                                    \
        for (edgecut_block = 0; edgecut_block < blocks; edgecut_block++)                              \
            for (edgecut_thread = 0; edgecut_thread < threads; edgecut_thread++)                      \
                name##_thread(*(const struct Arguments *)arguments);                                  \
    }                                                                                                 \
    static void name##_thread(const struct Arguments a)
#define INDEX (edgecut_block * edgecut_threads + edgecut_thread)
#define BLOCK edgecut_block
// Kernels with barriers run with one thread per block here.
#define LANE edgecut_thread
#define LANES edgecut_threads
#define SHARED static _Thread_local
#define BARRIER() ((void)0)
#define HELPER static inline
#define INFINITE INFINITY

#endif

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
typedef u8 boolean;

#define RANK 8
// Threads of a block in kernels with shared memory.
#define BLOCK_SIZE 256

#define AT(T, address) ((T *)(address))

// The offset of element `index`, in row-major order of `shape`, in a tensor with these strides.
HELPER i32 offset_of(u32 index, u32 rank, const u32 *shape, const i32 *strides) {
    i32 offset = 0;
    for (u32 axis = rank; axis-- > 0;) {
        u32 rest = index / shape[axis];
        offset += (i32)(index - rest * shape[axis]) * strides[axis];
        index = rest;
    }
    return offset;
}
