/* Runs the blocks of a launch, one after the other; a block that waits for others lets them run. */
#include "simt.h"

#define TURN_HALVES 6 /* by which a drawn turn may be shorter than a block's whole work is */
#define FIRST_HALVES 12 /* the same before that is known */
#define MOST_SLICES 8 /* phases of nothing but slices after which other blocks get a turn */

/* The blocks that are under way and wait for something that others do. */
typedef struct {
    Block **waiting; /* a ring */
    int64_t first, count, capacity;
    Block *unused; /* memory of blocks that ended, kept for the next */
} Residents;

/* splitmix64: one number for each (seed, block, phase), so results do not depend on threads. */
static uint64_t scramble(uint64_t value) {
    value += UINT64_C(0x9E3779B97F4A7C15);
    value = (value ^ value >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    value = (value ^ value >> 27) * UINT64_C(0x94D049BB133111EB);
    return value ^ value >> 31;
}

/* Seed 0 keeps the warps in order. Any other turns them round in the first phase and in half of the
   later ones, so that of any two each goes first in one of the runs, and shuffles them otherwise. */
static void order_warps(const Block *block, int phase, int *order, int count) {
    bool ascending = !block->machine->seed;
    for (int i = 0; i < count; i++) order[i] = ascending ? i : count - 1 - i;
    if (ascending || !phase) return;
    uint64_t state = scramble(block->machine->seed * 31 + (uint64_t)block->index) + (uint64_t)phase;
    if (scramble(state) & 1) return;
    for (int i = count - 1; i > 0; i--) {
        state = scramble(state);
        int other = (int)(state % (uint64_t)(i + 1)), kept = order[i];
        order[i] = order[other], order[other] = kept;
    }
}

/* The byte that lies where nothing was written: it must not look like a plausible zero, nor be the
   same in two runs. Numbers of it are negative in one, positive in the other. */
static int unwritten(const Machine *machine) { return machine->seed ? 0x4b : 0xcd; }

static void start_warp(Block *block, Warp *warp, int number, int warp_count) {
    Machine *machine = block->machine;
    const uint32_t *dim = machine->block, *grid = machine->grid;
    uint32_t threads = dim[0] * dim[1] * dim[2];
    uint64_t index = (uint64_t)block->index;
    uint32_t x = (uint32_t)(index % grid[0]), y = (uint32_t)(index / grid[0] % grid[1]);
    uint32_t z = (uint32_t)(index / grid[0] / grid[1]);
    warp->first_thread = (uint32_t)number * LANES;
    warp->live = warp->held = warp->gathering = 0;
    warp->copy_count = warp->copy_group = 0;
    warp->spin_pc = -1, warp->spin_count = 0;
    warp->fenced = warp->released = warp->acquired = warp->synchronised = 0;
    warp->met_partly = false;
    memset(warp->heard, 0, sizeof warp->heard);
    warp->clocks = block->due, warp->waits = block->waits;
    warp->looked = 0, warp->steps_since = 0;
    forget_calls(warp);
    memset(warp->frame_base, 0, sizeof warp->frame_base);
    memset(warp->function, 0, sizeof warp->function);
    /* A register holds anything before it is written. */
    memset(warp->registers, unwritten(machine), (size_t)machine->constant_offset);
    memcpy(warp->registers + machine->constant_offset, machine->constants,
           (size_t)machine->constant_bytes);
    /* What nothing promises is another in each run, and for blocks that follow each other: where a
       warp lies in its multiprocessor, where its block runs, how many launches there were. */
    uint64_t run = scramble(machine->seed ^ machine->chance);
    uint64_t chance = scramble(run + index);
    bool any = machine->seed;
    uint64_t slot = any ? chance + (uint64_t)number + (number > 0)
                        : index / 132 * (uint64_t)warp_count + (uint64_t)number;
    uint32_t where = (uint32_t)(any ? chance >> 32 : index) % 132;
    uint64_t launches = run >> 32;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t thread = warp->first_thread + lane, bit = UINT32_C(1) << lane;
        if (thread < threads) warp->live |= bit;
        warp->pc[lane] = machine->entry;
        const uint32_t values[SPECIAL_REGISTER_COUNT - 1] = {
            thread % dim[0], thread / dim[0] % dim[1], thread / (dim[0] * dim[1]),
            dim[0], dim[1], dim[2], x, y, z, grid[0], grid[1], grid[2],
            lane, (uint32_t)(slot % 64), (uint32_t)warp_count, bit, bit - 1, bit | (bit - 1),
            ~(bit | (bit - 1)), ~(bit - 1), where, 132,
            (uint32_t)(machine->grid_workspace >> 32), (uint32_t)machine->grid_workspace,
        };
        const int32_t *offsets = machine->special_offsets;
        for (int i = 0; i < SPECIAL_REGISTER_COUNT - 1; i++)
            if (offsets[i] >= 0) ((uint32_t *)(warp->registers + offsets[i]))[lane] = values[i];
        if (offsets[SPECIAL_REGISTER_COUNT - 1] >= 0)
            ((uint64_t *)(warp->registers + offsets[SPECIAL_REGISTER_COUNT - 1]))[lane] = launches;
    }
}

/* Room for a block since a clock, by another that ended. */
typedef struct {
    int64_t clocks, waits;
} Room;

static void start_block(Block *block, int64_t place, Room room) {
    Machine *machine = block->machine;
    uint32_t threads = machine->block[0] * machine->block[1] * machine->block[2];
    size_t words = (size_t)machine->shared_bytes / 4 + 1;
    block->number = (uint32_t)(machine->first_block + place) + 1;
    block->index = machine->blocks[place];
    block->epoch_start = ++machine->clock;
    block->acquired = block->fenced = 0;
    block->fences = block->misled = false;
    block->phase = 0, block->executed = block->asked = 0, block->ways = 0, block->changes = 0, block->suspended = false, block->object_count = 0;
    block->due = room.clocks, block->waits = room.waits, block->watched = 0;
    memset(block->barriers, 0, sizeof block->barriers);
    int poison = unwritten(machine);
    memset(block->shared, poison, (size_t)machine->shared_bytes);
    memset(block->local, poison, (size_t)threads * (size_t)machine->local_bytes);
    if (machine->checks) { /* times in the shadow lie before this block's start */
        memset(block->shared_written, 0, words);
        memset(block->local_written, 0, (size_t)threads * (size_t)machine->local_bytes);
    }
    if (block->shared_reads) {
        memset(block->shared_reads, 0, words * (size_t)block->warp_count * sizeof(WarpRead));
        memset(block->known, 0, sizeof block->known);
    }
    for (int i = 0; i < block->warp_count; i++)
        start_warp(block, &block->warps[i], i, block->warp_count);
}

static void report_deadlock(Block *block) {
    for (int i = 0; i < block->warp_count; i++)
        if (report_gathering(block, &block->warps[i])) return;
    for (int i = 0; i < block->warp_count; i++) {
        Warp *warp = &block->warps[i];
        if (!warp->live) continue;
        int lane = __builtin_ctz(warp->live);
        report(block, KIND_BARRIER_DIVERGENCE, warp->waiting_at[lane], warp, lane,
               warp->waiting_for[lane], -1, DETAIL_NEVER_RELEASED, -1, -1);
        break;
    }
    block->stop = true, block->status = STATUS_STOPPED;
}

/* Instructions of a block's next turn. Where turns are drawn, each is a part of what a block takes from
   its beginning to its end. */
static int64_t next_turn(const Block *block) {
    Machine *machine = block->machine;
    if (!machine->drawn) return machine->turn;
    int64_t most = machine->ended_blocks ? machine->ended_work / machine->ended_blocks : machine->turn;
    if (most > machine->turn) most = machine->turn;
    uint64_t state = scramble(machine->seed * 31 + (uint64_t)block->index + (uint64_t)block->executed);
    most >>= state % (machine->ended_blocks ? TURN_HALVES : FIRST_HALVES);
    int64_t turn = most / 2 + (int64_t)(scramble(state) % (uint64_t)(most / 2 + 1)) + 1;
    machine->slice = turn / block->warp_count + 1;
    return turn;
}

/* Runs a block until it ends (true) or waits for what other blocks do (false). */
static bool run_block(Block *block) {
    int order[MOST_WARPS], slices = 0;
    int64_t began = block->machine->instruction_budget, limit = block->machine->block_limit;
    int64_t turn_end = began - next_turn(block);
    block->tells = false, block->watched = 0;
    for (;; block->phase++) {
        int waiting = 0, yielding = 0, spinning = 0, later = 0;
        int64_t before = block->changes;
        block->due = NOT_DUE;
        order_warps(block, block->phase, order, block->warp_count);
        for (int i = 0; i < block->warp_count; i++) {
            Warp *warp = &block->warps[order[i]];
            if (!warp->live) continue;
            WarpState state = run_warp(block, warp);
            if (block->stop) return true;
            if (limit && block->executed + began - block->machine->instruction_budget > limit)
                return true;
            waiting += state == WARP_WAITS, yielding += state == WARP_YIELDS;
            spinning += state == WARP_SPINS, later += state == WARP_LATER;
            if ((state == WARP_YIELDS || state == WARP_LATER) && warp->clocks < block->due)
                block->due = warp->clocks;
            if (block->tells) break;
        }
        if (block->tells) {
            block->suspended = true;
            block->phase++;
            return false;
        }
        if (!waiting && !yielding && !spinning && !later) return true;
        /* Nobody passes the barrier of all before all have arrived or left. */
        if (waiting && release_barriers(block)) {
            if (block->machine->instruction_budget > turn_end) continue;
            block->due = critical_earliest(block);
            block->suspended = true;
            block->phase++;
            return false;
        }
        if (later) {
            block->suspended = true;
            block->phase++;
            return false;
        }
        if (yielding ? ++slices >= MOST_SLICES || block->machine->instruction_budget <= turn_end : spinning && block->changes == before) {
            block->suspended = true;
            block->phase++;
            return false;
        }
        if (!yielding && !spinning && block->changes == before) {
            report_deadlock(block);
            return true;
        }
    }
}

static void discard_block(Block *block) {
    if (!block) return;
    for (int i = 0; block->warps && i < block->warp_count; i++) {
        free(block->warps[i].copies), free(block->warps[i].seen_registers);
        forget_calls(&block->warps[i]);
    }
    free(block->registers), free(block->warps), free(block->shared), free(block->shared_shadow);
    free(block->shared_written), free(block->local_written), free(block->lanes_known);
    free(block->shared_reads), free(block->local), free(block->objects), free(block->steps);
    free(block);
}

static Block *make_block(Machine *machine, Releases *releases) {
    uint32_t threads = machine->block[0] * machine->block[1] * machine->block[2];
    int warp_count = (int)((threads + LANES - 1) / LANES);
    size_t register_bytes = ((size_t)machine->register_bytes + 63) / 64 * 64;
    size_t shared_words = (size_t)machine->shared_bytes / 4 + 1;
    Block *block = calloc(1, sizeof *block);
    if (!block) return NULL;
    block->machine = machine, block->warp_count = warp_count, block->releases = releases;
    block->status = STATUS_FINISHED;
    block->registers = aligned_alloc(64, register_bytes * (size_t)warp_count);
    block->warps = calloc((size_t)warp_count, sizeof *block->warps);
    block->shared = calloc(shared_words + 8, 4);
    block->shared_shadow = calloc(shared_words, sizeof *block->shared_shadow);
    block->local = calloc((size_t)warp_count * LANES, (size_t)machine->local_bytes + 1);
    block->shared_written = calloc(shared_words + 8, 1);
    block->local_written = calloc((size_t)warp_count * LANES, (size_t)machine->local_bytes + 1);
    block->lanes_known = calloc((size_t)warp_count * LANES, sizeof *block->lanes_known);
    if (machine->checks && machine->partial_barriers)
        block->shared_reads = calloc(shared_words * (size_t)warp_count, sizeof(WarpRead));
    bool complete = block->registers && block->warps && block->shared && block->shared_shadow &&
                    block->local && block->shared_written && block->local_written &&
                    block->lanes_known &&
                    (block->shared_reads || !machine->checks || !machine->partial_barriers);
    if (!complete) {
        discard_block(block);
        return NULL;
    }
    for (int i = 0; i < warp_count; i++) {
        block->warps[i].registers = block->registers + (size_t)i * register_bytes;
        block->warps[i].known = block->lanes_known + (size_t)i * LANES;
    }
    return block;
}

static bool set_aside(Residents *residents, Block *block) {
    if (residents->count == residents->capacity) {
        int64_t capacity = residents->capacity ? 2 * residents->capacity : 64;
        Block **larger = malloc((size_t)capacity * sizeof *larger);
        if (!larger) return false;
        for (int64_t i = 0; i < residents->count; i++)
            larger[i] = residents->waiting[(residents->first + i) % residents->capacity];
        free(residents->waiting);
        residents->waiting = larger, residents->first = 0, residents->capacity = capacity;
    }
    residents->waiting[(residents->first + residents->count++) % residents->capacity] = block;
    return true;
}

static Block *take_up(Residents *residents) {
    Block *block = residents->waiting[residents->first];
    residents->first = (residents->first + 1) % residents->capacity;
    residents->count--;
    return block;
}

static Block **resident(const Residents *residents, int64_t place) {
    return &residents->waiting[(residents->first + place) % residents->capacity];
}

/* By their clocks: the block that has something to do first, the earlier of two; NULL where a new one
   is due before (`room`) or nobody has anything to do. Notes up to when it is alone. */
static Block *take_earliest(Machine *machine, Residents *residents, const Room *room) {
    int64_t found = 0, next = room ? room->clocks : NOT_DUE;
    for (int64_t i = 0; i < residents->count; i++) {
        const Block *block = *resident(residents, i), *best = *resident(residents, found);
        bool earlier = block->due < best->due ||
                       (block->due == best->due && block->number < best->number);
        const Block *other = earlier ? best : block;
        if (i && other->due < next) next = other->due;
        if (earlier) found = i;
    }
    machine->horizon = next;
    if (!residents->count) return NULL;
    Block **first = resident(residents, 0), **chosen = resident(residents, found);
    Block *block = *chosen;
    if (room ? room->clocks <= block->due : block->due == NOT_DUE) return NULL;
    *chosen = *first;
    return take_up(residents), block;
}

/* Who waits where there is news goes on when it has come. */
static void pass_on(Machine *machine, Residents *residents) {
    machine->watched = 0;
    for (int64_t i = 0; i < residents->count; i++) {
        Block *block = *resident(residents, i);
        machine->watched |= block->watched;
        if (block->watched & machine->news && machine->news_clocks < block->due)
            block->due = machine->news_clocks;
    }
    machine->news = 0, machine->news_clocks = 0;
}

/* After a block that waits, the next new one; after one that ended, the one that waits longest. */
int simt_run(Machine *machine) {
    Residents residents = {0};
    Releases *releases =
        calloc((size_t)(machine->first_block + machine->block_count) + 2, sizeof *releases);
    int64_t started = 0;
    Room room_since = {0, 0};
    if (machine->hop_clocks) machine->changes = calloc(LATEST_CHANGES, sizeof *machine->changes);
    int status = releases && (machine->changes || !machine->hop_clocks) ? STATUS_FINISHED : STATUS_OUT_OF_MEMORY;
    bool ended = true;
    while (status == STATUS_FINISHED) {
        bool room = started < machine->block_count &&
                    (!residents.count || residents.count < machine->resident_limit);
        Block *block = NULL;
        bool by_clocks = machine->hop_clocks > 0;
        if (by_clocks) block = take_earliest(machine, &residents, room ? &room_since : NULL);
        if (block) {
        } else if (residents.count && (by_clocks ? !room : ended || !room)) {
            block = take_up(&residents);
        } else if (room) {
            block = residents.unused ? residents.unused : make_block(machine, releases);
            if (residents.unused) residents.unused = block->next;
            if (!block) {
                status = STATUS_OUT_OF_MEMORY;
                break;
            }
            start_block(block, started++, room_since);
            if (!critical_begins(block)) {
                status = STATUS_OUT_OF_MEMORY, discard_block(block);
                break;
            }
        } else {
            break;
        }
        int64_t left = machine->instruction_budget;
        ended = run_block(block);
        block->executed += left - machine->instruction_budget;
        int64_t place = block->number - 1 - machine->first_block;
        machine->work[place] = block->executed;
        machine->asked[place] = block->asked, machine->ways[place] = block->ways;
        if (block->stop) status = block->status;
        if (block->timed && ended && !block->stop) {
            critical_ends(block);
            room_since = (Room){block->due, block->waits};
        }
        if (!ended) {
            if (!set_aside(&residents, block)) status = STATUS_OUT_OF_MEMORY, discard_block(block);
        } else {
            machine->ended_blocks++, machine->ended_work += block->executed;
            block->next = residents.unused, residents.unused = block;
        }
        if (by_clocks) pass_on(machine, &residents);
    }
    while (residents.count) discard_block(take_up(&residents));
    for (Block *block; (block = residents.unused); discard_block(block)) residents.unused = block->next;
    for (int64_t i = 0; releases && i < machine->first_block + machine->block_count + 2; i++)
        free(releases[i].times);
    free(releases), free(residents.waiting), free(machine->changes);
    machine->changes = NULL;
    return status;
}

void simt_free(void *memory) { free(memory); }

/* Makes memory what it was before a run that was `keeping`. */
void simt_take_back(const Before *before, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        memcpy((void *)before[i].address, before[i].bytes, sizeof before[i].bytes);
}

/* Sizes that run/library.py compares with its own before it calls anything. */
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
        use->read_bytes += __builtin_popcount(from[sector].seen & ~into[sector].seen);
        into[sector].seen |= from[sector].seen;
        into[sector].readers += from[sector].readers;
        if (from[sector].looked_at_by) into[sector].looked_at_by = from[sector].looked_at_by;
    }
}
