/* .ftz: an instruction with subnormal operands and results taken as zeros of the same sign. */
#include "simt.h"

#define SLOT (LANES * 8) /* the widest register of a warp */

/* Clears the numbers of one register whose exponent is zero. */
static void flush(int type, uint8_t *values) {
    switch (type) {
    case TYPE_F32:
        for (int lane = 0; lane < LANES; lane++) {
            uint32_t *value = (uint32_t *)values + lane;
            *value = *value & 0x7f800000u ? *value : *value & 0x80000000u;
        }
        break;
    case TYPE_F64:
        for (int lane = 0; lane < LANES; lane++) {
            uint64_t *value = (uint64_t *)values + lane;
            if (!(*value & UINT64_C(0x7ff) << 52)) *value &= UINT64_C(1) << 63;
        }
        break;
    case TYPE_F16: case TYPE_F16X2: case TYPE_BF16: case TYPE_BF16X2: {
        uint16_t exponent = type == TYPE_F16 || type == TYPE_F16X2 ? 0x7c00 : 0x7f80;
        for (int part = 0; part < 2 * LANES; part++) {
            uint16_t *value = (uint16_t *)values + part;
            *value = *value & exponent ? *value : *value & 0x8000;
        }
    }
    }
}

/* Executes a row on a small register file of its own: its sources flushed, then its result. */
bool execute_flushed(Execute execute, const Instruction *row, uint8_t *registers, LaneMask mask) {
    _Alignas(64) uint8_t file[5 * SLOT];
    Instruction copy = *row;
    bool converts = row->opcode == OP_CONVERT, selects = row->opcode == OP_COMPARE;
    bool compares = selects || row->opcode == OP_COMPARE_SET;
    int from = converts || row->opcode == OP_COMPARE_SET ? row->source_type : row->type;
    size_t source_width = (size_t)type_bytes(from), width = (size_t)row->destination_width;
    struct {
        int32_t *offset;
        size_t bytes;
    } slots[] = {
        {&copy.source0, LANES * source_width},
        {&copy.source1, LANES * source_width},
        {&copy.source2, compares ? sizeof(LaneMask) : LANES * source_width},
        {&copy.destination, selects ? sizeof(LaneMask) : LANES * width},
        {&copy.destination2, sizeof(LaneMask)},
    };
    for (int i = 0; i < 5; i++) {
        if (*slots[i].offset < 0) continue;
        memcpy(file + i * SLOT, registers + *slots[i].offset, slots[i].bytes);
        bool value = i < (compares ? 2 : 3);
        if (value && (!converts || from == TYPE_F32)) flush(from, file + i * SLOT);
        *slots[i].offset = i * SLOT;
    }
    copy.flags &= ~FLAG_FLUSH;
    if (!execute(&copy, file, mask)) return false;
    if (selects) {
        if (row->destination >= 0) memcpy(registers + row->destination, file + 3 * SLOT, 4);
        if (row->destination2 >= 0) memcpy(registers + row->destination2, file + 4 * SLOT, 4);
        return true;
    }
    if (!compares && (!converts || row->type == TYPE_F32)) flush(row->type, file + 3 * SLOT);
    FOR_EACH_LANE(lane, mask)
        memcpy(registers + row->destination + width * (size_t)lane,
               file + 3 * SLOT + width * (size_t)lane, width);
    return true;
}
