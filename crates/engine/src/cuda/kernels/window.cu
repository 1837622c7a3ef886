// Sliding windows over up to three spatial axes: convolution, transposed convolution, im2col, pooling and resampling.
// Missing axes come first and have size 1.

// The strides of a tensor are `image`, `channel` and `axis`, which covers channels-first and channels-last layouts.
struct Convolution {
    u64 data, weight, bias, to;
    u32 count;
    // Number of groups; input and output channels of each group.
    u32 groups, in, out;
    u32 from[3], result[3], size[3];
    i32 stride[3], dilation[3], before[3];
    i32 data_image, data_channel, data_axis[3];
    i32 to_image, to_channel, to_axis[3];
    // The weights of channels (out, in) of a group start at out * weight_out + in * weight_in, with contiguous taps;
    // weight_group is the stride of groups.
    i32 weight_group, weight_out, weight_in;
    // Whether neighbouring threads compute neighbouring channels, else neighbouring spatial positions.
    u32 channels_last;
    // 1: a bias for each channel. 0: one for all.
    u32 bias_stride, pad;
};

struct Position {
    u32 image, group, channel, at[3];
};

HELPER struct Position position_of(u32 i, const struct Convolution *a) {
    struct Position p;
    u32 channels = a->groups * a->out, channel = 0;
    if (a->channels_last) {
        channel = i % channels;
        i /= channels;
    }
    for (int axis = 2; axis >= 0; axis--) {
        p.at[axis] = i % a->result[axis];
        i /= a->result[axis];
    }
    if (!a->channels_last) {
        channel = i % channels;
        i /= channels;
    }
    p.image = i;
    p.group = channel / a->out;
    p.channel = channel % a->out;
    return p;
}

// Convolution: the index in the data that a tap reads for a position in the result, along one axis; negative in the
// padding.
HELPER i32 conv_source(const struct Convolution *a, int axis, u32 position, u32 tap) {
    i32 at = (i32)position * a->stride[axis] + (i32)tap * a->dilation[axis] - a->before[axis];
    return at < (i32)a->from[axis] ? at : -1;
}

// Transposed convolution: the index in the data that a tap adds to a position in the result; negative if none.
HELPER i32 transposed_source(const struct Convolution *a, int axis, u32 position, u32 tap) {
    i32 at = (i32)position + a->before[axis] - (i32)tap * a->dilation[axis];
    if (at < 0 || at % a->stride[axis]) return -1;
    at /= a->stride[axis];
    return at < (i32)a->from[axis] ? at : -1;
}

// One thread per element of the result: the sum over taps and input channels.
#define CONVOLUTION(name, T, source)                                                                  \
    KERNEL(name, Convolution) {                                                                       \
        u32 i = INDEX;                                                                                \
        if (i >= a.count) return;                                                                     \
        struct Position p = position_of(i, &a);                                                       \
        u32 channel = p.group * a.out + p.channel;                                                    \
        const T *weight = AT(const T, a.weight) + p.group * a.weight_group + p.channel * a.weight_out; \
        const T *data = AT(const T, a.data) + p.image * a.data_image + p.group * a.in * a.data_channel; \
        T sum = AT(const T, a.bias)[channel * a.bias_stride];                                         \
        u32 tap = 0;                                                                                  \
        for (u32 z = 0; z < a.size[0]; z++)                                                           \
            for (u32 y = 0; y < a.size[1]; y++)                                                       \
                for (u32 x = 0; x < a.size[2]; x++, tap++) {                                          \
                    i32 at0 = source(&a, 0, p.at[0], z), at1 = source(&a, 1, p.at[1], y);             \
                    i32 at2 = source(&a, 2, p.at[2], x);                                              \
                    if (at0 < 0 || at1 < 0 || at2 < 0) continue;                                      \
                    const T *pixel = data + at0 * a.data_axis[0] + at1 * a.data_axis[1] + at2 * a.data_axis[2]; \
                    for (u32 c = 0; c < a.in; c++)                                                    \
                        sum += pixel[(i32)c * a.data_channel] * weight[(i32)c * a.weight_in + tap];   \
                }                                                                                     \
        AT(T, a.to)[p.image * a.to_image + channel * a.to_channel + p.at[0] * a.to_axis[0] +          \
                    p.at[1] * a.to_axis[1] + p.at[2] * a.to_axis[2]] = sum;                           \
    }
#define CONVOLUTIONS(T)                                                                               \
    CONVOLUTION(convolution_##T, T, conv_source)                                                      \
    CONVOLUTION(transposed_##T, T, transposed_source)
CONVOLUTIONS(f32)
CONVOLUTIONS(f64)
CONVOLUTIONS(i32)
CONVOLUTIONS(i64)

// The im2col matrix of one group of one image: row (channel, tap), column (position); 0 in the padding.
KERNEL(im2col_f32, Convolution) {
    u32 i = INDEX;
    if (i >= a.count) return;
    u32 at[3], tap[3];
    for (int axis = 2; axis >= 0; axis--) {
        at[axis] = i % a.result[axis];
        i /= a.result[axis];
    }
    for (int axis = 2; axis >= 0; axis--) {
        tap[axis] = i % a.size[axis];
        i /= a.size[axis];
    }
    i32 offset = (i32)i * a.data_channel;
    int inside = 1;
    for (int axis = 0; axis < 3; axis++) {
        i32 from = conv_source(&a, axis, at[axis], tap[axis]);
        if (from < 0) inside = 0;
        offset += from * a.data_axis[axis];
    }
    AT(f32, a.to)[INDEX] = inside ? AT(const f32, a.data)[offset] : 0;
}

// Pooling over planes of elements with `pixel` values each. Each axis has a table with one row (first, count, distance,
// divisor) per window; the tables of the three axes are concatenated.
struct Pool {
    u64 from, to, windows;
    u32 count, pixel;
    u32 plane[3], result[3];
};

struct Window {
    i32 first, count, distance, divisor;
};

#define POOL(name, T, start, join, finish)                                                            \
    KERNEL(name, Pool) {                                                                              \
        u32 i = INDEX;                                                                                \
        if (i >= a.count) return;                                                                     \
        u32 number = i % a.pixel, rest = i / a.pixel;                                                 \
        u32 at2 = rest % a.result[2], at1 = rest / a.result[2] % a.result[1];                         \
        u32 at0 = rest / a.result[2] / a.result[1] % a.result[0];                                     \
        u32 plane = rest / a.result[2] / a.result[1] / a.result[0];                                   \
        const struct Window *windows = AT(const struct Window, a.windows);                            \
        struct Window w0 = windows[at0], w1 = windows[a.result[0] + at1];                             \
        struct Window w2 = windows[a.result[0] + a.result[1] + at2];                                  \
        const T *from = AT(const T, a.from) + plane * a.plane[0] * a.plane[1] * a.plane[2] * a.pixel + number; \
        T x = start;                                                                                  \
        for (i32 k0 = 0; k0 < w0.count; k0++)                                                         \
            for (i32 k1 = 0; k1 < w1.count; k1++)                                                     \
                for (i32 k2 = 0; k2 < w2.count; k2++) {                                               \
                    u32 row = (w0.first + k0 * w0.distance) * a.plane[1] + w1.first + k1 * w1.distance; \
                    T y = from[(row * a.plane[2] + w2.first + k2 * w2.distance) * a.pixel];           \
                    x = join;                                                                         \
                }                                                                                     \
        T divisor = (T)((i64)w0.divisor * w1.divisor * w2.divisor);                                   \
        (void)divisor;                                                                                \
        AT(T, a.to)[i] = finish;                                                                      \
    }
POOL(max_pool_f32, f32, -3.402823466e38f, x > y ? x : y, x)
POOL(max_pool_f64, f64, -1.7976931348623157e308, x > y ? x : y, x)
POOL(max_pool_i32, i32, -2147483647 - 1, x > y ? x : y, x)
POOL(max_pool_i8, i8, -128, x > y ? x : y, x)
POOL(max_pool_u8, u8, 0, x > y ? x : y, x)
POOL(mean_pool_f32, f32, 0, x + y, x / divisor)
POOL(mean_pool_f64, f64, 0, x + y, x / divisor)
POOL(mean_pool_i32, i32, 0, x + y, divisor ? x / divisor : 0)

// Resamples one axis of a tensor (outer, length, inner): each element of the result is a weighted sum of `taps` elements.
struct Resample {
    u64 from, to, indices, weights;
    u32 count, length, result, inner, taps, pad;
};

#define RESAMPLE(T)                                                                                   \
    KERNEL(resample_##T, Resample) {                                                                  \
        u32 i = INDEX;                                                                                \
        if (i >= a.count) return;                                                                     \
        u32 inside = i % a.inner, at = i / a.inner % a.result, outer = i / a.inner / a.result;        \
        const T *from = AT(const T, a.from) + outer * a.length * a.inner + inside;                    \
        T sum = 0;                                                                                    \
        for (u32 tap = 0; tap < a.taps; tap++) {                                                      \
            u32 entry = at * a.taps + tap;                                                            \
            sum += from[AT(const i32, a.indices)[entry] * a.inner] * AT(const f32, a.weights)[entry]; \
        }                                                                                             \
        AT(T, a.to)[i] = sum;                                                                         \
    }
RESAMPLE(f32)
RESAMPLE(f64)
