/* The interpreter's loop: one warp until it waits, gives way or ends. */
#include "simt.h"

/* The lanes at the lowest pc run; they go on together until they reach the next lane's pc. Code
   is laid out so that both sides of a branch lie before the place where they meet again. */
static LaneMask lowest_lanes(const Warp *warp, int *lowest, int *next) {
    LaneMask lanes = 0;
    int first = NO_PC, second = NO_PC;
    FOR_EACH_LANE(lane, warp->live & ~warp->held & ~warp->gathering) {
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

static bool is_between(int opcode, int first, int last) { return opcode >= first && opcode <= last; }

static bool is_warp_wide(int opcode) {
    return (is_between(opcode, OP_VOTE, OP_MMA_DOUBLE) && opcode != OP_ACTIVE_MASK) ||
           opcode == OP_WARP_BARRIER;
}

/* The part of the kernel in which an instruction lies; what it calls lies anywhere. */
static inline uint64_t way_of(const Machine *machine, int pc) {
    uint32_t place = (uint32_t)(pc - machine->entry) * (uint32_t)machine->way_scale >> 16;
    return UINT64_C(1) << (place & 63);
}

static WarpState spin(Block *block, Warp *warp, LaneMask lanes) {
    if (block->machine->hop_clocks) critical_waits(block, warp);
    warp->spin_count = 0;
    warp->held |= lanes;
    LaneMask others = warp->live & ~warp->held & ~warp->gathering;
    FOR_EACH_LANE(lane, others)
        if (warp->pc[lane] != AT_BARRIER) return WARP_DONE; /* somebody else can go on */
    warp->held = 0;
    return WARP_SPINS;
}

static void execute_clock(Block *block, Warp *warp, const Instruction *row, LaneMask mask) {
    FOR_EACH_LANE(lane, mask)
        write_lane(warp->registers + row->destination, row->destination_width, lane,
                   INT64_MAX - (uint64_t)block->machine->instruction_budget);
}

WarpState run_warp(Block *block, Warp *warp) {
    Machine *machine = block->machine;
    const Instruction *code = machine->code;
    uint8_t *registers = warp->registers;
    bool record_path = machine->path && block->number == 1 && warp->first_thread == 0;
    int64_t slice_end = machine->instruction_budget - machine->slice;
    warp->held = 0;
    for (;;) {
        if (!warp->live) return WARP_DONE;
        int pc, next;
        LaneMask lanes = lowest_lanes(warp, &pc, &next);
        if (pc >= AT_BARRIER) { /* or nobody but lanes that spin, or that wait for their warp */
            if (warp->gathering && meet_elsewhere(block, warp)) continue;
            if (!(warp->held & warp->live)) return WARP_WAITS;
            warp->held = 0;
            return WARP_SPINS;
        }
        bool together = true; /* these lanes have one pc, held here and not in warp->pc */
        while (together) {
            const Instruction *row = &code[pc];
            LaneMask mask = lanes;
            if (row->guard >= 0) {
                LaneMask guard = *(const LaneMask *)(registers + row->guard);
                mask &= row->guard_negated ? ~guard : guard;
            }
            if (is_warp_wide(row->opcode) && mask) {
                LaneMask ready = meet(block, warp, row, pc, mask);
                lanes = (lanes & ~mask) | ready, mask = ready;
                if (!ready) {
                    set_pcs(warp, lanes, pc + 1);
                    together = false;
                    continue;
                }
            }
            bool meets = machine->hop_clocks && mask && meets_others(row);
            if (meets && warp->clocks > machine->horizon) {
                set_pcs(warp, lanes, pc);
                return WARP_LATER;
            }
            Counter *counter = &machine->counters[pc];
            counter->warps++;
            block->ways |= way_of(machine, pc);
            counter->active_threads += __builtin_popcount(lanes);
            counter->threads += __builtin_popcount(mask);
            if (record_path && machine->path_length < machine->path_capacity)
                machine->path[machine->path_length++] = pc;
            if (block->timed) critical_step(block, warp, pc, lanes, mask, 1);
            if (--machine->instruction_budget < slice_end) {
                machine->instruction_budget++;
                set_pcs(warp, lanes, pc);
                counter->warps--; /* runs again in the next slice */
                counter->active_threads -= __builtin_popcount(lanes);
                counter->threads -= __builtin_popcount(mask);
                if (record_path && machine->path_length) machine->path_length--;
                if (block->timed) critical_step(block, warp, pc, lanes, mask, -1);
                return WARP_YIELDS;
            }
            if (machine->instruction_budget < 0) {
                bool polling = warp->spin_pc >= 0 && block->suspended;
                report(block, KIND_TIMED_OUT, polling ? warp->spin_pc : pc, warp,
                       __builtin_ctz(lanes), 0, -1, polling ? DETAIL_SPINNING : DETAIL_NONE, -1, -1);
                block->stop = true, block->status = STATUS_TIMED_OUT;
                return WARP_DONE;
            }
            if (mask) {
                int opcode = row->opcode;
                bool known = true;
                if (is_between(opcode, OP_ADD, OP_CONVERT_FP8)) {
                    if (opcode == OP_CONVERT || opcode == OP_CONVERT_PACK ||
                        opcode == OP_CONVERT_FP8)
                        known = execute_convert(row, registers, mask);
                    else {
                        if (row->flags & FLAG_SLOW_PATH)
                            counter->slow_paths += takes_slow_path(row, registers, mask);
                        known = execute_arithmetic(row, registers, mask);
                    }
                } else if (is_between(opcode, OP_AND, OP_BFIND)) {
                    known = execute_bits(row, registers, mask);
                } else if (is_between(opcode, OP_LOAD, OP_ASYNC_WAIT)) {
                    Counter before;
                    uint64_t addresses[LANES];
                    LaneMask there = mask;
                    if (meets) {
                        LaneMask spaces[4];
                        before = *counter;
                        lane_addresses(row, warp, addresses);
                        if (row->space == SPACE_GENERIC) resolve_generic(mask, addresses, spaces);
                        there = row->space == SPACE_GENERIC ? spaces[SPACE_GLOBAL] : mask;
                    }
                    execute_memory(block, warp, row, pc, mask);
                    if (meets && opcode != OP_STORE)
                        critical_looks(block, warp, pc, there, addresses, &before);
                    if (meets && critical_tells(block, warp, row, there, addresses)) {
                        set_pcs(warp, lanes, pc + 1);
                        return block->stop ? WARP_DONE : WARP_LATER;
                    }
                    if (warp->spin_count >= POLLS && !block->stop) {
                        set_pcs(warp, lanes, pc + 1);
                        if (spin(block, warp, lanes) == WARP_SPINS) return WARP_SPINS;
                        together = false;
                        continue;
                    }
                } else if (is_between(opcode, OP_MOVE, OP_SELECT)) {
                    execute_moves(machine, row, registers, mask);
                } else if (is_between(opcode, OP_VOTE, OP_MOVE_MATRIX) || opcode == OP_WARP_BARRIER
                           || opcode == OP_MMA_INTEGER || opcode == OP_MMA_DOUBLE) {
                    if (opcode <= OP_ELECT && opcode != OP_WARP_BARRIER)
                        execute_warp(block, warp, row, pc, lanes, mask);
                    else if (opcode != OP_WARP_BARRIER) execute_matrix(block, warp, row, pc, mask);
                } else if (is_between(opcode, OP_CARRY, OP_IN_WINDOW)) {
                    known = execute_rare(row, registers, mask);
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
                    case OP_CALL_FRAME:
                    case OP_RETURN_FRAME:
                        set_pcs(warp, lanes & ~mask, pc + 1);
                        if (opcode == OP_CALL_FRAME) execute_call(block, warp, row, pc, mask);
                        else execute_return(block, warp, mask);
                        if (block->stop) return WARP_DONE;
                        together = false;
                        continue;
                    case OP_FRAME_ADDRESS:
                        FOR_EACH_LANE(lane, mask)
                            write_lane(registers + row->destination, row->destination_width, lane,
                                       warp->frame_base[lane] + (uint64_t)row->immediate);
                        break;
                    case OP_BARRIER:
                    case OP_BARRIER_REDUCE:
                    case OP_BARRIER_ARRIVE:
                        set_pcs(warp, lanes, pc + 1);
                        arrive(block, warp, row, pc, mask);
                        if (block->stop) return WARP_DONE;
                        together = false;
                        continue;
                    case OP_MBARRIER:
                    case OP_COPY_ARRIVE:
                        execute_mbarrier(block, warp, row, pc, mask);
                        if (warp->spin_count >= POLLS && !block->stop) {
                            set_pcs(warp, lanes, pc + 1);
                            if (spin(block, warp, lanes) == WARP_SPINS) return WARP_SPINS;
                            together = false;
                            continue;
                        }
                        break;
                    case OP_PAUSE:
                        set_pcs(warp, lanes, pc + 1);
                        if (spin(block, warp, lanes) == WARP_SPINS) return WARP_SPINS;
                        together = false;
                        continue;
                    case OP_FENCE:
                        fence(block, warp, row);
                        break;
                    case OP_CLOCK: execute_clock(block, warp, row, mask); break;
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
