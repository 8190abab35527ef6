/* Stands between a candidate's host half and the CUDA runtime.
 *
 * The loader binds the candidate's launches, copies and fills to the functions here (their names
 * start with "kuda" where the runtime's start with "cuda"). Each checks what launch() promised:
 * work goes to the given stream only, copies stay inside the buffers and never come back to the
 * host, no launch attribute keeps data in the L2. What passes is handed on to the runtime and
 * recorded: kernel, grid, block, shared memory and, when asked for, an event on either side.
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "launch_contract.h"

#define MOST_RECORDS 4096

typedef struct {
    const void *handle; /* host stub or cudaKernel_t */
    char *name;
} kernel_name;

typedef struct {
    const char *kernel;
    unsigned grid[3], block[3];
    uint64_t shared_bytes;
    float microseconds; /* negative where not measured */
} launch_record;

typedef struct {
    uint64_t start, end;
} range;

typedef struct {
    range *items;
    int count, capacity;
} range_list;

static void *runtime;
static int active, timed;
static cudaStream_t given_stream;
static range_list buffers; /* what launch() was given */
static range_list symbols; /* the candidate's own __device__ variables that it asked for */
static kernel_name *names;
static int name_count, name_capacity;
static launch_record records[MOST_RECORDS];
static cudaEvent_t events[MOST_RECORDS][2];
static int event_count, launch_count;

/* The runtime's function of this name; the type is that of its prototype. */
#define REAL(function) ((__typeof__(&function))dlsym(runtime, #function))

/* ---- what Python calls ------------------------------------------------------------------- */

int calls_open(const char *path) {
    runtime = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    return runtime ? 0 : -1;
}

static void add_range(range_list *list, uint64_t start, uint64_t end) {
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 64;
        list->items = realloc(list->items, sizeof *list->items * (size_t)list->capacity);
    }
    list->items[list->count++] = (range){start, end};
}

void calls_begin(void *stream, const uint64_t *starts, const uint64_t *ends, int count,
                 int with_events) {
    given_stream = stream;
    buffers.count = launch_count = 0;
    for (int i = 0; i < count; i++) add_range(&buffers, starts[i], ends[i]);
    clear_faults();
    timed = with_events;
    active = 1;
}

const char *calls_end(void) {
    active = 0;
    return fault_lines();
}

int calls_launches(void) { return launch_count; }

/* After the stream has finished. */
const launch_record *calls_launch(int index) {
    if (index < 0 || index >= launch_count || index >= MOST_RECORDS) return NULL;
    launch_record *record = &records[index];
    if (timed && record->microseconds >= 0) {
        float milliseconds = 0;
        cudaError_t code =
            REAL(cudaEventElapsedTime)(&milliseconds, events[index][0], events[index][1]);
        record->microseconds = code == cudaSuccess ? 1000 * milliseconds : -1;
    }
    return record;
}

/* The candidate was unloaded: its stubs' addresses may be used again. */
void calls_forget(void) {
    for (int i = 0; i < name_count; i++) free(names[i].name);
    name_count = symbols.count = 0;
}

/* ---- which kernel ------------------------------------------------------------------------- */

static void remember(const void *handle, const char *name) {
    if (name_count == name_capacity) {
        name_capacity = name_capacity ? 2 * name_capacity : 64;
        names = realloc(names, sizeof *names * (size_t)name_capacity);
    }
    names[name_count++] = (kernel_name){handle, strdup(name)};
}

static const char *name_of(const void *handle) {
    for (int i = name_count; i-- > 0;)
        if (names[i].handle == handle) return names[i].name;
    return "a kernel";
}

void __cudaRegisterFunction(void **, const char *, char *, const char *, int, uint3 *, uint3 *,
                            dim3 *, dim3 *, int *);
cudaError_t __cudaGetKernel(cudaKernel_t *, const void *);
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void **, size_t, cudaStream_t);

void __kudaRegisterFunction(void **handle, const char *stub, char *device_function,
                            const char *name, int thread_limit, uint3 *tid, uint3 *bid, dim3 *block,
                            dim3 *grid, int *warp_size) {
    remember(stub, name);
    REAL(__cudaRegisterFunction)
    (handle, stub, device_function, name, thread_limit, tid, bid, block, grid, warp_size);
}

cudaError_t __kudaGetKernel(cudaKernel_t *kernel, const void *stub) {
    cudaError_t code = REAL(__cudaGetKernel)(kernel, stub);
    if (code == cudaSuccess) remember(*kernel, name_of(stub));
    return code;
}

/* ---- launches ------------------------------------------------------------------------------ */

static int refused(const char *what, cudaStream_t stream) {
    if (!active) {
        fault("forbidden", "%s outside launch()", what);
        return 1;
    }
    if (stream == given_stream) return 0;
    int other = stream != NULL && stream != cudaStreamLegacy && stream != cudaStreamPerThread;
    fault("forbidden", "%s on %s instead of the stream given to launch()", what,
          other ? "another stream" : "the default stream");
    return 1;
}

static int begin_launch(const void *kernel, dim3 grid, dim3 block, size_t shared) {
    int index = launch_count++;
    if (index >= MOST_RECORDS) return -1;
    records[index] = (launch_record){name_of(kernel), {grid.x, grid.y, grid.z},
                                     {block.x, block.y, block.z}, shared, -1};
    if (!timed) return index;
    for (; event_count <= index; event_count++)
        for (int side = 0; side < 2; side++)
            if (REAL(cudaEventCreate)(&events[event_count][side]) != cudaSuccess) return index;
    if (REAL(cudaEventRecord)(events[index][0], given_stream) == cudaSuccess)
        records[index].microseconds = 0;
    return index;
}

static cudaError_t end_launch(int index, cudaError_t code, const void *kernel, dim3 grid,
                              dim3 block, size_t shared) {
    if (code != cudaSuccess)
        fault("invalid_launch", "%s<<<(%u, %u, %u), (%u, %u, %u), %zu>>>: %s", name_of(kernel),
              grid.x, grid.y, grid.z, block.x, block.y, block.z, shared,
              REAL(cudaGetErrorString)(code));
    if (timed && index >= 0 && records[index].microseconds >= 0)
        REAL(cudaEventRecord)(events[index][1], given_stream);
    return code;
}

cudaError_t __kudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared, cudaStream_t stream) {
    if (refused(name_of(kernel), stream)) return cudaErrorInvalidValue;
    int index = begin_launch(kernel, grid, block, shared);
    cudaError_t code =
        REAL(__cudaLaunchKernel)(kernel, grid, block, arguments, shared, stream);
    return end_launch(index, code, kernel, grid, block, shared);
}

cudaError_t __kudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                                    size_t shared, cudaStream_t stream) {
    return __kudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t kudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                             size_t shared, cudaStream_t stream) {
    if (refused(name_of(kernel), stream)) return cudaErrorInvalidValue;
    int index = begin_launch(kernel, grid, block, shared);
    cudaError_t code = REAL(cudaLaunchKernel)(kernel, grid, block, arguments, shared, stream);
    return end_launch(index, code, kernel, grid, block, shared);
}

cudaError_t kudaLaunchKernel_ptsz(const void *kernel, dim3 grid, dim3 block, void **arguments,
                                  size_t shared, cudaStream_t stream) {
    return kudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t kudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block,
                                        void **arguments, size_t shared, cudaStream_t stream) {
    if (refused(name_of(kernel), stream)) return cudaErrorInvalidValue;
    int index = begin_launch(kernel, grid, block, shared);
    cudaError_t code =
        REAL(cudaLaunchCooperativeKernel)(kernel, grid, block, arguments, shared, stream);
    return end_launch(index, code, kernel, grid, block, shared);
}

cudaError_t kudaLaunchCooperativeKernel_ptsz(const void *kernel, dim3 grid, dim3 block,
                                             void **arguments, size_t shared,
                                             cudaStream_t stream) {
    return kudaLaunchCooperativeKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t kudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel,
                                void **arguments) {
    if (refused(name_of(kernel), config->stream)) return cudaErrorInvalidValue;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        if (attribute_allowed(config->attrs[i].id)) continue;
        fault("forbidden", "%s: launch attribute %d is not allowed", name_of(kernel),
              (int)config->attrs[i].id);
        return cudaErrorInvalidValue;
    }
    dim3 grid = config->gridDim, block = config->blockDim;
    int index = begin_launch(kernel, grid, block, config->dynamicSmemBytes);
    cudaError_t code = REAL(cudaLaunchKernelExC)(config, kernel, arguments);
    return end_launch(index, code, kernel, grid, block, config->dynamicSmemBytes);
}

cudaError_t kudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *config, const void *kernel,
                                     void **arguments) {
    return kudaLaunchKernelExC(config, kernel, arguments);
}

/* ---- copies and fills ---------------------------------------------------------------------- */

static int in_list(const range_list *list, uint64_t start, size_t bytes) {
    for (int i = 0; i < list->count; i++) {
        range item = list->items[i];
        if (start >= item.start && start <= item.end && bytes <= item.end - start) return 1;
    }
    return 0;
}

static int inside(const void *address, size_t bytes) {
    return in_list(&buffers, (uint64_t)address, bytes)
        || in_list(&symbols, (uint64_t)address, bytes);
}

static int on_device(const void *address) {
    struct cudaPointerAttributes attributes;
    if (REAL(cudaPointerGetAttributes)(&attributes, address) != cudaSuccess) {
        REAL(cudaGetLastError)();
        return 0;
    }
    return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

static int bad_target(const char *what, const void *to, size_t bytes) {
    if (inside(to, bytes)) return 0;
    if (!on_device(to)) fault("forbidden", "%s copies device memory to the host", what);
    else fault("out_of_bounds", "%s of %zu bytes goes outside an allocation", what, bytes);
    return 1;
}

static int bad_source(const char *what, const void *from, size_t bytes) {
    if (inside(from, bytes) || !on_device(from)) return 0;
    fault("out_of_bounds", "%s of %zu bytes reads outside an allocation", what, bytes);
    return 1;
}

static size_t extent(size_t pitch, size_t width, size_t height) {
    return height ? (height - 1) * pitch + width : 0;
}

cudaError_t kudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    const char *what = "cudaMemcpyAsync";
    if (refused(what, stream) || bad_target(what, to, bytes) || bad_source(what, from, bytes))
        return cudaErrorInvalidValue;
    return REAL(cudaMemcpyAsync)(to, from, bytes, kind, stream);
}

cudaError_t kudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
    const char *what = "cudaMemcpy2DAsync";
    if (refused(what, stream) || bad_target(what, to, extent(to_pitch, width, height))
        || bad_source(what, from, extent(from_pitch, width, height)))
        return cudaErrorInvalidValue;
    return REAL(cudaMemcpy2DAsync)(to, to_pitch, from, from_pitch, width, height, kind, stream);
}

cudaError_t kudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    const char *what = "cudaMemsetAsync";
    if (refused(what, stream) || bad_target(what, to, bytes)) return cudaErrorInvalidValue;
    return REAL(cudaMemsetAsync)(to, value, bytes, stream);
}

cudaError_t kudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
    const char *what = "cudaMemset2DAsync";
    if (refused(what, stream) || bad_target(what, to, extent(pitch, width, height)))
        return cudaErrorInvalidValue;
    return REAL(cudaMemset2DAsync)(to, pitch, value, width, height, stream);
}

cudaError_t kudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes,
                                    size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream) {
    const char *what = "cudaMemcpyToSymbolAsync";
    if (refused(what, stream) || bad_source(what, from, bytes)) return cudaErrorInvalidValue;
    return REAL(cudaMemcpyToSymbolAsync)(symbol, from, bytes, offset, kind, stream);
}

cudaError_t kudaGetSymbolAddress(void **address, const void *symbol) {
    size_t bytes = 0;
    cudaError_t code = REAL(cudaGetSymbolAddress)(address, symbol);
    if (code == cudaSuccess && REAL(cudaGetSymbolSize)(&bytes, symbol) == cudaSuccess)
        add_range(&symbols, (uint64_t)*address, (uint64_t)*address + bytes);
    return code;
}
