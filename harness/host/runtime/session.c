/* The GPU that host code is told of, and the record of the call that it is making. */
#include "runtime.h"

kb_gpu gpu;
static kb_sink sink;
static uint8_t *record;
static uint64_t used, capacity;

void kb_open(const kb_gpu *properties, kb_sink told) {
    gpu = *properties;
    sink = told;
}

int is_device(const void *address) {
    return (uint64_t)address >= gpu.device_low && (uint64_t)address < gpu.device_high;
}

void put(const void *data, uint64_t bytes) {
    if (used + bytes > capacity) {
        capacity = 2 * (used + bytes);
        record = realloc(record, capacity);
        if (!record) abort();
    }
    if (bytes) memcpy(record + used, data, bytes);
    used += bytes;
}

void put_number(uint64_t value) { put(&value, sizeof value); }

/* Its length, then its bytes. */
void put_text(const char *text) {
    put_number(strlen(text));
    put(text, strlen(text));
}

void begin_record(uint32_t kind) {
    used = 0;
    put_number(kind);
}

void end_record(void) { sink(record, used); }
