#include "marks.h"

#include <stddef.h>

#include "question.h"
#include "room.h"

/* Chunks by address: two tables, one below the other, of what processes may use */
#define ADDRESS         47
#define LOWER           13
#define UPPER           (ADDRESS - MARKS_CHUNK - LOWER)

static uint32_t **upper;
static struct room chunks;      /* where they are: they don't move */

void marks_begin(void)
{
    upper = room_map(sizeof *upper << UPPER);
    room_begin(&chunks, sizeof(struct marks_chunk *), 1024);
}

void marks_end(void)
{
    size_t i;

    for (i = 0; i < (size_t)1 << UPPER; i++)
        if (upper[i] != NULL)
            room_unmap(upper[i], sizeof **upper << LOWER);
    for (i = 0; i < chunks.count; i++)
        room_unmap(marks_chunk_number((uint32_t)i), sizeof(struct marks_chunk));
    room_unmap(upper, sizeof *upper << UPPER);
    room_end(&chunks);
}

uint32_t marks_chunks(void)
{
    return (uint32_t)chunks.count;
}

struct marks_chunk *marks_chunk_number(uint32_t number)
{
    return ((struct marks_chunk **)chunks.at)[number];
}

struct marks_chunk *marks_find(uint64_t address)
{
    uint32_t *lower = address >> ADDRESS ? NULL
                                         : upper[address >> (MARKS_CHUNK + LOWER)];
    uint32_t number = lower == NULL
                          ? 0 : lower[address >> MARKS_CHUNK & ((1u << LOWER) - 1)];

    return number == 0 ? NULL : marks_chunk_number(number - 1);
}

static struct marks_chunk *make_chunk(uint64_t address)
{
    struct marks_chunk *chunk;
    uint32_t **lower;

    if (address >> ADDRESS)
        held_fail(HELD_UNKNOWN_TYPE);
    lower = &upper[address >> (MARKS_CHUNK + LOWER)];
    if (*lower == NULL)
        *lower = room_map(sizeof **lower << LOWER);
    chunk = room_map(sizeof *chunk);
    chunk->start = address >> MARKS_CHUNK << MARKS_CHUNK;
    *(struct marks_chunk **)room_add(&chunks) = chunk;
    (*lower)[address >> MARKS_CHUNK & ((1u << LOWER) - 1)] = (uint32_t)chunks.count;
    return chunk;
}

struct marks_chunk *marks_chunk(uint64_t address)
{
    struct marks_chunk *chunk = marks_find(address);

    return chunk != NULL ? chunk : make_chunk(address);
}

uint64_t marks_count(void)
{
    uint64_t total = 0, in_chunk;
    uint32_t i, word;

    for (i = 0; i < marks_chunks(); i++) {
        struct marks_chunk *chunk = marks_chunk_number(i);
        chunk->before = total;
        for (in_chunk = 0, word = 0; word < MARKS_WORDS; word++) {
            if (word % 8 == 0)
                chunk->rank[word / 8] = (uint32_t)in_chunk;
            in_chunk += (uint64_t)__builtin_popcountll(chunk->met[word]);
        }
        total += in_chunk;
    }
    return total;
}

int64_t marks_rank(uint64_t address)
{
    const struct marks_chunk *chunk = marks_find(address);
    uint32_t low = MARKS_LOW(address), word = low / 64, i;
    uint64_t bit = (uint64_t)1 << low % 64, rank;

    if (chunk == NULL || (chunk->met[word] & bit) == 0)
        return -1;
    rank = chunk->before + chunk->rank[word / 8];
    for (i = word & ~7u; i < word; i++)
        rank += (uint64_t)__builtin_popcountll(chunk->met[i]);
    return (int64_t)(rank + (uint64_t)__builtin_popcountll(chunk->met[word] & (bit - 1)));
}
