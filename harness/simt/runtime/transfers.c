/* Asynchronous copies and fills: done at once, and told to Python where they are accounted. */
#define _GNU_SOURCE
#include "runtime.h"

#include <sys/mman.h>
#include <unistd.h>

#define FILL_TILE ((size_t)4 << 20)
#define LARGEST_REAL_COPY ((size_t)1 << 30)

/* One copy (`is_copy`) or fill; `from` is 0 where it is no device memory. */
typedef struct {
    int32_t is_copy, value;
    uint64_t from, from_pitch, to, to_pitch, width, height;
} kb_transfer;

typedef void (*kb_transfer_callback)(const kb_transfer *transfer);

static kb_transfer_callback transfer_callback;
static int only_accounts; /* large copies and fills are not really made */

/* From now on copies and fills are accounted. */
void kb_account_transfers(kb_transfer_callback callback, int in_place_of_moving) {
    transfer_callback = callback;
    only_accounts = in_place_of_moving;
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
    for (size_t row = 0; row < height && !is_left_open(); row++) {
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
    if (only_accounts && height && width > LARGEST_REAL_COPY / height) return cudaSuccess;
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
        int lazily = only_accounts || is_left_open();
        if (!lazily || width < 2 * FILL_TILE || !fill_lazily(start, value, width))
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

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes,
                                    size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream) {
    variable_entry *variable = find_variable(symbol);
    if (!variable || offset > variable->bytes || bytes > variable->bytes - offset)
        return failed(cudaErrorInvalidSymbol);
    return cudaMemcpyAsync(variable->device + offset, from, bytes, kind, stream);
}
