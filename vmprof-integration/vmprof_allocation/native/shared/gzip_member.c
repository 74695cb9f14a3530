#include "gzip_member.h"

#include <string.h>

/* ____________________________________________________________ */
/* CRC-32: the remainder of the bits, taken for a polynomial over GF(2), by
   this one.  The highest bit is the coefficient of x^0. */

#define POLYNOMIAL  0xedb88320u
#define ONE         0x80000000u

/* [n]: of a byte with n zeros behind it */
static uint32_t crc_table[8][256];

static uint32_t times_x(uint32_t a)
{
    return (a >> 1) ^ ((a & 1) ? POLYNOMIAL : 0);
}

static uint32_t product(uint32_t a, uint32_t b)
{
    uint32_t sum = 0;

    for (; a != 0; a <<= 1) {
        if (a & ONE)
            sum ^= b;
        b = times_x(b);
    }
    return sum;
}

static void fill_crc_table(void)
{
    uint32_t i, n;

    for (i = 0; i < 256; i++) {
        uint32_t entry = i;
        for (n = 0; n < 8; n++)
            entry = times_x(entry);
        crc_table[0][i] = entry;
    }
    for (n = 1; n < 8; n++)
        for (i = 0; i < 256; i++) {
            uint32_t entry = crc_table[n - 1][i];
            crc_table[n][i] = (entry >> 8) ^ crc_table[0][entry & 255];
        }
}

/* Eight bytes at a time: no look-up waits for the one before it. */
static uint32_t crc_of(const unsigned char *p, size_t size)
{
    uint32_t crc = ~0u;

    if (crc_table[7][255] == 0)
        fill_crc_table();
    for (; size >= 8; size -= 8, p += 8)
        crc = crc_table[7][(crc ^ p[0]) & 255] ^
              crc_table[6][((crc >> 8) ^ p[1]) & 255] ^
              crc_table[5][((crc >> 16) ^ p[2]) & 255] ^
              crc_table[4][(crc >> 24) ^ p[3]] ^
              crc_table[3][p[4]] ^ crc_table[2][p[5]] ^
              crc_table[1][p[6]] ^ crc_table[0][p[7]];
    while (size-- > 0)
        crc = (crc >> 8) ^ crc_table[0][(crc ^ *p++) & 255];
    return ~crc;
}

/* Append 'times' pieces of 'size' bytes with this checksum.  Appending moves
   what was there by 8 * size powers of x: two pieces are one of twice the
   size, and so on. */
static void append_crc(struct gzip_member *m, uint32_t crc, size_t size,
                       size_t times)
{
    uint32_t shift = ONE, power = ONE >> 8;
    size_t n;

    m->size += (uint32_t)(size * times);
    for (n = size; n != 0; n >>= 1) {
        if (n & 1)
            shift = product(shift, power);
        power = product(power, power);
    }
    for (n = times; n != 0; n >>= 1) {
        if (n & 1)
            m->crc = product(shift, m->crc) ^ crc;
        crc ^= product(shift, crc);
        shift = product(shift, shift);
    }
}

/* ____________________________________________________________ */
/* deflate */

#define STORED          0
#define FIXED_CODES     1
#define OWN_CODES       2
#define WORTH_OWN_CODES 12      /* matches: they take 15 bytes */
#define LAST            1       /* flag of the member's last block */
#define MAX_STORED      65535
#define LONGEST_MATCH   258

/* Here and in put_bytes() is all that is ever written. */
static void put_byte(struct gzip_member *m, uint32_t byte)
{
    if (m->at < m->end)
        *m->at++ = (unsigned char)byte;
    else
        m->is_cut = 1;
}

static void put_bytes(struct gzip_member *m, const unsigned char *p,
                      size_t size)
{
    size_t left = (size_t)(m->end - m->at);

    if (size > left) {
        m->is_cut = 1;
        size = left;
    }
    memcpy(m->at, p, size);
    m->at += size;
}

static void put_bits(struct gzip_member *m, uint32_t bits, int count)
{
    m->bits |= bits << m->bit_count;
    m->bit_count += count;
    while (m->bit_count >= 8) {
        put_byte(m, m->bits);
        m->bits >>= 8;
        m->bit_count -= 8;
    }
}

static void fill_byte(struct gzip_member *m)
{
    if (m->bit_count > 0)
        put_bits(m, 0, 8 - m->bit_count);
}

static void put_number(struct gzip_member *m, uint32_t number, int bytes)
{
    for (; bytes > 0; bytes--, number >>= 8)
        put_byte(m, number);
}

static void put_stored(struct gzip_member *m, const unsigned char *p,
                       size_t size)
{
    while (size > 0) {
        uint32_t count = size < MAX_STORED ? (uint32_t)size : MAX_STORED;
        put_bits(m, STORED << 1, 3);
        fill_byte(m);
        put_number(m, count, 2);
        put_number(m, ~count, 2);
        put_bytes(m, p, count);
        p += count;
        size -= count;
    }
}

/* Codes are written from their highest bit on, numbers from their lowest. */
static uint32_t reversed(uint32_t code, int bits)
{
    uint32_t result = 0;

    for (; bits > 0; bits--, code >>= 1)
        result = result << 1 | (code & 1);
    return result;
}

/* Code lengths of a block that says nothing but "258 bytes" and "end": both
   have one bit, as has its only distance.  The lengths are written in a code
   of their own, in which 0 has the code 0, 1 has 10, and "number + 11 zeros"
   has 11 and seven bits. */
static void put_zeros(struct gzip_member *m, int count)
{
    for (; count >= 11; count -= count < 138 ? count : 138)
        put_bits(m, 3 | (uint32_t)((count < 138 ? count : 138) - 11) << 2, 9);
    put_bits(m, 0, count);
}

static void put_own_codes(struct gzip_member *m, int distance_code)
{
    /* of 16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14 and 1 */
    static const unsigned char lengths[18] = { 0, 0, 2, 1, [17] = 2 };
    size_t i;

    put_bits(m, OWN_CODES << 1, 3);
    put_bits(m, 286 - 257, 5);
    put_bits(m, (uint32_t)distance_code, 5);
    put_bits(m, sizeof lengths - 4, 4);
    for (i = 0; i < sizeof lengths; i++)
        put_bits(m, lengths[i], 3);
    put_zeros(m, 256);
    put_bits(m, 1, 2);                      /* 256: the end */
    put_zeros(m, 28);
    put_bits(m, 1, 2);                      /* 285: 258 bytes */
    put_zeros(m, distance_code);
    put_bits(m, 1, 2);
}

static int distance_extra(size_t distance)
{
    int extra = 0;

    while ((distance - 1) >> (extra + 2) != 0)
        extra++;
    return extra;
}

static int distance_code(size_t distance)
{
    int extra = distance_extra(distance);

    return 2 * extra + (int)((distance - 1) >> extra);
}

static void put_distance_extra(struct gzip_member *m, size_t distance)
{
    int extra = distance_extra(distance);

    put_bits(m, (uint32_t)(distance - 1) & ((1u << extra) - 1), extra);
}

static void put_distance(struct gzip_member *m, size_t distance)
{
    put_bits(m, reversed((uint32_t)distance_code(distance), 5), 5);
    put_distance_extra(m, distance);
}

/* 'count' times 258 bytes */
static void put_matches(struct gzip_member *m, size_t count, size_t distance)
{
    if (count < WORTH_OWN_CODES) {
        /* length 258: code 285, the sixth of those that begin at 11000000 */
        put_bits(m, FIXED_CODES << 1, 3);
        while (count-- > 0) {
            put_bits(m, reversed(0xc0 + 285 - 280, 8), 8);
            put_distance(m, distance);
        }
        put_bits(m, 0, 7);              /* the block's end */
        return;
    }
    put_own_codes(m, distance_code(distance));
    while (count-- > 0) {
        put_bits(m, 1, 2);
        put_distance_extra(m, distance);
    }
    put_bits(m, 0, 1);
}

/* One match of 3 to 257 bytes, in the fixed codes: the code for the length
   counts in steps that double every four codes. */
static void put_match(struct gzip_member *m, uint32_t length, size_t distance)
{
    uint32_t n = length - 3, code;
    int extra = 0;

    while (n >> (extra + 3) != 0)
        extra++;
    code = 257 + 4 * (uint32_t)extra + (n >> extra);
    put_bits(m, FIXED_CODES << 1, 3);
    if (code < 280)
        put_bits(m, reversed(code - 256, 7), 7);
    else
        put_bits(m, reversed(0xc0 + code - 280, 8), 8);
    put_bits(m, n & ((1u << extra) - 1), extra);
    put_distance(m, distance);
    put_bits(m, 0, 7);
}

/* 'size' bytes that repeat those 'distance' back */
static void put_copy(struct gzip_member *m, size_t size, size_t distance)
{
    size_t rest = size % LONGEST_MATCH;

    /* two bytes are too few for a match */
    if (rest == 1 || rest == 2)
        rest += LONGEST_MATCH;
    if (rest > size)
        rest = size;
    if (size > rest)
        put_matches(m, (size - rest) / LONGEST_MATCH, distance);
    for (; rest > 0; rest -= rest < LONGEST_MATCH ? rest : LONGEST_MATCH / 2)
        put_match(m, (uint32_t)(rest < LONGEST_MATCH ? rest : LONGEST_MATCH / 2),
                  distance);
}

void gzip_bytes(struct gzip_member *m, const void *data, size_t size)
{
    append_crc(m, crc_of(data, size), size, 1);
    put_stored(m, data, size);
}

void gzip_copy(struct gzip_member *m, const void *data, size_t size,
               size_t distance)
{
    append_crc(m, crc_of(data, size), size, 1);
    put_copy(m, size, distance);
}

void gzip_repeat(struct gzip_member *m, const void *data, size_t size,
                 size_t times)
{
    append_crc(m, crc_of(data, size), size, times);
    put_copy(m, size * times, size);
}

/* ____________________________________________________________ */
/* gzip */

static const unsigned char header[] = {
    0x1f, 0x8b, 8,          /* gzip, deflate */
    4,                      /* there is an extra field */
    0, 0, 0, 0,             /* no time */
    0, 255,                 /* no word of effort or system */
    8, 0,                   /* the extra field's size */
    'V'
};

#define EXTRA_SIZE      16      /* where the member's size stands */
#define TRAILER_SIZE    10      /* an empty block, checksum and size */

void gzip_begin(struct gzip_member *m, void *buffer, size_t capacity, char kind)
{
    m->start = m->at = buffer;
    m->end = m->start + capacity;
    m->bits = 0;
    m->bit_count = 0;
    m->crc = m->size = 0;
    m->is_cut = 0;
    put_bytes(m, header, sizeof header);
    put_byte(m, (unsigned char)kind);
    put_number(m, 4, 2);
    put_number(m, 0, 4);
}

size_t gzip_room(const struct gzip_member *m)
{
    size_t left = (size_t)(m->end - m->at);

    return left < TRAILER_SIZE + 1 ? 0 : left - TRAILER_SIZE - 1;
}

size_t gzip_end(struct gzip_member *m)
{
    size_t size;
    unsigned char *at;

    put_bits(m, LAST | FIXED_CODES << 1, 3);
    put_bits(m, 0, 7);
    fill_byte(m);
    put_number(m, m->crc, 4);
    put_number(m, m->size, 4);
    if (m->is_cut)
        return 0;
    at = m->at;
    size = (size_t)(at - m->start);
    m->at = m->start + EXTRA_SIZE;
    put_number(m, (uint32_t)size, 4);
    m->at = at;
    return size;
}
