// Batched matrix products with arbitrary strides: the fallback where cuBLAS is missing, or the elements are not
// single-precision floats.

struct Product {
    u64 left, right, to;
    u32 batch, rows, columns, depth;
    i32 left_batch, left_row, left_depth;
    i32 right_batch, right_depth, right_column;
    i32 to_batch, to_row, to_column, pad;
};

#define PRODUCT(T)                                                                                    \
    KERNEL(product_##T, Product) {                                                                    \
        u32 i = INDEX;                                                                                \
        if (i >= a.batch * a.rows * a.columns) return;                                                \
        i32 column = i % a.columns, row = i / a.columns % a.rows, batch = i / a.columns / a.rows;     \
        const T *left = AT(const T, a.left) + batch * a.left_batch + row * a.left_row;                \
        const T *right = AT(const T, a.right) + batch * a.right_batch + column * a.right_column;      \
        T sum = 0;                                                                                    \
        for (u32 k = 0; k < a.depth; k++)                                                             \
            sum += left[(i32)k * a.left_depth] * right[(i32)k * a.right_depth];                       \
        AT(T, a.to)[batch * a.to_batch + row * a.to_row + column * a.to_column] = sum;                \
    }
PRODUCT(f32)
PRODUCT(f64)
PRODUCT(i32)
PRODUCT(i64)
