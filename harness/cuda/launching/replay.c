/* Carries out the plan of one call of launch() through the driver: as fast as a host half that does
 * nothing else would. Python prepares the steps (driver.py); here they are only enqueued.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

enum step_kind { LAUNCH = 1, FILL = 2, COPY = 3, COPY_FROM_HOST = 4 };

typedef struct {
    int kind;
    unsigned grid[3], block[3], shared_bytes, attribute_count;
    CUfunction function;
    CUlaunchAttribute *attributes;
    void **arguments;
    CUdeviceptr target, source;
    const void *content;
    size_t target_pitch, source_pitch, width, height;
    unsigned value;
} replay_step;

static CUresult (*launch)(const CUlaunchConfig *, CUfunction, void **, void **);
static CUresult (*copy_2d)(const CUDA_MEMCPY2D *, CUstream);
static CUresult (*copy)(CUdeviceptr, CUdeviceptr, size_t, CUstream);
static CUresult (*copy_from_host)(CUdeviceptr, const void *, size_t, CUstream);
static CUresult (*fill)(CUdeviceptr, unsigned char, size_t, CUstream);
static CUresult (*fill_2d)(CUdeviceptr, size_t, unsigned char, size_t, size_t, CUstream);
static CUresult (*record)(CUevent, CUstream);

/* Returns 0, or -1 where the driver lacks something. */
int replay_open(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return -1;
    launch = (__typeof__(launch))dlsym(driver, "cuLaunchKernelEx");
    copy_2d = (__typeof__(copy_2d))dlsym(driver, "cuMemcpy2DAsync_v2");
    copy = (__typeof__(copy))dlsym(driver, "cuMemcpyDtoDAsync_v2");
    copy_from_host = (__typeof__(copy_from_host))dlsym(driver, "cuMemcpyHtoDAsync_v2");
    fill = (__typeof__(fill))dlsym(driver, "cuMemsetD8Async");
    fill_2d = (__typeof__(fill_2d))dlsym(driver, "cuMemsetD2D8Async");
    record = (__typeof__(record))dlsym(driver, "cuEventRecord");
    return launch && copy_2d && copy && copy_from_host && fill && fill_2d && record ? 0 : -1;
}

uint64_t replay_step_bytes(void) { return sizeof(replay_step); }

static CUresult transfer(const replay_step *step, CUstream stream) {
    if (step->kind == FILL && step->height == 1)
        return fill(step->target, (unsigned char)step->value, step->width, stream);
    if (step->kind == FILL)
        return fill_2d(step->target, step->target_pitch, (unsigned char)step->value, step->width,
                       step->height, stream);
    if (step->height == 1 && step->kind == COPY)
        return copy(step->target, step->source, step->width, stream);
    if (step->height == 1)
        return copy_from_host(step->target, step->content, step->width, stream);
    CUDA_MEMCPY2D rows = {
        .srcMemoryType = step->kind == COPY ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
        .srcHost = step->content, .srcDevice = step->source, .srcPitch = step->source_pitch,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = step->target,
        .dstPitch = step->target_pitch, .WidthInBytes = step->width, .Height = step->height};
    return copy_2d(&rows, stream);
}

/* Enqueues all steps. Returns the first error, and its step; the steps behind it are left out.
 * `events` holds two for each launch, or is NULL. */
int replay_run(const replay_step *steps, int count, CUstream stream, CUevent *events, int *failed) {
    for (int i = 0; i < count; i++) {
        const replay_step *step = &steps[i];
        CUresult code;
        *failed = i;
        if (step->kind == LAUNCH) {
            CUlaunchConfig config = {
                .gridDimX = step->grid[0], .gridDimY = step->grid[1], .gridDimZ = step->grid[2],
                .blockDimX = step->block[0], .blockDimY = step->block[1],
                .blockDimZ = step->block[2], .sharedMemBytes = step->shared_bytes,
                .hStream = stream, .attrs = step->attributes,
                .numAttrs = step->attribute_count};
            if (events) record(*events++, stream);
            code = launch(&config, step->function, step->arguments, NULL);
            if (events) record(*events++, stream);
        } else {
            code = transfer(step, stream);
        }
        if (code != CUDA_SUCCESS) return (int)code;
    }
    return 0;
}
