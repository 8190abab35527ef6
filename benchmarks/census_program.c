/* What the census' programs need beside program_runtime.c. */
#include <stddef.h>
#include <stdint.h>

#include <driver_types.h>

cudaError_t cudaMalloc(void **address, size_t bytes);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);

/* PyTorch computes its answers on the CPU, in the same tensors: device memory stays open to this
   process. Hidden, so that only the runtime's own call of mprotect is answered here. */
__attribute__((visibility("hidden"))) int mprotect(void *start, size_t bytes, int rights) {
    (void)start, (void)bytes, (void)rights;
    return 0;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    return cudaMemsetAsync(to, value, bytes, NULL);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    (void)stream;
    return cudaSuccess;
}
