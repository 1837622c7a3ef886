// CUDA's driver in main memory, as far as the engine calls it: nothing is done before it is waited for, and every call is
// held to what the driver's documentation asks for. Copies read and write main memory when the stream is waited for, so
// memory that is gone or changed by then is found out; so is memory that is used after it was freed, given back twice or
// never, a thread without a context, a launch beyond the limits, and a time between events that have none.
//
// Environment: EDGECUT_CARD_BYTES (memory of the card), EDGECUT_CARD_FREE (what is said to be free of it, as if somebody
// took the rest a moment later), EDGECUT_CARD_POOLS (0: a card without memory pools),
// EDGECUT_CARD_INIT (what cuInit returns), EDGECUT_CARD_VERSION (the driver's version), EDGECUT_CARDS (how many).

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long long Address;

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700,
};

struct Region { Address first; size_t bytes; struct Region *next; };
struct Event { unsigned flags; int recorded, done; double seconds; };
struct Function { void (*call)(const void *, unsigned, unsigned); size_t size; int together; };
struct Work { void (*run)(void *); void *data; struct Work *next; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct Work *first_work, **last_work = &first_work;
static struct Region *on_card, *locked;
static size_t taken;
static int initialised, retained, context, pool, streams, events;
static unsigned long launches, copies;
static _Thread_local void *current;

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static int refuse(int code, const char *why) {
    fprintf(stderr, "driver: REFUSED: %s\n", why);
    return code;
}

#define ENTER()                                                                                    \
    do {                                                                                           \
        if (!initialised) return refuse(NOT_INITIALIZED, __func__);                                \
        if (current != &context || !retained) return refuse(INVALID_CONTEXT, __func__);            \
    } while (0)

// What the stream is asked for, in order, with a copy of what it takes.
void edgecut_enqueue(void (*run)(void *), const void *data, size_t size) {
    struct Work *work = malloc(sizeof *work);
    *work = (struct Work){run, malloc(size), NULL};
    memcpy(work->data, data, size);
    pthread_mutex_lock(&lock);
    *last_work = work;
    last_work = &work->next;
    pthread_mutex_unlock(&lock);
}

static void flush(void) {
    pthread_mutex_lock(&lock);
    while (first_work) {
        struct Work *work = first_work;
        first_work = work->next;
        if (!first_work) last_work = &first_work;
        work->run(work->data);
        free(work->data);
        free(work);
    }
    pthread_mutex_unlock(&lock);
}

// Whether so many bytes on the card were taken and, as far as was asked so far, not given back.
int edgecut_is_taken(Address first, size_t bytes) {
    pthread_mutex_lock(&lock);
    struct Region *region = on_card;
    while (region && !(first >= region->first && first + bytes <= region->first + region->bytes)) region = region->next;
    pthread_mutex_unlock(&lock);
    return region != NULL;
}

static void add(struct Region **list, void *memory, size_t bytes) {
    struct Region *region = malloc(sizeof *region);
    pthread_mutex_lock(&lock);
    *region = (struct Region){(Address)memory, bytes, *list};
    *list = region;
    pthread_mutex_unlock(&lock);
}

// The size of the region that begins there, which is no more; 0 if there is none.
static size_t take_off(struct Region **list, Address first) {
    size_t bytes = 0;
    pthread_mutex_lock(&lock);
    for (struct Region **at = list; *at; at = &(*at)->next)
        if ((*at)->first == first) {
            struct Region *region = *at;
            bytes = region->bytes;
            *at = region->next;
            free(region);
            break;
        }
    pthread_mutex_unlock(&lock);
    return bytes;
}

int cuGetErrorString(int code, const char **text) {
    *text = code == OUT_OF_MEMORY ? "out of memory" : code == 803 ? "the driver does not fit" : "an error";
    return SUCCESS;
}
int cuInit(unsigned flags) {
    int code = setting("EDGECUT_CARD_INIT", flags ? INVALID_VALUE : SUCCESS);
    if (!code) initialised = 1;
    return code;
}
int cuDriverGetVersion(int *version) { return *version = setting("EDGECUT_CARD_VERSION", 12040), SUCCESS; }
int cuDeviceGetCount(int *count) { return *count = setting("EDGECUT_CARDS", 1), SUCCESS; }
int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? SUCCESS : INVALID_DEVICE;
}
int cuDeviceGetName(char *name, int bytes, int device) {
    snprintf(name, bytes, "Main memory");
    return device == 0 ? SUCCESS : INVALID_DEVICE;
}
static size_t total(void) { return setting("EDGECUT_CARD_BYTES", 4l << 30); }
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = total();
    return device == 0 ? SUCCESS : INVALID_DEVICE;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
    case 13: case 36: *value = 1000000; break;
    case 16: *value = 4; break;
    case 75: *value = 9; break;
    case 76: *value = 0; break;
    case 115: *value = setting("EDGECUT_CARD_POOLS", 1); break;
    default: return refuse(INVALID_VALUE, "an attribute");
    }
    return device == 0 ? SUCCESS : INVALID_DEVICE;
}

int cuDevicePrimaryCtxRetain(void **made, int device) {
    if (!initialised || device) return refuse(NOT_INITIALIZED, __func__);
    retained++;
    *made = &context;
    return SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    if (device || !retained) return refuse(INVALID_CONTEXT, __func__);
    if (--retained == 0) {
        flush();
        int left = 0;
        for (struct Region *region = on_card; region; region = region->next) left++;
        for (struct Region *region = locked; region; region = region->next) left++;
        fprintf(stderr, "driver: %lu launches, %lu copies; left: %d regions, %d streams, %d events\n", launches, copies, left, streams, events);
    }
    return SUCCESS;
}
int cuCtxGetCurrent(void **made) { return *made = current, SUCCESS; }
int cuCtxSetCurrent(void *made) { return current = made, SUCCESS; }
int cuCtxSynchronize(void) {
    ENTER();
    flush();
    return SUCCESS;
}

int cuDeviceGetDefaultMemPool(void **made, int device) {
    *made = &pool;
    return device == 0 ? SUCCESS : INVALID_DEVICE;
}
int cuMemPoolSetAttribute(void *of, int attribute, void *value) {
    // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD takes 64 bits.
    (void)value;
    return of == &pool && attribute == 4 ? SUCCESS : refuse(INVALID_VALUE, __func__);
}
int cuMemPoolTrimTo(void *of, size_t bytes) {
    (void)bytes;
    return of == &pool ? SUCCESS : refuse(INVALID_VALUE, __func__);
}

int cuStreamCreate(void **made, unsigned flags) {
    ENTER();
    (void)flags;
    streams++;
    *made = malloc(1);
    return SUCCESS;
}
int cuStreamDestroy_v2(void *stream) {
    ENTER();
    streams--;
    free(stream);
    return SUCCESS;
}
int cuStreamSynchronize(void *stream) {
    ENTER();
    (void)stream;
    flush();
    return SUCCESS;
}

static int take(Address *made, size_t bytes) {
    if (!bytes) return refuse(INVALID_VALUE, "no bytes are taken");
    if (taken + bytes > total()) return OUT_OF_MEMORY;
    void *memory = NULL;
    if (posix_memalign(&memory, 256, bytes)) return OUT_OF_MEMORY;
    memset(memory, 0xa5, bytes);
    taken += bytes;
    add(&on_card, memory, bytes);
    *made = (Address)memory;
    return SUCCESS;
}
struct Freed { Address first; size_t bytes; };
static void give_back(void *data) {
    struct Freed *freed = data;
    memset((void *)freed->first, 0x5a, freed->bytes);
    free((void *)freed->first);
}
static int give(Address first) {
    struct Freed freed = {first, take_off(&on_card, first)};
    if (!freed.bytes) return refuse(INVALID_VALUE, "what is freed was not taken");
    taken -= freed.bytes;
    edgecut_enqueue(give_back, &freed, sizeof freed);
    return SUCCESS;
}
int cuMemAllocAsync(Address *made, size_t bytes, void *stream) {
    ENTER();
    (void)stream;
    return setting("EDGECUT_CARD_POOLS", 1) ? take(made, bytes) : refuse(801, __func__);
}
int cuMemFreeAsync(Address first, void *stream) {
    ENTER();
    (void)stream;
    return give(first);
}
int cuMemAlloc_v2(Address *made, size_t bytes) {
    ENTER();
    return take(made, bytes);
}
int cuMemFree_v2(Address first) {
    ENTER();
    // The driver waits for the card too; but the memory may be given to another stream at once.
    if (first_work) return refuse(INVALID_VALUE, "memory is freed that the card may be using");
    int code = give(first);
    flush();
    return code;
}
int cuMemGetInfo_v2(size_t *left, size_t *all) {
    ENTER();
    *all = total();
    *left = setting("EDGECUT_CARD_FREE", *all - taken);
    return SUCCESS;
}
int cuMemHostAlloc(void **made, size_t bytes, unsigned flags) {
    ENTER();
    if (!bytes || flags) return refuse(INVALID_VALUE, __func__);
    *made = malloc(bytes);
    add(&locked, *made, bytes);
    return SUCCESS;
}
int cuMemFreeHost(void *memory) {
    ENTER();
    if (!take_off(&locked, (Address)memory)) return refuse(INVALID_VALUE, "main memory that was not locked");
    free(memory);
    return SUCCESS;
}

struct Copy { void *to; const void *from; size_t bytes; };
static void copy(void *data) {
    struct Copy *copy = data;
    memcpy(copy->to, copy->from, copy->bytes);
}
static int ask_copy(void *to, const void *from, size_t bytes, const void *card) {
    if (!bytes || !edgecut_is_taken((Address)card, bytes)) return refuse(ILLEGAL_ADDRESS, "a copy");
    struct Copy asked = {to, from, bytes};
    edgecut_enqueue(copy, &asked, sizeof asked);
    copies++;
    return SUCCESS;
}
int cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, void *stream) {
    ENTER();
    (void)stream;
    return ask_copy((void *)to, from, bytes, (void *)to);
}
int cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, void *stream) {
    ENTER();
    (void)stream;
    return ask_copy(to, (void *)from, bytes, (void *)from);
}

int cuEventCreate(void **made, unsigned flags) {
    ENTER();
    struct Event *event = calloc(1, sizeof *event);
    event->flags = flags;
    events++;
    *made = event;
    return SUCCESS;
}
static void pass(void *data) {
    struct Event *event = *(struct Event **)data;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    event->seconds = now.tv_sec + now.tv_nsec * 1e-9;
    event->done = 1;
}
static void forget(void *data) { free(*(struct Event **)data); }
int cuEventRecord(struct Event *event, void *stream) {
    ENTER();
    (void)stream;
    event->recorded = 1;
    event->done = 0;
    edgecut_enqueue(pass, &event, sizeof event);
    return SUCCESS;
}
int cuEventSynchronize(struct Event *event) {
    ENTER();
    (void)event;
    flush();
    return SUCCESS;
}
int cuEventElapsedTime(float *milliseconds, struct Event *from, struct Event *to) {
    ENTER();
    // CU_EVENT_DISABLE_TIMING
    if ((from->flags | to->flags) & 2 || !from->recorded || !to->recorded)
        return refuse(INVALID_HANDLE, "an event that keeps no time, or was not recorded");
    if (!from->done || !to->done) return refuse(NOT_READY, "an event that is still to come");
    *milliseconds = (float)((to->seconds - from->seconds) * 1e3);
    return SUCCESS;
}
int cuEventDestroy_v2(struct Event *event) {
    ENTER();
    events--;
    edgecut_enqueue(forget, &event, sizeof event);
    return SUCCESS;
}

int cuModuleLoadData(void **module, const void *image) {
    ENTER();
    const char *mark = "edgecut-code:";
    if (strncmp(image, mark, strlen(mark))) return refuse(INVALID_IMAGE, __func__);
    *module = dlopen((const char *)image + strlen(mark), RTLD_NOW | RTLD_LOCAL);
    return *module ? SUCCESS : refuse(INVALID_IMAGE, dlerror());
}
int cuModuleUnload(void *module) {
    ENTER();
    flush();
    return dlclose(module) ? INVALID_HANDLE : SUCCESS;
}
int cuModuleGetFunction(struct Function **made, void *module, const char *name) {
    ENTER();
    char size[256];
    snprintf(size, sizeof size, "%s_size", name);
    void *call = dlsym(module, name);
    const unsigned *bytes = dlsym(module, size);
    if (!call || !bytes) return refuse(NOT_FOUND, name);
    struct Function *function = malloc(sizeof *function);
    // Threads that wait for each other are one thread here.
    int together = strstr(name, "_by_block") || strstr(name, "softmax") || strstr(name, "normalise");
    *function = (struct Function){(void (*)(const void *, unsigned, unsigned))call, *bytes, together};
    *made = function;
    return SUCCESS;
}
struct Launch { struct Function *function; unsigned blocks, threads; char arguments[4096]; };
static void launch(void *data) {
    struct Launch *launch = data;
    launch->function->call(launch->arguments, launch->blocks, launch->threads);
}
int cuLaunchKernel(struct Function *function, unsigned blocks, unsigned blocks_y, unsigned blocks_z, unsigned threads,
                   unsigned threads_y, unsigned threads_z, unsigned shared, void *stream, void **parameters, void **extra) {
    ENTER();
    (void)stream;
    if (!blocks || blocks > 2147483647u || blocks_y != 1 || blocks_z != 1 || extra)
        return refuse(INVALID_VALUE, "a grid");
    if (!threads || threads > 1024 || threads % 32 || threads_y != 1 || threads_z != 1 || shared > 48 << 10)
        return refuse(INVALID_VALUE, "a block");
    struct Launch asked = {function, blocks, function->together ? 1 : threads, {0}};
    if (function->size > sizeof asked.arguments) return refuse(INVALID_VALUE, "arguments beyond 4 KiB");
    memcpy(asked.arguments, parameters[0], function->size);
    edgecut_enqueue(launch, &asked, sizeof asked);
    launches++;
    return SUCCESS;
}
