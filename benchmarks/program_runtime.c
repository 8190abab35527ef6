/* Built with the stand-in runtime: what a whole CUDA program needs beside the launch contract. */
#include <stddef.h>
#include <stdint.h>

#include <driver_types.h>

/* transfers.c */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);

typedef uint64_t (*kb_allocator)(uint64_t bytes);
static kb_allocator allocator;

void kb_set_allocator(kb_allocator function) { allocator = function; }

cudaError_t cudaMalloc(void **address, size_t bytes) {
    *address = (void *)allocator(bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *address) {
    (void)address;
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, NULL);
}

cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }

/* Programs time themselves with events; nothing here is timed by them. */
cudaError_t cudaEventCreate(cudaEvent_t *event) {
    *event = NULL;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    (void)event, (void)stream;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
    (void)from, (void)to;
    *milliseconds = 0;
    return cudaSuccess;
}
