/* Barriers of a block or of part of it, barrier objects in shared memory, and what they order. */
#include "simt.h"

/* Barrier objects hold: bits 0-19 arrivals still to come, 20-39 arrivals of a whole phase, 40-61
   bytes still to come, 63 parity of the phase under way. */
#define COUNT_MASK UINT64_C(0xfffff)
#define BYTES_SHIFT 40
#define BYTES_MASK UINT64_C(0x3fffff)
#define PARITY_SHIFT 63

static int number_of(const Warp *warp) { return (int)(warp->first_thread / LANES); }

/* ---- order among the warps of a block, where barriers join only some of them ---------------- */

static void learn(uint32_t *known, const uint32_t *news) {
    for (int warp = 0; warp < MOST_WARPS; warp++)
        if (news[warp] > known[warp]) known[warp] = news[warp];
}

/* ---- hardware barriers ---------------------------------------------------------------------- */

static uint32_t operand(const Warp *warp, int source, int lane, uint32_t otherwise) {
    return source < 0 ? otherwise : ((const uint32_t *)(warp->registers + source))[lane];
}

static bool is_complete(const Block *block, const NamedBarrier *barrier) {
    int threads = 0;
    bool all = true;
    for (int i = 0; i < block->warp_count; i++) {
        LaneMask live = block->warps[i].live, arrived = barrier->arrived[i];
        if (live & ~arrived) all = false;
        /* Lanes that do not exist or have left count with their warp. */
        threads += arrived && !(live & ~arrived) ? LANES : __builtin_popcount(arrived);
    }
    return barrier->needed ? threads >= barrier->needed : all;
}

static void write_reduction(Block *block, Warp *warp, int lane, const NamedBarrier *barrier,
                            const Instruction *row) {
    bool any = barrier->reduce_true > 0, all = barrier->reduce_true == barrier->reduce_all;
    (void)block;
    if (row->flags == VOTE_POPC)
        ((uint32_t *)(warp->registers + row->destination))[lane] = (uint32_t)barrier->reduce_true;
    else
        write_predicate(warp->registers, row->destination, UINT32_C(1) << lane,
                        (row->flags == VOTE_ANY ? any : all) ? ALL_LANES : 0);
}

/* Threads that have left count as having arrived; but who reads what they did not write? */
static void note_exited(Block *block, int pc) {
    uint32_t threads = block->machine->block[0] * block->machine->block[1] * block->machine->block[2];
    for (int i = 0; i < block->warp_count; i++) {
        const Warp *warp = &block->warps[i];
        LaneMask exist = threads - warp->first_thread < LANES
                             ? (UINT32_C(1) << (threads - warp->first_thread)) - 1
                             : ALL_LANES;
        FOR_EACH_LANE(lane, exist & ~warp->live)
            report(block, KIND_BARRIER_EXITED, pc, warp, lane, 0, -1, DETAIL_NONE, -1, -1);
    }
}

/* Lets go who waits for this barrier, and makes known to them what all who arrived have done. */
static void release(Block *block, int number) {
    Machine *machine = block->machine;
    NamedBarrier *barrier = &block->barriers[number];
    uint32_t news[MOST_WARPS] = {0}, now = ++machine->clock;
    int first = -1;
    for (int i = 0; i < block->warp_count; i++)
        if (barrier->arrived[i]) {
            learn(news, block->known[i]);
            if (barrier->times[i] > news[i]) news[i] = barrier->times[i];
        }
    for (int i = 0; i < block->warp_count; i++) {
        Warp *warp = &block->warps[i];
        LaneMask waited = 0;
        FOR_EACH_LANE(lane, warp->live & barrier->arrived[i]) {
            if (warp->pc[lane] != AT_BARRIER || warp->waiting_for[lane] != number) continue;
            int pc = warp->waiting_at[lane];
            if (first < 0) first = pc;
            if (pc != first && !machine->partial_barriers) {
                Report *found = report(block, KIND_BARRIER_DIVERGENCE, pc, warp, lane, 0, -1,
                                       DETAIL_OTHER_BARRIER, block->index, -1);
                if (found) found->other_instruction = first;
            }
            const Instruction *row = &machine->code[pc];
            if (row->opcode == OP_BARRIER_REDUCE) write_reduction(block, warp, lane, barrier, row);
            warp->pc[lane] = pc + 1;
            waited |= UINT32_C(1) << lane;
        }
        if (!waited) continue;
        learn(block->known[i], news);
        if (machine->checks) lanes_meet(block, warp, waited);
    }
    if (block->timed) critical_meet(block, barrier->arrived);
    if (!barrier->needed) {
        block->epoch_start = now;
        if (machine->checks && first >= 0) note_exited(block, first);
    }
    memset(barrier, 0, sizeof *barrier);
}

void arrive(Block *block, Warp *warp, const Instruction *row, int pc, LaneMask lanes) {
    int lane0 = __builtin_ctz(lanes);
    uint32_t number = operand(warp, row->source1, lane0, 0);
    uint32_t needed = operand(warp, row->source2, lane0, 0);
    if (number >= NAMED_BARRIERS) {
        report(block, KIND_BARRIER_DIVERGENCE, pc, warp, lane0, number, -1, DETAIL_BARRIER_OBJECT,
               -1, -1);
        block->stop = true, block->status = STATUS_STOPPED;
        return;
    }
    NamedBarrier *barrier = &block->barriers[number];
    barrier->used = true, barrier->needed = (int32_t)needed;
    if (row->opcode == OP_BARRIER_REDUCE) {
        LaneMask votes = *(const LaneMask *)(warp->registers + row->source0);
        if (row->count) votes = ~votes;
        barrier->reduce_true += __builtin_popcount(votes & lanes);
        barrier->reduce_all += __builtin_popcount(lanes);
    }
    barrier->arrived[number_of(warp)] |= lanes;
    barrier->times[number_of(warp)] = ++block->machine->clock;
    block->changes++;
    if (row->opcode != OP_BARRIER_ARRIVE)
        FOR_EACH_LANE(lane, lanes) {
            warp->waiting_at[lane] = pc;
            warp->waiting_for[lane] = (uint8_t)number;
            warp->pc[lane] = AT_BARRIER;
        }
    /* The barrier of all is looked at when nobody can run: threads may leave instead. */
    if (needed && is_complete(block, barrier)) release(block, (int)number);
}

/* Releases what is complete, threads that have left counted in. Returns whether anything was. */
bool release_barriers(Block *block) {
    bool any = false;
    for (int number = 0; number < NAMED_BARRIERS; number++)
        if (block->barriers[number].used && is_complete(block, &block->barriers[number]))
            release(block, number), any = true;
    return any;
}

/* ---- barrier objects ------------------------------------------------------------------------ */

static BarrierObject *object_at(Block *block, uint64_t address) {
    for (int i = 0; i < block->object_count; i++)
        if (block->objects[i].address == address) return &block->objects[i];
    void *memory = grown(block->objects, block->object_count + 1, &block->object_capacity,
                         sizeof *block->objects);
    if (!memory) {
        block->stop = true, block->status = STATUS_OUT_OF_MEMORY;
        return NULL;
    }
    block->objects = memory;
    BarrierObject *object = &block->objects[block->object_count++];
    memset(object, 0, sizeof *object);
    object->address = address;
    return object;
}

static uint64_t fields(uint64_t state, int64_t pending, int64_t expected, int64_t bytes) {
    return (state & UINT64_C(1) << PARITY_SHIFT) | ((uint64_t)pending & COUNT_MASK) |
           ((uint64_t)expected & COUNT_MASK) << 20 | ((uint64_t)bytes & BYTES_MASK) << BYTES_SHIFT;
}

/* A phase is over when nobody and nothing is awaited any more. */
static uint64_t advance(uint64_t state, BarrierObject *object) {
    int64_t pending = (int64_t)(state & COUNT_MASK), bytes = (int64_t)(state >> BYTES_SHIFT & BYTES_MASK);
    int64_t expected = (int64_t)(state >> 20 & COUNT_MASK);
    if (pending || bytes) return state;
    learn(object->known, object->gathered);
    return fields(state ^ UINT64_C(1) << PARITY_SHIFT, expected, expected, 0);
}

static void one_lane(Block *block, Warp *warp, const Instruction *row, int pc, int lane,
                     uint64_t address, bool *failed) {
    int number = number_of(warp);
    uint64_t *at = (uint64_t *)(block->shared + address), state = *at;
    BarrierObject *object = object_at(block, address);
    if (!object) return;
    int64_t count = row->source1 < 0 ? 1
                    : row->type == TYPE_U64
                        ? (int64_t)read_lane(warp->registers + row->source1, 8, lane)
                        : (int64_t)((uint32_t *)(warp->registers + row->source1))[lane];
    int64_t pending = (int64_t)(state & COUNT_MASK), expected = (int64_t)(state >> 20 & COUNT_MASK);
    int64_t bytes = (int64_t)(state >> BYTES_SHIFT & BYTES_MASK);
    uint64_t parity = state >> PARITY_SHIFT, result = state;
    switch (row->flags) {
    case MBARRIER_INIT:
        memset(object->gathered, 0, sizeof object->gathered);
        memset(object->known, 0, sizeof object->known);
        *at = fields(0, count, count, 0);
        return;
    case MBARRIER_INVALIDATE: *at = 0; return;
    case MBARRIER_EXPECT: *at = fields(state, pending, expected, bytes + count); return;
    case MBARRIER_COMPLETE:
        *at = advance(fields(state, pending, expected, bytes - count), object);
        return;
    case MBARRIER_PENDING_COUNT:
        result = read_lane(warp->registers + row->source1, 8, lane) & COUNT_MASK;
        break;
    case MBARRIER_ARRIVE: case MBARRIER_ARRIVE_DROP: {
        block->changes++;
        if (row->target == 2) return; /* pending is raised and lowered again */
        int64_t expected_bytes = 0;
        if (row->count) expected_bytes = count, count = 1; /* arrive.expect_tx */
        if (row->flags == MBARRIER_ARRIVE_DROP) expected -= count;
        if (pending < count)
            report(block, KIND_BARRIER_DIVERGENCE, pc, warp, lane, address, SPACE_SHARED,
                   DETAIL_BARRIER_OBJECT, -1, -1);
        pending = pending < count ? 0 : pending - count;
        block->known[number][number] = ++block->machine->clock;
        learn(object->gathered, block->known[number]);
        *at = fields(state, pending, expected, bytes + expected_bytes);
        if (row->target != 1) *at = advance(*at, object); /* not .noComplete */
        warp->spin_count = 0;
        break;
    }
    default: { /* TEST: by a state of the phase to wait for, or by its parity */
        uint64_t asked = row->flags == MBARRIER_TEST
                             ? read_lane(warp->registers + row->source1, 8, lane) >> PARITY_SHIFT
                             : (uint64_t)count & 1;
        bool done = asked != parity;
        write_predicate(warp->registers, row->destination, UINT32_C(1) << lane,
                        done ? ALL_LANES : 0);
        if (done) {
            learn(block->known[number], object->known);
            /* Lanes that arrived before are seen by those that waited. */
            if (object->known[number] > warp->synchronised)
                warp->synchronised = object->known[number];
        } else *failed = true;
        return;
    }
    }
    if (row->destination >= 0)
        write_lane(warp->registers + row->destination, row->destination_width, lane, result);
}

void execute_mbarrier(Block *block, Warp *warp, const Instruction *row, int pc, LaneMask lanes) {
    Machine *machine = block->machine;
    uint64_t addresses[LANES];
    bool failed = false;
    Counter before = machine->counters[pc];
    if (row->opcode == OP_COPY_ARRIVE) complete_copies(block, warp, -1);
    if (row->flags != MBARRIER_PENDING_COUNT) {
        lane_addresses(row, warp, addresses);
        if (row->space == SPACE_GENERIC) {
            LaneMask by_space[4];
            resolve_generic(lanes, addresses, by_space);
        }
        LaneMask allowed = shared_access(block, warp, row, pc, lanes, addresses, 8, ACCESS_ATOMIC);
        if (allowed != lanes) {
            block->stop = true, block->status = STATUS_STOPPED;
            return;
        }
    }
    FOR_EACH_LANE(lane, lanes) {
        uint64_t address = row->flags == MBARRIER_PENDING_COUNT ? 0 : addresses[lane];
        if (machine->checks && row->flags == MBARRIER_INIT)
            block->shared_written[address >> 2] = block->shared_written[(address >> 2) + 1] = 15;
        one_lane(block, warp, row, pc, lane, address, &failed);
        if (block->stop) return;
    }
    if (failed) {
        note_polling(warp, pc, addresses[__builtin_ctz(lanes)]);
        warp->spin_count += POLLS / 2; /* the instruction itself is made for waiting */
        /* How often it is asked in vain hangs on who is run when, and nobody waits for it. */
        machine->counters[pc] = before;
    } else if (row->opcode == OP_MBARRIER &&
               (row->flags == MBARRIER_TEST || row->flags == MBARRIER_TEST_PARITY)) {
        /* All lanes look at one word, and change nothing. */
        Counter *counter = &machine->counters[pc];
        counter->atomic_turns = before.atomic_turns + 1;
        counter->shared_wavefronts = before.shared_wavefronts + 1;
        counter->shared_wavefronts_64 = before.shared_wavefronts_64 + 1;
        counter->shared_wavefronts_128 = before.shared_wavefronts_128 + 1;
    }
}
