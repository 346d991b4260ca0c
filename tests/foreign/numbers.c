/* IEEE rounding by hand, so that nothing depends on what the compiler or the processor knows of 16-bit types. */
#include "refgf.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* digits of the significand, power of two of the smallest number, largest number */
static const struct { int digits, smallest; double largest; } FORMATS[] = {
    [F32] = {24, -149, 3.4028234663852886e38},
    [F16] = {11, -24, 65504.0},
    [BF16] = {8, -133, 3.3895313892515355e38},
};

double round_to(Type type, double x)
{
    int exponent;
    if (type == F64 || x == 0 || isnan(x) || isinf(x))
        return x;
    frexp(x, &exponent); /* |x| in [2^(exponent-1), 2^exponent) */
    int unit = exponent - FORMATS[type].digits;
    if (unit < FORMATS[type].smallest)
        unit = FORMATS[type].smallest;
    double y = ldexp(nearbyint(ldexp(x, -unit)), unit);
    return fabs(y) > FORMATS[type].largest ? copysign(INFINITY, x) : y;
}

size_t size_of(Type type)
{
    return (const size_t[]){[F64] = 8, [F32] = 4, [F16] = 2, [BF16] = 2, [I64] = 8, [U8] = 1}[type];
}

static double half_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double x = exponent == 31 ? (fraction ? NAN : INFINITY)
             : exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return bits >> 15 ? -x : x;
}

static uint16_t half_bits(double x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    int exponent;
    if (isnan(x))
        return sign | 0x7E00;
    if (isinf(x))
        return sign | 0x7C00;
    if (fabs(x) < ldexp(1, -14))
        return sign | (uint16_t)ldexp(fabs(x), 24);
    double m = frexp(fabs(x), &exponent); /* in [1/2, 1) */
    return sign | (uint16_t)((exponent + 14) << 10) | ((uint16_t)ldexp(m, 11) & 1023);
}

/* Files are little-endian; so is every machine that this is built on. */
double load_number(Type type, const unsigned char *bytes)
{
    double d;
    float f;
    int64_t i;
    uint16_t h;
    uint32_t wide;
    switch (type) {
    case F64: memcpy(&d, bytes, 8); return d;
    case F32: memcpy(&f, bytes, 4); return f;
    case I64: memcpy(&i, bytes, 8); return (double)i;
    case F16: memcpy(&h, bytes, 2); return half_value(h);
    case BF16: memcpy(&h, bytes, 2); wide = (uint32_t)h << 16; memcpy(&f, &wide, 4); return f;
    default: return bytes[0];
    }
}

void store_number(Type type, double x, unsigned char *bytes)
{
    float f = (float)x;
    int64_t i = type == I64 ? (int64_t)x : 0;
    uint16_t h = type == F16 ? half_bits(x) : 0;
    uint32_t wide;
    switch (type) {
    case F64: memcpy(bytes, &x, 8); break;
    case F32: memcpy(bytes, &f, 4); break;
    case I64: memcpy(bytes, &i, 8); break;
    case F16: memcpy(bytes, &h, 2); break;
    case BF16: memcpy(&wide, &f, 4); h = (uint16_t)(wide >> 16); memcpy(bytes, &h, 2); break;
    default: bytes[0] = (unsigned char)x;
    }
}
