/* The special function unit: approximations of single precision, off by as much as the hardware's.

   How far they are off was measured on an H100 over all mantissas of 22 exponents
   (benchmarks/ground_truth/approximations.cu); where the exact result is a number of the type, it is
   what comes out. Here the error is of that size and hangs on the operand alone. */
#include <math.h>

#include "numeric.h"
#include "simt.h"

#define TURNS_A_RADIAN 0.15915494f
#define TWO_PI 6.283185307179586

/* Between -1 and 1, by the bits of an operand. */
static float error_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits *= UINT32_C(0x9E3779B1);
    bits ^= bits >> 15;
    bits *= UINT32_C(0x85EBCA6B);
    bits ^= bits >> 13;
    return (float)(int32_t)bits * 0x1p-31f;
}

/* `exact`, moved by up to `most` and rounded. */
static float moved(float x, double exact, double most) {
    return (float)(isfinite(exact) ? exact + (double)error_of(x) * most : exact);
}

static bool is_power_of_two(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return !(bits & 0x7fffff);
}

static float power(float x) {
    if (x == rintf(x)) return exp2f(x);
    double y = exp2((double)x);
    return moved(x, y, y * 8.5e-8);
}

/* Near 1, where it is small itself, it is not off by less. */
static float logarithm(float x) {
    if (is_power_of_two(x)) return log2f(x);
    double y = log2((double)x);
    return moved(x, y, x > 0.5f && x < 2 ? 1.5e-7 : fabs(y) * 8e-8);
}

/* The argument is first made turns, cut off: the larger it is, the less is left of its place in one. */
static double angle(float x) {
    double exact = (double)x * TURNS_A_RADIAN;
    float turns = (float)exact;
    if (fabs((double)turns) > fabs(exact)) turns = nextafterf(turns, 0);
    return TWO_PI * ((double)turns - rint((double)turns));
}

static float sine(float x) {
    if (!isfinite(x)) return NAN;
    double y = sin(angle(x)), least = fabs(y) * 0x1p-10;
    double most = fabsf(x) < 0x1p-7f ? 1.6e-7 : 3.1e-7;
    return moved(x, y, least < most ? least : most);
}

static float cosine(float x) {
    if (!isfinite(x)) return NAN;
    return x == 0 ? 1 : moved(x, cos(angle(x)), fabsf(x) < 0.125f ? 9e-8 : 3.1e-7);
}

static float hyperbolic_tangent(float x) {
    float size = fabsf(x);
    if (size < 0x1p-8f) return x;
    if (size >= 8) return copysignf(1, x);
    double y = tanh((double)x);
    float result = moved(x, y, y * (size < 2 ? 1.1e-5 : 2.4e-6));
    return fabsf(result) > 1 ? copysignf(1, x) : result;
}

static float reciprocal(float x) {
    double y = 1 / (double)x;
    return is_power_of_two(x) ? (float)y : moved(x, y, y * 4e-8);
}

static float root(float x) {
    double y = sqrt((double)x);
    return (double)(float)y == y ? (float)y : moved(x, y, y * 4.5e-8);
}

static float reciprocal_root(float x) {
    double y = 1 / sqrt((double)x);
    return (double)(float)y == y ? (float)y : moved(x, y, y * 6.5e-8);
}

/* The product with the reciprocal, of which only the range is larger. */
static float quotient(float x, float y) {
    double by = 1 / (double)y;
    if (!is_power_of_two(y)) by *= 1 + 4e-8 * (double)error_of(y);
    double apart = by * (0x1p29 + 1), rounded = apart - (apart - by);
    return (float)((double)x * (isfinite(apart) ? rounded : by));
}

#define EACH(EXPRESSION)                                                                 \
    FOR_EACH_LANE(lane, mask) {                                                          \
        float x = ((float *)(registers + row->source0))[lane];                           \
        ((float *)(registers + row->destination))[lane] = (EXPRESSION);                  \
    }                                                                                    \
    return true;

bool execute_approximation(const Instruction *row, uint8_t *registers, LaneMask mask) {
    switch (row->opcode) {
    case OP_EX2: EACH(power(x))
    case OP_LG2: EACH(logarithm(x))
    case OP_SIN: EACH(sine(x))
    case OP_COS: EACH(cosine(x))
    case OP_TANH: EACH(hyperbolic_tangent(x))
    case OP_RCP: EACH(reciprocal(x))
    case OP_SQRT: EACH(root(x))
    case OP_RSQRT: EACH(reciprocal_root(x))
    case OP_DIV: EACH(quotient(x, ((float *)(registers + row->source1))[lane]))
    default: return false;
    }
}
