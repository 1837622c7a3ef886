// What all kernels share. A kernel is written once, in the C that both compilers take: NVRTC makes it a kernel of the
// card; a C compiler makes it a function that walks over all threads one after the other, by which kernels are tested
// where there is no card.
//
// A kernel takes one struct by value. Its addresses come as 64-bit numbers, sizes and steps as 32-bit ones: tensors of
// 2^31 elements and more are refused before. The Rust side of every struct is in `arguments.rs`, field by field.

#ifdef __CUDACC_RTC__

// Where it can be, the struct stays in the memory of constants: a thread that walks over its arrays would otherwise
// first make a copy of its own.
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
#define KERNEL(name, Arguments)                                                                      \
    static void name##_thread(const struct Arguments a);                                             \
    const unsigned name##_size = sizeof(struct Arguments);                                           \
    void name(const void *arguments, unsigned blocks, unsigned threads) {                            \
        edgecut_threads = threads;                                                                   \
        for (edgecut_block = 0; edgecut_block < blocks; edgecut_block++)                             \
            for (edgecut_thread = 0; edgecut_thread < threads; edgecut_thread++)                     \
                name##_thread(*(const struct Arguments *)arguments);                                 \
    }                                                                                                \
    static void name##_thread(const struct Arguments a)
#define INDEX (edgecut_block * edgecut_threads + edgecut_thread)
#define BLOCK edgecut_block
// Threads of a block that work together are one thread here: kernels with barriers are called with a single one.
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
// Most threads of a block that work together.
#define TEAM 256

#define AT(T, address) ((T *)(address))

// The step of element `index` of a tensor of this shape, whose axes lie `steps` elements apart.
HELPER i32 step_of(u32 index, u32 rank, const u32 *shape, const i32 *steps) {
    i32 step = 0;
    for (u32 axis = rank; axis-- > 0;) {
        u32 rest = index / shape[axis];
        step += (i32)(index - rest * shape[axis]) * steps[axis];
        index = rest;
    }
    return step;
}
