/* What the parts of the stand-in CUDA runtime share. It runs a candidate's host half natively and
 * hands its launches to Python.
 *
 * It offers what the launch contract allows (launches, function attributes, asynchronous copies and
 * fills on the given stream, harmless queries) and nothing else. Device memory is one arena of host
 * memory; while the candidate's host code runs, the arena is closed, so that host code that touches
 * device memory faults as it would on a GPU.
 */
#ifndef RUNTIME_H
#define RUNTIME_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <driver_types.h>
#include <vector_types.h>

#include "launch_contract.h"

typedef struct {
    char name[256];
    int32_t major, minor, sms, warps, blocks;
    int32_t shared_per_sm, shared_optin, shared_default, shared_reserved, shared_unit;
    int32_t registers, register_unit, warp_unit, clock_khz;
    int64_t l2_bytes, memory_bytes;
} kb_gpu;

typedef int (*kb_launch_callback)(const char *kernel, const unsigned *grid, const unsigned *block,
                                  uint64_t dynamic_shared_bytes, void **arguments);

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

/* Called by Python too. */
void kb_protect(int closed);
int kb_map_tile(uint64_t start, uint64_t bytes, int descriptor, uint64_t tile);

/* kernels.c: asked by candidates, and by the runtime itself for cooperative launches. */
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *stub,
                                                          int threads, size_t dynamic);

/* The rest stays inside: a candidate must not meet these names. */
#pragma GCC visibility push(hidden)

/* session.c */
extern kb_gpu gpu;
extern kb_launch_callback launch_callback;
int wrong_stream(const char *what, void *stream);
/* arena.c */
void *open_arena(uint64_t bytes);
int is_left_open(void);
int in_arena(const void *address);
int is_allocated(const void *address, size_t bytes);
/* errors.c */
cudaError_t failed(cudaError_t code);
/* registration.c */
kernel_entry *find_kernel(const void *stub);
variable_entry *find_variable(const void *symbol);
/* kernels.c */
int64_t round_up(int64_t value, int64_t unit);
int64_t registers_of_warp(const kernel_entry *kernel);

#pragma GCC visibility pop

#endif
