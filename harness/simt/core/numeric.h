/* Half and bfloat16 arithmetic by way of float and double, rounded once, to nearest even. */
#ifndef SIMT_NUMERIC_H
#define SIMT_NUMERIC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}
static inline double double_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, 8);
    return value;
}
static inline uint64_t double_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
}

#if defined(__FLT16_MANT_DIG__) && !defined(SIMT_PORTABLE_HALF)
static inline float half_to_float(uint16_t bits) {
    _Float16 value;
    memcpy(&value, &bits, 2);
    return (float)value;
}
static inline uint16_t float_to_half(float value) {
    _Float16 half = (_Float16)value;
    uint16_t bits;
    memcpy(&bits, &half, 2);
    return value != value ? 0x7fff : bits;
}
#else
/* Compilers without _Float16. */
static inline float half_to_float(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, part = bits & 1023;
    if (exponent == 31) return float_of(sign | 0x7f800000u | part << 13);
    if (exponent) return float_of(sign | (exponent + 112) << 23 | part << 13);
    float tiny = (float)part * 0x1p-24f;
    return sign ? -tiny : tiny;
}
static inline uint16_t float_to_half(float value) {
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000u) return 0x7fff;
    if (size >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);
    if (size < 0x38800000u) /* subnormal half: let the float adder round at 2^-24 */
        return (uint16_t)(sign | (bits_of(float_of(size) + 0.5f) - bits_of(0.5f)));
    return (uint16_t)(sign | ((size + 0xfff + (size >> 13 & 1)) >> 13) - (112 << 10));
}
#endif

static inline float bfloat_to_float(uint16_t bits) { return float_of((uint32_t)bits << 16); }

static inline uint16_t float_to_bfloat(float value) {
    uint32_t bits = bits_of(value);
    if (value != value) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Rounds to odd, so that a second rounding to fewer bits is as if there had been only one. */
static inline float double_to_odd_float(double value) {
    float nearest = (float)value;
    if ((double)nearest == value || value != value || isinf(nearest)) return nearest;
    uint32_t bits = bits_of(nearest);
    if (fabs((double)nearest) > fabs(value)) bits -= 1; /* towards zero */
    return float_of(bits | 1);
}
/* x + y rounded to odd; the error of a sum is a double itself (Knuth's two-sum). */
static inline double add_to_odd(double x, double y) {
    double sum = x + y, part = sum - x, error = (x - (sum - part)) + (y - part);
    uint64_t bits = double_bits(sum);
    if (!isfinite(sum) || error == 0 || bits & 1) return sum;
    return double_of((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}
static inline uint16_t double_to_half(double value) {
    return float_to_half(double_to_odd_float(value));
}
static inline uint16_t double_to_bfloat(double value) {
    return float_to_bfloat(double_to_odd_float(value));
}

static inline float saturate(float value) { /* NaN becomes zero, as the instruction set says */
    return value > 0 ? (value < 1 ? value : 1) : 0;
}

#endif
