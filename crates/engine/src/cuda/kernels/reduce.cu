// Reductions, softmax and normalisation.
// A tensor is (outer, length, inner), and a line runs along `length`. If `inner` is 1, a block reduces each line;
// otherwise each thread reduces one line, so that neighbouring threads access neighbouring elements.

struct Reduction {
    u64 from, to;
    u32 lines, length, inner, pad;
};

#define REDUCTION(name, T, start, join)                                                               \
    KERNEL(name##_by_thread, Reduction) {                                                             \
        u32 line = INDEX;                                                                             \
        if (line >= a.lines) return;                                                                  \
        const T *from = AT(const T, a.from) + (line / a.inner) * a.length * a.inner + line % a.inner; \
        T x = start;                                                                                  \
        for (u32 i = 0; i < a.length; i++) {                                                          \
            T y = from[i * a.inner];                                                                  \
            x = join;                                                                                 \
        }                                                                                             \
        AT(T, a.to)[line] = x;                                                                        \
    }                                                                                                 \
    KERNEL(name##_by_block, Reduction) {                                                              \
        SHARED T part[BLOCK_SIZE];                                                                    \
        const T *from = AT(const T, a.from) + BLOCK * a.length;                                       \
        T x = start;                                                                                  \
        for (u32 i = LANE; i < a.length; i += LANES) {                                                \
            T y = from[i];                                                                            \
            x = join;                                                                                 \
        }                                                                                             \
        part[LANE] = x;                                                                               \
        BARRIER();                                                                                    \
        for (u32 half = LANES / 2; half > 0; half /= 2) {                                             \
            if (LANE < half) {                                                                        \
                T y = part[LANE + half];                                                              \
                x = part[LANE];                                                                       \
                part[LANE] = join;                                                                    \
            }                                                                                         \
            BARRIER();                                                                                \
        }                                                                                             \
        if (LANE == 0) AT(T, a.to)[BLOCK] = part[0];                                                  \
    }
#define REDUCTIONS(T, least, most)                                                                    \
    REDUCTION(sum_##T, T, 0, x + y)                                                                   \
    REDUCTION(prod_##T, T, 1, x * y)                                                                  \
    REDUCTION(max_##T, T, least, x > y ? x : y)                                                       \
    REDUCTION(min_##T, T, most, x < y ? x : y)
REDUCTIONS(f32, -3.402823466e38f, 3.402823466e38f)
REDUCTIONS(f64, -1.7976931348623157e308, 1.7976931348623157e308)
REDUCTIONS(i32, -2147483647 - 1, 2147483647)
REDUCTIONS(i64, -9223372036854775807ll - 1, 9223372036854775807ll)
REDUCTION(all_bool, u8, 1, x & y)
REDUCTION(any_bool, u8, 0, x | y)

struct Softmax {
    u64 from, to;
    u32 length, inner, logarithm, pad;
};

// One block per line.
#define SOFTMAX(T, exponential, natural)                                                              \
    KERNEL(softmax_##T, Softmax) {                                                                    \
        SHARED T part[BLOCK_SIZE];                                                                    \
        u32 first = (BLOCK / a.inner) * a.length * a.inner + BLOCK % a.inner;                         \
        const T *from = AT(const T, a.from) + first;                                                  \
        T *to = AT(T, a.to) + first;                                                                  \
        T most = -INFINITE, sum = 0;                                                                  \
        for (u32 i = LANE; i < a.length; i += LANES) {                                                \
            T x = from[i * a.inner];                                                                  \
            most = x > most ? x : most;                                                               \
        }                                                                                             \
        part[LANE] = most;                                                                            \
        BARRIER();                                                                                    \
        for (u32 half = LANES / 2; half > 0; half /= 2) {                                             \
            if (LANE < half && part[LANE + half] > part[LANE]) part[LANE] = part[LANE + half];        \
            BARRIER();                                                                                \
        }                                                                                             \
        most = part[0];                                                                               \
        BARRIER();                                                                                    \
        for (u32 i = LANE; i < a.length; i += LANES) sum += exponential(from[i * a.inner] - most);    \
        part[LANE] = sum;                                                                             \
        BARRIER();                                                                                    \
        for (u32 half = LANES / 2; half > 0; half /= 2) {                                             \
            if (LANE < half) part[LANE] += part[LANE + half];                                         \
            BARRIER();                                                                                \
        }                                                                                             \
        sum = part[0];                                                                                \
        for (u32 i = LANE; i < a.length; i += LANES) {                                                \
            T x = from[i * a.inner] - most;                                                           \
            to[i * a.inner] = a.logarithm ? x - natural(sum) : exponential(x) / sum;                  \
        }                                                                                             \
    }
SOFTMAX(f32, expf, logf)
SOFTMAX(f64, exp, log)

// Normalises groups of `channels` · `inner` contiguous elements, `groups` of them per image; each channel has a scale and
// a shift.
struct Normalise {
    u64 from, scales, shifts, to;
    f64 epsilon;
    u32 groups, channels, inner, scaled, shifted, pad;
};

// One block per group.
#define NORMALISE(T, root)                                                                            \
    KERNEL(normalise_##T, Normalise) {                                                                \
        SHARED T part[BLOCK_SIZE];                                                                    \
        u32 length = a.channels * a.inner, channel = BLOCK % a.groups * a.channels;                   \
        const T *from = AT(const T, a.from) + BLOCK * length;                                         \
        T *to = AT(T, a.to) + BLOCK * length;                                                         \
        T sum = 0;                                                                                    \
        for (u32 i = LANE; i < length; i += LANES) sum += from[i];                                    \
        part[LANE] = sum;                                                                             \
        BARRIER();                                                                                    \
        for (u32 half = LANES / 2; half > 0; half /= 2) {                                             \
            if (LANE < half) part[LANE] += part[LANE + half];                                         \
            BARRIER();                                                                                \
        }                                                                                             \
        T mean = part[0] / (T)length;                                                                 \
        BARRIER();                                                                                    \
        sum = 0;                                                                                      \
        for (u32 i = LANE; i < length; i += LANES) sum += (from[i] - mean) * (from[i] - mean);        \
        part[LANE] = sum;                                                                             \
        BARRIER();                                                                                    \
        for (u32 half = LANES / 2; half > 0; half /= 2) {                                             \
            if (LANE < half) part[LANE] += part[LANE + half];                                         \
            BARRIER();                                                                                \
        }                                                                                             \
        T factor = 1 / root(part[0] / (T)length + (T)a.epsilon);                                      \
        for (u32 i = LANE; i < length; i += LANES) {                                                  \
            u32 at = channel + i / a.inner;                                                           \
            T slope = a.scaled ? AT(const T, a.scales)[at] * factor : factor;                         \
            to[i] = (from[i] - mean) * slope + (a.shifted ? AT(const T, a.shifts)[at] : 0);           \
        }                                                                                             \
    }
NORMALISE(f32, sqrtf)
NORMALISE(f64, sqrt)
