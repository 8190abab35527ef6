/* Collects what the checks find: the first case of each kind and instruction, and how many. */
#include "simt.h"

/* Returns the record where the case is the first, so that more can be noted in it; else null. */
Report *report(Block *block, int kind, int pc, const Warp *warp, int lane, uint64_t address,
               int space, int detail, int64_t other_block, int64_t other_warp) {
    Machine *machine = block->machine;
    for (int i = 0; i < machine->report_count; i++) {
        Report *old = &machine->reports[i];
        if (old->kind == kind && old->instruction == pc && old->detail == detail) {
            old->count++;
            return NULL;
        }
    }
    if (machine->report_count == machine->report_capacity) return NULL;
    Report *found = &machine->reports[machine->report_count++];
    *found = (Report){
        .count = 1, .address = (int64_t)address, .kind = kind, .instruction = pc,
        .block = block->index, .thread = warp ? (int64_t)warp->first_thread + lane : -1,
        .space = space, .detail = detail, .other_block = other_block, .other_warp = other_warp,
        .other_thread = -1, .other_instruction = -1,
    };
    return found;
}

/* `other_thread` may be SEVERAL_LANES | warp or SEVERAL_WARPS. */
void report_race(Block *block, bool same_value, int pc, const Warp *warp, int lane,
                 uint64_t address, int space, int detail, int64_t other_block, int other_thread,
                 int other_pc) {
    bool several = other_thread & SEVERAL_LANES;
    int other_warp = other_thread == SEVERAL_WARPS ? -1
                     : several                     ? other_thread & ~SEVERAL_LANES
                                                   : other_thread / LANES;
    Report *found = report(block, same_value ? KIND_RACE_BENIGN : KIND_RACE, pc, warp, lane,
                           address, space, detail, other_block, other_warp);
    if (!found) return;
    if (!several) found->other_thread = other_thread;
    if (other_pc != UNKNOWN_PC) found->other_instruction = other_pc;
}
