/* Arithmetic that few kernels use, one lane at a time: carries, packed integers, odd roundings. */
#include <fenv.h>

#include "numeric.h"
#include "simt.h"

#define REGISTER(T, offset) ((T *)(registers + (offset)))

static int64_t extend(uint64_t value, int bits, bool is_signed) {
    int unused = 64 - bits;
    return is_signed ? (int64_t)(value << unused) >> unused : (int64_t)(value << unused >> unused);
}

static bool is_signed_type(int type) {
    return type == TYPE_S8 || type == TYPE_S16 || type == TYPE_S32 || type == TYPE_S64;
}

static int64_t clamped(int64_t value, int bits, bool is_signed) {
    int64_t largest = is_signed ? (INT64_C(1) << (bits - 1)) - 1 : (INT64_C(1) << bits) - 1;
    int64_t smallest = is_signed ? -largest - 1 : 0;
    return value < smallest ? smallest : value > largest ? largest : value;
}

/* add, sub and mad of numbers longer than a register. `destination2` is the carry flag. */
static void with_carry(const Instruction *row, uint8_t *registers, LaneMask mask) {
    int width = type_bytes(row->type), bits = 8 * width;
    uint64_t low = width == 8 ? ~UINT64_C(0) : (UINT64_C(1) << bits) - 1;
    LaneMask carries = *REGISTER(LaneMask, row->destination2), carried = 0;
    FOR_EACH_LANE(lane, mask) {
        uint64_t a = read_lane(registers + row->source0, width, lane);
        uint64_t b = read_lane(registers + row->source1, width, lane);
        unsigned carry = row->flags & CARRY_IN ? carries >> lane & 1 : 0, out;
        uint64_t result;
        if (row->flags & CARRY_PRODUCT) {
            unsigned __int128 product =
                is_signed_type(row->type)
                    ? (unsigned __int128)((__int128)extend(a, bits, true) * extend(b, bits, true))
                    : (unsigned __int128)a * b;
            b = (uint64_t)(row->flags & CARRY_HIGH ? product >> bits : product) & low;
            a = read_lane(registers + row->source2, width, lane);
        }
        /* a - b is a + ~b + 1: after a subtraction the flag says that nothing was borrowed, and
           nvcc's 128-bit division reads it so with addc. */
        if (row->flags & CARRY_SUBTRACT) {
            b = ~b & low;
            if (!(row->flags & CARRY_IN)) carry = 1;
        }
        unsigned __int128 full = (unsigned __int128)a + b + carry;
        result = (uint64_t)full & low, out = (unsigned)(full >> bits) & 1;
        if (row->destination >= 0)
            write_lane(registers + row->destination, row->destination_width, lane, result);
        carried |= (LaneMask)out << lane;
    }
    if (row->flags & CARRY_OUT) write_predicate(registers, row->destination2, mask, carried);
}

static double rounded_value(int operation, double x, double y, double z, bool single) {
    volatile double a = x, b = y, result;
    volatile float p = (float)x, q = (float)y, narrow;
    if (single) {
        switch (operation) {
        case ROUNDED_ADD: narrow = p + q; break;
        case ROUNDED_SUB: narrow = p - q; break;
        case ROUNDED_MUL: narrow = p * q; break;
        case ROUNDED_FMA: narrow = fmaf(p, q, (float)z); break;
        case ROUNDED_DIV: narrow = p / q; break;
        case ROUNDED_SQRT: narrow = sqrtf(p); break;
        default: narrow = 1 / p;
        }
        return narrow;
    }
    switch (operation) {
    case ROUNDED_ADD: result = a + b; break;
    case ROUNDED_SUB: result = a - b; break;
    case ROUNDED_MUL: result = a * b; break;
    case ROUNDED_FMA: result = fma(a, b, z); break;
    case ROUNDED_DIV: result = a / b; break;
    case ROUNDED_SQRT: result = sqrt(a); break;
    default: result = 1 / a;
    }
    return result;
}

static uint64_t read_typed(const uint8_t *registers, int offset, int type, int part) {
    if (type == TYPE_F64) return ((const uint64_t *)(registers + offset))[part];
    if (type == TYPE_F32) return ((const uint32_t *)(registers + offset))[part];
    return ((const uint16_t *)(registers + offset))[part];
}

static double typed_value(uint64_t bits, int type) {
    switch (type) {
    case TYPE_F64: return double_of(bits);
    case TYPE_F32: return float_of((uint32_t)bits);
    case TYPE_F16: case TYPE_F16X2: return half_to_float((uint16_t)bits);
    default: return bfloat_to_float((uint16_t)bits);
    }
}

/* Directed rounding by the host's rounding mode (f32, f64), or saturation of halves. */
static void rounded(const Instruction *row, uint8_t *registers, LaneMask mask) {
    static const int modes[] = {FE_TONEAREST, FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    int type = row->type, operation = row->flags >> 8 & 7;
    int parts = type == TYPE_F16X2 || type == TYPE_BF16X2 ? 2 : 1;
    fesetround(modes[row->flags & FLAG_ROUNDING_MASK]);
    FOR_EACH_LANE(lane, mask)
        for (int part = lane * parts; part < (lane + 1) * parts; part++) {
            double x = typed_value(read_typed(registers, row->source0, type, part), type);
            double y = typed_value(read_typed(registers, row->source1, type, part), type);
            double z = typed_value(read_typed(registers, row->source2, type, part), type);
            double result = rounded_value(operation, x, y, z, type == TYPE_F32);
            /* NaN becomes zero, as the instruction set says of saturation. */
            if (row->flags & FLAG_SATURATE) result = result > 0 ? (result < 1 ? result : 1) : 0;
            switch (type) {
            case TYPE_F64: REGISTER(double, row->destination)[part] = result; break;
            case TYPE_F32: REGISTER(float, row->destination)[part] = (float)result; break;
            case TYPE_F16: case TYPE_F16X2:
                REGISTER(uint16_t, row->destination)[part] = double_to_half(result);
                break;
            default: REGISTER(uint16_t, row->destination)[part] = double_to_bfloat(result);
            }
        }
    fesetround(FE_TONEAREST);
}

/* Bytes or halfwords side by side: `count` bits each; the third source is added at the end. */
static void packed(const Instruction *row, uint8_t *registers, LaneMask mask) {
    int bits = row->count, operation = row->flags >> 8 & 7;
    bool left_signed = row->flags & PACKED_LEFT_SIGNED, saturated = row->flags & PACKED_SATURATE;
    bool right_signed = row->flags & PACKED_RIGHT_SIGNED;
    bool result_signed = row->flags & PACKED_RESULT_SIGNED;
    FOR_EACH_LANE(lane, mask) {
        uint32_t a = REGISTER(uint32_t, row->source0)[lane];
        uint32_t b = REGISTER(uint32_t, row->source1)[lane], result = 0;
        int64_t sum = 0;
        for (int at = 0; at < 32; at += bits) {
            int64_t x = extend(a >> at, bits, left_signed), y = extend(b >> at, bits, right_signed);
            int64_t value;
            switch (operation) {
            case PACKED_ADD: value = x + y; break;
            case PACKED_SUB: value = x - y; break;
            case PACKED_MIN: value = x < y ? x : y; break;
            case PACKED_MAX: value = x > y ? x : y; break;
            case PACKED_AVERAGE: value = (x + y + (x + y >= 0)) >> 1; break;
            default: value = x > y ? x - y : y - x;
            }
            if ((row->flags & FLAG_RELU) && value < 0) value = 0;
            if (saturated) value = clamped(value, bits, result_signed);
            sum += value;
            result |= (uint32_t)(value & ((INT64_C(1) << bits) - 1)) << at;
        }
        if (row->flags & PACKED_ACCUMULATE)
            result = (uint32_t)sum + REGISTER(uint32_t, row->source2)[lane];
        REGISTER(uint32_t, row->destination)[lane] = result;
    }
}

/* Two 16 x 8 bit products added to a sum; bits 0 and 1 of flags: signed, bit 2: upper bytes. */
static uint32_t dot_product_2(uint32_t a, uint32_t b, uint32_t sum, int flags) {
    for (int place = 0; place < 2; place++) {
        int64_t x = extend(a >> (16 * place), 16, flags & 1);
        int64_t y = extend(b >> (8 * place + (flags & 4 ? 16 : 0)), 8, flags & 2);
        sum += (uint32_t)(x * y);
    }
    return sum;
}

/* Position of the n-th set bit from `base`, upwards for n > 0, downwards for n < 0. */
static uint32_t nth_set_bit(uint32_t value, uint32_t base, int32_t n) {
    if (n == 0) return base < 32 && value >> base & 1 ? base : UINT32_MAX;
    int step = n > 0 ? 1 : -1, left = n > 0 ? n : -n;
    for (int64_t at = base; at >= 0 && at < 32; at += step)
        if (value >> at & 1 && !--left) return (uint32_t)at;
    return UINT32_MAX;
}

static uint32_t pack_saturated(const Instruction *row, uint8_t *registers, int lane) {
    int bits = row->count;
    bool is_signed = row->flags & 1;
    uint32_t field = bits == 32 ? UINT32_MAX : (UINT32_C(1) << bits) - 1;
    int32_t a = REGISTER(int32_t, row->source0)[lane], b = REGISTER(int32_t, row->source1)[lane];
    uint32_t kept = row->source2 >= 0 && row->immediate ? REGISTER(uint32_t, row->source2)[lane] : 0;
    uint32_t high = (uint32_t)clamped(a, bits, is_signed) & field;
    uint32_t low = (uint32_t)clamped(b, bits, is_signed) & field;
    return (bits < 16 ? kept << (2 * bits) : 0) | high << bits | low;
}

static LaneMask test_property(const Instruction *row, uint8_t *registers, LaneMask mask) {
    LaneMask result = 0;
    FOR_EACH_LANE(lane, mask) {
        double value;
        bool subnormal;
        if (row->type == TYPE_F32) {
            float x = REGISTER(float, row->source0)[lane];
            value = x, subnormal = fpclassify(x) == FP_SUBNORMAL;
        } else {
            value = REGISTER(double, row->source0)[lane];
            subnormal = fpclassify(value) == FP_SUBNORMAL;
        }
        bool holds;
        switch (row->flags) {
        case PROPERTY_FINITE: holds = isfinite(value); break;
        case PROPERTY_INFINITE: holds = isinf(value); break;
        case PROPERTY_NUMBER: holds = !isnan(value); break;
        case PROPERTY_NOTANUMBER: holds = isnan(value); break;
        case PROPERTY_NORMAL: holds = isfinite(value) && value != 0 && !subnormal; break;
        default: holds = subnormal;
        }
        result |= (LaneMask)holds << lane;
    }
    return result;
}

static uint64_t rare_value(const Instruction *row, uint8_t *registers, int lane) {
    int width = row->source_width, bits = 8 * width;
    uint64_t a = read_lane(registers + row->source0, width, lane);
    uint64_t b = row->opcode == OP_CNOT ? 0 : read_lane(registers + row->source1, width, lane);
    bool is_signed = is_signed_type(row->type);
    switch (row->opcode) {
    case OP_SAD: {
        int64_t x = extend(a, bits, is_signed), y = extend(b, bits, is_signed);
        uint64_t apart = is_signed ? (x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x)
                                   : (a > b ? a - b : b - a);
        return apart + read_lane(registers + row->source2, width, lane);
    }
    case OP_DP2A:
        return dot_product_2((uint32_t)a, (uint32_t)b, REGISTER(uint32_t, row->source2)[lane],
                             row->flags);
    case OP_BIT_MASK: {
        uint64_t start = row->flags & 1 ? (a > 32 ? 32 : a) : a & 31;
        uint64_t length = row->flags & 1 ? (b > 32 ? 32 : b) : b & 31;
        return (((UINT64_C(1) << length) - 1) << start) & UINT32_MAX;
    }
    case OP_EXTEND_SIZE: {
        uint64_t kept = row->flags & 1 ? (b > 32 ? 32 : b) : b & 31;
        return kept ? (uint64_t)extend(a, (int)kept, is_signed) : 0;
    }
    case OP_SELECT_SIGN: { /* a NaN third operand selects the second */
        float sign = REGISTER(float, row->source2)[lane];
        if (row->flags & FLAG_FLUSH && fabsf(sign) < 0x1p-126f) sign = 0;
        bool first = row->flags & 1 ? sign >= 0 : REGISTER(int32_t, row->source2)[lane] >= 0;
        return first ? a : b;
    }
    case OP_CNOT: return a == 0;
    case OP_ADD_SATURATED: {
        int64_t x = (int32_t)a, y = (int32_t)b;
        return (uint64_t)clamped(row->flags & 1 ? x - y : x + y, 32, true);
    }
    case OP_EXTREME_XOR_SIGN: {
        float x = float_of((uint32_t)a), y = float_of((uint32_t)b), p = fabsf(x), q = fabsf(y);
        uint32_t sign = ((uint32_t)a ^ (uint32_t)b) & 0x80000000u;
        if (x != x || y != y) {
            if (row->flags & FLAG_PROPAGATE_NAN || (x != x && y != y)) return 0x7fffffff;
            return bits_of(x != x ? q : p) | sign;
        }
        return bits_of((row->flags & 1) == (p > q) ? p : q) | sign;
    }
    case OP_NTH_SET_BIT:
        return nth_set_bit((uint32_t)a, (uint32_t)b, REGISTER(int32_t, row->source2)[lane]);
    default: return pack_saturated(row, registers, lane);
    }
}

/* Which window of the generic address space, as cvta makes them. */
static LaneMask in_window(const Instruction *row, uint8_t *registers, LaneMask mask) {
    uint64_t addresses[LANES];
    LaneMask by_space[4];
    memcpy(addresses, registers + row->source0, sizeof addresses);
    resolve_generic(mask, addresses, by_space);
    return by_space[row->space];
}

bool execute_rare(const Instruction *row, uint8_t *registers, LaneMask mask) {
    if (row->flags & FLAG_FLUSH && row->opcode != OP_SELECT_SIGN)
        return execute_flushed(execute_rare, row, registers, mask);
    switch (row->opcode) {
    case OP_CARRY: with_carry(row, registers, mask); return true;
    case OP_ROUNDED_ANY: rounded(row, registers, mask); return true;
    case OP_PACKED: packed(row, registers, mask); return true;
    case OP_TEST_PROPERTY:
        write_predicate(registers, row->destination, mask, test_property(row, registers, mask));
        return true;
    case OP_IN_WINDOW:
        write_predicate(registers, row->destination, mask, in_window(row, registers, mask));
        return true;
    }
    FOR_EACH_LANE(lane, mask)
        write_lane(registers + row->destination, row->destination_width, lane,
                   rare_value(row, registers, lane));
    return true;
}
