/* Collects what the checks find: the first case of each kind and instruction, and how many. */
#include "simt.h"

void report(Block *block, int kind, int pc, const Warp *warp, int lane, uint64_t address,
            int space, int detail, int64_t other_block, int64_t other_warp) {
    Machine *machine = block->machine;
    for (int i = 0; i < machine->report_count; i++) {
        Report *old = &machine->reports[i];
        if (old->kind == kind && old->instruction == pc && old->detail == detail) {
            old->count++;
            return;
        }
    }
    if (machine->report_count == machine->report_capacity) return;
    machine->reports[machine->report_count++] = (Report){
        .count = 1, .address = (int64_t)address, .kind = kind, .instruction = pc,
        .block = block->index, .thread = warp ? (int64_t)warp->first_thread + lane : -1,
        .space = space, .detail = detail, .other_block = other_block, .other_warp = other_warp,
    };
}
