#pragma once
/* One member of a gzip file, written by hand.
 *
 * A gzip file is a sequence of *members*, each of which unpacks on its own;
 * a reader joins what they unpack to.  So a log can be appended to, member by
 * member, and is a whole file after each of them.
 *
 * The profile's readers unpack gzip, and samples repeat: the same stack, a
 * thousand times.  What is said here in ten bits for 258 bytes is "go back by
 * the size of one record and copy", and the checksum of the repetitions
 * follows from that of one by arithmetic, so that neither costs more the more
 * often a record repeats.  That is why this is not a library's: at the end of
 * a run millions of samples are written so, and the program waits.  A library
 * would have to be shown every byte; and there is none that everything which is
 * translated with RPython links.
 *
 * Formats: RFC 1951 (deflate), RFC 1952 (gzip).
 *
 * Each member tells its kind and size in the header's extra field, so that a
 * reader can pass over those that it doesn't need:
 *
 *     'V' kind 04 00 size of the member in bytes, 32 bits, little-endian
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct gzip_member {
    unsigned char *start, *end;     /* the buffer */
    unsigned char *at;
    uint32_t bits;                  /* that don't fill a byte yet */
    int bit_count;
    uint32_t crc, size;             /* of what it unpacks to */
    int is_cut;                     /* there was no room for all of it */
};

/* Bytes around the content: header and trailer */
#define GZIP_MEMBER_FRAME   32

/* Begin a member in 'buffer'.  The caller sees to it that there is room: what
   has none is cut off, and nothing is written beyond the buffer. */
void gzip_begin(struct gzip_member *, void *buffer, size_t capacity, char kind);

/* How many bytes are left for content */
size_t gzip_room(const struct gzip_member *);

/* Bytes as they are.  Takes up to 'size' bytes and 8 more for each 64 KiB. */
void gzip_bytes(struct gzip_member *, const void *data, size_t size);

/* 3 bytes or more that are in the member already, 'distance' bytes back,
   4 < distance <= 32768.  Takes 'size' / 64 + 300 bytes at most. */
void gzip_copy(struct gzip_member *, const void *data, size_t size,
               size_t distance);

/* The last 'size' bytes of the member, which are 'data', so many times more.
   4 < size <= 32768.  Takes size * times / 64 + 300 bytes at most. */
void gzip_repeat(struct gzip_member *, const void *data, size_t size,
                 size_t times);

/* Returns the size of the whole member; 0: it was cut, and is of no use. */
size_t gzip_end(struct gzip_member *);

#pragma GCC visibility pop
