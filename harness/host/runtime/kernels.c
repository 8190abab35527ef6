/* What a kernel may take of a multiprocessor: function attributes and occupancy. */
#include "runtime.h"

static int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

static int64_t registers_of_warp(const kernel_entry *kernel) {
    int registers = kernel->registers > 1 ? kernel->registers : 1;
    return round_up((int64_t)registers * 32, gpu.register_unit);
}

cudaError_t cudaFuncSetAttribute(const void *stub, enum cudaFuncAttribute attribute, int value) {
    kernel_entry *kernel = find_kernel(stub);
    if (!kernel) return failed(cudaErrorInvalidDeviceFunction);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    begin_record(RECORD_DYNAMIC_SHARED);
    put_text(kernel->name);
    put_number((uint64_t)(int64_t)value);
    end_record();
    if (value < 0 || value > gpu.shared_optin - kernel->static_shared)
        return failed(cudaErrorInvalidValue);
    kernel->dynamic_limit = value;
    return cudaSuccess;
}

cudaError_t cudaFuncSetCacheConfig(const void *stub, enum cudaFuncCache preference) {
    (void)preference;
    return find_kernel(stub) ? cudaSuccess : failed(cudaErrorInvalidDeviceFunction);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *stub) {
    kernel_entry *kernel = find_kernel(stub);
    if (!kernel) return failed(cudaErrorInvalidDeviceFunction);
    memset(attributes, 0, sizeof *attributes);
    attributes->sharedSizeBytes = (size_t)kernel->static_shared;
    attributes->maxThreadsPerBlock = kernel->max_threads;
    attributes->numRegs = kernel->registers;
    attributes->maxDynamicSharedSizeBytes = kernel->dynamic_limit;
    attributes->ptxVersion = attributes->binaryVersion = 10 * gpu.major + gpu.minor;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *stub,
                                                                   int threads, size_t dynamic,
                                                                   unsigned flags) {
    kernel_entry *kernel = find_kernel(stub);
    (void)flags;
    if (!kernel || threads <= 0) return failed(cudaErrorInvalidValue);
    int64_t warps = (threads + 31) / 32;
    int64_t by_registers =
        gpu.registers / gpu.warp_unit / registers_of_warp(kernel) * gpu.warp_unit / warps;
    int64_t by_shared = gpu.shared_per_sm / round_up((int64_t)dynamic + kernel->static_shared
                                                     + gpu.shared_reserved, gpu.shared_unit);
    int64_t least = gpu.warps / warps;
    if (by_registers < least) least = by_registers;
    if (by_shared < least) least = by_shared;
    if (gpu.blocks < least) least = gpu.blocks;
    *blocks = (int)least;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *stub,
                                                          int threads, size_t dynamic) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, stub, threads, dynamic, 0);
}
