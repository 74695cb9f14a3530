#include "facts.h"

#include <string.h>

#include "digits.h"
#include "invariant.h"

/* In facts: kinds of entries */
enum { COLLECTION, YOUNG, FREED, LOST };

/* In names */
enum { THREAD = 1, COMMAND };

/* In labels */
enum { LABEL_SET = 1, LABEL };

#define MARK            1

/* numbers of the longest entry, its count included; and the collection's that
   may come before it */
#define MAX_NUMBERS     7
#define MAX_ENTRY       (MAX_NUMBERS * DIGITS_MAX)
#define MAX_NAMED       (MAX_ENTRY + 2 * FACTS_NAME_MAX)
/* as many as are read at once */
#define MAX_FIGURES     (10 * MAX_ENTRY)

struct buffer {
    const char *kind;
    char *text;
    size_t size, longest;       /* bytes; and of what may come next */
    size_t used;
};

static char types_text[8192], carried_text[8192], facts_text[16384], events_text[4096],
    marks_text[4096], figures_text[4096], names_text[4096],
    labels_text[8192];

typedef char all_of_it[
    sizeof types_text + sizeof carried_text + sizeof facts_text +
    sizeof events_text +
    sizeof marks_text + sizeof figures_text + sizeof names_text +
    sizeof labels_text == FACTS_SIZE
    ? 1 : -1];

#define BUFFER(kind, text, longest) { kind, text, sizeof text, longest, 0 }

/* in the order in which they are written */
static struct buffer types = BUFFER("types", types_text, MAX_NAMED),
    carried = BUFFER("carried", carried_text, 2 * MAX_ENTRY),
    facts = BUFFER("facts", facts_text, 2 * MAX_ENTRY),
    events = BUFFER("gc", events_text, 2 * MAX_ENTRY),
    marks = BUFFER("marks", marks_text, MAX_NAMED),
    figures = BUFFER("figures", figures_text, MAX_FIGURES),
    names = BUFFER("names", names_text, MAX_NAMED),
    labels = BUFFER("labels", labels_text, MAX_NAMED);

static struct buffer *const buffers[FACTS_PAYLOADS] = {
    &labels, &types, &carried, &facts, &events, &marks, &figures, &names
};

static struct {
    /* in this block of facts */
    int64_t last_key, last_time;
    int has_collection;
    /* of the collection that is at work */
    int64_t time, collections;
} waiting;

struct facts_payload facts_payload(int i)
{
    struct facts_payload payload = { buffers[i]->kind, buffers[i]->text,
                                     buffers[i]->used };
    return payload;
}

void facts_clear(void)
{
    int i;

    for (i = 0; i < FACTS_PAYLOADS; i++)
        buffers[i]->used = 0;
    waiting.last_key = waiting.last_time = 0;
    waiting.has_collection = 0;
}

int facts_are_empty(void)
{
    int i;

    for (i = 0; i < FACTS_PAYLOADS; i++)
        if (buffers[i]->used != 0)
            return 0;
    return 1;
}

int facts_have_room(void)
{
    int i;

    for (i = 0; i < FACTS_PAYLOADS; i++)
        if (buffers[i]->used + buffers[i]->longest > buffers[i]->size)
            return 0;
    return 1;
}

static char *put_count(char *p, size_t count)
{
    return put_digits(p, (uint64_t)count);
}

static void ends_at(struct buffer *buffer, const char *end)
{
    buffer->used = (size_t)(end - buffer->text);
    INVARIANT(buffer->used <= buffer->size);
}

static void put(struct buffer *buffer, const int64_t *numbers, int count)
{
    char *p = put_count(buffer->text + buffer->used, (size_t)count);
    int i;

    for (i = 0; i < count; i++)
        p = put_digits(p, (uint64_t)numbers[i]);
    ends_at(buffer, p);
}

void facts_collection(int64_t time, int64_t collections)
{
    waiting.time = time;
    waiting.collections = collections;
    waiting.has_collection = 0;
}

/* A collection that finds nothing out is not worth an entry. */
static void put_about(int kind, int64_t key, int64_t second, int64_t third,
                      int64_t fourth, int64_t fifth, int count)
{
    int64_t difference = key - waiting.last_key;
    /* as 64 bits, whatever the key */
    uint64_t zigzag = (uint64_t)difference << 1 ^
                      (difference < 0 ? ~(uint64_t)0 : 0);
    int64_t numbers[] = { kind, (int64_t)zigzag, second, third, fourth, fifth };

    if (!waiting.has_collection) {
        int64_t collection[] = { COLLECTION, waiting.time - waiting.last_time,
                                 waiting.collections };
        put(&facts, collection, 3);
        waiting.last_time = waiting.time;
        waiting.has_collection = 1;
    }
    put(&facts, numbers, count);
    waiting.last_key = key;
}

void facts_young(int64_t key, enum facts_outcome outcome, int64_t type,
                 int64_t size, int64_t live_size)
{
    put_about(YOUNG, key, outcome, type, size, live_size,
              live_size != 0 ? 6 : size != 0 ? 5 : 4);
}

void facts_freed(int64_t key, int which)
{
    put_about(FREED, key, which, 0, 0, 0, which != 0 ? 3 : 2);
}

void facts_lost(int64_t key, int which)
{
    put_about(LOST, key, which, 0, 0, 0, which != 0 ? 3 : 2);
}

void facts_carried(enum facts_carried kind, int64_t key, int which, int64_t stack,
                   int64_t size, int64_t live_size, int64_t interval, int64_t type)
{
    int64_t numbers[] = { kind, key, stack, size, interval, which, type, live_size };

    put(&carried, numbers, kind != FACTS_CARRIED_OLD ? 5 :
                           live_size != size ? 8 : 7);
}

/* An entry of numbers and a text */
static void put_named(struct buffer *buffer, const int64_t *numbers,
                      size_t count, const char *name, size_t size)
{
    char *p = buffer->text + buffer->used;
    size_t i;

    if (size > FACTS_NAME_MAX)
        for (size = FACTS_NAME_MAX;
             size > 0 && (name[size] & 0xc0) == 0x80; size--)
            ;           /* not within a character */
    p = put_count(p, count + 1 + size);
    for (i = 0; i < count; i++)
        p = put_digits(p, (uint64_t)numbers[i]);
    p = put_count(p, size);
    for (i = 0; i < size; i++)
        p = put_digits(p, (unsigned char)name[i]);
    ends_at(buffer, p);
}

void facts_type(int64_t number, enum facts_name kind, int64_t gcs,
                const char *name, size_t size)
{
    int64_t numbers[] = { kind, number, gcs + 1 };

    put_named(&types, numbers, 3, name, size);
}

void facts_event(enum facts_event kind, int64_t time, int64_t duration,
                 int64_t value)
{
    int64_t numbers[] = { kind, time, duration, value };

    put(&events, numbers, 4);
}

void facts_swept(int64_t time, const struct facts_swept *swept)
{
    int64_t numbers[] = { FACTS_SWEPT, time, 0, swept->heap, swept->heap_at_begin + 1,
                          swept->alive, swept->deviation, swept->not_known };

    put(&events, numbers, 8);
}

void facts_mark(int64_t time, const char *name, size_t size)
{
    int64_t numbers[] = { MARK, time };

    put_named(&marks, numbers, 2, name, size);
}

void facts_figure(int kind, int64_t time, int64_t value)
{
    int64_t numbers[] = { kind, time, value };

    put(&figures, numbers, 3);
}

void facts_named(int64_t thread, const char *name, size_t size)
{
    int64_t numbers[] = { thread != 0 ? THREAD : COMMAND, thread };

    put_named(&names, numbers, thread != 0 ? 2 : 1, name, size);
}

void facts_label_set(int number, const char *text, size_t size)
{
    int64_t numbers[] = { LABEL_SET, number };

    put_named(&labels, numbers, 2, text, size);
}

void facts_label(int64_t key, int number)
{
    int64_t numbers[] = { LABEL, key, number };

    put(&labels, numbers, 3);
}
