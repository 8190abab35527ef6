/* Which kernels and variables a candidate has: its static constructors register them. */
#include "runtime.h"

static kernel_entry *kernels;
static int kernel_count, kernel_capacity;
static variable_entry *variables;
static int variable_count, variable_capacity;

void **__cudaRegisterFatBinary(void *image) {
    static void *handle;
    handle = image;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
char __cudaInitModule(void **handle) { (void)handle; return 0; }

void __cudaRegisterFunction(void **handle, const char *stub, char *device_function,
                            const char *name, int thread_limit, uint3 *tid, uint3 *bid, dim3 *block,
                            dim3 *grid, int *warp_size) {
    (void)handle, (void)device_function, (void)thread_limit, (void)tid, (void)bid, (void)block;
    (void)grid, (void)warp_size;
    if (kernel_count == kernel_capacity) {
        kernel_capacity = kernel_capacity ? 2 * kernel_capacity : 16;
        kernels = realloc(kernels, sizeof *kernels * (size_t)kernel_capacity);
    }
    kernels[kernel_count++] = (kernel_entry){stub, strdup(name), 0, 0, 1024, gpu.shared_default};
}

void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int external,
                       size_t bytes, int constant, int global) {
    (void)handle, (void)address, (void)external, (void)constant, (void)global;
    if (variable_count == variable_capacity) {
        variable_capacity = variable_capacity ? 2 * variable_capacity : 16;
        variables = realloc(variables, sizeof *variables * (size_t)variable_capacity);
    }
    variables[variable_count++] = (variable_entry){host, strdup(name), NULL, bytes};
}

void kb_set_kernel(const char *name, int registers, int static_shared, int max_threads) {
    for (int i = 0; i < kernel_count; i++) {
        if (strcmp(kernels[i].name, name)) continue;
        kernels[i].registers = registers;
        kernels[i].static_shared = static_shared;
        kernels[i].max_threads = max_threads;
    }
}

void kb_set_variable(const char *name, void *device) {
    for (int i = 0; i < variable_count; i++)
        if (!strcmp(variables[i].name, name)) variables[i].device = device;
}

kernel_entry *find_kernel(const void *stub) {
    for (int i = kernel_count - 1; i >= 0; i--)
        if (kernels[i].stub == stub) return &kernels[i];
    return NULL;
}

variable_entry *find_variable(const void *symbol) {
    for (int i = 0; i < variable_count; i++)
        if (variables[i].host == symbol && variables[i].device) return &variables[i];
    return NULL;
}

cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) {
    variable_entry *variable = find_variable(symbol);
    if (!variable) return failed(cudaErrorInvalidSymbol);
    *address = variable->device;
    return cudaSuccess;
}

cudaError_t cudaGetSymbolSize(size_t *bytes, const void *symbol) {
    variable_entry *variable = find_variable(symbol);
    if (!variable) return failed(cudaErrorInvalidSymbol);
    *bytes = variable->bytes;
    return cudaSuccess;
}
