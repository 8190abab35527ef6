/* Which kernels and variables a candidate has: its static constructors register them. */
#include "runtime.h"

#include <sys/mman.h>
#include <unistd.h>

#define LARGEST_PAGE 65536
#define MOST_STUBS (LARGEST_PAGE / 8 - 1)

/* The kernels that are called through pointers: read-only once the candidate is loaded, as host code
 * could write to the entries below. */
static struct {
    uint64_t closed;
    const void *stubs[MOST_STUBS];
} sealed __attribute__((aligned(LARGEST_PAGE)));

static kernel_entry *kernels;
static int kernel_count, kernel_capacity;

typedef struct {
    const void *host;
    char *name;
    uint64_t bytes, address;
} variable_entry;

static variable_entry *variables;
static int variable_count, variable_capacity;
static uint64_t variable_base;

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
    if (sealed.closed) return;
    if (kernel_count == kernel_capacity) {
        kernel_capacity = kernel_capacity ? 2 * kernel_capacity : 16;
        kernels = realloc(kernels, sizeof *kernels * (size_t)kernel_capacity);
    }
    kernels[kernel_count++] = (kernel_entry){
        .stub = stub, .name = strdup(name), .max_threads = 1024,
        .dynamic_limit = gpu.shared_default};
}

void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int external,
                       size_t bytes, int constant, int global) {
    (void)handle, (void)address, (void)external, (void)constant, (void)global;
    if (variable_count == variable_capacity) {
        variable_capacity = variable_capacity ? 2 * variable_capacity : 16;
        variables = realloc(variables, sizeof *variables * (size_t)variable_capacity);
    }
    variables[variable_count++] = (variable_entry){host, strdup(name), bytes, 0};
}

/* What is loaded has registered its kernels; more never come. */
void kb_seal_kernels(void) {
    for (int i = 0; i < kernel_count && i < MOST_STUBS; i++) sealed.stubs[i] = kernels[i].stub;
    sealed.closed = 1;
    if (mprotect(&sealed, sizeof sealed, PROT_READ)) abort();
}

/* Asked before each call through a pointer (build/pointer_calls.c). */
void kb_require_kernel(const void *stub) {
    for (int i = 0; stub && i < MOST_STUBS && sealed.stubs[i]; i++)
        if (sealed.stubs[i] == stub) return;
    _exit(EXIT_CALLED_ELSEWHERE);
}

void kb_describe_kernel(const char *name, int registers, int static_shared, int max_threads,
                        uint32_t parameters, const uint32_t *sizes) {
    for (int i = 0; i < kernel_count; i++) {
        kernel_entry *kernel = &kernels[i];
        if (strcmp(kernel->name, name)) continue;
        kernel->registers = registers;
        kernel->static_shared = static_shared;
        kernel->max_threads = max_threads;
        kernel->parameter_count = parameters;
        kernel->parameter_sizes = realloc(kernel->parameter_sizes, sizeof *sizes * (parameters + 1));
        memcpy(kernel->parameter_sizes, sizes, sizeof *sizes * parameters);
    }
}

/* The variable numbered `index` is said to lie at base + index * VARIABLE_STRIDE. */
void kb_place_variables(uint64_t base) { variable_base = base; }

/* For whole programs, whose variables lie where they are run. */
void kb_place_variable(const char *name, uint64_t address) {
    for (int i = 0; i < variable_count; i++)
        if (!strcmp(variables[i].name, name)) variables[i].address = address;
}

/* Whether there is one of that number. */
int kb_variable(int index, const char **name, uint64_t *bytes) {
    if (index < 0 || index >= variable_count) return 0;
    *name = variables[index].name;
    *bytes = variables[index].bytes;
    return 1;
}

kernel_entry *find_kernel(const void *stub) {
    for (int i = kernel_count - 1; i >= 0; i--)
        if (kernels[i].stub == stub) return &kernels[i];
    return NULL;
}

int find_variable(const void *symbol, uint64_t *address, uint64_t *bytes) {
    for (int i = 0; i < variable_count; i++) {
        if (variables[i].host != symbol) continue;
        *address = variables[i].address;
        if (!*address) *address = variable_base + (uint64_t)i * VARIABLE_STRIDE;
        *bytes = variables[i].bytes;
        return 1;
    }
    return 0;
}

cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) {
    uint64_t found, bytes;
    if (!find_variable(symbol, &found, &bytes)) return failed(cudaErrorInvalidSymbol);
    *address = (void *)found;
    return cudaSuccess;
}

cudaError_t cudaGetSymbolSize(size_t *bytes, const void *symbol) {
    uint64_t address, found;
    if (!find_variable(symbol, &address, &found)) return failed(cudaErrorInvalidSymbol);
    *bytes = found;
    return cudaSuccess;
}
