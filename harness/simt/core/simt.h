/* Records shared by the parts of the interpreter. Layouts that Python sees: here and encoding.h.
   No two files call each other, not by way of others either: grid, run, then what an instruction
   does (barriers, matrix, warp, rare, memory), then ordering and reports. */
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
#define NOT_DUE INT64_MAX
#define AT_BARRIER (INT32_MAX - 1) /* pc of a lane that waits */

typedef uint32_t LaneMask;

/* Iterates the set lanes of a mask. */
#define FOR_EACH_LANE(lane, mask)                                                        \
    for (LaneMask rest_ = (mask); rest_; rest_ &= rest_ - 1)                              \
        for (int lane = __builtin_ctz(rest_), once_ = 1; once_; once_ = 0)

/* Who touched a 32-byte sector of global memory; block numbers are 1 + place in this run.
   `looked_at_by` read what it had not stored there itself, and has not done so since; `readers`
   counts blocks, one again where others read in between. Where that is followed `stored` has a bit
   for each byte that the last writer wrote, `seen` for each that a block read which had not
   written it. */
typedef struct {
    uint32_t read_by, written_by, atomics, looked_at_by, readers, stored, seen;
} SectorUse;

/* What a sector held before the run first wrote to it. */
typedef struct {
    uint64_t address;
    uint8_t bytes[1 << SECTOR_SHIFT];
} Before;

/* Last plain writer, last atomic writer and the readers of four bytes of global memory; block 0
   is nobody. Atomics have a place of their own, so that they do not hide a plain write. Threads are
   numbers in the block, or one of the below; pcs that do not fit are UNKNOWN_PC. `written_bytes`
   are those that the writer's warp wrote, `latest_bytes` those of the writer, and of lanes of its warp
   that wrote at the same time; `byte_writers` says which lane. Where several lanes of one warp read,
   `byte_readers` says which of them read which byte: lanes that share a word and keep to their own
   bytes do not race. */
typedef struct {
    uint32_t writer_block, writer_time, atomic_block, atomic_time, reader_block, reader_time;
    uint16_t writer, atomic, reader, writer_pc, atomic_pc, reader_pc;
    uint8_t written_bytes, latest_bytes, atomic_bytes, read_bytes, byte_readers[4], byte_writers[4];
} GlobalShadow;

/* The same for shared memory. What lies before the block's start or last barrier does not count. */
typedef struct {
    uint32_t writer_time, reader_time;
    uint16_t writer, reader, writer_pc, reader_pc;
    uint8_t written_bytes, latest_bytes, read_bytes, byte_readers[4], byte_writers[4];
    bool atomic, volatile_reader;
} SharedShadow;

#define MANY_LANES 255 /* of `byte_readers` */
#define EARLIER_LANES 254 /* before the lanes last met */

#define SEVERAL_LANES UINT16_C(0x8000) /* or-ed to the number of their warp */
#define SEVERAL_WARPS UINT16_MAX
#define MANY_BLOCKS UINT32_MAX
#define UNKNOWN_PC UINT16_MAX
#define COPY_PENDING 16 /* beside the four bits of a shared granule's written bytes */
#define LOOK_STEPS 32 /* of a loop that only looks */
#define POLLS 6 /* looks at a value that stays the same until a warp counts as spinning */

/* Who changed a place last, where others look, and when they see it. */
typedef struct {
    int64_t seen_clocks, waits;
    uint64_t sector;
    uint32_t block;
} Change;

#define LATEST_CHANGES 4096

/* One launch and what is asked of it: filled by run/core.py; its layout is run/library.py's too. */
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
    uint8_t *initialised;      /* may be null: four bits for each four bytes of the arena; when
                                  `following`, of the bytes that hold what they would in the end */
    GlobalShadow *shadow;      /* null unless checking */
    int32_t *path;             /* pcs of the first warp */
    uint32_t *critical;        /* executions on the first block's slowest path; may be null */
    uint32_t *critical_last;   /* with `hop_clocks`: on that of the block that ends last */
    uint32_t *trace;           /* grown here; the caller frees it by simt_free */
    const uint8_t *traced;     /* of each block of the run, whether it is; null: all when `tracing` */
    const FunctionRow *functions; /* when `stacked` */
    Before *before;            /* null unless `keeping`; grown here; the caller frees it by simt_free */
    int64_t *work;             /* warp instructions of each block, in the order of `blocks` */
    int64_t *asked;            /* its requests of global memory */
    uint64_t *ways;            /* a bit of 64 for each part of the kernel that it came through */
    uint32_t *stored;          /* bytes that it wrote of each followed allocation; or null */
    const int32_t *followed;   /* by allocation: its column of `stored`, -1 for none */
    int64_t trace_length, trace_capacity;
    uint64_t arena_base, arena_size;
    int64_t first_block, block_count, instruction_budget, path_length, path_capacity;
    int64_t before_length, before_capacity;
    int64_t slice, turn; /* instructions after which a warp, and a block, gives way to others */
    int64_t ended_blocks, ended_work; /* and the instructions of those */
    int64_t hop_clocks; /* critical.c: until other blocks see a store; 0: blocks have no clocks */
    int64_t atomic_hop_clocks; /* until they see an atomic */
    int64_t horizon;    /* up to which clock nobody else has anything to do */
    int64_t path_clocks, path_waits; /* work, and waits for news, on the launch's longest path */
    int64_t own_clocks, last_clocks; /* work of the first block alone, and of the one that ends last */
    int64_t ended; /* when the last block did so far */
    int64_t news_clocks;    /* when the news of this turn are seen */
    int64_t block_limit;    /* warp instructions after which a block is left as it is; 0: none */
    uint64_t watched, news; /* bits of places: what somebody waits for, what is new */
    Change *changes;        /* LATEST_CHANGES of them */
    uint64_t seed, grid_workspace, chance;
    int32_t entry, register_bytes, constant_offset, constant_bytes, parameter_bytes;
    int32_t shared_bytes, local_bytes, allocation_count;
    int32_t report_count, report_capacity;
    int32_t checks, tracing, failed_instruction;
    int32_t resident_limit;   /* blocks that may be under way at once */
    int32_t partial_barriers; /* barriers of part of a block: order is kept warp by warp */
    int32_t stacked;          /* calls make frames */
    int32_t function_count, instruction_count;
    int32_t following; /* who goes by what is not `initialised` leaves the same */
    int32_t drawn; /* turns are parts of a block's work, no two alike, and `turn` at most */
    int32_t way_scale; /* 65,536 parts over the instructions of the kernel */
    int32_t followed_count;
    int32_t keeping; /* what memory held before is kept, so that simt_take_back can restore it */
    uint32_t hottest_sector, clock, constant_lines;
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

/* One activation of a function, of one lane. */
typedef struct CallRecord {
    struct CallRecord *below;
    int32_t pc, caller;
    uint32_t base;
    uint64_t registers[];
} CallRecord;

typedef struct {
    uint8_t *registers;
    int32_t pc[LANES];
    LaneMask live;
    LaneMask held; /* lanes that spin on memory: the others of the warp go first */
    LaneMask gathering; /* lanes that wait at their pc for the others of its mask; ordering.c */
    uint32_t first_thread;
    PendingCopy *copies;
    int32_t copy_count, copy_capacity, copy_group;
    uint64_t spin_seen; /* what the last polling instruction saw */
    int32_t spin_pc, spin_count;
    int32_t waiting_at[LANES]; /* pc of the barrier at which a lane waits */
    uint8_t waiting_for[LANES]; /* its number */
    uint32_t frame_base[LANES];
    int32_t function[LANES];
    CallRecord *calls[LANES];
    uint32_t fenced;   /* clock at the last fence */
    uint32_t released; /* what came before is seen by whom reads what the warp stored since */
    uint32_t acquired; /* clock when it last looked at what others may have released */
    /* What orders the lanes of the warp; see ordering.c. */
    uint32_t synchronised;    /* clock when all live lanes last met */
    uint32_t (*known)[LANES]; /* [lane][other]: up to when it has met the other */
    bool met_partly;          /* `known` is in use */
    uint32_t heard[LANES];    /* clock when it last looked at what another thread published */
    int64_t clocks; /* critical.c: of its path so far, those of warps it waited for counted in */
    int64_t waits;  /* clocks of waits for news of other blocks on that path */
    uint64_t looked;       /* bits of the places that it looked at last */
    int32_t steps_since;   /* its last look, or -1: more than looking */
    int32_t step_pcs[LOOK_STEPS];
    uint8_t step_lanes[LOOK_STEPS][2]; /* active, and those whose guard is true */
    uint8_t *seen_registers; /* at its last look */
} Warp;

#define MOST_WARPS 32
#define NAMED_BARRIERS 16

/* A hardware barrier of the block. */
typedef struct {
    int32_t needed; /* threads; 0: all that are alive */
    LaneMask arrived[MOST_WARPS];
    uint32_t times[MOST_WARPS]; /* clock at each warp's last arrival */
    int32_t reduce_true, reduce_all;
    bool used;
} NamedBarrier;

/* What passing a barrier object in shared memory makes known; see barriers.c. */
typedef struct {
    uint64_t address;
    uint32_t gathered[MOST_WARPS], known[MOST_WARPS];
} BarrierObject;

/* When a block's writes were published, ascending. */
typedef struct {
    uint32_t *times;
    int32_t count, capacity;
} Releases;

/* When a warp last read a word, and which bytes of it then. */
typedef struct {
    uint32_t time, bytes;
} WarpRead;

typedef struct Block {
    Machine *machine;
    uint8_t *shared, *local;
    SharedShadow *shared_shadow;
    uint8_t *shared_written; /* a byte a granule of four: bits of its written bytes, COPY_PENDING */
    uint8_t *local_written;  /* a byte a byte */
    uint32_t (*lanes_known)[LANES];
    WarpRead *shared_reads; /* with partial barriers: of each word, by each warp */
    Warp *warps;
    uint8_t *registers;
    int32_t warp_count, phase;
    uint32_t number;      /* 1 + place in this run */
    int64_t index;        /* linear index in the grid */
    uint32_t epoch_start; /* clock at the last barrier */
    uint32_t acquired;    /* clock at the last access that saw other blocks' writes */
    uint32_t fenced;      /* clock at the last fence */
    struct Block *next;   /* of those whose memory is kept for later ones */
    const uint8_t *lane_bytes; /* cp.async: bytes that each lane reads, where not all read alike */
    int32_t near_allocation;
    bool fences;          /* some warp used a fence: others may rely on it */
    int32_t reduce_true, reduce_all; /* lanes of barrier.red so far */
    int64_t executed; /* warp instructions */
    int64_t asked; /* requests of global memory */
    uint64_t ways; /* see Machine */
    int64_t changes;  /* of memory or barriers: while there are some, spinning may end */
    bool stop, suspended;
    bool misled; /* read what would be otherwise had all blocks run; when `following` */
    int32_t status;
    Releases *releases; /* of every block, by number */
    uint32_t *steps;    /* critical.c: of each warp, executions of each instruction; or null */
    bool timed;         /* its warps have clocks */
    bool tells;         /* has news for who waits */
    int64_t waits;      /* of the path before it began */
    int64_t due;        /* clock at which it goes on; NOT_DUE: somebody must wake it */
    uint64_t watched;   /* bits of places that its warps wait for */
    /* With partial barriers: known[w][v]: what warp v did before this time, warp w has seen. */
    uint32_t known[MOST_WARPS][MOST_WARPS];
    NamedBarrier barriers[NAMED_BARRIERS];
    BarrierObject *objects;
    int32_t object_count, object_capacity;
} Block;

typedef enum { ACCESS_LOAD, ACCESS_STORE, ACCESS_ATOMIC } Access;

/* memory_global.c */
LaneMask global_access(Block *, const Warp *, const Instruction *, int pc, LaneMask,
                       const uint64_t *addresses, int bytes, Access);
void global_shadow(Block *, const Warp *, const Instruction *, int pc, LaneMask,
                   const uint64_t *addresses, int bytes, Access, const uint8_t (*values)[32]);
/* memory_shared.c */
void count_copy(Counter *counter, LaneMask lanes, const PendingCopy *copy);
LaneMask shared_access(Block *, const Warp *, const Instruction *, int pc, LaneMask,
                       const uint64_t *addresses, int bytes, Access);
void shared_shadow(Block *, const Warp *, const Instruction *, int pc, LaneMask,
                   const uint64_t *addresses, int bytes, Access, const uint8_t (*values)[32]);
void shared_copy_begins(Block *, const Warp *, int pc, LaneMask, const uint64_t *addresses,
                        int bytes);
void shared_copy_ends(Block *, LaneMask, const uint64_t *addresses, int bytes);
/* memory_local.c */
void local_shadow(Block *, const Warp *, const Instruction *, int pc, LaneMask,
                  const uint64_t *addresses, int bytes, Access);
/* ordering.c */
void lanes_meet(Block *, Warp *, LaneMask);
LaneMask meet(Block *, Warp *, const Instruction *, int pc, LaneMask present);
bool meet_elsewhere(Block *, Warp *);
bool report_gathering(Block *, Warp *);
void fence(Block *, Warp *, const Instruction *);
void warp_publishes(Warp *);
void warp_sees(Block *, const Warp *);
void synchronise(Block *, Warp *, const Instruction *, Access, bool global);
/* An access by which a lane may hear of what another thread has published. */
static inline bool is_look(const Instruction *row, Access access) {
    return access == ACCESS_ATOMIC || (access == ACCESS_LOAD && row->flags & FLAG_STRONG);
}
bool lanes_ordered(const Warp *, int other_lane, int lane, uint32_t time);
bool reader_ordered(const Block *, const Warp *, int reader, uint32_t time);
bool warps_ordered(const Block *, const Warp *, int other_warp, uint32_t time);
/* memory.c */
void lane_addresses(const Instruction *, const Warp *, uint64_t *addresses);
int resolve_generic(LaneMask, uint64_t *addresses, LaneMask by_space[4]);
void execute_memory(Block *, Warp *, const Instruction *, int pc, LaneMask);
void complete_copies(Block *, Warp *, int groups_left);
/* arithmetic.c, bits.c, convert.c: false when the row has a type they do not know */
bool execute_arithmetic(const Instruction *, uint8_t *registers, LaneMask);
bool takes_slow_path(const Instruction *, uint8_t *registers, LaneMask);
bool execute_bits(const Instruction *, uint8_t *registers, LaneMask);
bool execute_convert(const Instruction *, uint8_t *registers, LaneMask);
bool execute_approximation(const Instruction *, uint8_t *registers, LaneMask);
/* flush.c: any of them, with FLAG_FLUSH */
typedef bool (*Execute)(const Instruction *, uint8_t *registers, LaneMask);
bool execute_flushed(Execute, const Instruction *, uint8_t *registers, LaneMask);
void execute_moves(const Machine *, const Instruction *, uint8_t *registers, LaneMask);
bool execute_rare(const Instruction *, uint8_t *registers, LaneMask);
/* barriers.c */
void arrive(Block *, Warp *, const Instruction *, int pc, LaneMask);
bool release_barriers(Block *);
void execute_mbarrier(Block *, Warp *, const Instruction *, int pc, LaneMask);
/* critical.c */
bool critical_begins(Block *);
void critical_step(Block *, Warp *, int pc, LaneMask active, LaneMask, int times);
bool meets_others(const Instruction *);
void critical_looks(Block *, Warp *, int pc, LaneMask, const uint64_t *addresses,
                    const Counter *before);
bool critical_tells(Block *, const Warp *, const Instruction *, LaneMask,
                    const uint64_t *addresses);
void critical_waits(Block *, const Warp *);
void critical_meet(Block *, const LaneMask *arrived);
int64_t critical_earliest(const Block *);
void critical_ends(Block *);
/* calls.c */
void execute_call(Block *, Warp *, const Instruction *, int pc, LaneMask);
void execute_return(Block *, Warp *, LaneMask);
void forget_calls(Warp *);
/* run.c */
typedef enum { WARP_DONE, WARP_WAITS, WARP_YIELDS, WARP_SPINS, WARP_LATER } WarpState;
WarpState run_warp(Block *, Warp *);
/* warp.c, matrix.c */
void execute_warp(Block *, Warp *, const Instruction *, int pc, LaneMask active, LaneMask);
void execute_matrix(Block *, Warp *, const Instruction *, int pc, LaneMask);
uint64_t atomic_result(int operation, int type, uint64_t old, uint64_t value, uint64_t swap);
/* reports.c */
Report *report(Block *, int kind, int pc, const Warp *, int lane, uint64_t address, int space,
               int detail, int64_t other_block, int64_t other_warp);
void report_race(Block *, bool same_value, int pc, const Warp *, int lane, uint64_t address,
                 int space, int detail, int64_t other_block, int other_thread, int other_pc);

/* Makes room for one more item; NULL where there is none. */
static inline void *grown(void *memory, int32_t needed, int32_t *capacity, size_t item) {
    if (needed <= *capacity) return memory;
    int32_t larger = *capacity ? 2 * *capacity : 16;
    void *result = realloc(memory, (size_t)larger * item);
    if (result) *capacity = larger;
    return result;
}

/* Polling is looking at one value again and again: the same instruction sees the same each time. */
static inline void note_polling(Warp *warp, int pc, uint64_t seen) {
    bool again = warp->spin_pc == pc && warp->spin_seen == seen;
    warp->spin_count = again ? warp->spin_count + 1 : 0;
    warp->spin_pc = pc, warp->spin_seen = seen;
}

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

/* Lanes whose reads are worth noting: of those at one address two stand for the whole warp. */
static inline LaneMask readers_to_note(LaneMask lanes, const uint64_t *addresses) {
    uint64_t first = addresses[__builtin_ctz(lanes)], differ = 0;
    for (int lane = 0; lane < LANES; lane++)
        differ |= lanes >> lane & 1 ? addresses[lane] ^ first : 0;
    LaneMask others = lanes & (lanes - 1);
    return differ ? lanes : lanes & ~(others & (others - 1));
}

/* Notes that a lane read bytes of a word, of which `before` were read by its warp already. */
static inline void note_byte_readers(uint8_t readers[4], int before, int part, int lane) {
    for (int i = 0; i < 4; i++) {
        if (!(part >> i & 1)) continue;
        bool alone = !(before >> i & 1) || readers[i] == lane || readers[i] == EARLIER_LANES;
        readers[i] = alone ? (uint8_t)lane : MANY_LANES;
    }
}

/* The same after the warp's lanes have met: what was read before is over. */
static inline void renew_byte_readers(uint8_t readers[4], int part, int lane) {
    memset(readers, EARLIER_LANES, 4);
    note_byte_readers(readers, 0, part, lane);
}

/* Did only this lane read these bytes, of all lanes of its warp? */
static inline bool read_alone(const uint8_t readers[4], int read, int part, int lane) {
    for (int i = 0; i < 4; i++)
        if ((read & part) >> i & 1 && readers[i] != lane && readers[i] != EARLIER_LANES) return false;
    return true;
}

static inline int type_bytes(int type) {
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 4, 4, 4, 1};
    return bytes[type];
}

/* May other warps know of what this one did in part: of earlier stores but not of later ones? */
static inline bool is_known_in_part(const Block *block) {
    return block->fences || block->machine->partial_barriers;
}

/* Which bytes of a word were written last: by lanes of a warp at one time, or by this lane since it
   last met others. */
static inline uint8_t note_byte_writers(uint8_t writers[4], int before, bool same_time,
                                        bool since_meeting, int part, int lane) {
    int kept = 0;
    for (int i = 0; i < 4; i++) {
        if (part >> i & 1) writers[i] = (uint8_t)lane;
        else if (before >> i & 1 && (same_time || (since_meeting && writers[i] == lane))) kept |= 1 << i;
    }
    return (uint8_t)(kept | part);
}

/* A lane of the same warp that wrote one of these bytes last, this one if no other did; -1: none. */
static inline int byte_writer(const uint8_t writers[4], int latest, int part, int lane) {
    int found = -1;
    for (int i = 0; i < 4; i++)
        if ((latest & part) >> i & 1 && (found < 0 || found == lane)) found = writers[i];
    return found;
}

/* Is what nobody wrote at `here` padding, copied with what it pads? Then the same load takes bytes
   that were written; of an access to single bytes, which only padding and arrays of bytes are
   copied by, also others of the same sixteen count. `written`: four bits for each granule. */
static inline bool copies_padding(const uint8_t *written, uint64_t granules, const Instruction *row,
                                  uint64_t offset, int bytes) {
    if (!(row->flags & FLAG_COPY)) return false;
    uint64_t first = offset, end = offset + (uint64_t)bytes;
    if (type_bytes(row->type) == 1) first &= ~UINT64_C(15), end = first + 16;
    for (uint64_t byte = first; byte < end && byte >> 2 < granules; byte++)
        if (written[byte >> 2] >> (byte & 3) & 1) return true;
    return false;
}

/* Which of these bytes of a load somebody reads: not those of a vector's unused elements. They
   begin `done` bytes into the access; `part` are their places in their granule. */
static inline int bytes_read(const Instruction *row, int done, int part) {
    if (row->opcode != OP_LOAD || !row->target) return part;
    int element = type_bytes(row->type), first = __builtin_ctz((unsigned)part);
    for (int i = first; part >> i & 1; i++)
        if (row->target >> ((done + i - first) / element) & 1) part &= ~(1 << i);
    return part;
}

/* Have no lanes of the warp met since `time`? */
static inline bool is_since_meeting(const Warp *warp, uint32_t time) {
    return time >= warp->synchronised && !warp->met_partly;
}

static inline uint16_t short_pc(int pc) { return (uint16_t)(pc < UNKNOWN_PC ? pc : UNKNOWN_PC); }

#endif
