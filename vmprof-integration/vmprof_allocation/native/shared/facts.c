#include "facts.h"

#include <string.h>

#include "digits.h"
#include "invariant.h"

/* In facts: kinds of entries */
enum { COLLECTION, YOUNG, FREED, LOST };

/* numbers of the longest entry, its count included; and the collection's that
   may come before it */
#define MAX_NUMBERS     6
#define MAX_FACT        (2 * MAX_NUMBERS * DIGITS_MAX)
#define MAX_TYPE        (MAX_NUMBERS * DIGITS_MAX + 2 * FACTS_NAME_MAX)
#define MAX_EVENT       (MAX_NUMBERS * DIGITS_MAX)
#define MAX_MARK        MAX_TYPE
/* as many as there are of one time */
#define MAX_FIGURES     (8 * MAX_NUMBERS * DIGITS_MAX)

#define MAX_NAMED       MAX_TYPE

#define MARK            1

/* In names */
enum { THREAD = 1, COMMAND };

static struct {
    size_t facts_used, types_used, events_used, marks_used, names_used, figures_used;
    char facts[FACTS_SIZE];
    char types[FACTS_TYPES_SIZE];
    char events[FACTS_EVENTS_SIZE];
    char marks[FACTS_MARKS_SIZE];
    char names[FACTS_NAMES_SIZE];
    char figures[FACTS_FIGURES_SIZE];

    /* in this block */
    int64_t last_key, last_time;
    int has_collection;
    /* of the collection that is at work */
    int64_t time, collections;
} waiting;

struct facts_payload facts_payload(int i)
{
    struct facts_payload all[FACTS_PAYLOADS] = {
        { "types", waiting.types, waiting.types_used },
        { "facts", waiting.facts, waiting.facts_used },
        { "gc", waiting.events, waiting.events_used },
        { "marks", waiting.marks, waiting.marks_used },
        { "names", waiting.names, waiting.names_used },
        { "figures", waiting.figures, waiting.figures_used },
    };
    return all[i];
}

void facts_clear(void)
{
    waiting.facts_used = waiting.types_used = 0;
    waiting.events_used = waiting.marks_used = waiting.names_used =
        waiting.figures_used = 0;
    waiting.last_key = waiting.last_time = 0;
    waiting.has_collection = 0;
}

int facts_are_empty(void)
{
    return waiting.facts_used == 0 && waiting.types_used == 0 &&
           waiting.events_used == 0 && waiting.marks_used == 0 &&
           waiting.names_used == 0 &&
           waiting.figures_used == 0;
}

int facts_have_room(void)
{
    return waiting.facts_used + MAX_FACT <= FACTS_SIZE &&
           waiting.types_used + MAX_TYPE <= FACTS_TYPES_SIZE &&
           waiting.events_used + MAX_EVENT <= FACTS_EVENTS_SIZE &&
           waiting.marks_used + MAX_MARK <= FACTS_MARKS_SIZE &&
           waiting.names_used + MAX_NAMED <= FACTS_NAMES_SIZE &&
           waiting.figures_used + MAX_FIGURES <= FACTS_FIGURES_SIZE;
}

static char *put_numbers(char *p, const int64_t *numbers, int count)
{
    int i;

    p = put_digits(p, (uint64_t)count);
    for (i = 0; i < count; i++)
        p = put_digits(p, (uint64_t)numbers[i]);
    return p;
}

static void put_fact(const int64_t *numbers, int count)
{
    char *end = put_numbers(waiting.facts + waiting.facts_used, numbers, count);

    waiting.facts_used = (size_t)(end - waiting.facts);
    INVARIANT(waiting.facts_used <= FACTS_SIZE);
}

void facts_collection(int64_t time, int64_t collections)
{
    waiting.time = time;
    waiting.collections = collections;
    waiting.has_collection = 0;
}

/* A collection that finds nothing out is not worth an entry. */
static void put_about(int kind, int64_t key, int64_t second, int64_t third,
                      int64_t fourth, int count)
{
    int64_t difference = key - waiting.last_key;
    /* as 64 bits, whatever the key */
    uint64_t zigzag = (uint64_t)difference << 1 ^
                      (difference < 0 ? ~(uint64_t)0 : 0);
    int64_t numbers[] = { kind, (int64_t)zigzag, second, third, fourth };

    if (!waiting.has_collection) {
        int64_t collection[] = { COLLECTION, waiting.time - waiting.last_time,
                                 waiting.collections };
        put_fact(collection, 3);
        waiting.last_time = waiting.time;
        waiting.has_collection = 1;
    }
    put_fact(numbers, count);
    waiting.last_key = key;
}

void facts_young(int64_t key, enum facts_outcome outcome, int64_t type,
                 int64_t size)
{
    put_about(YOUNG, key, outcome, type, size, size != 0 ? 5 : 4);
}

void facts_freed(int64_t key, int which)
{
    put_about(FREED, key, which, 0, 0, which != 0 ? 3 : 2);
}

void facts_lost(int64_t key, int which)
{
    put_about(LOST, key, which, 0, 0, which != 0 ? 3 : 2);
}

/* An entry of numbers and a text */
static char *put_named(char *p, const int64_t *numbers, size_t count,
                       const char *name, size_t size)
{
    size_t i;

    if (size > FACTS_NAME_MAX)
        for (size = FACTS_NAME_MAX;
             size > 0 && (name[size] & 0xc0) == 0x80; size--)
            ;           /* not within a character */
    p = put_digits(p, count + 1 + size);
    for (i = 0; i < count; i++)
        p = put_digits(p, (uint64_t)numbers[i]);
    p = put_digits(p, size);
    for (i = 0; i < size; i++)
        p = put_digits(p, (unsigned char)name[i]);
    return p;
}

void facts_type(int64_t number, enum facts_name kind, int64_t gcs,
                const char *name, size_t size)
{
    int64_t numbers[] = { kind, number, gcs + 1 };
    char *p = put_named(waiting.types + waiting.types_used, numbers, 3, name,
                        size);

    waiting.types_used = (size_t)(p - waiting.types);
    INVARIANT(waiting.types_used <= FACTS_TYPES_SIZE);
}

void facts_event(enum facts_event kind, int64_t time, int64_t duration,
                 int64_t value)
{
    int64_t numbers[] = { kind, time, duration, value };
    char *end = put_numbers(waiting.events + waiting.events_used, numbers, 4);

    waiting.events_used = (size_t)(end - waiting.events);
    INVARIANT(waiting.events_used <= FACTS_EVENTS_SIZE);
}

void facts_mark(int64_t time, const char *name, size_t size)
{
    int64_t numbers[] = { MARK, time };
    char *end = put_named(waiting.marks + waiting.marks_used, numbers, 2, name,
                          size);

    waiting.marks_used = (size_t)(end - waiting.marks);
    INVARIANT(waiting.marks_used <= FACTS_MARKS_SIZE);
}

void facts_named(int64_t thread, const char *name, size_t size)
{
    int64_t numbers[] = { thread != 0 ? THREAD : COMMAND, thread };
    char *end = put_named(waiting.names + waiting.names_used, numbers,
                          thread != 0 ? 2 : 1, name, size);

    waiting.names_used = (size_t)(end - waiting.names);
    INVARIANT(waiting.names_used <= FACTS_NAMES_SIZE);
}

void facts_figure(int kind, int64_t time, int64_t value)
{
    int64_t numbers[] = { kind, time, value };
    char *end = put_numbers(waiting.figures + waiting.figures_used, numbers, 3);

    waiting.figures_used = (size_t)(end - waiting.figures);
    INVARIANT(waiting.figures_used <= FACTS_FIGURES_SIZE);
}
