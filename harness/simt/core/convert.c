/* cvt: conversions between any two types, with the rounding and saturation asked for. */
#include <fenv.h>

#include "numeric.h"
#include "simt.h"

static bool is_float(int type) { return type >= TYPE_F16 && type <= TYPE_F64; }

static bool is_signed(int type) {
    return type == TYPE_S8 || type == TYPE_S16 || type == TYPE_S32 || type == TYPE_S64;
}

/* An integer register may be wider than the type it is read as: keep the type's bits. */
static uint64_t narrow(uint64_t value, int type) {
    switch (type) {
    case TYPE_U8: return (uint8_t)value;
    case TYPE_S8: return (uint64_t)(int64_t)(int8_t)value;
    case TYPE_U16: return (uint16_t)value;
    case TYPE_S16: return (uint64_t)(int64_t)(int16_t)value;
    case TYPE_U32: return (uint32_t)value;
    case TYPE_S32: return (uint64_t)(int64_t)(int32_t)value;
    default: return value;
    }
}

static uint64_t integer_to_integer(uint64_t value, int from, int to, bool clamp) {
    if (!clamp) return narrow(value, to);
    int bits = 8 * type_bytes(to);
    uint64_t largest = ~UINT64_C(0) >> (64 - bits + is_signed(to));
    bool negative = is_signed(from) && (int64_t)value < 0;
    if (negative) {
        int64_t smallest = is_signed(to) ? -(int64_t)largest - 1 : 0;
        return (int64_t)value < smallest ? (uint64_t)smallest : value;
    }
    return value > largest ? largest : value;
}

static double read_float(uint64_t bits, int type) {
    switch (type) {
    case TYPE_F16: return half_to_float((uint16_t)bits);
    case TYPE_BF16: return bfloat_to_float((uint16_t)bits);
    case TYPE_F32: return float_of((uint32_t)bits);
    default: return double_of(bits);
    }
}

static double to_integral(double value, int rounding) {
    switch (rounding) {
    case ROUNDING_NEAREST: return nearbyint(value);
    case ROUNDING_DOWN: return floor(value);
    case ROUNDING_UP: return ceil(value);
    default: return trunc(value);
    }
}

/* Clamped to the type. NaN is zero, or has only the top bit where either side is 64 bits wide. */
static uint64_t float_to_integer(double value, int from, int to, int rounding) {
    int bits = 8 * type_bytes(to);
    if (value != value)
        return from == TYPE_F64 || bits == 64 ? narrow(UINT64_C(1) << (bits - 1), to) : 0;
    value = to_integral(value, rounding);
    if (is_signed(to)) {
        double limit = ldexp(1.0, bits - 1);
        if (value < -limit) return (uint64_t)(INT64_MIN >> (64 - bits));
        if (value >= limit) return (uint64_t)(INT64_MAX >> (64 - bits));
        return (uint64_t)(int64_t)value;
    }
    if (value <= 0) return 0;
    if (value >= ldexp(1.0, bits)) return ~UINT64_C(0) >> (64 - bits);
    return (uint64_t)value;
}

/* Rounds a double towards one side to the next value of the type. */
static double directed(double value, int type, int rounding) {
    double nearest;
    switch (type) {
    case TYPE_F16: nearest = half_to_float(double_to_half(value)); break;
    case TYPE_BF16: nearest = bfloat_to_float(double_to_bfloat(value)); break;
    case TYPE_F32: nearest = (float)value; break;
    default: return value;
    }
    bool too_large = nearest > value, too_small = nearest < value;
    bool down = rounding == ROUNDING_DOWN || (rounding == ROUNDING_ZERO && value > 0);
    bool up = rounding == ROUNDING_UP || (rounding == ROUNDING_ZERO && value < 0);
    if (!(down && too_large) && !(up && too_small)) return nearest;
    /* One step of the type: its bit pattern plus or minus one moves away from or towards zero. */
    bool away = up ? value > 0 : value < 0;
    if (type == TYPE_F32) {
        uint32_t bits = bits_of((float)nearest);
        if (nearest == 0) return up ? 0x1p-149 : -0x1p-149;
        return float_of(away ? bits + 1 : bits - 1);
    }
    uint16_t bits = type == TYPE_F16 ? double_to_half(value) : double_to_bfloat(value);
    if (nearest == 0) bits = up ? 0x0001 : 0x8001;
    else bits = (uint16_t)(away ? bits + 1 : bits - 1);
    return type == TYPE_F16 ? half_to_float(bits) : bfloat_to_float(bits);
}

static uint64_t write_float(double value, int type, int rounding) {
    if (rounding == ROUNDING_ZERO || rounding == ROUNDING_DOWN || rounding == ROUNDING_UP)
        value = directed(value, type, rounding);
    switch (type) {
    case TYPE_F16: return double_to_half(value);
    case TYPE_BF16: return double_to_bfloat(value);
    case TYPE_F32: return bits_of((float)value);
    default: return double_bits(value);
    }
}

/* 64-bit integers do not fit a double: convert them straight to the type asked for. */
static uint64_t integer_to_float(uint64_t value, int from, int to, int rounding) {
    bool negative = is_signed(from);
    if (to == TYPE_F32 && rounding <= ROUNDING_NEAREST)
        return bits_of(negative ? (float)(int64_t)value : (float)value);
    if (to == TYPE_F64 && rounding <= ROUNDING_NEAREST)
        return double_bits(negative ? (double)(int64_t)value : (double)value);
    if (type_bytes(from) == 8 && rounding > ROUNDING_NEAREST) {
        static const int modes[] = {0, 0, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
        volatile int64_t as_signed = (int64_t)value;
        volatile uint64_t as_unsigned = value;
        fesetround(modes[rounding]);
        volatile float single = negative ? (float)as_signed : (float)as_unsigned;
        volatile double full = negative ? (double)as_signed : (double)as_unsigned;
        fesetround(FE_TONEAREST);
        if (to == TYPE_F32) return bits_of(single);
        if (to == TYPE_F64) return double_bits(full);
    }
    /* Past 53 bits a double keeps the top ones and one that says whether there were others. */
    bool below = negative && (int64_t)value < 0;
    uint64_t size = below ? 0 - value : value;
    double exact = size >> 53 ? (double)(size >> 11 | !!(size & 2047)) * 2048 : (double)size;
    return write_float(below ? -exact : exact, to, rounding);
}

static uint64_t convert_lane(const Instruction *row, uint64_t value) {
    int from = row->source_type, to = row->type, rounding = row->flags & FLAG_ROUNDING_MASK;
    bool clamp = row->flags & FLAG_SATURATE;
    if (!is_float(from)) {
        value = narrow(value, from);
        if (!is_float(to)) return integer_to_integer(value, from, to, clamp);
        if (clamp) value = is_signed(from) ? (int64_t)value > 0 : value > 0; /* into [0, 1] */
        return integer_to_float(value, from, to, rounding);
    }
    double number = read_float(value, from);
    if (!is_float(to)) return float_to_integer(number, from, to, rounding);
    if (row->flags & FLAG_INTEGER_ROUNDING) {
        number = to_integral(number, rounding);
        rounding = ROUNDING_DEFAULT;
    }
    if (clamp) number = number > 0 ? (number < 1 ? number : 1) : 0;
    if ((row->flags & FLAG_RELU) && !(number > 0) && number == number) number = 0;
    return write_float(number, to, rounding);
}

/* tf32 lies in the upper 19 bits of a float. */
static void to_tf32(const Instruction *row, uint8_t *registers, LaneMask mask) {
    int rounding = row->flags & FLAG_ROUNDING_MASK;
    FOR_EACH_LANE(lane, mask) {
        uint32_t bits = ((uint32_t *)(registers + row->source0))[lane];
        bool nan = (bits & 0x7fffffff) > 0x7f800000;
        if (rounding == ROUNDING_AWAY) bits += 0x1000;
        else if (rounding <= ROUNDING_NEAREST) bits += 0xfff + (bits >> 13 & 1);
        if (row->flags & FLAG_RELU && bits >> 31) bits = 0;
        ((uint32_t *)(registers + row->destination))[lane] = nan ? 0x7fffffff : bits & ~0x1fffu;
    }
}

/* The conversions of mixed-precision kernels, worth a loop of their own. */
static bool convert_fast(const Instruction *row, uint8_t *registers, LaneMask mask) {
    if (row->flags & ~ROUNDING_NEAREST) return false;
    if (row->type == TYPE_F32 && row->source_type == TYPE_F16 && row->source_width == 2) {
        float *d = (float *)(registers + row->destination);
        const uint16_t *a = (const uint16_t *)(registers + row->source0);
        FOR_EACH_LANE(lane, mask) d[lane] = half_to_float(a[lane]);
        return true;
    }
    if (row->type == TYPE_F16 && row->source_type == TYPE_F32) {
        uint16_t *d = (uint16_t *)(registers + row->destination);
        const float *a = (const float *)(registers + row->source0);
        FOR_EACH_LANE(lane, mask) d[lane] = float_to_half(a[lane]);
        return true;
    }
    if (row->type == TYPE_F32 && row->source_type == TYPE_S32 && row->source_width == 4) {
        float *d = (float *)(registers + row->destination);
        const int32_t *a = (const int32_t *)(registers + row->source0);
        FOR_EACH_LANE(lane, mask) d[lane] = (float)a[lane];
        return true;
    }
    if (type_bytes(row->type) == 8 && row->destination_width == 8 && row->source_width == 4) {
        const uint32_t *a = (const uint32_t *)(registers + row->source0);
        uint64_t *d = (uint64_t *)(registers + row->destination);
        if (row->source_type == TYPE_U32 && !is_float(row->type)) {
            FOR_EACH_LANE(lane, mask) d[lane] = a[lane];
            return true;
        }
        if (row->source_type == TYPE_S32 && !is_float(row->type)) {
            FOR_EACH_LANE(lane, mask) d[lane] = (uint64_t)(int64_t)(int32_t)a[lane];
            return true;
        }
    }
    return false;
}

/* fp8 numbers: E exponent bits, the rest mantissa. e4m3 has no infinity, one NaN for each sign. */
static float fp8_to_float(uint8_t bits, bool e5m2) {
    if (e5m2) return half_to_float((uint16_t)(bits << 8));
    int exponent = bits >> 3 & 15, part = bits & 7;
    if ((bits & 127) == 127) return NAN;
    float size = exponent ? ldexpf((float)(8 + part), exponent - 10) : ldexpf((float)part, -9);
    return bits & 128 ? -size : size;
}

static uint8_t float_to_fp8(float value, bool e5m2) {
    uint8_t sign = bits_of(value) >> 31 ? 128 : 0;
    if (value != value) return 127;
    int fraction = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7;
    float size = fabsf(value), largest = e5m2 ? 57344.0f : 448.0f;
    if (size == 0) return sign;
    if (size >= largest) return sign | (e5m2 ? 0x7b : 0x7e); /* .satfinite */
    int exponent;
    frexpf(size, &exponent);
    if (exponent - 1 < 1 - bias) exponent = 2 - bias; /* subnormal: steps stay as they are */
    float step = ldexpf(1.0f, exponent - 1 - fraction);
    int steps = (int)nearbyintf(size / step);
    if (exponent == 2 - bias && steps < 1 << fraction) return sign | (uint8_t)steps;
    if (steps == 2 << fraction) steps >>= 1, exponent++;
    return sign | (uint8_t)((exponent - 1 + bias) << fraction | (steps & ((1 << fraction) - 1)));
}

static void convert_fp8(const Instruction *row, uint8_t *registers, LaneMask mask) {
    bool e5m2 = row->flags & 1, relu = row->flags & FLAG_RELU;
    FOR_EACH_LANE(lane, mask) {
        if (!row->count) { /* to a pair of halves */
            uint16_t pair = ((uint16_t *)(registers + row->source0))[lane];
            uint32_t result = 0;
            for (int part = 0; part < 2; part++) {
                float value = fp8_to_float((uint8_t)(pair >> 8 * part), e5m2);
                if (relu && value < 0) value = 0;
                result |= (uint32_t)float_to_half(value) << 16 * part;
            }
            ((uint32_t *)(registers + row->destination))[lane] = result;
            continue;
        }
        float high, low;
        if (row->type == TYPE_F32) {
            high = ((float *)(registers + row->source0))[lane];
            low = ((float *)(registers + row->source1))[lane];
        } else {
            low = half_to_float(((uint16_t *)(registers + row->source0))[2 * lane]);
            high = half_to_float(((uint16_t *)(registers + row->source0))[2 * lane + 1]);
        }
        if (relu) high = high < 0 ? 0 : high, low = low < 0 ? 0 : low;
        ((uint16_t *)(registers + row->destination))[lane] =
            (uint16_t)(float_to_fp8(high, e5m2) << 8 | float_to_fp8(low, e5m2));
    }
}

bool execute_convert(const Instruction *row, uint8_t *registers, LaneMask mask) {
    if (row->flags & FLAG_FLUSH) return execute_flushed(execute_convert, row, registers, mask);
    if (row->opcode == OP_CONVERT_PACK) { /* two floats to one pair of halves, first one high */
        bool half = row->type == TYPE_F16X2, relu = row->flags & FLAG_RELU;
        int type = half ? TYPE_F16 : TYPE_BF16, rounding = row->flags & FLAG_ROUNDING_MASK;
        FOR_EACH_LANE(lane, mask) {
            float high = ((float *)(registers + row->source0))[lane];
            float low = ((float *)(registers + row->source1))[lane];
            if (relu) high = high < 0 ? 0 : high, low = low < 0 ? 0 : low;
            ((uint32_t *)(registers + row->destination))[lane] =
                (uint32_t)write_float(high, type, rounding) << 16 |
                (uint32_t)write_float(low, type, rounding);
        }
        return true;
    }
    if (row->opcode == OP_CONVERT_FP8) {
        convert_fp8(row, registers, mask);
        return true;
    }
    if (row->type == TYPE_TF32) {
        to_tf32(row, registers, mask);
        return true;
    }
    if (row->type > TYPE_F64 || row->source_type > TYPE_F64) return false;
    if (convert_fast(row, registers, mask)) return true;
    FOR_EACH_LANE(lane, mask)
        write_lane(registers + row->destination, row->destination_width, lane,
                   convert_lane(row, read_lane(registers + row->source0, row->source_width, lane)));
    return true;
}
