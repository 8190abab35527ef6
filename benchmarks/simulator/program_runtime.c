/* Built with the stand-in runtime: what a whole CUDA program needs beside the launch contract.
 *
 * One device, one stream whatever its handle, memory that host code may touch, no clock: events
 * report no time. What ends a group of launches is told to Python: a synchronisation.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <driver_types.h>

/* transfers.c, registration.c */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream);
cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes,
                                    size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaGetSymbolAddress(void **address, const void *symbol);

#define SUCCEEDS(name, ...)                \
    cudaError_t name(__VA_ARGS__) { return cudaSuccess; }
#define UNUSED __attribute__((unused))

/* ---- memory -------------------------------------------------------------------------------- */

typedef uint64_t (*kb_allocator)(uint64_t bytes);
static kb_allocator allocator;

void kb_set_allocator(kb_allocator function) { allocator = function; }

cudaError_t cudaMalloc(void **address, size_t bytes) {
    *address = (void *)allocator(bytes);
    return *address ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaMallocManaged(void **address, size_t bytes, unsigned flags UNUSED) {
    return cudaMalloc(address, bytes);
}

cudaError_t cudaMallocAsync(void **address, size_t bytes, cudaStream_t stream UNUSED) {
    return cudaMalloc(address, bytes);
}

cudaError_t cudaMallocPitch(void **address, size_t *pitch, size_t width, size_t height) {
    *pitch = (width + 511) / 512 * 512;
    return cudaMalloc(address, *pitch * height);
}

/* Kernels may reach pinned host memory: it lies with the device's. */
cudaError_t cudaMallocHost(void **address, size_t bytes) { return cudaMalloc(address, bytes); }

cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned flags UNUSED) {
    return cudaMalloc(address, bytes);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags UNUSED) {
    *device = host;
    return cudaSuccess;
}

SUCCEEDS(cudaFree, void *address UNUSED)
SUCCEEDS(cudaFreeAsync, void *address UNUSED, cudaStream_t stream UNUSED)
SUCCEEDS(cudaFreeHost, void *address UNUSED)
SUCCEEDS(cudaHostRegister, void *address UNUSED, size_t bytes UNUSED, unsigned flags UNUSED)
SUCCEEDS(cudaHostUnregister, void *address UNUSED)

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, NULL);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, enum cudaMemcpyKind kind) {
    return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, NULL);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    return cudaMemsetAsync(to, value, bytes, NULL);
}

cudaError_t cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height) {
    return cudaMemset2DAsync(to, pitch, value, width, height, NULL);
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset,
                               enum cudaMemcpyKind kind) {
    return cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, NULL);
}

cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset,
                                 enum cudaMemcpyKind kind) {
    void *address;
    cudaError_t code = cudaGetSymbolAddress(&address, symbol);
    return code ? code : cudaMemcpy(to, (char *)address + offset, bytes, kind);
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all) {
    *left = *all = (size_t)64 << 30;
    return cudaSuccess;
}

/* ---- synchronisation, streams, events --------------------------------------------------------- */

typedef void (*kb_synchronized)(void);
static kb_synchronized synchronized_callback;

void kb_set_synchronized(kb_synchronized callback) { synchronized_callback = callback; }

cudaError_t cudaDeviceSynchronize(void) {
    if (synchronized_callback) synchronized_callback();
    return cudaSuccess;
}

cudaError_t cudaThreadSynchronize(void) { return cudaDeviceSynchronize(); }

cudaError_t cudaStreamSynchronize(cudaStream_t stream UNUSED) { return cudaDeviceSynchronize(); }

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    *stream = NULL;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags UNUSED) {
    return cudaStreamCreate(stream);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags UNUSED,
                                         int priority UNUSED) {
    return cudaStreamCreate(stream);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    *event = NULL;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags UNUSED) {
    return cudaEventCreate(event);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event UNUSED) { return cudaDeviceSynchronize(); }

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from UNUSED,
                                 cudaEvent_t to UNUSED) {
    *milliseconds = 0;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime_v2(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
    return cudaEventElapsedTime(milliseconds, from, to);
}

SUCCEEDS(cudaStreamDestroy, cudaStream_t stream UNUSED)
SUCCEEDS(cudaStreamQuery, cudaStream_t stream UNUSED)
SUCCEEDS(cudaStreamWaitEvent, cudaStream_t stream UNUSED, cudaEvent_t event UNUSED,
         unsigned flags UNUSED)
SUCCEEDS(cudaEventRecord, cudaEvent_t event UNUSED, cudaStream_t stream UNUSED)
SUCCEEDS(cudaEventRecordWithFlags, cudaEvent_t event UNUSED, cudaStream_t stream UNUSED,
         unsigned flags UNUSED)
SUCCEEDS(cudaEventQuery, cudaEvent_t event UNUSED)
SUCCEEDS(cudaEventDestroy, cudaEvent_t event UNUSED)

/* ---- device ------------------------------------------------------------------------------- */

SUCCEEDS(cudaSetDevice, int device UNUSED)
SUCCEEDS(cudaDeviceReset, void)
SUCCEEDS(cudaProfilerStart, void)
SUCCEEDS(cudaProfilerStop, void)
SUCCEEDS(cudaDeviceSetLimit, int limit UNUSED, size_t value UNUSED)
SUCCEEDS(cudaDeviceSetCacheConfig, int preference UNUSED)
SUCCEEDS(cudaDeviceSetSharedMemConfig, int preference UNUSED)
SUCCEEDS(cudaCtxResetPersistingL2Cache, void)

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) { return cudaRuntimeGetVersion(version); }
