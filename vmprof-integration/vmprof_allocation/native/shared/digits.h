#pragma once
/* Numbers as text that is short, and looks like nothing else in the log.
 *
 * Digits of five bits, the lowest first; all but the last one have the sixth
 * bit set.  So each is one of the 64 characters from '@' on: no colon, which
 * separates the fields of a name, and valid UTF-8, which readers expect of
 * names.
 */

#include <stdint.h>

#define DIGITS_MAX  13      /* of a number of 64 bits */

static inline char *put_digits(char *p, uint64_t number)
{
    while (number >= 32) {
        *p++ = (char)(0x60 | (number & 31));
        number >>= 5;
    }
    *p++ = (char)(0x40 | number);
    return p;
}

static inline const char *get_digits(const char *p, uint64_t *number)
{
    int shift = 0;

    *number = 0;
    for (; *p & 0x20; p++, shift += 5)
        *number |= (uint64_t)(*p & 31) << shift;
    *number |= (uint64_t)(*p & 31) << shift;
    return p + 1;
}
