/* Runs the blocks of a launch: each warp to its next barrier, then the next warp, in seeded order. */
#include "numeric.h"
#include "simt.h"

/* A warp gives way after this many instructions, so that warps may wait for each other by
   spinning on memory as well as at barriers. */
#define SLICE 200000

typedef enum { WARP_DONE, WARP_WAITS, WARP_YIELDS } WarpState;

/* The lanes at the lowest pc run; they go on together until they reach the next lane's pc. Code
   is laid out so that both sides of a branch lie before the place where they meet again. */
static LaneMask lowest_lanes(const Warp *warp, int *lowest, int *next) {
    LaneMask lanes = 0;
    int first = NO_PC, second = NO_PC;
    FOR_EACH_LANE(lane, warp->live) {
        int pc = warp->pc[lane];
        if (pc < first) second = first, first = pc, lanes = UINT32_C(1) << lane;
        else if (pc == first) lanes |= UINT32_C(1) << lane;
        else if (pc < second) second = pc;
    }
    *lowest = first, *next = second;
    return lanes;
}

static void set_pcs(Warp *warp, LaneMask lanes, int pc) {
    FOR_EACH_LANE(lane, lanes) warp->pc[lane] = pc;
}

static void arrive(Block *block, Warp *warp, const Instruction *row, LaneMask lanes,
                   int32_t *waiting_at, int pc) {
    if (row->opcode == OP_BARRIER_REDUCE) {
        LaneMask votes = *(const LaneMask *)(warp->registers + row->source0);
        if (row->count) votes = ~votes;
        block->reduce_true += __builtin_popcount(votes & lanes);
        block->reduce_all += __builtin_popcount(lanes);
    }
    FOR_EACH_LANE(lane, lanes) {
        waiting_at[lane] = pc;
        warp->pc[lane] = AT_BARRIER;
    }
}

static bool is_between(int opcode, int first, int last) { return opcode >= first && opcode <= last; }

static WarpState run_warp(Block *block, Warp *warp, int32_t *waiting_at) {
    Machine *machine = block->machine;
    const Instruction *code = machine->code;
    uint8_t *registers = warp->registers;
    bool record_path = machine->path && block->number == 1 && warp->first_thread == 0;
    int64_t slice_end = machine->instruction_budget - SLICE;
    for (;;) {
        if (!warp->live) return WARP_DONE;
        int pc, next;
        LaneMask lanes = lowest_lanes(warp, &pc, &next);
        if (pc == AT_BARRIER) return WARP_WAITS;
        bool together = true; /* these lanes have one pc, held here and not in warp->pc */
        while (together) {
            const Instruction *row = &code[pc];
            LaneMask mask = lanes;
            if (row->guard >= 0) {
                LaneMask guard = *(const LaneMask *)(registers + row->guard);
                mask &= row->guard_negated ? ~guard : guard;
            }
            Counter *counter = &machine->counters[pc];
            counter->warps++;
            counter->active_threads += __builtin_popcount(lanes);
            counter->threads += __builtin_popcount(mask);
            if (record_path && machine->path_length < machine->path_capacity)
                machine->path[machine->path_length++] = pc;
            if (--machine->instruction_budget < slice_end) {
                machine->instruction_budget++;
                set_pcs(warp, lanes, pc);
                counter->warps--; /* runs again in the next slice */
                counter->active_threads -= __builtin_popcount(lanes);
                counter->threads -= __builtin_popcount(mask);
                if (record_path && machine->path_length) machine->path_length--;
                return WARP_YIELDS;
            }
            if (machine->instruction_budget < 0) {
                report(block, KIND_TIMED_OUT, pc, warp, __builtin_ctz(lanes), 0, -1, DETAIL_NONE,
                       -1, -1);
                block->stop = true, block->status = STATUS_TIMED_OUT;
                return WARP_DONE;
            }
            if (mask) {
                int opcode = row->opcode;
                bool known = true;
                if (is_between(opcode, OP_ADD, OP_DP4A)) {
                    if (opcode == OP_CONVERT || opcode == OP_CONVERT_PACK)
                        known = execute_convert(row, registers, mask);
                    else known = execute_arithmetic(row, registers, mask);
                } else if (is_between(opcode, OP_AND, OP_BFIND)) {
                    known = execute_bits(row, registers, mask);
                } else if (is_between(opcode, OP_LOAD, OP_ASYNC_WAIT)) {
                    execute_memory(block, warp, row, pc, mask);
                } else if (is_between(opcode, OP_MOVE, OP_SELECT)) {
                    execute_moves(machine, row, registers, mask);
                } else if (is_between(opcode, OP_VOTE, OP_MATCH_ALL)) {
                    execute_warp(block, warp, row, pc, lanes, mask);
                } else if (is_between(opcode, OP_LOAD_MATRIX, OP_WMMA_MMA)) {
                    execute_matrix(block, warp, row, pc, mask);
                } else {
                    switch (opcode) {
                    case OP_NOP: break;
                    case OP_BRANCH:
                        if (mask == lanes) {
                            pc = row->target;
                            if (pc >= next) set_pcs(warp, lanes, pc), together = false;
                            continue;
                        }
                        counter->divergent++;
                        set_pcs(warp, mask, row->target);
                        set_pcs(warp, lanes & ~mask, pc + 1);
                        together = false;
                        continue;
                    case OP_BRANCH_TABLE: {
                        const uint32_t *index = (const uint32_t *)(registers + row->source0);
                        const int32_t *targets = machine->operands + row->operands;
                        set_pcs(warp, lanes & ~mask, pc + 1);
                        FOR_EACH_LANE(lane, mask) /* an index past the table is not defined */
                            warp->pc[lane] =
                                targets[index[lane] < (uint32_t)row->count ? index[lane] : 0];
                        together = false;
                        continue;
                    }
                    case OP_EXIT:
                        warp->live &= ~mask;
                        set_pcs(warp, lanes & ~mask, pc + 1);
                        together = false;
                        continue;
                    case OP_CALL:
                    case OP_RETURN: {
                        int32_t *saved = (int32_t *)(registers + row->source0);
                        FOR_EACH_LANE(lane, mask) {
                            if (opcode == OP_CALL) saved[lane] = pc + 1;
                            warp->pc[lane] = opcode == OP_CALL ? row->target : saved[lane];
                        }
                        set_pcs(warp, lanes & ~mask, pc + 1);
                        together = false;
                        continue;
                    }
                    case OP_BARRIER:
                    case OP_BARRIER_REDUCE:
                        arrive(block, warp, row, mask, waiting_at, pc);
                        set_pcs(warp, lanes & ~mask, pc + 1);
                        together = false;
                        continue;
                    case OP_FENCE:
                        block->fenced = ++machine->clock;
                        break;
                    case OP_CLOCK:
                        FOR_EACH_LANE(lane, mask)
                            write_lane(registers + row->destination, row->destination_width, lane,
                                       INT64_MAX - (uint64_t)machine->instruction_budget);
                        break;
                    case OP_TRAP:
                    case OP_ASSERT:
                        report(block, opcode == OP_TRAP ? KIND_TRAP : KIND_ASSERT, pc, warp,
                               __builtin_ctz(mask), 0, -1, DETAIL_NONE, -1, -1);
                        block->stop = true, block->status = STATUS_STOPPED;
                        return WARP_DONE;
                    default: known = false;
                    }
                }
                if (!known) {
                    machine->failed_instruction = pc;
                    block->stop = true, block->status = STATUS_UNKNOWN_INSTRUCTION;
                }
                if (block->stop) return WARP_DONE;
            }
            pc++;
            if (pc >= next) set_pcs(warp, lanes, pc), together = false;
        }
    }
}

/* Everyone alive waits. All should wait at the same barrier; then they go on. */
static void release_barrier(Block *block, Warp *warps, int warp_count, int32_t (*waiting_at)[LANES]) {
    Machine *machine = block->machine;
    int first = -1;
    for (int i = 0; i < warp_count; i++)
        FOR_EACH_LANE(lane, warps[i].live) {
            int pc = waiting_at[i][lane];
            if (first < 0) first = pc;
            if (pc != first)
                report(block, KIND_BARRIER_DIVERGENCE, pc, &warps[i], lane, 0, -1,
                       DETAIL_OTHER_BARRIER, -1, first);
            const Instruction *row = &machine->code[pc];
            if (row->opcode == OP_BARRIER_REDUCE) {
                uint8_t *registers = warps[i].registers;
                bool any = block->reduce_true > 0, all = block->reduce_true == block->reduce_all;
                if (row->flags == VOTE_POPC)
                    ((uint32_t *)(registers + row->destination))[lane] = (uint32_t)block->reduce_true;
                else
                    write_predicate(registers, row->destination, UINT32_C(1) << lane,
                                    (row->flags == VOTE_ANY ? any : all) ? ALL_LANES : 0);
            }
            warps[i].pc[lane] = pc + 1;
        }
    block->reduce_true = block->reduce_all = 0;
    block->epoch_start = ++machine->clock;
}

/* splitmix64: one number for each (seed, block, phase), so results do not depend on threads. */
static uint64_t scramble(uint64_t value) {
    value += UINT64_C(0x9E3779B97F4A7C15);
    value = (value ^ value >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    value = (value ^ value >> 27) * UINT64_C(0x94D049BB133111EB);
    return value ^ value >> 31;
}

/* Seed 0 keeps the warps in order; any other shuffles them anew for every phase. */
static void order_warps(const Block *block, int phase, int *order, int count) {
    for (int i = 0; i < count; i++) order[i] = i;
    if (!block->machine->seed) return;
    uint64_t state = scramble(block->machine->seed * 31 + (uint64_t)block->index) + (uint64_t)phase;
    for (int i = count - 1; i > 0; i--) {
        state = scramble(state);
        int other = (int)(state % (uint64_t)(i + 1)), kept = order[i];
        order[i] = order[other], order[other] = kept;
    }
}

static void start_warp(Block *block, Warp *warp, int number, int warp_count) {
    Machine *machine = block->machine;
    const uint32_t *dim = machine->block, *grid = machine->grid;
    uint32_t threads = dim[0] * dim[1] * dim[2];
    uint64_t index = (uint64_t)block->index;
    uint32_t x = (uint32_t)(index % grid[0]), y = (uint32_t)(index / grid[0] % grid[1]);
    uint32_t z = (uint32_t)(index / grid[0] / grid[1]);
    warp->first_thread = (uint32_t)number * LANES;
    warp->live = 0;
    warp->copy_count = warp->copy_group = 0;
    memset(warp->registers, 0, (size_t)machine->constant_offset);
    memcpy(warp->registers + machine->constant_offset, machine->constants,
           (size_t)machine->constant_bytes);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t thread = warp->first_thread + lane, bit = UINT32_C(1) << lane;
        if (thread < threads) warp->live |= bit;
        warp->pc[lane] = machine->entry;
        const uint32_t values[SPECIAL_REGISTER_COUNT] = {
            thread % dim[0], thread / dim[0] % dim[1], thread / (dim[0] * dim[1]),
            dim[0], dim[1], dim[2], x, y, z, grid[0], grid[1], grid[2],
            lane, (uint32_t)number, (uint32_t)warp_count, bit, bit - 1, bit | (bit - 1),
            ~(bit | (bit - 1)), ~(bit - 1), (uint32_t)(index % 132), 132,
        };
        for (int i = 0; i < SPECIAL_REGISTER_COUNT; i++)
            if (machine->special_offsets[i] >= 0)
                ((uint32_t *)(warp->registers + machine->special_offsets[i]))[lane] = values[i];
    }
}

static void run_block(Block *block, Warp *warps, int warp_count, int32_t (*waiting_at)[LANES],
                      int *order) {
    Machine *machine = block->machine;
    uint32_t threads = machine->block[0] * machine->block[1] * machine->block[2];
    block->epoch_start = ++machine->clock;
    block->acquired = block->fenced = 0;
    block->reduce_true = block->reduce_all = 0;
    /* Poison: unwritten memory must not look like a plausible zero. */
    memset(block->shared, 0xcd, (size_t)machine->shared_bytes);
    memset(block->local, 0xcd, (size_t)threads * (size_t)machine->local_bytes);
    if (machine->checks)
        memset(block->shared_shadow, 0,
               ((size_t)machine->shared_bytes / 4 + 1) * sizeof *block->shared_shadow);
    for (int i = 0; i < warp_count; i++) start_warp(block, &warps[i], i, warp_count);
    for (int phase = 0;; phase++) {
        order_warps(block, phase, order, warp_count);
        int waiting = 0, yielding = 0;
        for (int i = 0; i < warp_count; i++) {
            Warp *warp = &warps[order[i]];
            if (!warp->live) continue;
            WarpState state = run_warp(block, warp, waiting_at[order[i]]);
            if (block->stop) return;
            waiting += state == WARP_WAITS, yielding += state == WARP_YIELDS;
        }
        if (yielding) continue; /* nobody passes a barrier before all have arrived */
        if (!waiting) return;
        release_barrier(block, warps, warp_count, waiting_at);
    }
}

int simt_run(Machine *machine) {
    uint32_t threads = machine->block[0] * machine->block[1] * machine->block[2];
    int warp_count = (int)((threads + LANES - 1) / LANES);
    size_t register_bytes = ((size_t)machine->register_bytes + 63) / 64 * 64;
    size_t shared_words = (size_t)machine->shared_bytes / 4 + 1;
    uint8_t *registers = aligned_alloc(64, register_bytes * (size_t)warp_count);
    Warp *warps = calloc((size_t)warp_count, sizeof *warps);
    int32_t(*waiting_at)[LANES] = calloc((size_t)warp_count, sizeof *waiting_at);
    int *order = calloc((size_t)warp_count, sizeof *order);
    Block block = {.machine = machine, .status = STATUS_FINISHED};
    block.shared = calloc(shared_words + 8, 4);
    block.shared_shadow = calloc(shared_words, sizeof *block.shared_shadow);
    block.local = calloc((size_t)warp_count * LANES, (size_t)machine->local_bytes + 1);
    if (!registers || !warps || !waiting_at || !order || !block.shared || !block.shared_shadow ||
        !block.local) {
        block.status = STATUS_OUT_OF_MEMORY;
    } else {
        for (int i = 0; i < warp_count; i++) warps[i].registers = registers + (size_t)i * register_bytes;
        for (int64_t i = 0; i < machine->block_count && !block.stop; i++) {
            block.number = (uint32_t)(machine->first_block + i) + 1;
            block.index = machine->blocks[i];
            run_block(&block, warps, warp_count, waiting_at, order);
        }
        for (int i = 0; i < warp_count; i++) free(warps[i].copies);
    }
    free(registers), free(warps), free(waiting_at), free(order);
    free(block.shared), free(block.shared_shadow), free(block.local);
    return block.status;
}

void simt_free(void *memory) { free(memory); }

/* Sizes that library.py compares with its own before it calls anything. */
int64_t simt_machine_bytes(void) { return sizeof(Machine); }
int64_t simt_sector_use_bytes(void) { return sizeof(SectorUse); }
int64_t simt_global_shadow_bytes(void) { return sizeof(GlobalShadow); }

/* Adds the sector uses of one thread's run to another's: distinct sectors of the union. */
void simt_merge_uses(SectorUse *into, const SectorUse *from, int64_t first, int64_t last,
                     AllocationUse *use) {
    for (int64_t sector = first; sector <= last; sector++) {
        if (from[sector].read_by && !into[sector].read_by) {
            into[sector].read_by = from[sector].read_by;
            use->read_sectors++;
        }
        if (from[sector].written_by && !into[sector].written_by) {
            into[sector].written_by = from[sector].written_by;
            use->written_sectors++;
        }
    }
}
