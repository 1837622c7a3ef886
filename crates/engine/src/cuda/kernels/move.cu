// Data movement: strided copies (transpose, slice, concatenate, broadcast), fill, remap and gather.
// Kernels are instantiated by element size, not by type.

struct StridedCopy {
    u64 from, to;
    u32 count, rank;
    u32 shape[RANK];
    i32 from_strides[RANK], to_strides[RANK];
};

#define COPY(name, T)                                                                                 \
    KERNEL(name, StridedCopy) {                                                                       \
        u32 i = INDEX;                                                                                \
        if (i >= a.count) return;                                                                     \
        AT(T, a.to)[offset_of(i, a.rank, a.shape, a.to_strides)] =                                    \
            AT(const T, a.from)[offset_of(i, a.rank, a.shape, a.from_strides)];                       \
    }
COPY(copy_1, u8)
COPY(copy_2, u16)
COPY(copy_4, u32)
COPY(copy_8, u64)

struct Fill {
    u64 to, bits;
    u32 count, pad;
};

#define FILL(name, T)                                                                                 \
    KERNEL(name, Fill) {                                                                              \
        u32 i = INDEX;                                                                                \
        if (i < a.count) AT(T, a.to)[i] = (T)a.bits;                                                  \
    }
FILL(fill_1, u8)
FILL(fill_2, u16)
FILL(fill_4, u32)
FILL(fill_8, u64)

// For each axis of the result, a table maps its indices to indices of the data, or to -1 for the fill value. The tables
// of all axes are concatenated.
struct Remap {
    u64 from, to, tables, bits;
    u32 count, rank;
    u32 shape[RANK];
    i32 from_strides[RANK];
};

#define REMAP(name, T)                                                                                \
    KERNEL(name, Remap) {                                                                             \
        u32 index = INDEX;                                                                            \
        if (index >= a.count) return;                                                                 \
        u32 first = 0, rest = index;                                                                  \
        i32 at = 0;                                                                                   \
        int seen = 1;                                                                                 \
        for (u32 axis = 0; axis < a.rank; axis++) first += a.shape[axis];                             \
        for (u32 axis = a.rank; axis-- > 0;) {                                                        \
            u32 next = rest / a.shape[axis];                                                          \
            first -= a.shape[axis];                                                                   \
            i32 entry = AT(const i32, a.tables)[first + (rest - next * a.shape[axis])];               \
            if (entry < 0) seen = 0;                                                                  \
            at += entry * a.from_strides[axis];                                                       \
            rest = next;                                                                              \
        }                                                                                             \
        AT(T, a.to)[index] = seen ? AT(const T, a.from)[at] : (T)a.bits;                              \
    }
REMAP(remap_1, u8)
REMAP(remap_2, u16)
REMAP(remap_4, u32)
REMAP(remap_8, u64)

// Data is (batch, outer, length, block), indices are (batch, taken), the result is (batch, outer, taken, block).
struct Gather {
    u64 data, indices, to;
    u32 count, outer, length, block, taken;
    // 0: out-of-range indices are clamped. 1: they wrap around, and negative ones count from the end.
    u32 wraps;
};

#define GATHER(name, T, I)                                                                            \
    KERNEL(name, Gather) {                                                                            \
        u32 i = INDEX;                                                                                \
        if (i >= a.count) return;                                                                     \
        u32 inside = i % a.block, rest = i / a.block;                                                 \
        u32 which = rest % a.taken, line = rest / a.taken;                                            \
        u32 batch = line / a.outer;                                                                   \
        i64 at = (i64)AT(const I, a.indices)[batch * a.taken + which], length = a.length;             \
        if (a.wraps) {                                                                                \
            at %= length;                                                                             \
            if (at < 0) at += length;                                                                 \
        } else {                                                                                      \
            at = at < 0 ? 0 : at >= length ? length - 1 : at;                                         \
        }                                                                                             \
        AT(T, a.to)[i] = AT(const T, a.data)[(line * a.length + (u32)at) * a.block + inside];         \
    }
GATHER(gather_1_i32, u8, i32)
GATHER(gather_2_i32, u16, i32)
GATHER(gather_4_i32, u32, i32)
GATHER(gather_8_i32, u64, i32)
GATHER(gather_1_i64, u8, i64)
GATHER(gather_2_i64, u16, i64)
GATHER(gather_4_i64, u32, i64)
GATHER(gather_8_i64, u64, i64)
