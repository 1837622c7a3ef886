// NVIDIA's convolution library, as its documentation has it: descriptors that are set before they are used, groups that
// divide the channels, a result of the size that the convolution has, a workspace that was allocated; done when the stream
// comes to it. Its fastest algorithms are one that needs too much memory, one that is not supported, and one that is only
// there in reduced precision, none of which may be used.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long Address;
enum { SUCCESS = 0, NOT_INITIALIZED = 1001, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, EXECUTION_FAILED = 5000 };
enum { FLOAT = 0, CHANNELS_FIRST = 0, CROSS_CORRELATION = 1, FMA_MATH = 3, MAX_RANK = 5, WORKSPACE = 4096, RIGHT = 1 };

struct Handle { void *stream; };
struct Tensor { int rank, shape[MAX_RANK], strides[MAX_RANK]; };
struct Convolution { int axes, before[3], stride[3], dilation[3], groups, math; };
struct Algorithm { int algorithm, status; float time; size_t memory; int determinism, math, reserved[3]; };
struct Call { struct Tensor x, w, y; struct Convolution convolution; const float *data, *weight; float *to; void *workspace; float beta; };

static unsigned long convolutions;

static void *driver(const char *name) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return library ? dlsym(library, name) : NULL;
}

static int has_context(void) {
    int (*get)(void **) = (int (*)(void **))driver("cuCtxGetCurrent");
    void *context = NULL;
    return get && !get(&context) && context;
}

static int refuse(int code, const char *why) {
    fprintf(stderr, "cudnn: REFUSED: %s\n", why);
    return code;
}

size_t cudnnGetVersion(void) { return 91002; }
size_t cudnnGetCudartVersion(void) { return 12040; }
int cudnnCreate(struct Handle **made) {
    if (!has_context()) return NOT_INITIALIZED;
    *made = calloc(1, sizeof **made);
    return SUCCESS;
}
int cudnnDestroy(struct Handle *handle) {
    if (!has_context()) return refuse(NOT_INITIALIZED, "a handle is destroyed without its context");
    fprintf(stderr, "cudnn: %lu convolutions\n", convolutions);
    free(handle);
    return SUCCESS;
}
int cudnnSetStream(struct Handle *handle, void *stream) { return handle->stream = stream, SUCCESS; }

#define OBJECT(Type, Create, Destroy)                                     \
    int Create(struct Type **made) { return *made = calloc(1, sizeof **made), SUCCESS; } \
    int Destroy(struct Type *object) { return free(object), SUCCESS; }
OBJECT(Tensor, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor)
OBJECT(Tensor, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor)
OBJECT(Convolution, cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor)

int cudnnSetTensorNdDescriptor(struct Tensor *tensor, int type, int rank, const int *shape, const int *strides) {
    if (type != FLOAT || rank < 4 || rank > MAX_RANK) return BAD_PARAM;
    tensor->rank = rank;
    for (int axis = 0; axis < rank; axis++) {
        if (shape[axis] < 1 || strides[axis] < 1) return BAD_PARAM;
        tensor->shape[axis] = shape[axis], tensor->strides[axis] = strides[axis];
    }
    return SUCCESS;
}
int cudnnSetFilterNdDescriptor(struct Tensor *filter, int type, int format, int rank, const int *shape) {
    int strides[MAX_RANK], stride = 1;
    for (int axis = rank; axis-- > 0; stride *= shape[axis]) strides[axis] = stride;
    return format == CHANNELS_FIRST ? cudnnSetTensorNdDescriptor(filter, type, rank, shape, strides) : BAD_PARAM;
}
int cudnnSetConvolutionNdDescriptor(struct Convolution *of, int axes, const int *before, const int *stride, const int *dilation,
                                    int mode, int type) {
    if (axes < 2 || axes > 3 || mode != CROSS_CORRELATION || type != FLOAT) return BAD_PARAM;
    of->axes = axes, of->groups = 1;
    for (int axis = 0; axis < axes; axis++) {
        if (before[axis] < 0 || stride[axis] < 1 || dilation[axis] < 1) return BAD_PARAM;
        of->before[axis] = before[axis], of->stride[axis] = stride[axis], of->dilation[axis] = dilation[axis];
    }
    return SUCCESS;
}
int cudnnSetConvolutionGroupCount(struct Convolution *of, int groups) { return of->groups = groups, SUCCESS; }
int cudnnSetConvolutionMathType(struct Convolution *of, int math) { return of->math = math, SUCCESS; }

static int fits(const struct Tensor *x, const struct Tensor *w, const struct Convolution *of, const struct Tensor *y) {
    if (x->rank != of->axes + 2 || w->rank != x->rank || y->rank != x->rank || of->math != FMA_MATH) return 0;
    if (of->groups < 1 || x->shape[1] != w->shape[1] * of->groups || w->shape[0] % of->groups) return 0;
    if (y->shape[0] != x->shape[0] || y->shape[1] != w->shape[0]) return 0;
    for (int axis = 0; axis < of->axes; axis++) {
        int window = of->dilation[axis] * (w->shape[axis + 2] - 1) + 1;
        int free = x->shape[axis + 2] + 2 * of->before[axis] - window;
        if (free < 0 || y->shape[axis + 2] != free / of->stride[axis] + 1) return 0;
    }
    return 1;
}

int cudnnGetConvolutionForwardAlgorithm_v7(struct Handle *handle, struct Tensor *x, struct Tensor *w, struct Convolution *of,
                                           struct Tensor *y, int most, int *found, struct Algorithm *algorithms) {
    if (!handle || !handle->stream || !has_context()) return refuse(NOT_INITIALIZED, __func__);
    if (!fits(x, w, of, y)) return refuse(BAD_PARAM, "sizes that do not belong together");
    // Convolutions over three axes are not supported here: the caller must do without.
    if (of->axes == 3) return NOT_SUPPORTED;
    struct Algorithm known[] = {
        {7, SUCCESS, 1, (size_t)1 << 40, 1, FMA_MATH, {0}},
        {6, NOT_SUPPORTED, -1, 0, 1, FMA_MATH, {0}},
        {5, SUCCESS, 2, 0, 1, 0, {0}},
        {RIGHT, SUCCESS, 3, WORKSPACE, 1, FMA_MATH, {0}},
    };
    *found = most < 4 ? most : 4;
    memcpy(algorithms, known, *found * sizeof *known);
    return SUCCESS;
}

int cudnnGetConvolutionForwardWorkspaceSize(struct Handle *handle, struct Tensor *x, struct Tensor *w, struct Convolution *of,
                                            struct Tensor *y, int algorithm, size_t *size) {
    if (!handle || !handle->stream || !has_context()) return refuse(NOT_INITIALIZED, __func__);
    if (!fits(x, w, of, y)) return refuse(BAD_PARAM, "sizes that do not belong together");
    *size = algorithm == RIGHT ? WORKSPACE : (size_t)1 << 40;
    return algorithm == RIGHT || algorithm == 7 ? SUCCESS : NOT_SUPPORTED;
}

static size_t bytes(const struct Tensor *tensor) {
    size_t last = 0;
    for (int axis = 0; axis < tensor->rank; axis++) last += (size_t)(tensor->shape[axis] - 1) * tensor->strides[axis];
    return (last + 1) * sizeof(float);
}

// Adds to the sums of a row of the result what one weight contributes to them.
static void add_row(double *sums, int columns, const float *from, int width, int first, int stride, long step, double weight) {
    int begin = first < 0 ? (-first + stride - 1) / stride : 0;
    int end = first < width ? (width - 1 - first) / stride + 1 : 0;
    for (int column = begin; column < (end < columns ? end : columns); column++)
        sums[column] += from[(long)(first + column * stride) * step] * weight;
}

static void convolve(void *data) {
    const struct Call *call = data;
    const struct Tensor *x = &call->x, *w = &call->w, *y = &call->y;
    const struct Convolution *of = &call->convolution;
    memset(call->workspace, 0x77, WORKSPACE);
    int outs = w->shape[0] / of->groups, columns = y->shape[3];
    size_t row_bytes = (size_t)columns * sizeof(double);
    double *sums = malloc(row_bytes);
    for (int image = 0; image < y->shape[0]; image++)
        for (int out = 0; out < y->shape[1]; out++)
            for (int row = 0; row < y->shape[2]; row++) {
                memset(sums, 0, row_bytes);
                for (int in = 0; in < w->shape[1]; in++)
                    for (int i = 0; i < w->shape[2]; i++) {
                        int from_row = row * of->stride[0] - of->before[0] + i * of->dilation[0];
                        if (from_row < 0 || from_row >= x->shape[2]) continue;
                        int channel = out / outs * w->shape[1] + in;
                        const float *from = call->data + (long)image * x->strides[0] + (long)channel * x->strides[1] +
                                            (long)from_row * x->strides[2];
                        const float *weights =
                            call->weight + (long)out * w->strides[0] + (long)in * w->strides[1] + (long)i * w->strides[2];
                        for (int j = 0; j < w->shape[3]; j++)
                            add_row(sums, columns, from, x->shape[3], j * of->dilation[1] - of->before[1], of->stride[1],
                                    x->strides[3], weights[j]);
                    }
                float *to = call->to + (long)image * y->strides[0] + (long)out * y->strides[1] + (long)row * y->strides[2];
                for (int column = 0; column < columns; column++) to[(long)column * y->strides[3]] = (float)sums[column];
            }
    free(sums);
}

int cudnnConvolutionForward(struct Handle *handle, const float *alpha, struct Tensor *x, const float *data, struct Tensor *w,
                            const float *weight, struct Convolution *of, int algorithm, void *workspace, size_t size,
                            const float *beta, struct Tensor *y, float *to) {
    int (*is_taken)(Address, size_t) = (int (*)(Address, size_t))driver("edgecut_is_taken");
    if (!handle || !handle->stream || !has_context()) return refuse(NOT_INITIALIZED, __func__);
    if (!fits(x, w, of, y) || *alpha != 1 || *beta != 0) return refuse(BAD_PARAM, "sizes that do not belong together");
    if (algorithm != RIGHT || size < WORKSPACE) return refuse(NOT_SUPPORTED, "an algorithm that was not offered");
    if (!is_taken((Address)data, bytes(x)) || !is_taken((Address)weight, bytes(w)) || !is_taken((Address)to, bytes(y)) ||
        !is_taken((Address)workspace, size))
        return refuse(EXECUTION_FAILED, "a tensor beyond what was taken");
    struct Call call = {*x, *w, *y, *of, data, weight, to, workspace, *beta};
    void (*enqueue)(void (*)(void *), const void *, size_t) =
        (void (*)(void (*)(void *), const void *, size_t))driver("edgecut_enqueue");
    enqueue(convolve, &call, sizeof call);
    convolutions++;
    return SUCCESS;
}
