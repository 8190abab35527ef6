/* What the parts of the stand-in CUDA runtime share. Nothing is run here: a candidate's host half is
 * answered as the runtime would answer it, and what it asks of the GPU is recorded, call by call.
 *
 * It offers what the launch contract allows (launches, function attributes, asynchronous copies and
 * fills, harmless queries) and nothing else. Nothing is checked that is not needed for an answer:
 * the host half may change whatever lies in its process, so what it asked for is judged elsewhere.
 */
#ifndef RUNTIME_H
#define RUNTIME_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <driver_types.h>
#include <vector_types.h>

/* What host code is told of the GPU: properties.py writes it. */
typedef struct {
    char name[256];
    int32_t major, minor, sms, warps, blocks;
    int32_t shared_per_sm, shared_optin, shared_default, shared_reserved, shared_unit;
    int32_t registers, register_unit, warp_unit, clock_khz;
    int64_t l2_bytes, memory_bytes;
    /* Addresses of the device's memory lie in [device_low, device_high). */
    uint64_t device_low, device_high;
    /* A copy from the host is recorded with its bytes up to this many. */
    uint64_t largest_copy;
} kb_gpu;

typedef struct {
    const void *stub;
    char *name;
    int registers, static_shared, max_threads, dynamic_limit;
    uint32_t parameter_count, *parameter_sizes;
} kernel_entry;

/* Gets each call as it is made: one record as calls.py reads it. */
typedef void (*kb_sink)(const uint8_t *record, uint64_t bytes);

enum record_kind { RECORD_LAUNCH = 1, RECORD_DYNAMIC_SHARED = 2, RECORD_TRANSFER = 3 };

/* Exit status where host code calls through a pointer what is no kernel. */
#define EXIT_CALLED_ELSEWHERE 78

void kb_open(const kb_gpu *properties, kb_sink sink);
void kb_seal_kernels(void);
void kb_require_kernel(const void *stub);
void kb_describe_kernel(const char *name, int registers, int static_shared, int max_threads,
                        uint32_t parameters, const uint32_t *sizes);
void kb_place_variables(uint64_t base);
void kb_place_variable(const char *name, uint64_t address);
int kb_variable(int index, const char **name, uint64_t *bytes);

/* The rest stays inside: a candidate must not meet these names. */
#pragma GCC visibility push(hidden)

#define VARIABLE_STRIDE ((uint64_t)1 << 36)

/* session.c */
extern kb_gpu gpu;
int is_device(const void *address);
void begin_record(uint32_t kind);
void put(const void *data, uint64_t bytes);
void put_number(uint64_t value);
void put_text(const char *text);
void end_record(void);
/* errors.c */
cudaError_t failed(cudaError_t code);
/* registration.c */
kernel_entry *find_kernel(const void *stub);
int find_variable(const void *symbol, uint64_t *address, uint64_t *bytes);

#pragma GCC visibility pop

#endif
