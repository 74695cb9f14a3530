#define _GNU_SOURCE
#include "profile_log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "code_names.h"
#include "invariant.h"

#define MARKER_STACKTRACE   '\x01'
#define MARKER_HEADER       '\x05'

#define FILE_HEAD           (5 * sizeof(int64_t))
#define FLAG_MEMORY         1           /* in vmprof's header */

/* Size of the beginning of a stack sample: marker, count, depth.  The words of the stack,
   the thread and, if vmprof's header has FLAG_MEMORY, the resident memory follow. */
#define RECORD_HEAD         (1 + 2 * sizeof(int64_t))

/* Larger than the largest record and than vmprof's buffers of 8 KiB, but small enough for
   the processor's caches */
#define BUFFER_SIZE         65536

static struct {
    int is_open;
    struct sink *sink;
    int error;                          /* first error of the sink, or 0 */
    const struct profile_source *source;
    struct profile_totals before;       /* totals of the process when this segment began */
    int64_t started;                    /* start of this segment */
    int is_waiting;                     /* whether a row waits to be written, ... */
    int64_t oldest;                     /* ... and since when */
    int64_t newest;                     /* time of the last row or flush */
    int64_t keys_since;                 /* time at which the keys of stacks were
                                           forgotten */
    int knows_layout;                   /* whether vmprof's header was seen */
    int has_memory;                     /* whether vmprof's samples have the resident
                                           memory */
    int64_t memory;                     /* resident memory of the last sample, in KiB */
    const char *(*label_text)(int number);
    /* bit i is set if the profile has the set of labels number i */
    unsigned char told_labels[PROFILE_LOG_LABELS / 8];
    size_t used;                        /* bytes in 'buffer' */
    char buffer[BUFFER_SIZE];
} log;

/* ____________________________________________________________ */
/* writing */

static void write_buffer(void)
{
    if (log.used > 0 && log.error == 0)
        log.error = log.sink->append(log.sink, log.buffer, log.used);
    log.used = 0;
}

static void make_room(size_t bytes)
{
    if (log.used + bytes > BUFFER_SIZE)
        write_buffer();
}

/* Append the encoded record of this kind to the buffer, unless it is empty. */
static void encode(enum record_kind kind)
{
    size_t bound = record_bound(record_of(kind));

    INVARIANT(bound <= BUFFER_SIZE);
    if (record_of(kind)->count == 0)
        return;
    make_room(bound);
    log.used = (size_t)(record_encode(kind, log.buffer + log.used) - log.buffer);
}

static void put_totals(int64_t now)
{
    struct profile_totals t;
    int64_t row[8];

    memset(&t, 0, sizeof t);
    log.source->totals(&t);
    row[0] = profile_log_time(now);
    row[1] = t.allocated - log.before.allocated;
    row[2] = t.lost - log.before.lost;
    row[3] = t.dropped - log.before.dropped;
    row[4] = t.collections - log.before.collections;
    row[5] = t.pressures - log.before.pressures;
    row[6] = t.surprises - log.before.surprises;
    row[7] = t.waits;
    record_add(record_of(RECORD_TOTALS), row);
}

/* Append a batch to the buffer: the totals, and then all waiting rows.  The field
   'waits' of the totals makes the earlier batches' rows of RECORD_WAITING void if their
   keys are smaller. */
static void encode_batch(int64_t now)
{
    int kind;

    log.newest = now;
    log.is_waiting = 0;
    put_totals(now);
    for (kind = RECORD_TOTALS; kind < RECORD_KINDS; kind++)
        encode(kind);
}

void profile_log_flush(int64_t now)
{
    if (!log.is_open)
        return;
    encode_batch(now);
    log.source->waiting();
    encode(RECORD_WAITING);
    write_buffer();
}

void profile_log_settings(const char *text)
{
    size_t bound = RECORD_SETTINGS_BOUND(strlen(text));

    if (!log.is_open || bound > BUFFER_SIZE)
        return;
    make_room(bound);
    log.used = (size_t)(record_encode_settings(text, strlen(text),
                                               log.buffer + log.used) - log.buffer);
    write_buffer();
}

/* ____________________________________________________________ */
/* rows and records of other modules */

/* Find out from vmprof's header whether stack samples contain the resident memory.  Only
   the head of the file comes before this header.  Later records are ignored: they may
   come in parts, and such a part may only look like a header. */
static void learn_layout(const unsigned char *p, size_t size)
{
    if (log.knows_layout)
        return;
    if (size >= FILE_HEAD && *p == 0) {
        p += FILE_HEAD;
        size -= FILE_HEAD;
    }
    if (size >= 4 && *p == MARKER_HEADER) {
        log.has_memory = (p[3] & FLAG_MEMORY) != 0;
        log.knows_layout = 1;
    }
}

void profile_log_bytes(const void *records, size_t size)
{
    if (!log.is_open || size > BUFFER_SIZE)
        return;
    learn_layout(records, size);
    make_room(size);
    memcpy(log.buffer + log.used, records, size);
    log.used += size;
}

/* Write the name of a function if it is known and the profile does not have it. */
static void tell_name(int64_t address)
{
    size_t size;
    const void *name = code_names_record(address, &size);

    if (name != NULL)
        profile_log_bytes(name, size);
}

/* each record consists of marker, address of the function, size of the name, and name */
void profile_log_names(const char *records, size_t size)
{
    int64_t word[2];

    code_names_keep(records, size);
    while (log.is_open && size >= RECORD_HEAD) {
        memcpy(word, records + 1, sizeof word);
        if (word[1] < 0 || (size_t)word[1] > size - RECORD_HEAD)
            break;
        if (stack_tree_has_told(word[0]))
            tell_name(word[0]);
        records += RECORD_HEAD + (size_t)word[1];
        size -= RECORD_HEAD + (size_t)word[1];
    }
}

void profile_log_waits(int64_t now)
{
    if (!log.is_waiting)
        log.oldest = now;
    log.is_waiting = 1;
    log.newest = now;
}

/* Return the record of this kind, with room for a row that waits since 'now'.  If the
   record is full, encodes it first. */
static struct record *with_room(enum record_kind kind, int64_t now)
{
    struct record *record = record_of(kind);

    if (!record_has_room(record)) {
        if (kind == RECORD_WAITING)
            encode(kind);               /* 'now' is the time of a sample and not of a
                                           batch */
        else
            encode_batch(now);
    }
    if (kind != RECORD_WAITING)
        profile_log_waits(now);
    return record;
}

void profile_log_row(enum record_kind kind, int64_t now, const int64_t *row)
{
    if (log.is_open)
        record_add(with_room(kind, now), row);
}

void profile_log_text(enum record_kind kind, int64_t now, const int64_t *row,
                      const char *text, size_t size)
{
    if (log.is_open)
        record_add_text(with_room(kind, now), row, text, size);
}

/* ____________________________________________________________ */
/* stacks */

static void tell_frame(int64_t kind, int64_t address)
{
    int64_t row[] = { kind, address };

    tell_name(address);
    profile_log_row(RECORD_FRAMES, log.newest, row);
}

static void tell_node(int64_t parent, int64_t frame)
{
    int64_t row[] = { parent, frame };

    profile_log_row(RECORD_NODES, log.newest, row);
}

int64_t profile_log_needs_stack(int64_t node)
{
    return log.is_open && node != STACK_LOST ? stack_tree_tell(node) : STACK_LOST;
}

int64_t profile_log_stack_of(const stack_word *words, size_t count)
{
    return log.is_open ? stack_tree_node(words, count) : STACK_LOST;
}

int64_t profile_log_stack(const void *record, size_t size)
{
    const stack_word *words;
    int64_t depth;
    const char *p = record;
    size_t left;

    if (!log.is_open || size < RECORD_HEAD || *p != MARKER_STACKTRACE)
        return STACK_LOST;
    memcpy(&depth, p + 1 + sizeof depth, sizeof depth);
    if (depth < 0 || depth > STACK_MAX_WORDS || depth % 2 != 0)
        return STACK_LOST;
    p += RECORD_HEAD;
    left = size - RECORD_HEAD;
    if (left < ((size_t)depth + 1) * sizeof *words)
        return STACK_LOST;
    words = (const stack_word *)p;
    p += (depth + 1) * (int64_t)sizeof *words;
    left -= ((size_t)depth + 1) * sizeof *words;
    if (log.has_memory && left >= sizeof log.memory) {
        memcpy(&log.memory, p, sizeof log.memory);
        if (log.memory < 0)
            log.memory = 0;
    }
    return stack_tree_node(words, (size_t)depth);
}

int profile_log_has_memory(void)
{
    return log.has_memory;
}

int64_t profile_log_memory(void)
{
    return log.memory;
}

int64_t profile_log_known_stack(uint64_t key, int64_t now)
{
    /* only a stack sample has the resident memory */
    if (!log.is_open || log.has_memory)
        return STACK_LOST;
    if (now - log.keys_since >= PROFILE_LOG_KEYS_NS) {
        stack_tree_forget_keys();
        log.keys_since = now;
    }
    return stack_tree_known(key);
}

void profile_log_remember(uint64_t key, int64_t node)
{
    if (log.is_open)
        stack_tree_remember(key, node);
}

/* ____________________________________________________________ */
/* labels */

void profile_log_labels(const char *(*text)(int number))
{
    log.label_text = text;
}

int profile_log_needs_label(int number, int64_t now)
{
    int64_t row[] = { number, 0 };
    const char *text;

    if (number == 0 || (log.told_labels[number / 8] & 1 << number % 8))
        return number;
    text = log.label_text != NULL ? log.label_text(number) : NULL;
    if (text == NULL)
        return 0;
    profile_log_text(RECORD_LABELS, now, row, text, strlen(text));
    log.told_labels[number / 8] |= (unsigned char)(1 << number % 8);
    return number;
}

/* ____________________________________________________________ */
/* times */

int64_t profile_log_time(int64_t now)
{
    int64_t time = now - log.started;

    return time - time % 1000;
}

int64_t profile_log_started(void)
{
    return log.started;
}

const struct profile_totals *profile_log_before(void)
{
    return &log.before;
}

int profile_log_due(int64_t now)
{
    int64_t wait = (now - log.started) / 8;

    if (wait < PROFILE_LOG_FIRST)
        wait = PROFILE_LOG_FIRST;
    if (wait > PROFILE_LOG_NS)
        wait = PROFILE_LOG_NS;
    return log.is_waiting && now - log.oldest >= wait;
}

/* ____________________________________________________________ */
/* open and close */

static void begin(struct sink *sink, int64_t started)
{
    record_clear_all();
    log.sink = sink;
    log.is_open = 1;
    log.error = 0;
    log.is_waiting = 0;
    log.started = log.newest = log.keys_since = started;
    memset(log.told_labels, 0, sizeof log.told_labels);
    code_names_begin_next();
}

void profile_log_open(struct sink *sink, int64_t now, const struct profile_source *source)
{
    INVARIANT(!log.is_open);
    begin(sink, now);
    log.source = source;
    memset(&log.before, 0, sizeof log.before);
    log.knows_layout = log.has_memory = 0;
    log.memory = 0;
    log.used = 0;
    stack_tree_begin(tell_frame, tell_node);
}

void profile_log_began(int64_t started)
{
    log.started = started;
}

int profile_log_begin_next(struct profile_log_next *next, int64_t now)
{
    char settings[4096];
    char record[RECORD_SETTINGS_BOUND(sizeof settings)];
    int length = snprintf(settings, sizeof settings, "%s;clock=%lld;first=%lld",
                          next->settings, (long long)now, (long long)next->first_key);
    int error;

    if (!log.is_open || next->head_size == 0)
        return EINVAL;
    if (length < 0 || (size_t)length >= sizeof settings)
        return ENAMETOOLONG;
    next->started = now;
    error = next->sink->append(next->sink, next->head, next->head_size);
    if (error != 0)
        return error;
    return next->sink->append(next->sink, record, (size_t)(
        record_encode_settings(settings, (size_t)length, record) - record));
}

void profile_log_rotate(struct profile_log_next *next)
{
    int64_t end = log.newest > next->started ? log.newest : next->started;

    INVARIANT(log.is_open);
    encode_batch(end);                  /* waiting samples continue in the next segment */
    profile_log_bytes(next->trailer, next->trailer_size);
    write_buffer();
    next->ended = log.error;
    begin(next->sink, next->started);
    log.source->totals(&log.before);
    stack_tree_begin_part();
}

int profile_log_error(void)
{
    return log.error;
}

void profile_log_forget(void)
{
    if (log.is_open)
        log.sink->forget(log.sink);
    log.is_open = 0;
    log.used = 0;
}

int profile_log_close(void)
{
    if (!log.is_open)
        return 0;
    write_buffer();
    log.is_open = 0;
    stack_tree_end();
    return log.error;
}
