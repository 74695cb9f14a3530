#include "marks.h"

#include "mapped_memory.h"
#include "question.h"

struct marks_chunk ***marks_upper;
static struct room chunks;      /* addresses of the chunks */

void marks_begin(void)
{
    marks_upper = room_map(sizeof *marks_upper << MARKS_UPPER);
    room_begin(&chunks, sizeof(struct marks_chunk *), 1024);
}

void marks_end(void)
{
    size_t i;

    for (i = 0; i < (size_t)1 << MARKS_UPPER; i++)
        if (marks_upper[i] != NULL)
            room_unmap(marks_upper[i], sizeof **marks_upper << MARKS_LOWER);
    for (i = 0; i < chunks.count; i++)
        room_unmap(marks_chunk_number((uint32_t)i), sizeof(struct marks_chunk));
    room_unmap(marks_upper, sizeof *marks_upper << MARKS_UPPER);
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

static struct marks_chunk *make_chunk(uint64_t address)
{
    struct marks_chunk *chunk;
    struct marks_chunk ***lower;

    if (address >> MARKS_ADDRESS)
        held_fail(HELD_UNKNOWN_TYPE);
    lower = &marks_upper[address >> (MARKS_CHUNK + MARKS_LOWER)];
    if (*lower == NULL)
        *lower = room_map(sizeof **lower << MARKS_LOWER);
    chunk = room_map(sizeof *chunk);
    chunk->start = address >> MARKS_CHUNK << MARKS_CHUNK;
    *(struct marks_chunk **)room_add(&chunks) = chunk;
    (*lower)[address >> MARKS_CHUNK & ((1u << MARKS_LOWER) - 1)] = chunk;
    return chunk;
}

struct marks_chunk *marks_chunk(uint64_t address)
{
    struct marks_chunk *chunk = marks_find(address);

    return chunk != NULL ? chunk : make_chunk(address);
}

uint64_t marks_count(void)
{
    uint64_t total = 0;
    uint32_t i, word, in_chunk;

    for (i = 0; i < marks_chunks(); i++) {
        struct marks_chunk *chunk = marks_chunk_number(i);
        chunk->before = total;
        for (in_chunk = 0, word = 0; word < MARKS_WORDS; word++) {
            chunk->rank[word] = in_chunk;
            in_chunk += marks_ones(chunk->met[word]);
        }
        total += in_chunk;
    }
    return total;
}
