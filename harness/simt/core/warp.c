/* Instructions that exchange values between the lanes of a warp. */
#include "simt.h"

/* What a shuffle gets from a lane that takes no part, which CUDA leaves undefined: no number in any
   type, so that whatever uses it shows. */
#define FROM_NO_LANE UINT32_C(0x7ff1beef)

static void shuffle(Block *block, Warp *warp, const Instruction *row, int pc, LaneMask lanes) {
    uint8_t *registers = warp->registers;
    const uint32_t *value = (const uint32_t *)(registers + row->source0);
    const uint32_t *distance = (const uint32_t *)(registers + row->source1);
    const uint32_t *clamp = (const uint32_t *)(registers + row->source2);
    uint32_t results[LANES];
    LaneMask in_range = 0;
    FOR_EACH_LANE(lane, lanes) {
        int step = (int)(distance[lane] & 31), segment = (int)(clamp[lane] >> 8 & 31);
        int last = (lane & segment) | ((int)(clamp[lane] & 31) & ~segment), first = lane & segment;
        int source;
        bool valid;
        switch (row->flags) {
        case SHUFFLE_UP: source = lane - step, valid = source >= last; break;
        case SHUFFLE_DOWN: source = lane + step, valid = source <= last; break;
        case SHUFFLE_BFLY: source = lane ^ step, valid = source <= last; break;
        default: source = first | (step & ~segment), valid = source <= last;
        }
        if (!valid) source = lane;
        source &= 31;
        if (valid) in_range |= UINT32_C(1) << lane;
        bool takes_part = lanes >> source & 1;
        if (!takes_part)
            report(block, KIND_SHUFFLE_INACTIVE, pc, warp, lane, (uint64_t)source, -1, DETAIL_NONE,
                   -1, -1);
        results[lane] = takes_part ? value[source] : FROM_NO_LANE;
    }
    FOR_EACH_LANE(lane, lanes) ((uint32_t *)(registers + row->destination))[lane] = results[lane];
    if (row->destination2 >= 0) write_predicate(registers, row->destination2, lanes, in_range);
}

/* Each of these works on the lanes of one mask at a time: `group` gets the result, `members` take
   part. */
static void vote(const Instruction *row, uint8_t *registers, LaneMask group, LaneMask members) {
    LaneMask votes = *(const LaneMask *)(registers + row->source0);
    if (row->count) votes = ~votes; /* !predicate */
    votes &= members;
    if (row->flags == VOTE_BALLOT) {
        FOR_EACH_LANE(lane, group) ((uint32_t *)(registers + row->destination))[lane] = votes;
        return;
    }
    bool result = row->flags == VOTE_ANY ? votes != 0
                  : row->flags == VOTE_ALL ? votes == members
                                           : votes == members || !votes;
    write_predicate(registers, row->destination, group, result ? ALL_LANES : 0);
}

static void reduce(const Instruction *row, uint8_t *registers, LaneMask group, LaneMask members) {
    const uint32_t *value = (const uint32_t *)(registers + row->source0);
    uint32_t result = value[__builtin_ctz(members)];
    FOR_EACH_LANE(lane, members & (members - 1))
        result = (uint32_t)atomic_result(row->flags, row->type, result, value[lane], 0);
    FOR_EACH_LANE(lane, group) ((uint32_t *)(registers + row->destination))[lane] = result;
}

static void match(const Instruction *row, uint8_t *registers, LaneMask group, LaneMask members) {
    const uint8_t *source = registers + row->source0;
    int width = row->source_width;
    uint32_t results[LANES];
    LaneMask all = 0;
    FOR_EACH_LANE(lane, group) {
        LaneMask equal = 0;
        FOR_EACH_LANE(other, members)
            if (read_lane(source, width, lane) == read_lane(source, width, other))
                equal |= UINT32_C(1) << other;
        results[lane] = row->opcode == OP_MATCH_ANY || equal == members ? equal : 0;
        if (equal == members) all |= UINT32_C(1) << lane;
    }
    FOR_EACH_LANE(lane, group) ((uint32_t *)(registers + row->destination))[lane] = results[lane];
    if (row->destination2 >= 0) write_predicate(registers, row->destination2, group, all);
}

static void by_mask(const Instruction *row, uint8_t *registers, LaneMask lanes) {
    const LaneMask *masks = (const LaneMask *)(registers + row->source3);
    for (LaneMask rest = lanes; rest;) {
        LaneMask mask = masks[__builtin_ctz(rest)], group = 0;
        FOR_EACH_LANE(lane, rest) if (masks[lane] == mask) group |= UINT32_C(1) << lane;
        LaneMask members = mask & lanes ? mask & lanes : group;
        rest &= ~group;
        switch (row->opcode) {
        case OP_VOTE: vote(row, registers, group, members); break;
        case OP_REDUX: reduce(row, registers, group, members); break;
        case OP_MATCH_ANY: case OP_MATCH_ALL: match(row, registers, group, members); break;
        }
    }
}

/* The member mask must name lanes that are here: others would be waited for, or their values
   are not defined. Exited lanes are allowed, as on the hardware. */
static void check_members(Block *block, const Warp *warp, const Instruction *row, int pc,
                          LaneMask lanes) {
    if (row->source3 < 0) return;
    const uint32_t *members = (const uint32_t *)(warp->registers + row->source3);
    FOR_EACH_LANE(lane, lanes) {
        if (members[lane] >> lane & 1) continue;
        report(block, KIND_SHUFFLE_INACTIVE, pc, warp, lane, (uint64_t)lane, -1,
               DETAIL_PARTIAL_WARP, -1, -1);
    }
}

void execute_warp(Block *block, Warp *warp, const Instruction *row, int pc, LaneMask active,
                  LaneMask lanes) {
    (void)active;
    uint8_t *registers = warp->registers;
    check_members(block, warp, row, pc, lanes);
    switch (row->opcode) {
    case OP_SHUFFLE: shuffle(block, warp, row, pc, lanes); break;
    case OP_ELECT: {
        int chosen = __builtin_ctz(lanes);
        if (row->destination >= 0)
            FOR_EACH_LANE(lane, lanes)
                ((uint32_t *)(registers + row->destination))[lane] = (uint32_t)chosen;
        if (row->destination2 >= 0)
            write_predicate(registers, row->destination2, lanes, UINT32_C(1) << chosen);
        break;
    }
    case OP_ACTIVE_MASK:
        FOR_EACH_LANE(lane, lanes) ((uint32_t *)(registers + row->destination))[lane] = lanes;
        break;
    default: by_mask(row, registers, lanes);
    }
}
