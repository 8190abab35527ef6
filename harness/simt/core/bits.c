/* Logic, shifts, bit fields, comparisons, selection and moves. */
#include "numeric.h"
#include "simt.h"

#define REGISTER(T, offset) ((T *)(registers + (offset)))
#define VECTORISED _Pragma("GCC ivdep") for (int lane = 0; lane < LANES; lane++)
#define COMBINE_MASK COMPARE_COMBINE_XOR

#define MAP(T, EXPRESSION)                                                               \
    do {                                                                                 \
        T *d = REGISTER(T, row->destination);                                            \
        const T *a = REGISTER(T, row->source0), *b = REGISTER(T, row->source1);          \
        if (mask == ALL_LANES) {                                                         \
            VECTORISED {                                                                 \
                T x = a[lane], y = b[lane];                                              \
                (void)y;                                                                 \
                d[lane] = (T)(EXPRESSION);                                               \
            }                                                                            \
        } else {                                                                         \
            VECTORISED {                                                                 \
                T x = a[lane], y = b[lane], result = (T)(EXPRESSION);                    \
                (void)y;                                                                 \
                d[lane] = mask >> lane & 1 ? result : d[lane];                           \
            }                                                                            \
        }                                                                                \
    } while (0)

#define BY_WIDTH(EXPRESSION)                                                             \
    switch (row->destination_width) {                                                    \
    case 2: MAP(uint16_t, EXPRESSION); break;                                            \
    case 4: MAP(uint32_t, EXPRESSION); break;                                            \
    default: MAP(uint64_t, EXPRESSION);                                                  \
    }

/* Shift counts are 32-bit whatever the value's type; counts past the width are clamped. */
#define SHIFT(T, EXPRESSION)                                                             \
    do {                                                                                 \
        T *d = REGISTER(T, row->destination);                                            \
        const T *a = REGISTER(T, row->source0);                                          \
        const uint32_t *counts = REGISTER(uint32_t, row->source1);                       \
        VECTORISED {                                                                     \
            const uint32_t bits = 8 * sizeof(T), n = counts[lane];                       \
            T x = a[lane], result = (T)(EXPRESSION);                                     \
            d[lane] = mask >> lane & 1 ? result : d[lane];                               \
        }                                                                                \
        return true;                                                                     \
    } while (0)

static bool shift(const Instruction *row, uint8_t *registers, LaneMask mask) {
    if (row->opcode == OP_SHL) {
        switch (row->destination_width) {
        case 2: SHIFT(uint16_t, n < bits ? x << n : 0);
        case 4: SHIFT(uint32_t, n < bits ? x << n : 0);
        default: SHIFT(uint64_t, n < bits ? x << n : 0);
        }
    }
    switch (row->type) {
    case TYPE_U16: SHIFT(uint16_t, n < bits ? x >> n : 0);
    case TYPE_U32: SHIFT(uint32_t, n < bits ? x >> n : 0);
    case TYPE_U64: SHIFT(uint64_t, n < bits ? x >> n : 0);
    case TYPE_S16: SHIFT(int16_t, x >> (n < bits ? n : bits - 1));
    case TYPE_S32: SHIFT(int32_t, x >> (n < bits ? n : bits - 1));
    case TYPE_S64: SHIFT(int64_t, x >> (n < bits ? n : bits - 1));
    default: return false;
    }
}

static uint64_t low_bits(uint32_t count) {
    return count >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1;
}

static uint64_t extract_field(uint64_t value, uint32_t start, uint32_t length, uint32_t bits,
                              bool is_signed) {
    uint64_t sign = is_signed && length ? value >> (start + length > bits - 1 || start > bits - 1
                                                        ? bits - 1
                                                        : start + length - 1) & 1
                                        : 0;
    uint64_t field = start < bits ? value >> start : 0;
    uint32_t kept = start >= bits ? 0 : length > bits - start ? bits - start : length;
    field &= low_bits(kept);
    return sign ? field | ~low_bits(kept) : field;
}

static uint32_t permute_bytes(uint64_t bytes, uint32_t selector) {
    uint32_t result = 0;
    for (int place = 0; place < 4; place++) {
        uint32_t choice = selector >> (4 * place) & 15;
        uint32_t byte = (uint32_t)(bytes >> (8 * (choice & 7))) & 255;
        if (choice & 8) byte = byte & 128 ? 255 : 0; /* replicate the sign */
        result |= byte << (8 * place);
    }
    return result;
}

static uint64_t reverse_bits(uint64_t value, int bits) {
    uint64_t result = 0;
    for (int bit = 0; bit < bits; bit++) result |= (value >> bit & 1) << (bits - 1 - bit);
    return result;
}

static uint32_t truth_table(uint32_t a, uint32_t b, uint32_t c, int64_t table) {
    uint32_t result = 0;
    for (int entry = 0; entry < 8; entry++)
        if (table >> entry & 1)
            result |= (entry & 4 ? a : ~a) & (entry & 2 ? b : ~b) & (entry & 1 ? c : ~c);
    return result;
}

/* One lane at a time: these are rare. */
static void bit_field(const Instruction *row, uint8_t *registers, LaneMask mask) {
    int width = row->source_width, bits = 8 * width;
    FOR_EACH_LANE(lane, mask) {
        uint64_t x = read_lane(registers + row->source0, width, lane), result;
        uint32_t second = 0, third = 0;
        if (row->opcode == OP_BFE || row->opcode == OP_BFI) {
            int from = row->opcode == OP_BFE ? row->source1 : row->source2;
            int to = row->opcode == OP_BFE ? row->source2 : row->source3;
            second = REGISTER(uint32_t, from)[lane] & 255;
            third = REGISTER(uint32_t, to)[lane] & 255;
        }
        switch (row->opcode) {
        case OP_POPC: result = (uint64_t)__builtin_popcountll(x); break;
        case OP_CLZ: result = x ? (uint64_t)(__builtin_clzll(x) - (64 - bits)) : (uint64_t)bits; break;
        case OP_BREV: result = reverse_bits(x, bits); break;
        case OP_BFIND: {
            bool flip = (row->type == TYPE_S32 || row->type == TYPE_S64) && x >> (bits - 1) & 1;
            uint64_t y = flip ? ~x & low_bits((uint32_t)bits) : x;
            result = y ? (uint64_t)(63 - __builtin_clzll(y)) : 0xffffffffu;
            if (row->flags && y) result = (uint64_t)(bits - 1) - result; /* .shiftamt */
            break;
        }
        case OP_BFE:
            result = extract_field(x, second, third, (uint32_t)bits,
                                   row->type == TYPE_S32 || row->type == TYPE_S64);
            break;
        default: { /* BFI */
            uint64_t into = read_lane(registers + row->source1, width, lane);
            uint64_t hole = second < 64 ? low_bits(third) << second : 0;
            result = (into & ~hole) | (second < 64 ? x << second & hole : 0);
        }
        }
        write_lane(registers + row->destination, row->destination_width, lane, result);
    }
}

static void three_words(const Instruction *row, uint8_t *registers, LaneMask mask) {
    FOR_EACH_LANE(lane, mask) {
        uint32_t x = REGISTER(uint32_t, row->source0)[lane];
        uint32_t y = REGISTER(uint32_t, row->source1)[lane];
        uint32_t z = REGISTER(uint32_t, row->source2)[lane], result;
        uint64_t both = x | (uint64_t)y << 32;
        if (row->opcode == OP_PRMT) {
            result = permute_bytes(both, z);
        } else if (row->opcode == OP_LOP3) {
            result = truth_table(x, y, z, row->immediate);
        } else { /* FUNNEL: bit 0 of flags wraps the count, bit 1 shifts left */
            uint32_t n = row->flags & 1 ? z & 31 : z > 32 ? 32 : z;
            result = (uint32_t)(row->flags & 2 ? (both << n) >> 32 : both >> n);
        }
        REGISTER(uint32_t, row->destination)[lane] = result;
    }
}

#define COMPARE_LANES(T, TEST)                                                           \
    do {                                                                                 \
        const T *a = REGISTER(T, row->source0), *b = REGISTER(T, row->source1);          \
        for (int lane = 0; lane < LANES; lane++) {                                       \
            T x = a[lane], y = b[lane];                                                  \
            bits |= (LaneMask)(TEST) << lane;                                            \
        }                                                                                \
    } while (0)

#define COMPARE_AS(T)                                                                    \
    switch (row->flags & 7) {                                                            \
    case COMPARE_EQ: COMPARE_LANES(T, x == y); break;                                    \
    case COMPARE_NE: COMPARE_LANES(T, x != y); break;                                    \
    case COMPARE_LT: COMPARE_LANES(T, x < y); break;                                     \
    case COMPARE_LE: COMPARE_LANES(T, x <= y); break;                                    \
    case COMPARE_GT: COMPARE_LANES(T, x > y); break;                                     \
    case COMPARE_GE: COMPARE_LANES(T, x >= y); break;                                    \
    }

static bool compare_values(double x, double y, int flags) {
    if (x != x || y != y) return (flags & 7) == COMPARE_NAN || (flags & COMPARE_UNORDERED);
    switch (flags & 7) {
    case COMPARE_EQ: return x == y;
    case COMPARE_NE: return x != y;
    case COMPARE_LT: return x < y;
    case COMPARE_LE: return x <= y;
    case COMPARE_GT: return x > y;
    case COMPARE_GE: return x >= y;
    case COMPARE_NUM: return true;
    default: return false;
    }
}

#define COMPARE_FLOATS(CONVERT, T)                                                       \
    for (int lane = 0; lane < LANES; lane++)                                             \
        bits |= (LaneMask)compare_values(CONVERT(REGISTER(T, row->source0)[lane]),       \
                                         CONVERT(REGISTER(T, row->source1)[lane]),       \
                                         row->flags) << lane

/* Returns a bit a lane, idle lanes included: the caller masks. */
static bool compare(const Instruction *row, uint8_t *registers, LaneMask *out) {
    LaneMask bits = 0;
    switch (row->type) {
    case TYPE_U16: COMPARE_AS(uint16_t) break;
    case TYPE_S16: COMPARE_AS(int16_t) break;
    case TYPE_U32: COMPARE_AS(uint32_t) break;
    case TYPE_S32: COMPARE_AS(int32_t) break;
    case TYPE_U64: COMPARE_AS(uint64_t) break;
    case TYPE_S64: COMPARE_AS(int64_t) break;
    case TYPE_F32: COMPARE_FLOATS(, float); break;
    case TYPE_F64: COMPARE_FLOATS(, double); break;
    case TYPE_F16: COMPARE_FLOATS(half_to_float, uint16_t); break;
    case TYPE_BF16: COMPARE_FLOATS(bfloat_to_float, uint16_t); break;
    default: return false;
    }
    *out = bits;
    return true;
}

static LaneMask combine(LaneMask bits, const Instruction *row, const uint8_t *registers) {
    if (!(row->flags & COMBINE_MASK)) return bits;
    LaneMask other = *REGISTER(const LaneMask, row->source2);
    if (row->flags & COMPARE_NEGATE_COMBINED) other = ~other;
    switch (row->flags & COMBINE_MASK) {
    case COMPARE_COMBINE_AND: return bits & other;
    case COMPARE_COMBINE_OR: return bits | other;
    default: return bits ^ other;
    }
}

/* setp of pairs: the low half decides the first predicate, the high half the second. */
static void compare_pairs(const Instruction *row, uint8_t *registers, LaneMask mask) {
    LaneMask results[2] = {0};
    for (int part = 0; part < 2 * LANES; part++) {
        uint16_t x = REGISTER(uint16_t, row->source0)[part];
        uint16_t y = REGISTER(uint16_t, row->source1)[part];
        bool half = row->type == TYPE_F16X2;
        double p = half ? half_to_float(x) : bfloat_to_float(x);
        double q = half ? half_to_float(y) : bfloat_to_float(y);
        results[part % 2] |= (LaneMask)compare_values(p, q, row->flags) << part / 2;
    }
    results[0] = combine(results[0], row, registers);
    results[1] = combine(results[1], row, registers);
    if (row->destination >= 0) write_predicate(registers, row->destination, mask, results[0]);
    if (row->destination2 >= 0) write_predicate(registers, row->destination2, mask, results[1]);
}

/* set.cmp: a value a lane (all ones, or 1.0 for float results) instead of a predicate. */
static bool compare_set(const Instruction *row, uint8_t *registers, LaneMask mask) {
    bool halves = row->source_type == TYPE_F16X2 || row->source_type == TYPE_BF16X2;
    bool bfloat = row->source_type == TYPE_BF16X2 || row->source_type == TYPE_BF16;
    if (halves) {
        bool float_result = row->type == TYPE_F16X2 || row->type == TYPE_BF16X2;
        uint16_t truth = !float_result ? 0xffff : row->type == TYPE_F16X2 ? 0x3c00 : 0x3f80;
        LaneMask if_false = combine(0, row, registers), if_true = combine(ALL_LANES, row, registers);
        FOR_EACH_LANE(lane, mask) {
            for (int part = 2 * lane; part < 2 * lane + 2; part++) {
                uint16_t x = REGISTER(uint16_t, row->source0)[part];
                uint16_t y = REGISTER(uint16_t, row->source1)[part];
                double p = bfloat ? bfloat_to_float(x) : half_to_float(x);
                double q = bfloat ? bfloat_to_float(y) : half_to_float(y);
                LaneMask chosen = compare_values(p, q, row->flags) ? if_true : if_false;
                REGISTER(uint16_t, row->destination)[part] = chosen >> lane & 1 ? truth : 0;
            }
        }
        return true;
    }
    Instruction as_predicate = *row;
    as_predicate.type = row->source_type;
    LaneMask bits;
    if (!compare(&as_predicate, registers, &bits)) return false;
    bits = combine(bits, row, registers);
    uint64_t truth = row->type == TYPE_F32 ? bits_of(1.0f) : row->type == TYPE_F16 ? 0x3c00
                     : row->type == TYPE_BF16 ? 0x3f80 : ~UINT64_C(0);
    FOR_EACH_LANE(lane, mask)
        write_lane(registers + row->destination, row->destination_width, lane,
                   bits >> lane & 1 ? truth : 0);
    return true;
}

bool execute_bits(const Instruction *row, uint8_t *registers, LaneMask mask) {
    if (row->flags & FLAG_FLUSH) return execute_flushed(execute_bits, row, registers, mask);
    LaneMask bits;
    switch (row->opcode) {
    case OP_AND: BY_WIDTH(x & y) return true;
    case OP_OR: BY_WIDTH(x | y) return true;
    case OP_XOR: BY_WIDTH(x ^ y) return true;
    case OP_NOT: BY_WIDTH(~x) return true;
    case OP_SHL: case OP_SHR: return shift(row, registers, mask);
    case OP_POPC: case OP_CLZ: case OP_BREV: case OP_BFE: case OP_BFI: case OP_BFIND:
        bit_field(row, registers, mask);
        return true;
    case OP_PRMT: case OP_LOP3: case OP_FUNNEL: three_words(row, registers, mask); return true;
    case OP_COMPARE:
        if (row->type == TYPE_F16X2 || row->type == TYPE_BF16X2) {
            compare_pairs(row, registers, mask);
            return true;
        }
        if (!compare(row, registers, &bits)) return false;
        /* Read the third operand before the first result is written: they may be one register. */
        {
            LaneMask first = combine(bits, row, registers), second = combine(~bits, row, registers);
            if (row->destination >= 0) write_predicate(registers, row->destination, mask, first);
            if (row->destination2 >= 0) write_predicate(registers, row->destination2, mask, second);
        }
        return true;
    case OP_COMPARE_SET: return compare_set(row, registers, mask);
    case OP_PREDICATE_AND: case OP_PREDICATE_OR: case OP_PREDICATE_XOR: case OP_PREDICATE_NOT: {
        LaneMask x = *REGISTER(LaneMask, row->source0), y = *REGISTER(LaneMask, row->source1);
        bits = row->opcode == OP_PREDICATE_AND ? x & y : row->opcode == OP_PREDICATE_OR ? x | y
               : row->opcode == OP_PREDICATE_XOR ? x ^ y : ~x;
        write_predicate(registers, row->destination, mask, bits);
        return true;
    }
    default: return false;
    }
}

/* Gathers a register from narrow ones or spreads it over them (mov.b32 {lo, hi}, ...). */
static void pack(const Machine *machine, const Instruction *row, uint8_t *registers,
                 LaneMask mask) {
    const int32_t *operands = machine->operands + row->operands;
    bool gather = row->opcode == OP_PACK;
    int width = gather ? row->destination_width : row->source_width;
    uint32_t part_bits = (uint32_t)(8 * width / row->count);
    FOR_EACH_LANE(lane, mask) {
        uint64_t value = gather ? 0 : read_lane(registers + row->source0, width, lane);
        for (int part = 0; part < row->count; part++) {
            int32_t offset = operands[2 * part], part_width = operands[2 * part + 1];
            uint32_t shift_by = (uint32_t)part * part_bits;
            if (offset < 0) continue; /* thrown away */
            if (gather)
                value |= (read_lane(registers + offset, part_width, lane) & low_bits(part_bits))
                         << shift_by;
            else
                write_lane(registers + offset, part_width, lane,
                           value >> shift_by & low_bits(part_bits));
        }
        if (gather) write_lane(registers + row->destination, width, lane, value);
    }
}

void execute_moves(const Machine *machine, const Instruction *row, uint8_t *registers,
                   LaneMask mask) {
    switch (row->opcode) {
    case OP_MOVE: BY_WIDTH(x) break;
    case OP_MOVE_PREDICATE:
        write_predicate(registers, row->destination, mask, *REGISTER(LaneMask, row->source0));
        break;
    case OP_SELECT: {
        LaneMask choice = *REGISTER(LaneMask, row->source2);
        BY_WIDTH(choice >> lane & 1 ? x : y)
        break;
    }
    default: pack(machine, row, registers, mask);
    }
}
