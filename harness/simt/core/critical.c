/* The path on which the time of a run's first block hangs: of the warps that meet at a barrier, what
   the slowest went through so far is what all of them have waited for.

   With `hop_clocks` the same goes for the launch. Whatever a block does where others look (volatile
   accesses, atomics) happens in the order of the blocks' clocks; who looks at such a place sees what
   another block did there `hop_clocks` later, and waits so long; a block that follows another on its
   SM begins when that one ends. A turn of a loop that only looks, sees the same and leaves all registers as they were
   counts nothing: how often a wait looks is the simulator's doing. */
#include "simt.h"

#define MOST_STEP_BYTES (UINT64_C(1) << 28) /* beyond, only the first block's steps are kept */

/* Clocks of a step, roughly: they only say which warp is later than the others. */
static int64_t clocks_of(const Instruction *row) {
    switch (row->opcode) {
    case OP_LOAD:
    case OP_ATOMIC: return row->space == SPACE_SHARED || row->space == SPACE_PARAMETER ? 25 : 300;
    case OP_MMA:
    case OP_MMA_INTEGER:
    case OP_MMA_DOUBLE:
    case OP_WMMA_MMA:
    case OP_SHUFFLE:
    case OP_LOAD_MATRIX: return 25;
    case OP_DIV:
    case OP_REM:
    case OP_BARRIER: return 20;
    default: return 5;
    }
}

bool critical_begins(Block *block) {
    Machine *machine = block->machine;
    block->timed = machine->hop_clocks > 0;
    size_t steps = (size_t)machine->instruction_count * (size_t)block->warp_count;
    size_t held = (size_t)(machine->resident_limit < machine->block_count ? machine->resident_limit
                                                                          : machine->block_count);
    bool all = block->timed && held * steps * sizeof *block->steps < MOST_STEP_BYTES;
    if (!machine->critical || (block->number != 1 && !all)) return true;
    block->steps = calloc(steps, sizeof *block->steps);
    block->timed = true;
    return block->steps != NULL;
}

static uint32_t *steps_of(Block *block, const Warp *warp) {
    return block->steps + warp->first_thread / LANES * (size_t)block->machine->instruction_count;
}

/* Volatile accesses and atomics of what lies in global memory. */
bool meets_others(const Instruction *row) {
    if (row->space != SPACE_GLOBAL && row->space != SPACE_GENERIC) return false;
    return row->opcode == OP_ATOMIC ||
           ((row->opcode == OP_LOAD || row->opcode == OP_STORE) && row->flags & FLAG_STRONG);
}

static uint64_t hashed(uint64_t address) {
    return (address >> SECTOR_SHIFT) * UINT64_C(0x9E3779B97F4A7C15);
}

/* A bit of 64 for each sector: more sectors than one may share it. */
static uint64_t places_of(LaneMask lanes, const uint64_t *addresses) {
    uint64_t places = 0;
    FOR_EACH_LANE(lane, lanes) places |= UINT64_C(1) << (hashed(addresses[lane]) >> 58);
    return places;
}

static Change *change_of(const Machine *machine, uint64_t address) {
    return &machine->changes[hashed(address) >> 20 & (LATEST_CHANGES - 1)];
}

static bool does_more(const Instruction *row) {
    switch (row->opcode) {
    case OP_ATOMIC: return !meets_others(row);
    case OP_STORE:
    case OP_ASYNC_COPY:
    case OP_BARRIER:
    case OP_BARRIER_REDUCE:
    case OP_BARRIER_ARRIVE:
    case OP_MBARRIER:
    case OP_COPY_ARRIVE: return true;
    default: return false;
    }
}

/* Notes a step of a warp (or takes it back: -1); called only where the block is `timed`. */
void critical_step(Block *block, Warp *warp, int pc, LaneMask active, LaneMask lanes, int times) {
    const Instruction *row = &block->machine->code[pc];
    if (block->steps) steps_of(block, warp)[pc] += (uint32_t)times;
    warp->clocks += times * clocks_of(row);
    if (!block->machine->hop_clocks) return;
    int at = warp->steps_since;
    if (times < 0) {
        if (at > 0) warp->steps_since--;
    } else if (at == LOOK_STEPS || does_more(row)) {
        warp->steps_since = -1;
    } else if (at >= 0) {
        warp->step_pcs[at] = pc;
        warp->step_lanes[at][0] = (uint8_t)__builtin_popcount(active);
        warp->step_lanes[at][1] = (uint8_t)__builtin_popcount(lanes);
        warp->steps_since++;
    }
}

static void forget_steps(Block *block, Warp *warp) {
    for (int i = 0; i < warp->steps_since; i++) {
        int pc = warp->step_pcs[i];
        Counter *counter = &block->machine->counters[pc];
        counter->warps--;
        counter->active_threads -= warp->step_lanes[i][0];
        counter->threads -= warp->step_lanes[i][1];
        if (block->steps) steps_of(block, warp)[pc]--;
        warp->clocks -= clocks_of(&block->machine->code[pc]);
    }
}

/* After a look: `before` is what the instruction had counted before it. */
void critical_looks(Block *block, Warp *warp, int pc, LaneMask lanes, const uint64_t *addresses,
                    const Counter *before) {
    Machine *machine = block->machine;
    size_t bytes = (size_t)machine->constant_offset;
    bool same = warp->spin_pc == pc && warp->spin_count > 0;
    if (same && warp->steps_since >= 0 && warp->seen_registers &&
        !memcmp(warp->registers, warp->seen_registers, bytes)) {
        machine->counters[pc] = *before;
        forget_steps(block, warp);
    } else if (warp->spin_pc == pc) { /* what changes memory is never the same again */
        if (!warp->seen_registers) warp->seen_registers = malloc(bytes);
        if (warp->seen_registers) memcpy(warp->seen_registers, warp->registers, bytes);
        if (!same) warp->looked = 0;
        FOR_EACH_LANE(lane, lanes) {
            const Change *change = change_of(machine, addresses[lane]);
            if (change->sector != addresses[lane] >> SECTOR_SHIFT || change->block == block->number ||
                change->seen_clocks <= warp->clocks)
                continue;
            warp->clocks = change->seen_clocks, warp->waits = change->waits;
        }
    }
    uint64_t offset = lanes ? addresses[__builtin_ctz(lanes)] - machine->arena_base : UINT64_MAX;
    if (!same && offset < machine->arena_size) {
        machine->counters[pc].looks++;
        machine->counters[pc].looks_at_written +=
            machine->sectors[offset >> SECTOR_SHIFT].written_by != 0;
    }
    warp->looked |= places_of(lanes, addresses);
    warp->steps_since = 0;
}

/* After a store or an atomic: true where somebody may wait for it. */
bool critical_tells(Block *block, const Warp *warp, const Instruction *row, LaneMask lanes,
                    const uint64_t *addresses) {
    Machine *machine = block->machine;
    bool atomic = row->opcode == OP_ATOMIC;
    if (row->opcode == OP_LOAD || (atomic && warp->spin_pc >= 0)) return false; /* nothing is new */
    int64_t hop = atomic ? machine->atomic_hop_clocks : machine->hop_clocks;
    FOR_EACH_LANE(lane, lanes) {
        Change *change = change_of(machine, addresses[lane]);
        *change = (Change){warp->clocks + hop, warp->waits + hop, addresses[lane] >> SECTOR_SHIFT,
                           block->number};
    }
    uint64_t places = machine->watched & places_of(lanes, addresses);
    if (!places) return false;
    machine->news |= places;
    if (warp->clocks + hop > machine->news_clocks) machine->news_clocks = warp->clocks + hop;
    block->tells = true;
    return true;
}

/* A warp that has looked often enough waits for what it looked at. */
void critical_waits(Block *block, const Warp *warp) {
    block->watched |= warp->looked;
}

static int slowest(const Block *block, const LaneMask *arrived) {
    int found = -1;
    for (int i = 0; i < block->warp_count; i++)
        if ((!arrived || arrived[i]) &&
            (found < 0 || block->warps[i].clocks > block->warps[found].clocks))
            found = i;
    return found;
}

/* The clock of the warp that is least far. */
int64_t critical_earliest(const Block *block) {
    int64_t least = NOT_DUE;
    for (int i = 0; i < block->warp_count; i++)
        if (block->warps[i].live && block->warps[i].clocks < least) least = block->warps[i].clocks;
    return least;
}

void critical_meet(Block *block, const LaneMask *arrived) {
    int last = slowest(block, arrived);
    size_t steps = (size_t)block->machine->instruction_count;
    for (int i = 0; last >= 0 && i < block->warp_count; i++) {
        if (!arrived[i] || block->warps[i].clocks == block->warps[last].clocks) continue;
        if (block->steps)
            memcpy(block->steps + (size_t)i * steps, block->steps + (size_t)last * steps,
                   steps * sizeof *block->steps);
        block->warps[i].clocks = block->warps[last].clocks;
        block->warps[i].waits = block->warps[last].waits;
    }
}

static int64_t copy_path(const Block *block, int warp, uint32_t *to) {
    size_t steps = (size_t)block->machine->instruction_count;
    int64_t clocks = 0;
    memcpy(to, block->steps + (size_t)warp * steps, steps * sizeof *to);
    for (size_t pc = 0; pc < steps; pc++) clocks += to[pc] * clocks_of(&block->machine->code[pc]);
    return clocks;
}

/* When the block ended; notes its path. */
void critical_ends(Block *block) {
    Machine *machine = block->machine;
    int last = slowest(block, NULL);
    const Warp *warp = &block->warps[last];
    block->due = warp->clocks, block->waits = warp->waits;
    if (block->steps && block->number == 1)
        machine->own_clocks = copy_path(block, last, machine->critical);
    if (machine->hop_clocks && warp->clocks > machine->ended) {
        machine->ended = warp->clocks;
        machine->path_clocks = warp->clocks - warp->waits;
        machine->path_waits = warp->waits;
        if (block->steps) machine->last_clocks = copy_path(block, last, machine->critical_last);
    }
    free(block->steps);
    block->steps = NULL;
}
