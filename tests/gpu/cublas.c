// NVIDIA's matrix library, as its documentation has it: matrices column by column, checked leading dimensions, done when
// the stream comes to it.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long Address;
enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, MAPPING_ERROR = 11 };

struct Handle { void *stream; };
struct Product {
    int left_transposed, right_transposed, m, n, k, lda, ldb, ldc, batch;
    float alpha, beta;
    const float *a, *b;
    float *c;
    long long stride_a, stride_b, stride_c;
};

static void *driver(const char *name) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return library ? dlsym(library, name) : NULL;
}

static int has_context(void) {
    int (*get)(void **) = (int (*)(void **))driver("cuCtxGetCurrent");
    void *context = NULL;
    return get && !get(&context) && context;
}

int cublasGetProperty(int which, int *value) { return *value = which == 0 ? 12 : which == 1 ? 4 : 0, SUCCESS; }
int cublasCreate_v2(struct Handle **made) {
    if (!has_context()) return NOT_INITIALIZED;
    *made = calloc(1, sizeof **made);
    return SUCCESS;
}
int cublasDestroy_v2(struct Handle *handle) {
    if (!has_context()) return NOT_INITIALIZED;
    free(handle);
    return SUCCESS;
}
int cublasSetStream_v2(struct Handle *handle, void *stream) { return handle->stream = stream, SUCCESS; }

static void multiply(void *data) {
    const struct Product *p = data;
    size_t column_bytes = (size_t)p->m * sizeof(double);
    double *sums = malloc(column_bytes + 1);
    // The left matrix, each column in one piece.
    float *left = malloc(((size_t)p->m * p->k + 1) * sizeof *left);
    for (int i = 0; i < p->batch; i++) {
        const float *a = p->a + i * p->stride_a, *b = p->b + i * p->stride_b;
        float *c = p->c + i * p->stride_c;
        for (int k = 0; k < p->k; k++)
            for (int row = 0; row < p->m; row++)
                left[row + (size_t)k * p->m] = p->left_transposed ? a[k + (long)row * p->lda] : a[row + (long)k * p->lda];
        for (int column = 0; column < p->n; column++) {
            memset(sums, 0, column_bytes);
            for (int k = 0; k < p->k; k++) {
                double right = p->right_transposed ? b[column + (long)k * p->ldb] : b[k + (long)column * p->ldb];
                const float *from = left + (size_t)k * p->m;
                for (int row = 0; row < p->m; row++) sums[row] += from[row] * right;
            }
            float *to = c + (long)column * p->ldc;
            // With a factor of 0 what lies there is not read: it may be no number.
            for (int row = 0; row < p->m; row++)
                to[row] = (float)(p->alpha * sums[row]) + (p->beta == 0 ? 0 : p->beta * to[row]);
        }
    }
    free(left);
    free(sums);
}

// Whether a matrix stored in so many rows and columns lies in the card's memory, all of the batch.
static int is_there(const float *first, long rows, long columns, long leading, long long stride, int batch) {
    int (*is_taken)(Address, size_t) = (int (*)(Address, size_t))driver("edgecut_is_taken");
    if (!rows || !columns || !batch) return 1;
    return is_taken((Address)first, (((columns - 1) * leading + rows) + (batch - 1) * stride) * sizeof(float));
}

int cublasSgemmStridedBatched(struct Handle *handle, int transa, int transb, int m, int n, int k, const float *alpha,
                              const float *a, int lda, long long stride_a, const float *b, int ldb, long long stride_b,
                              const float *beta, float *c, int ldc, long long stride_c, int batch) {
    if (!handle || !handle->stream || !has_context()) return NOT_INITIALIZED;
    long a_rows = transa ? k : m, a_columns = transa ? m : k, b_rows = transb ? n : k, b_columns = transb ? k : n;
    if (m < 0 || n < 0 || k < 0 || batch < 0 || transa < 0 || transa > 1 || transb < 0 || transb > 1) return INVALID_VALUE;
    if (lda < a_rows || lda < 1 || ldb < b_rows || ldb < 1 || ldc < m || ldc < 1) return INVALID_VALUE;
    if (!is_there(a, a_rows, a_columns, lda, stride_a, batch) || !is_there(b, b_rows, b_columns, ldb, stride_b, batch) ||
        !is_there(c, m, n, ldc, stride_c, batch)) {
        fprintf(stderr, "cublas: REFUSED: a matrix beyond what was taken\n");
        return MAPPING_ERROR;
    }
    struct Product asked = {transa, transb, m, n, k, lda, ldb, ldc, batch, *alpha, *beta, a, b, c, stride_a, stride_b, stride_c};
    void (*enqueue)(void (*)(void *), const void *, size_t) =
        (void (*)(void (*)(void *), const void *, size_t))driver("edgecut_enqueue");
    enqueue(multiply, &asked, sizeof asked);
    return SUCCESS;
}
