/* Calls with a frame for every activation: recursion, function pointers, virtual functions. */
#include "simt.h"

static int function_at(const Machine *machine, uint64_t address) {
    for (int i = 0; i < machine->function_count; i++)
        if ((uint64_t)machine->functions[i].address == address) return i;
    return -1;
}

static uint64_t read_register(const uint8_t *registers, int offset, int width, int lane) {
    if (width == 1) return *(const LaneMask *)(registers + offset) >> lane & 1;
    return read_lane(registers + offset, width, lane);
}

static void write_register(uint8_t *registers, int offset, int width, int lane, uint64_t value) {
    if (width == 1)
        write_predicate(registers, offset, UINT32_C(1) << lane, value ? ALL_LANES : 0);
    else write_lane(registers + offset, width, lane, value);
}

static uint8_t *frame(const Block *block, const Warp *warp, int lane, uint32_t base) {
    uint64_t thread = warp->first_thread + (uint64_t)lane;
    return block->local + thread * (uint64_t)block->machine->local_bytes + base;
}

/* Operands of a call: arguments, results, then (offset, size) of each in the caller's frame. */
void execute_call(Block *block, Warp *warp, const Instruction *row, int pc, LaneMask lanes) {
    Machine *machine = block->machine;
    const int32_t *passed = machine->operands + row->operands + 2;
    int arguments = machine->operands[row->operands];
    FOR_EACH_LANE(lane, lanes) {
        int callee = row->target;
        if (row->source0 >= 0)
            callee = function_at(machine, read_lane(warp->registers + row->source0, 8, lane));
        int caller = warp->function[lane];
        const FunctionRow *from = &machine->functions[caller], *to = &machine->functions[callee];
        uint32_t base = warp->frame_base[lane], next = base + (uint32_t)from->frame_bytes;
        bool bad = callee < 0 || to->parameter_count != arguments;
        if (bad || next + (uint32_t)to->frame_bytes > (uint32_t)machine->local_bytes) {
            report(block, KIND_OUT_OF_BOUNDS, pc, warp, lane, next, SPACE_LOCAL,
                   bad ? DETAIL_BAD_CALL : DETAIL_STACK, -1, -1);
            block->stop = true, block->status = STATUS_STOPPED;
            return;
        }
        const int32_t *saved = machine->operands + from->registers;
        CallRecord *record =
            malloc(sizeof *record + sizeof(uint64_t) * (size_t)from->register_count);
        if (!record) {
            block->stop = true, block->status = STATUS_OUT_OF_MEMORY;
            return;
        }
        record->below = warp->calls[lane], record->pc = pc, record->caller = caller;
        record->base = base;
        for (int i = 0; i < from->register_count; i++)
            record->registers[i] =
                read_register(warp->registers, saved[2 * i], saved[2 * i + 1], lane);
        warp->calls[lane] = record;
        const int32_t *parameters = machine->operands + to->parameters;
        for (int i = 0; i < arguments; i++) {
            int size = passed[2 * i + 1] < parameters[2 * i + 1] ? passed[2 * i + 1]
                                                                 : parameters[2 * i + 1];
            memcpy(frame(block, warp, lane, next) + parameters[2 * i],
                   frame(block, warp, lane, base) + passed[2 * i], (size_t)size);
        }
        warp->frame_base[lane] = next;
        warp->function[lane] = callee;
        warp->pc[lane] = to->entry;
    }
}

void execute_return(Block *block, Warp *warp, LaneMask lanes) {
    Machine *machine = block->machine;
    FOR_EACH_LANE(lane, lanes) {
        CallRecord *record = warp->calls[lane];
        if (!record) { /* the kernel's own return */
            warp->live &= ~(UINT32_C(1) << lane);
            continue;
        }
        const Instruction *call = &machine->code[record->pc];
        const int32_t *operands = machine->operands + call->operands;
        int arguments = operands[0], results = operands[1];
        const FunctionRow *callee = &machine->functions[warp->function[lane]];
        const int32_t *returned = machine->operands + callee->results;
        for (int i = 0; i < results && i < callee->result_count; i++) {
            const int32_t *place = operands + 2 + 2 * (arguments + i);
            int size = place[1] < returned[2 * i + 1] ? place[1] : returned[2 * i + 1];
            memcpy(frame(block, warp, lane, record->base) + place[0],
                   frame(block, warp, lane, warp->frame_base[lane]) + returned[2 * i],
                   (size_t)size);
        }
        const FunctionRow *caller = &machine->functions[record->caller];
        const int32_t *saved = machine->operands + caller->registers;
        for (int i = 0; i < caller->register_count; i++)
            write_register(warp->registers, saved[2 * i], saved[2 * i + 1], lane,
                           record->registers[i]);
        warp->frame_base[lane] = record->base;
        warp->function[lane] = record->caller;
        warp->pc[lane] = record->pc + 1;
        warp->calls[lane] = record->below;
        free(record);
    }
}

void forget_calls(Warp *warp) {
    for (int lane = 0; lane < LANES; lane++)
        while (warp->calls[lane]) {
            CallRecord *record = warp->calls[lane];
            warp->calls[lane] = record->below;
            free(record);
        }
}
