/* Asynchronous copies and fills: recorded, with the bytes of what comes from the host. */
#include "runtime.h"

/* Fill or copy, value, target and its pitch, source and its pitch, width, height, stream, bytes. */
static cudaError_t transfer(int is_copy, int value, const void *to, size_t to_pitch,
                            const char *from, size_t from_pitch, size_t width, size_t height,
                            void *stream) {
    int from_host = is_copy && !is_device(from);
    uint64_t bytes = 0;
    if (from_host && height && width <= gpu.largest_copy / height) bytes = width * height;
    begin_record(RECORD_TRANSFER);
    put_number((uint64_t)is_copy);
    put_number((uint64_t)(value & 255));
    put_number((uint64_t)to);
    put_number(to_pitch);
    put_number((uint64_t)from);
    put_number(from_pitch);
    put_number(width);
    put_number(height);
    put_number((uint64_t)stream);
    put_number(bytes);
    for (size_t row = 0; bytes && row < height; row++) put(from + row * from_pitch, width);
    end_record();
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    (void)kind; /* the addresses say which memory they are in */
    return transfer(1, 0, to, bytes, from, bytes, bytes, 1, stream);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
    (void)kind;
    return transfer(1, 0, to, to_pitch, from, from_pitch, width, height, stream);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    return transfer(0, value, to, bytes, NULL, 0, bytes, 1, stream);
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
    return transfer(0, value, to, pitch, NULL, 0, width, height, stream);
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes,
                                    size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream) {
    uint64_t address, size;
    if (!find_variable(symbol, &address, &size)) return failed(cudaErrorInvalidSymbol);
    if (offset > size || bytes > size - offset) return failed(cudaErrorInvalidValue);
    return cudaMemcpyAsync((void *)(address + offset), from, bytes, kind, stream);
}
