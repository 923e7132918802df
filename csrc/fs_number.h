/* Decimal numbers in text, correctly rounded; included by each parser of text. */
#ifndef FS_NUMBER_H
#define FS_NUMBER_H
#include <math.h>
#include <stdint.h>

/* Powers of ten that a double holds exactly: m * 10^e is correctly rounded for m <= 2^53, |e| <= 22 (Clinger 1990). */
static const double fs_exact_ten[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static int fs_is_digit(char c) { return (unsigned char)(c - '0') < 10; }

/* clang-cl has the type, but links nothing that divides it. */
#if defined(__SIZEOF_INT128__) && !defined(_MSC_VER)
#define FS_EXACT_128
/* mantissa * 10^exponent, correctly rounded, for mantissa > 2^53 and |exponent| <= 19: 10^19 < 2^64, so the product or
 * the quotient with its remainder is exact in 128 bits, and only the last step rounds. */
static double fs_scale_exactly(uint64_t mantissa, int exponent)
{
    unsigned __int128 value;
    int sticky = 0, shift = 0;
    uint64_t power = 1, top;
    for (int i = exponent < 0 ? -exponent : exponent; i > 0; i--)
        power *= 10;
    if (exponent < 0) {
        const unsigned __int128 wide = (unsigned __int128)mantissa << 64;
        value = wide / power; /* at least 2^117 / 10^19 > 2^53: 54 bits */
        sticky = wide % power != 0;
        shift = -64;
    } else {
        value = (unsigned __int128)mantissa * power;
    }
    while (value >> 64) { /* to 64 bits; bits shifted out stay in the sticky bit */
        const int drop = value >> 96 ? 32 : value >> 72 ? 8 : 1;
        sticky |= (value & (((unsigned __int128)1 << drop) - 1)) != 0;
        value >>= drop;
        shift += drop;
    }
    top = (uint64_t)value;
    while (top >> 54) { /* to 54 bits: 53 and the half */
        sticky |= (int)(top & 1);
        top >>= 1;
        shift++;
    }
    if ((top & 1) && (sticky || (top & 2)))
        top++; /* round half to even; 2^54 is a power of two and needs no care */
    top &= ~UINT64_C(1);
    return ldexp((double)top, shift);
}
#endif

/* Read the number that starts at p, with this decimal point, as far as it goes: whoever calls looks at what follows.
 * 0: *value is exact; 1: a number that needs a full conversion; -1: not a number. *end is its end. */
static int fs_read_number(const char *p, const char *stop, char point, double *value, const char **end)
{
    uint64_t mantissa = 0;
    int digits = 0, exponent = 0, seen = 0, negative = 0;
    if (p < stop && (*p == '-' || *p == '+'))
        negative = *p++ == '-';
    for (; p < stop && fs_is_digit(*p); p++, seen = 1)
        if (digits < 19) {
            mantissa = mantissa * 10 + (uint64_t)(*p - '0');
            digits += mantissa != 0;
        } else {
            digits = 20;
        }
    if (p < stop && *p == point) {
        p++;
        for (; p < stop && fs_is_digit(*p); p++, seen = 1)
            if (digits < 19) {
                mantissa = mantissa * 10 + (uint64_t)(*p - '0');
                digits += mantissa != 0;
                exponent--;
            } else {
                digits = 20;
            }
    }
    if (seen && p < stop && (*p == 'e' || *p == 'E')) {
        const char *mark = p++;
        int sign = 1, power = 0;
        if (p < stop && (*p == '-' || *p == '+'))
            sign = *p++ == '-' ? -1 : 1;
        if (p == stop || !fs_is_digit(*p))
            p = mark; /* "1e": no number */
        for (; p < stop && fs_is_digit(*p); p++)
            power = power < 100000 ? power * 10 + (*p - '0') : power;
        exponent += sign * power;
    }
    *end = p;
    if (seen) {
        if (digits < 20 && mantissa <= (UINT64_C(1) << 53) && exponent >= -22 && exponent <= 22) {
            double v = (double)mantissa;
            v = exponent < 0 ? v / fs_exact_ten[-exponent] : v * fs_exact_ten[exponent];
            *value = negative ? -v : v;
            return 0;
        }
#ifdef FS_EXACT_128
        if (digits < 20 && mantissa > (UINT64_C(1) << 53) && exponent >= -19 && exponent <= 19) {
            const double v = fs_scale_exactly(mantissa, exponent);
            *value = negative ? -v : v;
            return 0;
        }
#endif
        return 1;
    }
    return -1;
}

#endif
