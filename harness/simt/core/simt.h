/* Records shared by the parts of the interpreter. Layouts that Python sees: here and encoding.h. */
#ifndef SIMT_H
#define SIMT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "encoding.h"

#define LANES 32
#define ALL_LANES UINT32_C(0xffffffff)
#define SECTOR_SHIFT 5 /* 32 bytes: the unit of traffic between L1 and L2 */
#define LINE_SECTORS 4 /* 128 bytes: the tag of an L1 line */
#define NO_PC INT32_MAX
#define AT_BARRIER (INT32_MAX - 1) /* pc of a lane that waits */

typedef uint32_t LaneMask;

/* Iterates the set lanes of a mask. */
#define FOR_EACH_LANE(lane, mask)                                                        \
    for (LaneMask rest_ = (mask); rest_; rest_ &= rest_ - 1)                              \
        for (int lane = __builtin_ctz(rest_), once_ = 1; once_; once_ = 0)

/* Who touched a 32-byte sector of global memory; block numbers are 1 + place in this run. */
typedef struct {
    uint32_t read_by, written_by, atomics;
} SectorUse;

/* Last plain writer, last atomic writer and the readers of four bytes of global memory; block 0
   is nobody. Atomics have a place of their own, so that they do not hide a plain write. */
typedef struct {
    uint32_t writer_block, writer_time, atomic_block, atomic_time, reader_block, reader_time;
    int16_t writer_warp, atomic_warp, reader_warp;
    uint8_t written_bytes, atomic_bytes, read_bytes, padding[3];
} GlobalShadow;

/* The same for shared memory; `initialised` has a bit for each written byte. */
typedef struct {
    uint32_t writer_time, reader_time;
    int16_t writer_warp, reader_warp;
    uint8_t written_bytes, read_bytes, atomic, initialised;
} SharedShadow;

#define MANY_WARPS (-2)
#define MANY_BLOCKS UINT32_MAX

/* One launch and what is asked of it: filled by library.py, field for field. */
typedef struct {
    const Instruction *code;
    const int32_t *operands;   /* pairs (register offset, width) of vector operands */
    const uint8_t *constants;  /* copied behind the registers of every warp */
    const uint8_t *parameters; /* the launch's argument bytes */
    const uint64_t *allocation_starts, *allocation_ends;
    const int64_t *blocks;     /* linear indices of the blocks to run, in this order */
    Counter *counters;
    Report *reports;
    AllocationUse *uses;
    SectorUse *sectors;        /* one for each sector of the arena */
    uint8_t *initialised;      /* may be null: four bits for each four bytes of the arena */
    GlobalShadow *shadow;      /* null unless checking */
    uint32_t *block_released;  /* by block number: when its writes were last published */
    int32_t *path;             /* pcs of the first warp */
    uint32_t *trace;           /* grown here; the caller frees it by simt_free */
    int64_t trace_length, trace_capacity;
    uint64_t arena_base, arena_size;
    int64_t first_block, block_count, instruction_budget, path_length, path_capacity;
    uint64_t seed;
    int32_t entry, register_bytes, constant_offset, constant_bytes, parameter_bytes;
    int32_t shared_bytes, local_bytes, allocation_count;
    int32_t report_count, report_capacity;
    int32_t checks, tracing, failed_instruction;
    uint32_t hottest_sector, clock;
    uint32_t grid[3], block[3];
    int32_t special_offsets[SPECIAL_REGISTER_COUNT];
} Machine;

/* A cp.async that was issued and not yet waited for. */
typedef struct {
    int32_t pc, bytes, group;
    LaneMask lanes;
    uint64_t shared_address[LANES], global_address[LANES];
    uint8_t source_bytes[LANES];
} PendingCopy;

typedef struct {
    uint8_t *registers;
    int32_t pc[LANES];
    LaneMask live;
    uint32_t first_thread;
    PendingCopy *copies;
    int32_t copy_count, copy_capacity, copy_group;
} Warp;

typedef struct {
    Machine *machine;
    uint8_t *shared, *local;
    SharedShadow *shared_shadow;
    uint32_t number;      /* 1 + place in this run */
    int64_t index;        /* linear index in the grid */
    uint32_t epoch_start; /* clock at the last barrier */
    uint32_t acquired;    /* clock at the last access that saw other blocks' writes */
    uint32_t fenced;      /* clock at the last fence */
    const uint8_t *lane_bytes; /* cp.async: bytes that each lane reads, where not all read alike */
    int32_t near_allocation;
    int32_t reduce_true, reduce_all; /* lanes of barrier.red so far */
    bool stop;
    int32_t status;
} Block;

typedef enum { ACCESS_LOAD, ACCESS_STORE, ACCESS_ATOMIC } Access;

/* memory_global.c */
LaneMask global_access(Block *, const Warp *, const Instruction *, int pc, LaneMask,
                       const uint64_t *addresses, int bytes, Access);
void global_shadow(Block *, const Warp *, const Instruction *, int pc, LaneMask,
                   const uint64_t *addresses, int bytes, Access, const uint8_t (*values)[32]);
void global_synchronise(Block *, const Instruction *, Access);
/* memory_shared.c */
LaneMask shared_access(Block *, const Warp *, const Instruction *, int pc, LaneMask,
                       const uint64_t *addresses, int bytes, Access);
void shared_shadow(Block *, const Warp *, const Instruction *, int pc, LaneMask,
                   const uint64_t *addresses, int bytes, Access, const uint8_t (*values)[32]);
/* memory.c */
void lane_addresses(const Instruction *, const Warp *, uint64_t *addresses);
int resolve_generic(LaneMask, uint64_t *addresses, LaneMask by_space[4]);
void execute_memory(Block *, Warp *, const Instruction *, int pc, LaneMask);
void complete_copies(Block *, Warp *, int groups_left);
/* arithmetic.c, bits.c, convert.c: false when the row has a type they do not know */
bool execute_arithmetic(const Instruction *, uint8_t *registers, LaneMask);
bool execute_bits(const Instruction *, uint8_t *registers, LaneMask);
bool execute_convert(const Instruction *, uint8_t *registers, LaneMask);
/* flush.c: any of them, with FLAG_FLUSH */
typedef bool (*Execute)(const Instruction *, uint8_t *registers, LaneMask);
bool execute_flushed(Execute, const Instruction *, uint8_t *registers, LaneMask);
void execute_moves(const Machine *, const Instruction *, uint8_t *registers, LaneMask);
/* warp.c, matrix.c */
void execute_warp(Block *, Warp *, const Instruction *, int pc, LaneMask active, LaneMask);
void execute_matrix(Block *, Warp *, const Instruction *, int pc, LaneMask);
uint64_t atomic_result(int operation, int type, uint64_t old, uint64_t value, uint64_t swap);
/* reports.c */
void report(Block *, int kind, int pc, const Warp *, int lane, uint64_t address, int space,
            int detail, int64_t other_block, int64_t other_warp);

static inline uint64_t read_lane(const uint8_t *registers, int width, int lane) {
    switch (width) {
    case 2: return ((const uint16_t *)registers)[lane];
    case 4: return ((const uint32_t *)registers)[lane];
    default: return ((const uint64_t *)registers)[lane];
    }
}

static inline void write_lane(uint8_t *registers, int width, int lane, uint64_t value) {
    switch (width) {
    case 2: ((uint16_t *)registers)[lane] = (uint16_t)value; break;
    case 4: ((uint32_t *)registers)[lane] = (uint32_t)value; break;
    default: ((uint64_t *)registers)[lane] = value;
    }
}

/* Predicates are one bit a lane; only the executing lanes change. */
static inline void write_predicate(uint8_t *registers, int offset, LaneMask mask, LaneMask bits) {
    LaneMask *destination = (LaneMask *)(registers + offset);
    *destination = (*destination & ~mask) | (bits & mask);
}

static inline int type_bytes(int type) {
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 4, 4, 4, 1};
    return bytes[type];
}

#endif
