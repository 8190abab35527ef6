/* Arithmetic of 32 lanes: plain loops over lanes, which compilers turn into vector code. */
#include <fenv.h>

#include "numeric.h"
#include "simt.h"

#define REGISTER(T, offset) ((T *)(registers + (offset)))
#define VECTORISED _Pragma("GCC ivdep") for (int lane = 0; lane < LANES; lane++)

/* d = EXPRESSION of the lane's x, y, z. Registers never overlap partly, so lanes are independent;
   with some lanes off every lane is computed and the old value kept, which still vectorises. */
#define MAP(T, U, EXPRESSION)                                                            \
    do {                                                                                 \
        U *d = REGISTER(U, row->destination);                                            \
        const T *a = REGISTER(T, row->source0), *b = REGISTER(T, row->source1),          \
                *c = REGISTER(T, row->source2);                                          \
        if (mask == ALL_LANES) {                                                         \
            VECTORISED {                                                                 \
                T x = a[lane], y = b[lane], z = c[lane];                                 \
                (void)y, (void)z;                                                        \
                d[lane] = (U)(EXPRESSION);                                               \
            }                                                                            \
        } else {                                                                         \
            VECTORISED {                                                                 \
                T x = a[lane], y = b[lane], z = c[lane];                                 \
                (void)y, (void)z;                                                        \
                U result = (U)(EXPRESSION);                                              \
                d[lane] = mask >> lane & 1 ? result : d[lane];                           \
            }                                                                            \
        }                                                                                \
    } while (0)

/* The same one lane at a time, where computing an idle lane costs more or could trap. */
#define EACH(T, U, EXPRESSION)                                                           \
    FOR_EACH_LANE(lane, mask) {                                                          \
        T x = REGISTER(T, row->source0)[lane], y = REGISTER(T, row->source1)[lane];      \
        (void)y;                                                                         \
        REGISTER(U, row->destination)[lane] = (U)(EXPRESSION);                           \
    }

/* Half types: `parts` 16-bit values a lane, computed in C with COMPUTE and rounded once. */
#define HALVES(COMPUTE, TO, FROM, parts, EXPRESSION)                                     \
    FOR_EACH_LANE(lane, mask) {                                                          \
        for (int part = lane * (parts); part < (lane + 1) * (parts); part++) {           \
            COMPUTE x = TO(REGISTER(uint16_t, row->source0)[part]);                      \
            COMPUTE y = TO(REGISTER(uint16_t, row->source1)[part]);                      \
            COMPUTE z = TO(REGISTER(uint16_t, row->source2)[part]);                      \
            (void)y, (void)z;                                                            \
            REGISTER(uint16_t, row->destination)[part] = FROM(EXPRESSION);               \
        }                                                                                \
    }

#define FLOATING_CASES(EXPRESSION)                                                       \
    case TYPE_F32: MAP(float, float, EXPRESSION); return true;                           \
    case TYPE_F64: MAP(double, double, EXPRESSION); return true;                         \
    case TYPE_F16: HALVES(float, half_to_float, float_to_half, 1, EXPRESSION); return true; \
    case TYPE_F16X2: HALVES(float, half_to_float, float_to_half, 2, EXPRESSION); return true; \
    case TYPE_BF16: HALVES(float, bfloat_to_float, float_to_bfloat, 1, EXPRESSION); return true; \
    case TYPE_BF16X2: HALVES(float, bfloat_to_float, float_to_bfloat, 2, EXPRESSION); return true;

/* Wrapping integer arithmetic is done unsigned: the bits are the same and overflow is defined. */
#define WRAPPING_CASES(EXPRESSION)                                                       \
    case TYPE_U16: case TYPE_S16: MAP(uint16_t, uint16_t, EXPRESSION); return true;      \
    case TYPE_U32: case TYPE_S32: MAP(uint32_t, uint32_t, EXPRESSION); return true;      \
    case TYPE_U64: case TYPE_S64: MAP(uint64_t, uint64_t, EXPRESSION); return true;

#define ORDERED_CASES(EXPRESSION)                                                        \
    case TYPE_U16: MAP(uint16_t, uint16_t, EXPRESSION); return true;                     \
    case TYPE_S16: MAP(int16_t, int16_t, EXPRESSION); return true;                       \
    case TYPE_U32: MAP(uint32_t, uint32_t, EXPRESSION); return true;                     \
    case TYPE_S32: MAP(int32_t, int32_t, EXPRESSION); return true;                       \
    case TYPE_U64: MAP(uint64_t, uint64_t, EXPRESSION); return true;                     \
    case TYPE_S64: MAP(int64_t, int64_t, EXPRESSION); return true;

#define TRANSCENDENTAL_CASES(F32, F64)                                                   \
    case TYPE_F32: EACH(float, float, F32(x)); return true;                              \
    case TYPE_F64: EACH(double, double, F64(x)); return true;                            \
    case TYPE_F16: HALVES(float, half_to_float, float_to_half, 1, F32(x)); return true;  \
    case TYPE_F16X2: HALVES(float, half_to_float, float_to_half, 2, F32(x)); return true; \
    case TYPE_BF16: HALVES(float, bfloat_to_float, float_to_bfloat, 1, F32(x)); return true; \
    case TYPE_BF16X2: HALVES(float, bfloat_to_float, float_to_bfloat, 2, F32(x)); return true;

static float reciprocal_f32(float x) { return 1 / x; }
static double reciprocal_f64(double x) { return 1 / x; }
static float reciprocal_root_f32(float x) { return 1 / sqrtf(x); }
static double reciprocal_root_f64(double x) { return 1 / sqrt(x); }

/* Division by zero and overflow give what the hardware gives; neither may trap here. */
#define DEFINE_DIVISION(NAME, T, ALL_ONES)                                               \
    static T divide_##NAME(T x, T y) {                                                   \
        if (!y) return (T)ALL_ONES;                                                      \
        if ((T)-1 < 0 && y == (T)-1) return (T)(0 - (uint64_t)x);                        \
        return (T)(x / y);                                                               \
    }                                                                                    \
    static T remainder_##NAME(T x, T y) {                                                \
        if (!y) return x;                                                                \
        if ((T)-1 < 0 && y == (T)-1) return 0;                                           \
        return (T)(x % y);                                                               \
    }
DEFINE_DIVISION(u16, uint16_t, 0xffff)
DEFINE_DIVISION(s16, int16_t, -1)
DEFINE_DIVISION(u32, uint32_t, -1)
DEFINE_DIVISION(s32, int32_t, -1)
DEFINE_DIVISION(u64, uint64_t, -1)
DEFINE_DIVISION(s64, int64_t, -1)

#define DIVISION_CASES(F)                                                                \
    case TYPE_U16: EACH(uint16_t, uint16_t, F##_u16(x, y)); return true;                 \
    case TYPE_S16: EACH(int16_t, int16_t, F##_s16(x, y)); return true;                   \
    case TYPE_U32: EACH(uint32_t, uint32_t, F##_u32(x, y)); return true;                 \
    case TYPE_S32: EACH(int32_t, int32_t, F##_s32(x, y)); return true;                   \
    case TYPE_U64: EACH(uint64_t, uint64_t, F##_u64(x, y)); return true;                 \
    case TYPE_S64: EACH(int64_t, int64_t, F##_s64(x, y)); return true;

static bool multiply_high(const Instruction *row, uint8_t *registers, LaneMask mask, bool add) {
    FOR_EACH_LANE(lane, mask) {
        int width = row->source_width;
        uint64_t x = read_lane(registers + row->source0, width, lane);
        uint64_t y = read_lane(registers + row->source1, width, lane), high;
        switch (row->type) {
        case TYPE_U16: high = (x * y) >> 16; break;
        case TYPE_S16: high = (uint64_t)(((int32_t)(int16_t)x * (int16_t)y) >> 16); break;
        case TYPE_U32: high = (x * y) >> 32; break;
        case TYPE_S32: high = (uint64_t)(((int64_t)(int32_t)x * (int32_t)y) >> 32); break;
        case TYPE_U64: high = (uint64_t)(((unsigned __int128)x * y) >> 64); break;
        case TYPE_S64: high = (uint64_t)(((__int128)(int64_t)x * (int64_t)y) >> 64); break;
        default: return false;
        }
        if (add) high += read_lane(registers + row->source2, width, lane);
        write_lane(registers + row->destination, width, lane, high);
    }
    return true;
}

/* Products of twice the width; the third operand of mad.wide is wide already. */
#define WIDE(T, U)                                                                       \
    do {                                                                                 \
        U *d = REGISTER(U, row->destination);                                            \
        const T *a = REGISTER(T, row->source0), *b = REGISTER(T, row->source1);          \
        const U *c = REGISTER(U, row->source2);                                          \
        if (row->opcode == OP_MUL_WIDE) {                                                \
            if (mask == ALL_LANES) VECTORISED d[lane] = (U)a[lane] * (U)b[lane];         \
            else FOR_EACH_LANE(lane, mask) d[lane] = (U)a[lane] * (U)b[lane];            \
        } else {                                                                         \
            if (mask == ALL_LANES) VECTORISED d[lane] = (U)a[lane] * (U)b[lane] + c[lane]; \
            else FOR_EACH_LANE(lane, mask) d[lane] = (U)a[lane] * (U)b[lane] + c[lane];  \
        }                                                                                \
        return true;                                                                     \
    } while (0)

static bool multiply_wide(const Instruction *row, uint8_t *registers, LaneMask mask) {
    switch (row->type) { /* (U) of a signed T extends its sign, then arithmetic may wrap */
    case TYPE_U16: WIDE(uint16_t, uint32_t);
    case TYPE_S16: WIDE(int16_t, uint32_t);
    case TYPE_U32: WIDE(uint32_t, uint64_t);
    case TYPE_S32: WIDE(int32_t, uint64_t);
    default: return false;
    }
}

static bool fused(const Instruction *row, uint8_t *registers, LaneMask mask) {
#define RELU(value) ((row->flags & FLAG_RELU) && (value) < 0 ? 0 : (value))
/* The product of halves is exact in double. The sum may not be (a bfloat16 may be 2^-133 or 2^127):
   rounded to odd, so that the rounding to 16 bits is as if there had been only one. */
#define PRODUCT add_to_odd(x * y, z)
    switch (row->type) {
    case TYPE_F32: MAP(float, float, __builtin_fmaf(x, y, z)); return true;
    case TYPE_F64: MAP(double, double, __builtin_fma(x, y, z)); return true;
    case TYPE_F16: HALVES(double, half_to_float, double_to_half, 1, RELU(PRODUCT)); return true;
    case TYPE_F16X2: HALVES(double, half_to_float, double_to_half, 2, RELU(PRODUCT)); return true;
    case TYPE_BF16: HALVES(double, bfloat_to_float, double_to_bfloat, 1, RELU(PRODUCT)); return true;
    case TYPE_BF16X2:
        HALVES(double, bfloat_to_float, double_to_bfloat, 2, RELU(PRODUCT));
        return true;
    default: return false;
    }
}

/* Directed rounding and saturation are rare: the host's rounding mode does them exactly. */
static __attribute__((noinline)) void rounded(const Instruction *row, uint8_t *registers,
                                              LaneMask mask) {
    static const int modes[] = {FE_TONEAREST, FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    float results[LANES];
    fesetround(modes[row->flags & FLAG_ROUNDING_MASK]);
    FOR_EACH_LANE(lane, mask) {
        volatile float x = REGISTER(float, row->source0)[lane];
        volatile float y = REGISTER(float, row->source1)[lane], result;
        switch (row->flags >> 8 & 3) {
        case ROUNDED_ADD: result = x + y; break;
        case ROUNDED_SUB: result = x - y; break;
        case ROUNDED_MUL: result = x * y; break;
        default: result = fmaf(x, y, REGISTER(float, row->source2)[lane]);
        }
        results[lane] = row->flags & FLAG_SATURATE ? saturate(result) : result;
    }
    fesetround(FE_TONEAREST);
    FOR_EACH_LANE(lane, mask) REGISTER(float, row->destination)[lane] = results[lane];
}

static bool extreme(const Instruction *row, uint8_t *registers, LaneMask mask) {
    bool nan = row->flags & FLAG_PROPAGATE_NAN;
    if (row->opcode == OP_MIN) {
        /* A NaN operand loses, unless the instruction says .NaN; +0 counts as larger than -0. */
#define SMALLER ((x != x || y != y) ? (nan ? x + y : x != x ? y : x) \
                 : x < y || (x == y && signbit(x)) ? x : y)
        switch (row->type) { ORDERED_CASES(x < y ? x : y) FLOATING_CASES(SMALLER) }
    } else {
#define LARGER ((x != x || y != y) ? (nan ? x + y : x != x ? y : x) \
                : x > y || (x == y && !signbit(x)) ? x : y)
        switch (row->type) { ORDERED_CASES(x > y ? x : y) FLOATING_CASES(LARGER) }
    }
    return false;
}

/* Sign changes act on bits, as the hardware does: a NaN keeps its payload. */
static bool sign_change(const Instruction *row, uint8_t *registers, LaneMask mask) {
    bool negate = row->opcode == OP_NEG;
    switch (row->type) {
    case TYPE_F32:
        if (negate) MAP(uint32_t, uint32_t, x ^ 0x80000000u);
        else MAP(uint32_t, uint32_t, x & 0x7fffffffu);
        return true;
    case TYPE_F64:
        if (negate) MAP(uint64_t, uint64_t, x ^ UINT64_C(1) << 63);
        else MAP(uint64_t, uint64_t, x & ~(UINT64_C(1) << 63));
        return true;
    case TYPE_F16: case TYPE_BF16:
        if (negate) MAP(uint16_t, uint16_t, x ^ 0x8000);
        else MAP(uint16_t, uint16_t, x & 0x7fff);
        return true;
    case TYPE_F16X2: case TYPE_BF16X2:
        if (negate) MAP(uint32_t, uint32_t, x ^ 0x80008000u);
        else MAP(uint32_t, uint32_t, x & 0x7fff7fffu);
        return true;
    case TYPE_U16: case TYPE_S16:
        MAP(uint16_t, uint16_t, negate || x >> 15 ? 0 - x : x);
        return true;
    case TYPE_U32: case TYPE_S32:
        MAP(uint32_t, uint32_t, negate || x >> 31 ? 0 - x : x);
        return true;
    case TYPE_U64: case TYPE_S64:
        MAP(uint64_t, uint64_t, negate || x >> 63 ? 0 - x : x);
        return true;
    default: return false;
    }
}

/* Four 8-bit products added to a 32-bit sum; bit 0 and 1 of flags: a, b signed. */
static void dot_product(const Instruction *row, uint8_t *registers, LaneMask mask) {
    FOR_EACH_LANE(lane, mask) {
        uint32_t x = REGISTER(uint32_t, row->source0)[lane];
        uint32_t y = REGISTER(uint32_t, row->source1)[lane];
        uint32_t sum = REGISTER(uint32_t, row->source2)[lane];
        for (int part = 0; part < 32; part += 8) {
            int32_t p = row->flags & 1 ? (int8_t)(x >> part) : (uint8_t)(x >> part);
            int32_t q = row->flags & 2 ? (int8_t)(y >> part) : (uint8_t)(y >> part);
            sum += (uint32_t)(p * q);
        }
        REGISTER(uint32_t, row->destination)[lane] = sum;
    }
}

/* Does any lane's operand take the function that ptxas calls for what the short sequence around
   MUFU cannot do? By exponents, as measured on an H200 with every pair of them. */
bool takes_slow_path(const Instruction *row, uint8_t *registers, LaneMask mask) {
    FOR_EACH_LANE(lane, mask) {
        float x = REGISTER(float, row->source0)[lane];
        int a = x == 0 ? -150 : isfinite(x) ? ilogbf(x) : 200;
        if (row->opcode == OP_DIV) {
            float y = REGISTER(float, row->source1)[lane];
            int b = y == 0 ? -150 : isfinite(y) ? ilogbf(y) : 200;
            if (a < -101 || a > 127 || b < -125 || b > 124 || a - b < -124 || a - b > 126)
                return true;
        } else if (row->opcode == OP_SQRT) {
            if (!(x > 0) || a < -101 || a > 127) return true;
        } else if (a < -126 || a > 125) {
            return true;
        }
    }
    return false;
}

bool execute_arithmetic(const Instruction *row, uint8_t *registers, LaneMask mask) {
    if (row->flags & FLAG_FLUSH) return execute_flushed(execute_arithmetic, row, registers, mask);
    if (row->flags & FLAG_APPROXIMATE) return execute_approximation(row, registers, mask);
    switch (row->opcode) {
    case OP_ADD: switch (row->type) { WRAPPING_CASES(x + y) FLOATING_CASES(x + y) } return false;
    case OP_SUB: switch (row->type) { WRAPPING_CASES(x - y) FLOATING_CASES(x - y) } return false;
    case OP_MUL:
        switch (row->type) {
        case TYPE_U16: case TYPE_S16: MAP(uint16_t, uint16_t, (uint32_t)x * y); return true;
        case TYPE_U32: case TYPE_S32: MAP(uint32_t, uint32_t, x * y); return true;
        case TYPE_U64: case TYPE_S64: MAP(uint64_t, uint64_t, x * y); return true;
        FLOATING_CASES(x * y)
        }
        return false;
    case OP_MAD:
        switch (row->type) {
        case TYPE_U16: case TYPE_S16: MAP(uint16_t, uint16_t, (uint32_t)x * y + z); return true;
        case TYPE_U32: case TYPE_S32: MAP(uint32_t, uint32_t, x * y + z); return true;
        case TYPE_U64: case TYPE_S64: MAP(uint64_t, uint64_t, x * y + z); return true;
        }
        return false;
    case OP_FMA: return fused(row, registers, mask);
    case OP_MUL_HIGH: return multiply_high(row, registers, mask, false);
    case OP_MAD_HIGH: return multiply_high(row, registers, mask, true);
    case OP_MUL_WIDE: case OP_MAD_WIDE: return multiply_wide(row, registers, mask);
    case OP_ROUNDED: rounded(row, registers, mask); return true;
    case OP_DIV:
        switch (row->type) {
        case TYPE_F32: MAP(float, float, x / y); return true;
        case TYPE_F64: MAP(double, double, x / y); return true;
        DIVISION_CASES(divide)
        }
        return false;
    case OP_REM: switch (row->type) { DIVISION_CASES(remainder) } return false;
    case OP_MIN: case OP_MAX: return extreme(row, registers, mask);
    case OP_NEG: case OP_ABS: return sign_change(row, registers, mask);
    case OP_SATURATE: MAP(float, float, saturate(x)); return true;
    case OP_COPYSIGN: /* the sign of the first, the size of the second */
        if (row->type == TYPE_F32)
            MAP(uint32_t, uint32_t, (x & 0x80000000u) | (y & 0x7fffffffu));
        else
            MAP(uint64_t, uint64_t, (x & UINT64_C(1) << 63) | (y & ~(UINT64_C(1) << 63)));
        return true;
    case OP_EX2: switch (row->type) { TRANSCENDENTAL_CASES(exp2f, exp2) } return false;
    case OP_LG2: switch (row->type) { TRANSCENDENTAL_CASES(log2f, log2) } return false;
    case OP_SIN: switch (row->type) { TRANSCENDENTAL_CASES(sinf, sin) } return false;
    case OP_COS: switch (row->type) { TRANSCENDENTAL_CASES(cosf, cos) } return false;
    case OP_TANH: switch (row->type) { TRANSCENDENTAL_CASES(tanhf, tanh) } return false;
    case OP_SQRT: switch (row->type) { FLOATING_CASES(sqrt(x)) } return false;
    case OP_RSQRT:
        switch (row->type) { TRANSCENDENTAL_CASES(reciprocal_root_f32, reciprocal_root_f64) }
        return false;
    case OP_RCP: switch (row->type) { TRANSCENDENTAL_CASES(reciprocal_f32, reciprocal_f64) }
        return false;
    case OP_DP4A: dot_product(row, registers, mask); return true;
    default: return false;
    }
}
