/* Launches: checked against the GPU's limits, then handed to Python. */
#include "runtime.h"

#include <stdio.h>

#define DEEPEST_CONFIGURATION 64

static struct {
    dim3 grid, block;
    size_t shared;
    void *stream;
} configurations[DEEPEST_CONFIGURATION];
static int configuration_depth;
static int cooperative;

/* Whether the launch that Python is being told of may use the grid's barrier. */
int kb_is_cooperative(void) { return cooperative; }

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
    if (configuration_depth >= DEEPEST_CONFIGURATION) return 1;
    configurations[configuration_depth].grid = grid;
    configurations[configuration_depth].block = block;
    configurations[configuration_depth].shared = shared;
    configurations[configuration_depth++].stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (!configuration_depth) return failed(cudaErrorInvalidConfiguration);
    configuration_depth--;
    *grid = configurations[configuration_depth].grid;
    *block = configurations[configuration_depth].block;
    *shared = configurations[configuration_depth].shared;
    *(void **)stream = configurations[configuration_depth].stream;
    return cudaSuccess;
}

static cudaError_t launch(kernel_entry *kernel, dim3 grid, dim3 block, void **arguments,
                          size_t shared, void *stream) {
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    char shape[160];
    snprintf(shape, sizeof shape, "%s<<<(%u,%u,%u), (%u,%u,%u), %zu>>>", kernel->name, grid.x,
             grid.y, grid.z, block.x, block.y, block.z, shared);
    if (wrong_stream(shape, stream)) return failed(cudaErrorInvalidValue);
    if (block.x > 1024 || block.y > 1024 || block.z > 64 || !threads || threads > 1024) {
        fault("invalid_launch", "invalid launch configuration: %s has %llu threads per block", shape,
              (unsigned long long)threads);
        return failed(cudaErrorInvalidConfiguration);
    }
    if (!grid.x || !grid.y || !grid.z || grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535) {
        fault("invalid_launch", "invalid launch configuration: the grid of %s is not within "
              "1..2147483647, 1..65535, 1..65535", shape);
        return failed(cudaErrorInvalidConfiguration);
    }
    if (threads > (uint64_t)kernel->max_threads) {
        fault("invalid_launch", "invalid launch configuration: %s has %llu threads per block, its "
              "__launch_bounds__ allow %d", shape, (unsigned long long)threads, kernel->max_threads);
        return failed(cudaErrorInvalidValue);
    }
    if (shared > (size_t)kernel->dynamic_limit
        || (kernel->dynamic_limit <= gpu.shared_default
            && shared + (size_t)kernel->static_shared > (size_t)gpu.shared_default)) {
        fault("invalid_launch", "invalid launch configuration: %s asks for %zu bytes of dynamic "
              "beside %d of static shared memory, over its limit of %d (cudaFuncSetAttribute "
              "raises it up to %d)", shape, shared, kernel->static_shared, kernel->dynamic_limit,
              gpu.shared_optin - kernel->static_shared);
        return failed(cudaErrorInvalidValue);
    }
    int64_t warps = round_up((int64_t)(threads + 31) / 32, gpu.warp_unit);
    if (registers_of_warp(kernel) * warps > gpu.registers) {
        fault("invalid_launch", "too many resources requested for launch: %s needs %d registers for "
              "each of %llu threads, an SM has %d", shape, kernel->registers,
              (unsigned long long)threads, gpu.registers);
        return failed(cudaErrorLaunchOutOfResources);
    }
    kb_protect(0);
    int status = launch_callback(kernel->name, &grid.x, &block.x, shared, arguments);
    kb_protect(1);
    return status ? failed(cudaErrorLaunchFailure) : cudaSuccess;
}

cudaError_t __cudaGetKernel(void **handle, const void *stub) {
    *handle = find_kernel(stub);
    return *handle ? cudaSuccess : failed(cudaErrorInvalidDeviceFunction);
}

cudaError_t __cudaLaunchKernel(void *handle, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream) {
    return launch(handle, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **arguments,
                             size_t shared, cudaStream_t stream) {
    kernel_entry *kernel = find_kernel(stub);
    if (!kernel) return failed(cudaErrorInvalidDeviceFunction);
    return launch(kernel, grid, block, arguments, shared, stream);
}

/* Blocks of a cooperative launch may wait for each other: all must be resident at once. */
static cudaError_t launch_cooperative(const void *stub, dim3 grid, dim3 block, void **arguments,
                                      size_t shared, cudaStream_t stream) {
    kernel_entry *kernel = find_kernel(stub);
    if (!kernel) return failed(cudaErrorInvalidDeviceFunction);
    int held = 0;
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&held, stub, (int)(block.x * block.y * block.z),
                                                  shared);
    if (blocks > (uint64_t)held * (uint64_t)gpu.sms) {
        fault("invalid_launch", "cudaLaunchCooperativeKernel: %s with %llu blocks, the GPU holds "
              "%d on each of %d multiprocessors", kernel->name, (unsigned long long)blocks, held,
              gpu.sms);
        return failed(cudaErrorCooperativeLaunchTooLarge);
    }
    cooperative = 1;
    cudaError_t code = launch(kernel, grid, block, arguments, shared, stream);
    cooperative = 0;
    return code;
}

cudaError_t cudaLaunchCooperativeKernel(const void *stub, dim3 grid, dim3 block, void **arguments,
                                        size_t shared, cudaStream_t stream) {
    return launch_cooperative(stub, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchCooperativeKernel_ptsz(const void *stub, dim3 grid, dim3 block,
                                             void **arguments, size_t shared,
                                             cudaStream_t stream) {
    return cudaLaunchCooperativeKernel(stub, grid, block, arguments, shared, stream);
}

/* The per-thread default stream's variants: another stream than the given one is refused anyway. */
cudaError_t __cudaLaunchKernel_ptsz(void *handle, dim3 grid, dim3 block, void **arguments,
                                    size_t shared, cudaStream_t stream) {
    return launch(handle, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchKernel_ptsz(const void *stub, dim3 grid, dim3 block, void **arguments,
                                  size_t shared, cudaStream_t stream) {
    return cudaLaunchKernel(stub, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *stub,
                                void **arguments) {
    int together = 0;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const cudaLaunchAttribute *attribute = &config->attrs[i];
        if (!attribute_allowed(attribute->id)) {
            fault("forbidden", "launch attribute %d is not allowed", (int)attribute->id);
            return failed(cudaErrorInvalidValue);
        }
        if (attribute->id == cudaLaunchAttributeCooperative) together = attribute->val.cooperative;
        if (attribute->id == cudaLaunchAttributeClusterDimension
            && attribute->val.clusterDim.x * attribute->val.clusterDim.y
               * attribute->val.clusterDim.z > 1) {
            fault("unsupported", "cudaLaunchKernelEx: thread block clusters: not simulated, this "
                  "candidate needs a real GPU");
            return failed(cudaErrorInvalidValue);
        }
    }
    /* The others change when a launch may begin, and here each begins when the last has ended. */
    return together ? launch_cooperative(stub, config->gridDim, config->blockDim, arguments,
                                         config->dynamicSmemBytes, config->stream)
                    : cudaLaunchKernel(stub, config->gridDim, config->blockDim, arguments,
                                       config->dynamicSmemBytes, config->stream);
}

cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *config, const void *stub,
                                     void **arguments) {
    return cudaLaunchKernelExC(config, stub, arguments);
}
