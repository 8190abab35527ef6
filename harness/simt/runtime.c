/* Stand-in CUDA runtime: runs a candidate's host half natively and hands its launches to Python.
 *
 * It offers what the launch contract allows (launches, function attributes, asynchronous copies and
 * fills on the given stream, harmless queries) and nothing else. Device memory is one arena of host
 * memory; while the candidate's host code runs, the arena is closed, so that host code that touches
 * device memory faults as it would on a GPU.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <driver_types.h>
#include <vector_types.h>

/* CUDA 12 headers rename this function: offer the plain and the versioned symbol. */
#ifdef cudaGetDeviceProperties
#undef cudaGetDeviceProperties
#endif

#define EXIT_HOST_TOUCHED_DEVICE 77
#define FILL_TILE ((size_t)4 << 20)
#define LARGEST_REAL_COPY ((size_t)1 << 30)

typedef struct {
    char name[256];
    int32_t major, minor, sms, warps, blocks;
    int32_t shared_per_sm, shared_optin, shared_default, shared_reserved, shared_unit;
    int32_t registers, register_unit, warp_unit, clock_khz;
    int64_t l2_bytes, memory_bytes;
} kb_gpu;

typedef int (*kb_launch_callback)(const char *kernel, const unsigned *grid, const unsigned *block,
                                  uint64_t dynamic_shared_bytes, void **arguments);

/* One copy (`is_copy`) or fill; `from` is 0 where it is no device memory. */
typedef struct {
    int32_t is_copy, value;
    uint64_t from, from_pitch, to, to_pitch, width, height;
} kb_transfer;

typedef void (*kb_transfer_callback)(const kb_transfer *transfer);

typedef struct {
    const void *stub;
    char *name;
    int registers, static_shared, max_threads, dynamic_limit;
} kernel_entry;

typedef struct {
    const void *host;
    char *name;
    char *device;
    uint64_t bytes;
} variable_entry;

typedef struct {
    uint64_t start, end;
} range;

static kb_gpu gpu;
static kb_launch_callback launch_callback;
static kb_transfer_callback transfer_callback;
static char *arena;
static uint64_t arena_bytes;
static void *given_stream;
static cudaError_t last_error;
static kernel_entry *kernels;
static int kernel_count, kernel_capacity;
static variable_entry *variables;
static int variable_count, variable_capacity;
static range *allocations;
static int allocation_count;
static struct {
    dim3 grid, block;
    size_t shared;
    void *stream;
} configurations[64];
static int configuration_depth;
static char faults[8192]; /* one line per fault: KIND, a tab, the message */
static size_t faults_used;

/* ---- what Python calls ------------------------------------------------------------------- */

static void fault(const char *kind, const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    int room = (int)(sizeof faults - faults_used);
    int used = snprintf(faults + faults_used, (size_t)room, "%s\t%s\n", kind, line);
    if (used < room) faults_used += (size_t)used;
    else faults[faults_used] = 0;
}

static void on_segmentation_fault(int number, siginfo_t *info, void *context) {
    uint64_t address = (uint64_t)info->si_addr, base = (uint64_t)arena;
    (void)context;
    if (arena && address >= base && address < base + arena_bytes) _exit(EXIT_HOST_TOUCHED_DEVICE);
    signal(number, SIG_DFL);
}

void *kb_open(const kb_gpu *properties, uint64_t bytes, kb_launch_callback callback, void *stream) {
    struct sigaction action = {0};
    gpu = *properties;
    launch_callback = callback;
    given_stream = stream;
    arena_bytes = bytes;
    /* A fixed place where possible: addresses, and so cache sets, do not vary between runs. */
    arena = mmap((void *)0x700000000000, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED) return NULL;
    action.sa_sigaction = on_segmentation_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    return arena;
}

void kb_protect(int closed) {
    if (arena) mprotect(arena, arena_bytes, closed ? PROT_NONE : PROT_READ | PROT_WRITE);
}

/* Back [start, start + bytes) by the file's first `tile` bytes, again and again, copy on write. */
int kb_map_tile(uint64_t start, uint64_t bytes, int descriptor, uint64_t tile) {
    for (uint64_t offset = 0; offset < bytes; offset += tile) {
        uint64_t length = bytes - offset < tile ? bytes - offset : tile;
        void *at = mmap((void *)(start + offset), length, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, descriptor, 0);
        if (at == MAP_FAILED) return -1;
    }
    return 0;
}

void kb_set_allocations(const uint64_t *starts, const uint64_t *ends, int count) {
    free(allocations);
    allocations = malloc(sizeof *allocations * (size_t)(count ? count : 1));
    for (int i = 0; i < count; i++) allocations[i] = (range){starts[i], ends[i]};
    allocation_count = count;
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

/* From now on copies and fills are accounted. */
void kb_account_transfers(kb_transfer_callback callback) { transfer_callback = callback; }

const char *kb_faults(void) { return faults; }

void kb_clear_faults(void) {
    faults_used = 0;
    faults[0] = 0;
    last_error = cudaSuccess;
}

/* ---- registration, called by the candidate's static constructors ---------------------------- */

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

/* ---- errors ---------------------------------------------------------------------------------- */

static cudaError_t failed(cudaError_t code) {
    last_error = code;
    return code;
}

cudaError_t cudaGetLastError(void) {
    cudaError_t code = last_error;
    last_error = cudaSuccess;
    return code;
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

const char *cudaGetErrorName(cudaError_t code) {
    switch (code) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidSymbol: return "cudaErrorInvalidSymbol";
    case cudaErrorInvalidDeviceFunction: return "cudaErrorInvalidDeviceFunction";
    case cudaErrorLaunchOutOfResources: return "cudaErrorLaunchOutOfResources";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    default: return "cudaErrorUnknown";
    }
}

const char *cudaGetErrorString(cudaError_t code) {
    switch (code) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidSymbol: return "invalid device symbol";
    case cudaErrorInvalidDeviceFunction: return "invalid device function";
    case cudaErrorLaunchOutOfResources: return "too many resources requested for launch";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    default: return "unknown error";
    }
}

/* ---- copies and fills ------------------------------------------------------------------------ */

static int in_arena(const void *address) {
    return (const char *)address >= arena && (const char *)address < arena + arena_bytes;
}

static int is_allocated(const void *address, size_t bytes) {
    uint64_t start = (uint64_t)address;
    for (int i = 0; i < allocation_count; i++)
        if (start >= allocations[i].start && start <= allocations[i].end
            && bytes <= allocations[i].end - start)
            return 1;
    return 0;
}

static int wrong_stream(const char *what, void *stream) {
    if (stream == given_stream) return 0;
    fault("forbidden", "%s on %s instead of the stream given to launch()", what,
          stream ? "another stream" : "the default stream");
    return 1;
}

/* Where copies and fills are accounted, Python is told of each, in order with the launches. */
static void told(int is_copy, const void *to, size_t to_pitch, const void *from, size_t from_pitch,
                 size_t width, size_t height, int value) {
    kb_transfer transfer = {is_copy, value & 255, in_arena(from) ? (uint64_t)from : 0, from_pitch,
                            (uint64_t)to, to_pitch, width, height};
    if (transfer_callback && width && height) transfer_callback(&transfer);
}

/* Rows of a copy; device memory is opened once for all of them. */
static cudaError_t copy(char *to, size_t to_pitch, const char *from, size_t from_pitch,
                        size_t width, size_t height) {
    for (size_t row = 0; row < height; row++) {
        const char *source = from + row * from_pitch;
        if (in_arena(source) && !in_arena(to + row * to_pitch)) {
            fault("forbidden", "cudaMemcpyAsync copies device memory to the host");
            return failed(cudaErrorInvalidValue);
        }
        if (!is_allocated(to + row * to_pitch, width)
            || (in_arena(source) && !is_allocated(source, width))) {
            fault("out_of_bounds", "cudaMemcpyAsync of %zu bytes goes outside an allocation",
                  width);
            return failed(cudaErrorInvalidValue);
        }
    }
    /* Where they are only accounted, gigabytes are not really moved. */
    if (transfer_callback && height && width > LARGEST_REAL_COPY / height) return cudaSuccess;
    kb_protect(0);
    for (size_t row = 0; row < height; row++)
        memmove(to + row * to_pitch, from + row * from_pitch, width);
    kb_protect(1);
    return cudaSuccess;
}

/* Fill whole pages by mapping one filled tile again and again. Returns 0 where that fails. */
static int fill_lazily(char *to, int value, size_t bytes) {
    static char tile[FILL_TILE];
    uint64_t start = ((uint64_t)to + 4095) / 4096 * 4096;
    uint64_t end = ((uint64_t)to + bytes) / 4096 * 4096;
    int descriptor = memfd_create("fill", 0), mapped;
    if (descriptor < 0) return 0;
    memset(tile, value, sizeof tile);
    mapped = write(descriptor, tile, sizeof tile) == (ssize_t)sizeof tile
             && !kb_map_tile(start, end - start, descriptor, sizeof tile);
    close(descriptor);
    if (!mapped) return 0;
    memset(to, value, start - (uint64_t)to);
    memset((char *)end, value, (uint64_t)to + bytes - end);
    return 1;
}

static cudaError_t fill(char *to, size_t pitch, int value, size_t width, size_t height) {
    for (size_t row = 0; row < height; row++)
        if (!is_allocated(to + row * pitch, width)) {
            fault("out_of_bounds", "cudaMemsetAsync of %zu bytes goes outside an allocation",
                  width);
            return failed(cudaErrorInvalidValue);
        }
    kb_protect(0);
    for (size_t row = 0; row < height; row++) {
        char *start = to + row * pitch;
        if (!transfer_callback || width < 2 * FILL_TILE || !fill_lazily(start, value, width))
            memset(start, value, width);
    }
    kb_protect(1);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    (void)kind; /* the addresses say which memory they are in */
    if (wrong_stream("cudaMemcpyAsync", stream)) return failed(cudaErrorInvalidValue);
    cudaError_t code = copy(to, bytes, from, bytes, bytes, 1);
    if (code == cudaSuccess) told(1, to, bytes, from, bytes, bytes, 1, 0);
    return code;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    if (wrong_stream("cudaMemsetAsync", stream)) return failed(cudaErrorInvalidValue);
    cudaError_t code = fill(to, bytes, value, bytes, 1);
    if (code == cudaSuccess) told(0, to, bytes, NULL, 0, bytes, 1, value);
    return code;
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
    if (wrong_stream("cudaMemset2DAsync", stream)) return failed(cudaErrorInvalidValue);
    cudaError_t code = fill(to, pitch, value, width, height);
    if (code == cudaSuccess) told(0, to, pitch, NULL, 0, width, height, value);
    return code;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
    (void)kind;
    if (wrong_stream("cudaMemcpy2DAsync", stream)) return failed(cudaErrorInvalidValue);
    cudaError_t code = copy(to, to_pitch, from, from_pitch, width, height);
    if (code == cudaSuccess) told(1, to, to_pitch, from, from_pitch, width, height, 0);
    return code;
}

static variable_entry *find_variable(const void *symbol) {
    for (int i = 0; i < variable_count; i++)
        if (variables[i].host == symbol && variables[i].device) return &variables[i];
    return NULL;
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes,
                                    size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream) {
    variable_entry *variable = find_variable(symbol);
    if (!variable || offset > variable->bytes || bytes > variable->bytes - offset)
        return failed(cudaErrorInvalidSymbol);
    return cudaMemcpyAsync(variable->device + offset, from, bytes, kind, stream);
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

/* ---- kernels --------------------------------------------------------------------------------- */

static kernel_entry *find_kernel(const void *stub) {
    for (int i = kernel_count - 1; i >= 0; i--)
        if (kernels[i].stub == stub) return &kernels[i];
    return NULL;
}

static int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

static int64_t registers_of_warp(const kernel_entry *kernel) {
    int registers = kernel->registers > 1 ? kernel->registers : 1;
    return round_up((int64_t)registers * 32, gpu.register_unit);
}

cudaError_t cudaFuncSetAttribute(const void *stub, enum cudaFuncAttribute attribute, int value) {
    kernel_entry *kernel = find_kernel(stub);
    if (!kernel) return failed(cudaErrorInvalidDeviceFunction);
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || value > gpu.shared_optin - kernel->static_shared) {
            fault("invalid_launch",
                  "cudaFuncSetAttribute asks for %d bytes of dynamic shared memory for %s: the GPU "
                  "allows %d", value, kernel->name, gpu.shared_optin - kernel->static_shared);
            return failed(cudaErrorInvalidValue);
        }
        kernel->dynamic_limit = value;
    }
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

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
    if (configuration_depth >= 64) return 1;
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

/* Blocks of a cooperative launch wait for each other, and here they run one after another. */
cudaError_t cudaLaunchCooperativeKernel(const void *stub, dim3 grid, dim3 block, void **arguments,
                                        size_t shared, cudaStream_t stream) {
    (void)grid, (void)block, (void)arguments, (void)shared;
    kernel_entry *kernel = find_kernel(stub);
    if (!kernel) return failed(cudaErrorInvalidDeviceFunction);
    if (wrong_stream(kernel->name, stream)) return failed(cudaErrorInvalidValue);
    fault("unsupported", "cudaLaunchCooperativeKernel: blocks that wait for each other are not "
          "simulated");
    return failed(cudaErrorInvalidValue);
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

/* Those that a candidate may ask for on a real GPU; see cuda/host_calls.c. */
static int attribute_allowed(cudaLaunchAttributeID id) {
    return id == cudaLaunchAttributeIgnore || id == cudaLaunchAttributeCooperative
        || id == cudaLaunchAttributeClusterDimension
        || id == cudaLaunchAttributeClusterSchedulingPolicyPreference
        || id == cudaLaunchAttributeProgrammaticStreamSerialization;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *stub,
                                void **arguments) {
    for (unsigned i = 0; i < config->numAttrs; i++) {
        if (attribute_allowed(config->attrs[i].id)) continue;
        fault("forbidden", "launch attribute %d is not allowed", (int)config->attrs[i].id);
        return failed(cudaErrorInvalidValue);
    }
    if (config->numAttrs) {
        fault("unsupported", "cudaLaunchKernelEx with launch attributes (clusters, programmatic "
              "launch) is not simulated");
        return failed(cudaErrorInvalidValue);
    }
    return cudaLaunchKernel(stub, config->gridDim, config->blockDim, arguments,
                            config->dynamicSmemBytes, config->stream);
}

cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *config, const void *stub,
                                     void **arguments) {
    return cudaLaunchKernelExC(config, stub, arguments);
}

/* ---- the device ------------------------------------------------------------------------------ */

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    if (device) return failed(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = gpu.shared_default; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = gpu.shared_optin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = gpu.shared_per_sm; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = gpu.shared_reserved; break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = gpu.registers; break;
    case cudaDevAttrMultiProcessorCount: *value = gpu.sms; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 32 * gpu.warps; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = gpu.blocks; break;
    case cudaDevAttrComputeCapabilityMajor: *value = gpu.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = gpu.minor; break;
    case cudaDevAttrL2CacheSize: *value = (int)gpu.l2_bytes; break;
    case cudaDevAttrClockRate: *value = gpu.clock_khz; break;
    case cudaDevAttrCooperativeLaunch: *value = 0; break;
    default: *value = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    if (device) return failed(cudaErrorInvalidDevice);
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "%.200s (simulated)", gpu.name);
    properties->major = gpu.major;
    properties->minor = gpu.minor;
    properties->multiProcessorCount = gpu.sms;
    properties->totalGlobalMem = (size_t)gpu.memory_bytes;
    properties->totalConstMem = 65536;
    properties->l2CacheSize = (int)gpu.l2_bytes;
    properties->sharedMemPerBlock = (size_t)gpu.shared_default;
    properties->sharedMemPerBlockOptin = (size_t)gpu.shared_optin;
    properties->sharedMemPerMultiprocessor = (size_t)gpu.shared_per_sm;
    properties->reservedSharedMemPerBlock = (size_t)gpu.shared_reserved;
    properties->regsPerBlock = properties->regsPerMultiprocessor = gpu.registers;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsPerMultiProcessor = 32 * gpu.warps;
    properties->maxBlocksPerMultiProcessor = gpu.blocks;
    properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
    properties->maxThreadsDim[2] = 64;
    properties->maxGridSize[0] = 2147483647;
    properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties_v2(struct cudaDeviceProp *properties, int device) {
    return cudaGetDeviceProperties(properties, device);
}
