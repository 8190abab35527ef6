/* The path on which the time of a run's first block hangs: of the warps that meet at a barrier, what
   the slowest went through so far is what all of them have waited for. */
#include "simt.h"

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
    if (block->number != 1 || !machine->critical) return true;
    size_t steps = (size_t)machine->instruction_count;
    block->steps = calloc((size_t)block->warp_count * steps, sizeof *block->steps);
    return block->steps != NULL;
}

/* Notes a step of a warp (or takes it back: -1); called only where the block has `steps`. */
void critical_step(Block *block, Warp *warp, int pc, int times) {
    size_t number = warp->first_thread / LANES;
    block->steps[number * (size_t)block->machine->instruction_count + (size_t)pc] += times;
    warp->clocks += times * clocks_of(&block->machine->code[pc]);
}

static int slowest(const Block *block, const LaneMask *arrived) {
    int found = -1;
    for (int i = 0; i < block->warp_count; i++)
        if ((!arrived || arrived[i]) &&
            (found < 0 || block->warps[i].clocks > block->warps[found].clocks))
            found = i;
    return found;
}

void critical_meet(Block *block, const LaneMask *arrived) {
    int last = slowest(block, arrived);
    size_t steps = (size_t)block->machine->instruction_count;
    for (int i = 0; last >= 0 && i < block->warp_count; i++) {
        if (!arrived[i] || block->warps[i].clocks == block->warps[last].clocks) continue;
        memcpy(block->steps + (size_t)i * steps, block->steps + (size_t)last * steps,
               steps * sizeof *block->steps);
        block->warps[i].clocks = block->warps[last].clocks;
    }
}

void critical_ends(Block *block) {
    Machine *machine = block->machine;
    size_t steps = (size_t)machine->instruction_count, last = (size_t)slowest(block, NULL);
    memcpy(machine->critical, block->steps + last * steps, steps * sizeof *block->steps);
    free(block->steps);
    block->steps = NULL;
}
