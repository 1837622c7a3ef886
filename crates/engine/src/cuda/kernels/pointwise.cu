// Pointwise functions of one, two and three operands, and casts.

struct Unary {
    u64 from, to;
    f64 constant;
    u32 count, pad;
};

// `x` is the element, `c` the constant of the operator.
#define UNARY(name, T, U, expression)                                                                 \
    KERNEL(name, Unary) {                                                                             \
        u32 i = INDEX;                                                                                \
        if (i >= a.count) return;                                                                     \
        T x = AT(const T, a.from)[i];                                                                 \
        T c = (T)a.constant;                                                                          \
        (void)c;                                                                                      \
        AT(U, a.to)[i] = (U)(expression);                                                             \
    }
#define FLOAT_UNARY(name, single, twice)                                                              \
    UNARY(name##_f32, f32, f32, single)                                                               \
    UNARY(name##_f64, f64, f64, twice)

FLOAT_UNARY(exp, expf(x), exp(x))
FLOAT_UNARY(log, logf(x), log(x))
FLOAT_UNARY(log2, log2f(x), log2(x))
FLOAT_UNARY(log10, log10f(x), log10(x))
FLOAT_UNARY(sqrt, sqrtf(x), sqrt(x))
FLOAT_UNARY(rsqrt, 1.0f / sqrtf(x), 1.0 / sqrt(x))
FLOAT_UNARY(reciprocal, 1.0f / x, 1.0 / x)
FLOAT_UNARY(square, x * x, x * x)
FLOAT_UNARY(tanh, tanhf(x), tanh(x))
FLOAT_UNARY(sigmoid, 1.0f / (1.0f + expf(-x)), 1.0 / (1.0 + exp(-x)))
FLOAT_UNARY(erf, erff(x), erf(x))
FLOAT_UNARY(sin, sinf(x), sin(x))
FLOAT_UNARY(cos, cosf(x), cos(x))
FLOAT_UNARY(tan, tanf(x), tan(x))
FLOAT_UNARY(asin, asinf(x), asin(x))
FLOAT_UNARY(acos, acosf(x), acos(x))
FLOAT_UNARY(atan, atanf(x), atan(x))
FLOAT_UNARY(sinh, sinhf(x), sinh(x))
FLOAT_UNARY(cosh, coshf(x), cosh(x))
FLOAT_UNARY(asinh, asinhf(x), asinh(x))
FLOAT_UNARY(acosh, acoshf(x), acosh(x))
FLOAT_UNARY(atanh, atanhf(x), atanh(x))
FLOAT_UNARY(ceil, ceilf(x), ceil(x))
FLOAT_UNARY(floor, floorf(x), floor(x))
FLOAT_UNARY(round, roundf(x), round(x))
FLOAT_UNARY(round_half_even, rintf(x), rint(x))
FLOAT_UNARY(trunc, truncf(x), trunc(x))
FLOAT_UNARY(leaky, x > 0 ? x : c * x, x > 0 ? x : c * x)

#define NUMBER_UNARY(T)                                                                               \
    UNARY(abs_##T, T, T, x < 0 ? -x : x)                                                              \
    UNARY(negative_##T, T, T, -x)                                                                     \
    UNARY(sign_##T, T, T, x > 0 ? 1 : x < 0 ? -1 : 0)                                                 \
    UNARY(sign_or_nan_##T, T, T, x > 0 ? 1 : x < 0 ? -1 : x)
NUMBER_UNARY(f32)
NUMBER_UNARY(f64)
NUMBER_UNARY(i32)
NUMBER_UNARY(i64)
UNARY(not_bool, boolean, boolean, !x)
UNARY(isnan_f32, f32, boolean, x != x)
UNARY(isnan_f64, f64, boolean, x != x)

// Operands are broadcast along axes with stride 0; the result is dense.
struct Binary {
    u64 left, right, to;
    u32 count, rank;
    u32 shape[RANK];
    i32 left_strides[RANK], right_strides[RANK];
};

#define BINARY(name, T, U, expression)                                                                \
    KERNEL(name, Binary) {                                                                            \
        u32 i = INDEX;                                                                                \
        if (i >= a.count) return;                                                                     \
        T x = AT(const T, a.left)[offset_of(i, a.rank, a.shape, a.left_strides)];                     \
        T y = AT(const T, a.right)[offset_of(i, a.rank, a.shape, a.right_strides)];                   \
        AT(U, a.to)[i] = (U)(expression);                                                             \
    }
#define COMPARISONS(T)                                                                                \
    BINARY(equal_##T, T, boolean, x == y)                                                             \
    BINARY(not_equal_##T, T, boolean, x < y || x > y)                                                 \
    BINARY(not_equal_or_nan_##T, T, boolean, x != y)                                                  \
    BINARY(less_##T, T, boolean, x < y)                                                               \
    BINARY(less_equal_##T, T, boolean, x <= y)                                                        \
    BINARY(greater_##T, T, boolean, x > y)                                                            \
    BINARY(greater_equal_##T, T, boolean, x >= y)
#define ORDERED(T)                                                                                    \
    BINARY(maximum_##T, T, T, x > y ? x : y)                                                          \
    BINARY(minimum_##T, T, T, x < y ? x : y)                                                          \
    BINARY(maximum_or_nan_##T, T, T, x > y || x != x ? x : y)                                         \
    BINARY(minimum_or_nan_##T, T, T, x < y || x != x ? x : y)                                         \
    COMPARISONS(T)
#define FLOAT_BINARY(T, power)                                                                        \
    BINARY(add_##T, T, T, x + y)                                                                      \
    BINARY(subtract_##T, T, T, x - y)                                                                 \
    BINARY(multiply_##T, T, T, x * y)                                                                 \
    BINARY(divide_##T, T, T, x / y)                                                                   \
    BINARY(power_##T, T, T, power)                                                                    \
    BINARY(slope_##T, T, T, x > 0 ? x : x * y)                                                        \
    ORDERED(T)
// Integer arithmetic wraps; division by zero gives zero.
#define INTEGER_BINARY(T, U)                                                                          \
    BINARY(add_##T, T, T, (U)x + (U)y)                                                                \
    BINARY(subtract_##T, T, T, (U)x - (U)y)                                                           \
    BINARY(multiply_##T, T, T, (U)x * (U)y)                                                           \
    BINARY(divide_##T, T, T, y == 0 ? 0 : y == -1 ? (T)(0 - (U)x) : x / y)                            \
    BINARY(bitwise_and_##T, T, T, x & y)                                                              \
    BINARY(bitwise_or_##T, T, T, x | y)                                                               \
    BINARY(bitwise_xor_##T, T, T, x ^ y)                                                              \
    ORDERED(T)
FLOAT_BINARY(f32, powf(x, y))
FLOAT_BINARY(f64, pow(x, y))
INTEGER_BINARY(i32, u32)
INTEGER_BINARY(i64, u64)
COMPARISONS(boolean)
BINARY(and_bool, boolean, boolean, x && y)
BINARY(or_bool, boolean, boolean, x || y)
BINARY(xor_bool, boolean, boolean, !x != !y)

// `condition ? left : right`.
struct Select {
    u64 condition, left, right, to;
    u32 count, rank;
    u32 shape[RANK];
    i32 condition_strides[RANK], left_strides[RANK], right_strides[RANK];
};

#define SELECT(name, T)                                                                               \
    KERNEL(name, Select) {                                                                            \
        u32 i = INDEX;                                                                                \
        if (i >= a.count) return;                                                                     \
        int holds = AT(const u8, a.condition)[offset_of(i, a.rank, a.shape, a.condition_strides)];    \
        AT(T, a.to)[i] = holds ? AT(const T, a.left)[offset_of(i, a.rank, a.shape, a.left_strides)]   \
                               : AT(const T, a.right)[offset_of(i, a.rank, a.shape, a.right_strides)]; \
    }
SELECT(select_1, u8)
SELECT(select_2, u16)
SELECT(select_4, u32)
SELECT(select_8, u64)

// Float to integer: truncated toward zero and saturated; NaN becomes 0.
HELPER i64 saturated(f64 x, f64 least, f64 most) {
    return x != x ? 0 : x <= least ? (i64)least : x >= most ? (i64)most : (i64)x;
}
HELPER i64 saturated_i64(f64 x) {
    if (x >= 9223372036854775808.0) return 9223372036854775807ll;
    if (x <= -9223372036854775808.0) return -9223372036854775807ll - 1;
    return x != x ? 0 : (i64)x;
}

#define CASTS_FROM(T)                                                                                 \
    UNARY(cast_##T##_f32, T, f32, x)                                                                  \
    UNARY(cast_##T##_f64, T, f64, x)                                                                  \
    UNARY(cast_##T##_bool, T, boolean, x != 0)
#define CASTS_FROM_FLOAT(T)                                                                           \
    CASTS_FROM(T)                                                                                     \
    UNARY(cast_##T##_i8, T, i8, saturated((f64)x, -128.0, 127.0))                                     \
    UNARY(cast_##T##_u8, T, u8, saturated((f64)x, 0.0, 255.0))                                        \
    UNARY(cast_##T##_i32, T, i32, saturated((f64)x, -2147483648.0, 2147483647.0))                     \
    UNARY(cast_##T##_i64, T, i64, saturated_i64((f64)x))
#define CASTS_FROM_INTEGER(T)                                                                         \
    CASTS_FROM(T)                                                                                     \
    UNARY(cast_##T##_i8, T, i8, x)                                                                    \
    UNARY(cast_##T##_u8, T, u8, x)                                                                    \
    UNARY(cast_##T##_i32, T, i32, x)                                                                  \
    UNARY(cast_##T##_i64, T, i64, x)
CASTS_FROM_FLOAT(f32)
CASTS_FROM_FLOAT(f64)
CASTS_FROM_INTEGER(i8)
CASTS_FROM_INTEGER(u8)
CASTS_FROM_INTEGER(i32)
CASTS_FROM_INTEGER(i64)
CASTS_FROM_INTEGER(boolean)
