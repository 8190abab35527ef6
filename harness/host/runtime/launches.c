/* Launches: recorded with what their kernels were given. */
#include "runtime.h"

#define DEEPEST_CONFIGURATION 64

static struct {
    dim3 grid, block;
    size_t shared;
    void *stream;
} configurations[DEEPEST_CONFIGURATION];
static int configuration_depth;

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

/* Kernel, grid, block, shared bytes, stream, attributes (number and three values), arguments. */
static cudaError_t launch(const kernel_entry *kernel, dim3 grid, dim3 block, void **arguments,
                          size_t shared, void *stream, const cudaLaunchAttribute *attributes,
                          unsigned attribute_count) {
    if (!kernel) return failed(cudaErrorInvalidDeviceFunction);
    begin_record(RECORD_LAUNCH);
    put_text(kernel->name);
    unsigned shape[6] = {grid.x, grid.y, grid.z, block.x, block.y, block.z};
    for (int i = 0; i < 6; i++) put_number(shape[i]);
    put_number(shared);
    put_number((uint64_t)stream);
    put_number(attribute_count);
    for (unsigned i = 0; i < attribute_count; i++) {
        /* Of the value's 64 bytes a caller sets only what belongs to the attribute. */
        unsigned values[3] = {0};
        int is_size = attributes[i].id == cudaLaunchAttributeClusterDimension;
        memcpy(values, &attributes[i].val, is_size ? sizeof values : sizeof *values);
        put_number(attributes[i].id);
        for (int part = 0; part < 3; part++) put_number(values[part]);
    }
    put_number(kernel->parameter_count);
    for (uint32_t i = 0; i < kernel->parameter_count; i++) {
        put_number(kernel->parameter_sizes[i]);
        put(arguments[i], kernel->parameter_sizes[i]);
    }
    end_record();
    return cudaSuccess;
}

static cudaError_t launch_cooperative(const void *stub, dim3 grid, dim3 block, void **arguments,
                                      size_t shared, void *stream) {
    cudaLaunchAttribute together = {.id = cudaLaunchAttributeCooperative};
    together.val.cooperative = 1;
    return launch(find_kernel(stub), grid, block, arguments, shared, stream, &together, 1);
}

cudaError_t __cudaGetKernel(void **handle, const void *stub) {
    *handle = find_kernel(stub);
    return *handle ? cudaSuccess : failed(cudaErrorInvalidDeviceFunction);
}

cudaError_t __cudaLaunchKernel(void *handle, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream) {
    return launch(handle, grid, block, arguments, shared, stream, NULL, 0);
}

cudaError_t cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **arguments,
                             size_t shared, cudaStream_t stream) {
    return launch(find_kernel(stub), grid, block, arguments, shared, stream, NULL, 0);
}

cudaError_t cudaLaunchCooperativeKernel(const void *stub, dim3 grid, dim3 block, void **arguments,
                                        size_t shared, cudaStream_t stream) {
    return launch_cooperative(stub, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *stub,
                                void **arguments) {
    return launch(find_kernel(stub), config->gridDim, config->blockDim, arguments,
                  config->dynamicSmemBytes, config->stream, config->attrs, config->numAttrs);
}

/* The per-thread default stream's variants: another stream than the given one is refused anyway. */
cudaError_t __cudaLaunchKernel_ptsz(void *handle, dim3 grid, dim3 block, void **arguments,
                                    size_t shared, cudaStream_t stream) {
    return __cudaLaunchKernel(handle, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchKernel_ptsz(const void *stub, dim3 grid, dim3 block, void **arguments,
                                  size_t shared, cudaStream_t stream) {
    return cudaLaunchKernel(stub, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchCooperativeKernel_ptsz(const void *stub, dim3 grid, dim3 block,
                                             void **arguments, size_t shared,
                                             cudaStream_t stream) {
    return launch_cooperative(stub, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *config, const void *stub,
                                     void **arguments) {
    return cudaLaunchKernelExC(config, stub, arguments);
}
