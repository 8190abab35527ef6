/* The arena of device memory: opened once, closed while the candidate's host code runs. */
#define _GNU_SOURCE
#include "runtime.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXIT_HOST_TOUCHED_DEVICE 77

typedef struct {
    uint64_t start, end;
} range;

static char *arena;
static uint64_t arena_bytes;
static range *allocations;
static int allocation_count, left_open;

static void on_segmentation_fault(int number, siginfo_t *info, void *context) {
    uint64_t address = (uint64_t)info->si_addr, base = (uint64_t)arena;
    (void)context;
    if (arena && address >= base && address < base + arena_bytes) _exit(EXIT_HOST_TOUCHED_DEVICE);
    signal(number, SIG_DFL);
}

void *open_arena(uint64_t bytes) {
    struct sigaction action = {0};
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

/* For whole programs, whose host code may use managed memory: device memory stays open to it. */
void kb_leave_open(void) { left_open = 1; }

int is_left_open(void) { return left_open; }

void kb_protect(int closed) {
    if (arena && !left_open) mprotect(arena, arena_bytes, closed ? PROT_NONE : PROT_READ | PROT_WRITE);
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

int in_arena(const void *address) {
    return (const char *)address >= arena && (const char *)address < arena + arena_bytes;
}

int is_allocated(const void *address, size_t bytes) {
    uint64_t start = (uint64_t)address;
    for (int i = 0; i < allocation_count; i++)
        if (start >= allocations[i].start && start <= allocations[i].end
            && bytes <= allocations[i].end - start)
            return 1;
    return 0;
}
