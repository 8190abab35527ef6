/* What happens before what: lanes that meet, fences with atomics, barriers of some warps. */
#include "simt.h"

/* A lane has met another at a time when both took part in one warp-wide instruction then, or a
   chain of such meetings leads from one to the other. CUDA promises order of memory only for
   __syncwarp(); here every .sync instruction orders, so that only plain misuse is accused. */
void lanes_meet(Block *block, Warp *warp, LaneMask group) {
    uint32_t now = ++block->machine->clock;
    if (!(warp->live & ~group)) {
        warp->synchronised = now;
        return;
    }
    if (!warp->met_partly) {
        warp->met_partly = true;
        memset(warp->known, 0, LANES * sizeof *warp->known);
    }
    uint32_t joined[LANES] = {0};
    FOR_EACH_LANE(lane, group)
        for (int other = 0; other < LANES; other++)
            if (warp->known[lane][other] > joined[other]) joined[other] = warp->known[lane][other];
    FOR_EACH_LANE(lane, group) joined[lane] = now;
    FOR_EACH_LANE(lane, group) memcpy(warp->known[lane], joined, sizeof joined);
}

/* Was what another lane of this warp did at `time` done before what `lane` does now? */
bool lanes_ordered(const Warp *warp, int other_lane, int lane, uint32_t time) {
    if (other_lane == lane || time < warp->synchronised) return true;
    if (warp->met_partly && time < warp->known[lane][other_lane < 0 ? lane : other_lane]) return true;
    /* A lock: who looks where nobody else stored has heard of nobody. */
    return time < warp->released && warp->released <= warp->heard[lane];
}

/* The same for another warp of this block; -1: for several. */
bool warps_ordered(const Block *block, const Warp *warp, int other_warp, uint32_t time) {
    if (time < block->epoch_start) return true;
    if (block->machine->partial_barriers) {
        const uint32_t *known = block->known[warp->first_thread / LANES];
        if (other_warp >= 0 && time < known[other_warp]) return true;
        for (int i = 0; other_warp < 0 && i < block->warp_count; i++) /* which is not known */
            if (time < known[i]) return true;
    }
    if (!block->fences) return false;
    if (other_warp < 0) return time < warp->acquired;
    uint32_t released = block->warps[other_warp].released;
    return time < released && released <= warp->acquired;
}

/* Where every earlier read is known to be over, only the latest reader need be kept. */
bool reader_ordered(const Block *block, const Warp *warp, int reader, uint32_t time) {
    if (!is_known_in_part(block) || reader == SEVERAL_WARPS) return false;
    return warps_ordered(block, warp,
                         reader & SEVERAL_LANES ? reader & ~SEVERAL_LANES : reader / LANES, time);
}

/* One of the block's scope orders for this block alone. */
void fence(Block *block, Warp *warp, const Instruction *row) {
    warp->fenced = ++block->machine->clock;
    if (!(row->flags & FLAG_NARROW)) block->fenced = warp->fenced;
    block->fences = true;
}

/* The block's writes up to its last fence may be seen from now on. */
static void publish(Block *block) {
    Releases *releases = &block->releases[block->number];
    if (releases->count && releases->times[releases->count - 1] == block->fenced) return;
    void *times = grown(releases->times, releases->count + 1, &releases->capacity,
                        sizeof *releases->times);
    if (!times) {
        block->stop = true, block->status = STATUS_OUT_OF_MEMORY;
        return;
    }
    releases->times = times;
    releases->times[releases->count++] = block->fenced;
}

/* A fence and then a store: who sees the store sees what came before the fence. */
void warp_publishes(Warp *warp) {
    if (warp->fenced) warp->released = warp->fenced;
}

/* What other warps have so published is known from now on. */
void warp_sees(Block *block, const Warp *warp) {
    uint32_t *known = block->known[warp->first_thread / LANES];
    for (int other = 0; other < block->warp_count; other++)
        if (block->warps[other].released > known[other]) known[other] = block->warps[other].released;
}

/* Atomics and volatile accesses publish what came before the last fence, and see what others
   published: called after the access itself was checked. */
void synchronise(Block *block, Warp *warp, const Instruction *row, Access access, bool global) {
    Machine *machine = block->machine;
    if (access != ACCESS_ATOMIC && !(row->flags & FLAG_STRONG)) return;
    if (row->flags & FLAG_RELEASE) fence(block, warp, row);
    if (!global && !block->fences) return;
    uint32_t now = ++machine->clock;
    if (row->flags & FLAG_NARROW) global = false; /* no other block sees it in order */
    if (access != ACCESS_LOAD) {
        if (global && block->fenced) publish(block);
        if (warp->fenced) warp->released = warp->fenced;
    }
    if (access != ACCESS_STORE) {
        if (global) block->acquired = now;
        warp->acquired = now;
    }
}

static bool is_matrix(int opcode) { return opcode >= OP_LOAD_MATRIX && opcode <= OP_MMA_DOUBLE; }

static LaneMask members_of(const Warp *warp, const Instruction *row, int lane) {
    if (is_matrix(row->opcode) || row->source3 < 0) return ALL_LANES;
    return ((const LaneMask *)(warp->registers + row->source3))[lane];
}

/* Lanes that arrive at a warp-wide instruction wait for the live lanes that its mask names, as on
   the hardware. Returns the lanes that may go on; the others wait at this pc. */
LaneMask meet(Block *block, Warp *warp, const Instruction *row, int pc, LaneMask present) {
    if (present == warp->live && !warp->gathering) { /* mostly: everybody is here */
        if (!block->machine->checks) return present;
        if (!(present & ~members_of(warp, row, __builtin_ctz(present)))) {
            warp->synchronised = ++block->machine->clock;
            return present;
        }
    }
    FOR_EACH_LANE(lane, warp->gathering) if (warp->pc[lane] == pc) present |= UINT32_C(1) << lane;
    LaneMask ready = 0;
    FOR_EACH_LANE(lane, present) {
        LaneMask members = members_of(warp, row, lane);
        if (!(members & warp->live & ~present)) ready |= UINT32_C(1) << lane;
    }
    FOR_EACH_LANE(lane, present & ~ready) warp->pc[lane] = pc;
    warp->gathering = (warp->gathering & ~ready) | (present & ~ready);
    if (!block->machine->checks || !ready) return ready;
    for (LaneMask rest = ready; rest;) { /* one meeting for each group of one mask */
        LaneMask members = members_of(warp, row, __builtin_ctz(rest)), group = 0;
        FOR_EACH_LANE(lane, rest)
            if (members_of(warp, row, lane) == members) group |= UINT32_C(1) << lane;
        lanes_meet(block, warp, group);
        rest &= ~group;
    }
    return ready;
}

/* Lanes may meet at different __syncwarp()s of one mask, and those that have left are waited for
   no longer. Called where no lane of a warp can run; false where none goes on. */
bool meet_elsewhere(Block *block, Warp *warp) {
    const Instruction *code = block->machine->code;
    FOR_EACH_LANE(lane, warp->gathering) {
        LaneMask members = members_of(warp, &code[warp->pc[lane]], lane), group = 0, here = 0;
        FOR_EACH_LANE(other, warp->gathering)
            if (warp->pc[other] == warp->pc[lane]) here |= UINT32_C(1) << other;
        if (!(members & warp->live & ~here)) {
            warp->gathering &= ~here; /* they meet when they run */
            return true;
        }
        FOR_EACH_LANE(other, warp->gathering) {
            const Instruction *row = &code[warp->pc[other]];
            if (row->opcode == OP_WARP_BARRIER && members_of(warp, row, other) == members)
                group |= UINT32_C(1) << other;
        }
        if (!(group >> lane & 1) || members & warp->live & ~group) continue;
        FOR_EACH_LANE(other, group) warp->pc[other]++;
        warp->gathering &= ~group;
        if (block->machine->checks) lanes_meet(block, warp, group);
        return true;
    }
    return false;
}

/* Called where no lane of a warp can run: those that gather wait for some that never come. Ends the
   launch; false where none was. */
bool report_gathering(Block *block, Warp *warp) {
    if (!warp->gathering) return false;
    FOR_EACH_LANE(lane, warp->gathering) {
        int pc = warp->pc[lane];
        const Instruction *row = &block->machine->code[pc];
        LaneMask missing = members_of(warp, row, lane) & warp->live;
        FOR_EACH_LANE(other, warp->gathering)
            if (warp->pc[other] == pc) missing &= ~(UINT32_C(1) << other);
        if (missing)
            report(block, KIND_BARRIER_DIVERGENCE, pc, warp, lane, missing, -1,
                   DETAIL_LANES_MISSING, -1, -1);
    }
    block->stop = true, block->status = STATUS_STOPPED;
    return true;
}
