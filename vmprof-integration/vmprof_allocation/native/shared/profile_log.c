#define _GNU_SOURCE
#include "profile_log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "digits.h"
#include "facts.h"
#include "gzip_member.h"
#include "invariant.h"
#include "stack_table.h"

#define MARKER_STACKTRACE   '\x01'
#define MARKER_VIRTUAL_IP   '\x02'
#define MARKER_HEADER       '\x05'

#define FILE_HEAD           (5 * sizeof(int64_t))
#define FLAG_MEMORY         1           /* in the header */
#define TIMED_VERSION       7           /* each sample ends with its time */

/* "alloc", negative: no code object and no machine code lives there */
#define BLOCK_ADDRESS       (-(int64_t)0x616c6c6f63)
#define BLOCK_FRAME         64          /* bytes around a block's payload */

/* Kinds of members */
#define RECORDS             'r'
#define VMPROF_SAMPLES      's'

/* What waits: vmprof's records, and the payload of a block of samples; that of
   the others is in facts.c.  As
   small as is useful, because what is touched in turn stays in the cache:
   this is some 2000 samples. */
#define RECORDS_SIZE        16384       /* vmprof's buffers have 8 KiB */
#define SAMPLES_SIZE        32768
#define MAX_TOTALS          (8 * DIGITS_MAX)
#define MAX_SAMPLE          (6 * DIGITS_MAX)
#define MEMBER_SIZE         (RECORDS_SIZE + SAMPLES_SIZE + FACTS_SIZE + \
                             MAX_TOTALS + (1 + FACTS_PAYLOADS) * BLOCK_FRAME + \
                             GZIP_MEMBER_FRAME + 64)

/* In the first number of a sample, beside the number of its stack */
#define NEW_THREAD          1
#define NEW_INTERVAL        2
#define NEW_MEMORY          4

/* marker, count, depth; the words; thread, resident memory, time: the header
   says which of the last two there are */
#define RECORD_HEAD         (1 + 2 * sizeof(int64_t))
#define MAX_RECORD          (RECORD_HEAD + (STACK_MAX_WORDS + 3) * sizeof(int64_t))

static struct {
    int is_open;
    struct sink *sink;
    int error;                          /* the first that the sink had */
    void (*totals)(struct profile_totals *);
    struct profile_totals before;       /* of the run's earlier profiles */
    int64_t started;
    int64_t oldest;                     /* time of the oldest that waits */
    int64_t newest;                     /* time of the last sample or flush */
    int64_t keys_since;                 /* when stacks began to be known */
    int64_t last_key;
    int holds_samples;                  /* and facts; or only what stacks are */
    int64_t unwritten_keys;             /* of samples that it does not hold */
    int knows_layout;
    int has_memory, has_time;           /* vmprof's samples */
    int64_t memory, time;               /* of the last one */

    /* of the last sample in this block */
    int64_t last_time, last_thread, last_interval, last_memory;

    size_t records_used, samples_used;
    int64_t block_key;                  /* of the last sample before it */
    char records[RECORDS_SIZE];
    char samples[SAMPLES_SIZE];
} log;

static struct gzip_member member;
static char member_buffer[MEMBER_SIZE];

/* ____________________________________________________________ */
/* writing */

static void begin_member(char kind)
{
    gzip_begin(&member, member_buffer, sizeof member_buffer, kind);
}

static void end_member(void)
{
    size_t size = gzip_end(&member);

    INVARIANT(size > 0);        /* MEMBER_SIZE is enough */
    if (log.error == 0)
        log.error = size == 0 ? ENOBUFS : log.sink->append(
            log.sink, member_buffer, size);
}

/* ____________________________________________________________ */
/* blocks */

static void put_word(char *p, int64_t word)
{
    memcpy(p, &word, sizeof word);
}

/* To other readers a block is the name of a function, in vmprof's form
   language:name:line:file. */
static void put_block(const char *head, size_t head_size, const char *payload,
                      size_t size, const char *kind)
{
    char frame[1 + 2 * sizeof(int64_t) + 8], tail[BLOCK_FRAME / 2];
    char *end = stpcpy(stpcpy(tail, ":3:"), kind);
    size_t tail_size = (size_t)(end - tail);

    frame[0] = MARKER_VIRTUAL_IP;
    put_word(frame + 1, BLOCK_ADDRESS);
    put_word(frame + 9, (int64_t)(6 + head_size + size + tail_size));
    memcpy(frame + 17, "alloc:", 6);
    gzip_bytes(&member, frame, 23);
    gzip_bytes(&member, head, head_size);
    gzip_bytes(&member, payload, size);
    gzip_bytes(&member, tail, tail_size);
}

static void put_samples(int64_t now)
{
    struct profile_totals totals;
    char head[MAX_TOTALS], *p = head;

    memset(&totals, 0, sizeof totals);
    log.totals(&totals);
    p = put_digits(p, (uint64_t)(now - log.started));
    p = put_digits(p, (uint64_t)(totals.allocated - log.before.allocated));
    p = put_digits(p, (uint64_t)(totals.lost - log.before.lost));
    p = put_digits(p, (uint64_t)(totals.dropped - log.before.dropped));
    p = put_digits(p, (uint64_t)(totals.collections - log.before.collections));
    p = put_digits(p, (uint64_t)(totals.pressures - log.before.pressures));
    p = put_digits(p, (uint64_t)(totals.surprises - log.before.surprises));
    p = put_digits(p, (uint64_t)log.block_key);
    put_block(head, (size_t)(p - head), log.samples, log.samples_used,
              "samples");
}

static void forget_waiting(void)
{
    log.records_used = log.samples_used = 0;
    facts_clear();
    log.block_key = log.last_key;
    log.last_time = log.started;
    log.last_thread = log.last_interval = log.last_memory = 0;
}

static void put_payload(int i)
{
    struct facts_payload payload = facts_payload(i);

    if (payload.size > 0)
        put_block(NULL, 0, payload.text, payload.size, payload.kind);
}

/* Samples, objects, and what vmprof wrote: this is a whole member. */
static void flush(int64_t now, int with_totals)
{
    int i;

    INVARIANT(log.records_used <= RECORDS_SIZE);
    INVARIANT(log.samples_used <= SAMPLES_SIZE);
    log.newest = now;
    begin_member(RECORDS);
    gzip_bytes(&member, log.records, log.records_used);
    put_payload(FACTS_LABELS);
    if (with_totals || log.samples_used > 0)
        put_samples(now);
    for (i = FACTS_LABELS + 1; i < FACTS_PAYLOADS; i++)
        put_payload(i);
    forget_waiting();
    end_member();
}

void profile_log_flush(int64_t now)
{
    if (log.is_open && (log.holds_samples || log.records_used > 0 ||
                        log.samples_used > 0 || !facts_are_empty()))
        flush(now, 1);
}

/* ____________________________________________________________ */
/* samples in vmprof's way */

static size_t vmprof_record(char *record, const struct stack_walk *stack)
{
    char *p = record;
    size_t words = stack->count * sizeof(int64_t);

    *p++ = MARKER_STACKTRACE;
    put_word(p, 1);
    put_word(p + 8, (int64_t)stack->count);
    memcpy(p + 16, stack->word + STACK_MAX_WORDS - stack->count, words);
    p += 16 + words;
    put_word(p, 0);                     /* thread: PyPy has none */
    p += 8;
    if (log.has_memory) {
        put_word(p, log.memory);
        p += 8;
    }
    if (log.has_time) {
        put_word(p, log.time);
        p += 8;
    }
    return (size_t)(p - record);
}

/* Each stack as often as it was counted; and then there are none. */
static void put_vmprof_samples(void)
{
    static struct stack_walk stack;
    static char record[MAX_RECORD];
    uint64_t counted;
    size_t shared, least = 0;           /* with the one that was written last */
    int has_previous = 0;

    if (!log.holds_samples) {
        stack_table_clear();
        return;
    }
    memset(&stack, 0, sizeof stack);
    begin_member(VMPROF_SAMPLES);
    while (stack_table_next(&stack, &counted, &shared)) {
        size_t size, head;
        if (least > shared)
            least = shared;
        if (counted == 0)
            continue;
        size = vmprof_record(record, &stack);
        head = RECORD_HEAD + (stack.count - least) * sizeof(int64_t);
        least = stack.count;
        while (counted > 0) {
            size_t times;
            if (gzip_room(&member) < 2 * size + 1024) {
                end_member();
                begin_member(VMPROF_SAMPLES);
                has_previous = 0;
            }
            if (has_previous) {
                gzip_bytes(&member, record, head);
                gzip_copy(&member, record + head, size - head, size);
            }
            else
                gzip_bytes(&member, record, size);
            counted--;
            times = (gzip_room(&member) - 512) * 64 / size;
            if (times > counted)
                times = counted;
            if (times > 0)
                gzip_repeat(&member, record, size, times);
            counted -= times;
            has_previous = 1;
        }
    }
    end_member();
    stack_table_clear();
}

void profile_log_finish(int64_t now)
{
    if (!log.is_open)
        return;
    flush(now, 1);
    put_vmprof_samples();
}

/* ____________________________________________________________ */
/* what comes in */

void profile_log_settings(const char *text)
{
    if (!log.is_open || strlen(text) > RECORDS_SIZE)
        return;
    begin_member(RECORDS);
    gzip_bytes(&member, log.records, log.records_used);
    log.records_used = 0;
    put_block(NULL, 0, text, strlen(text), "settings");
    end_member();
}

/* The header, which comes before all else but the file's head, says what stands
   behind the words of a stack.  Later, records come in pieces: one that looks
   like a header is none. */
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
        log.has_time = (p[1] << 8 | p[2]) >= TIMED_VERSION;
        log.knows_layout = 1;
    }
}

void profile_log_bytes(const void *records, size_t size)
{
    if (!log.is_open || size > RECORDS_SIZE)
        return;
    learn_layout(records, size);
    if (log.records_used + size > RECORDS_SIZE)
        flush(log.newest, 0);
    memcpy(log.records + log.records_used, records, size);
    log.records_used += size;
}

static void make_room_for_stack(void)
{
    if (stack_table_is_full()) {
        flush(log.newest, 0);
        put_vmprof_samples();
    }
}

static void put_definition(const char *definition, size_t size)
{
    if (size == 0)
        return;
    if (log.samples_used + 1 + size > SAMPLES_SIZE)
        flush(log.newest, 0);
    log.samples[log.samples_used++] = '@';          /* no sample: 0 */
    memcpy(log.samples + log.samples_used, definition, size);
    log.samples_used += size;
}

uint64_t profile_log_stack(const void *record, size_t size)
{
    const stack_word *words;
    int64_t depth;
    const char *p = record;
    const char *definition;
    size_t definition_size, left;
    uint64_t number;

    if (!log.is_open || size < RECORD_HEAD || *p != MARKER_STACKTRACE)
        return 0;
    memcpy(&depth, p + 1 + sizeof depth, sizeof depth);
    if (depth < 0 || depth > STACK_MAX_WORDS || depth % 2 != 0)
        return 0;
    p += RECORD_HEAD;
    left = size - RECORD_HEAD;
    if (left < ((size_t)depth + 1) * sizeof *words)
        return 0;
    words = (const stack_word *)p;
    p += (depth + 1) * (int64_t)sizeof *words;
    left -= ((size_t)depth + 1) * sizeof *words;
    if (log.has_memory && left >= sizeof log.memory) {
        memcpy(&log.memory, p, sizeof log.memory);
        if (log.memory < 0)
            log.memory = 0;
        p += sizeof log.memory;
        left -= sizeof log.memory;
    }
    if (log.has_time && left >= sizeof log.time)
        memcpy(&log.time, p, sizeof log.time);
    make_room_for_stack();
    number = stack_table_count(words, (size_t)depth, &definition,
                               &definition_size);
    put_definition(definition, definition_size);
    return number;
}

void profile_log_want(uint64_t number)
{
    if (log.is_open && log.holds_samples)
        stack_table_want(number);
}

uint64_t profile_log_define(const int64_t *words, size_t count)
{
    const char *definition;
    size_t size;
    uint64_t number;

    make_room_for_stack();
    number = stack_table_define(words, count, &definition, &size);
    put_definition(definition, size);
    return number;
}

uint64_t profile_log_known_stack(uint64_t key, int64_t now)
{
    /* the resident memory comes with the stack */
    if (!log.is_open || log.has_memory)
        return 0;
    if (now - log.keys_since >= PROFILE_LOG_KEYS_NS) {
        stack_table_forget_keys();
        log.keys_since = now;
    }
    return stack_table_count_known(key);
}

void profile_log_remember(uint64_t key, uint64_t number)
{
    if (log.is_open)
        stack_table_remember(key, number);
}

static void begins_to_wait(int64_t now)
{
    if (log.last_key == log.block_key && facts_are_empty())
        log.oldest = now;
}

int64_t profile_log_sample(uint64_t stack, int64_t now, int64_t thread,
                           int64_t size, int64_t interval)
{
    uint64_t flags = 0;
    char *p;

    if (!log.is_open)
        return 0;
    if (!log.holds_samples)
        return ++log.unwritten_keys;
    if (log.samples_used + MAX_SAMPLE > SAMPLES_SIZE)
        flush(now, 0);
    begins_to_wait(now);
    log.last_key++;
    if (thread != log.last_thread)
        flags |= NEW_THREAD;
    if (size != 0 && interval != log.last_interval)
        flags |= NEW_INTERVAL;
    if (log.memory > 0 && log.memory != log.last_memory)
        flags |= NEW_MEMORY;
    if (now < log.last_time)
        now = log.last_time;
    p = log.samples + log.samples_used;
    p = put_digits(p, (stack << 3 | flags) + 1);
    p = put_digits(p, (uint64_t)(now - log.last_time));
    p = put_digits(p, (uint64_t)size);
    if (flags & NEW_THREAD)
        p = put_digits(p, (uint64_t)thread);
    if (flags & NEW_INTERVAL)
        p = put_digits(p, (uint64_t)interval);
    if (flags & NEW_MEMORY)
        p = put_digits(p, (uint64_t)log.memory);
    log.samples_used = (size_t)(p - log.samples);
    log.last_time = log.newest = now;
    log.last_thread = thread;
    if (size != 0)
        log.last_interval = interval;
    if (log.memory > 0)
        log.last_memory = log.memory;
    return log.last_key;
}

int64_t profile_log_next_key(void)
{
    return log.last_key + 1;
}

int profile_log_fact(int64_t now)
{
    return log.holds_samples && profile_log_name(now);
}

int profile_log_name(int64_t now)
{
    if (!log.is_open)
        return 0;
    if (!facts_have_room())
        flush(log.newest, 0);
    begins_to_wait(now);
    return 1;
}

int64_t profile_log_time(int64_t now)
{
    return now - log.started;
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
    return (log.last_key != log.block_key || !facts_are_empty()) &&
           now - log.oldest >= wait;
}

/* ____________________________________________________________ */
/* open and close */

void profile_log_open(struct sink *sink, int64_t now,
                      void (*totals)(struct profile_totals *))
{
    INVARIANT(!log.is_open);
    log.sink = sink;
    log.is_open = 1;
    log.error = 0;
    log.totals = totals;
    memset(&log.before, 0, sizeof log.before);
    log.started = log.newest = log.keys_since = now;
    log.last_key = log.unwritten_keys = 0;
    log.holds_samples = 1;
    log.knows_layout = log.has_memory = log.has_time = 0;
    log.memory = log.time = 0;
    forget_waiting();
    stack_table_reset();
}

void profile_log_began(int64_t started)
{
    log.started = log.last_time = started;
}

void profile_log_without_samples(void)
{
    log.holds_samples = 0;
}

int profile_log_begin_next(struct profile_log_next *next, int64_t now)
{
    char settings[4096];
    int length = snprintf(settings, sizeof settings, "%s;clock=%lld",
                          next->settings, (long long)now);
    size_t size;

    if (!log.is_open || !log.holds_samples || next->head_size == 0)
        return EINVAL;
    if (length < 0 || (size_t)length >= sizeof settings ||
        next->head_size > RECORDS_SIZE)
        return ENAMETOOLONG;
    next->started = now;
    begin_member(RECORDS);
    gzip_bytes(&member, next->head, next->head_size);
    put_block(NULL, 0, settings, (size_t)length, "settings");
    size = gzip_end(&member);
    return size == 0 ? ENOBUFS : next->sink->append(next->sink, member_buffer,
                                                    size);
}

void profile_log_rotate(struct profile_log_next *next)
{
    INVARIANT(log.is_open);
    /* not before what was told meanwhile */
    profile_log_finish(log.newest > next->started ? log.newest : next->started);
    profile_log_bytes(next->trailer, next->trailer_size);
    flush(log.newest, 0);
    next->ended = log.error;
    log.sink = next->sink;
    log.error = 0;
    log.started = log.newest = log.keys_since = next->started;
    log.totals(&log.before);
    forget_waiting();
    stack_table_turn();
    /* readers want to know where the samples' numbers go on */
    flush(log.newest, 1);
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
    forget_waiting();
}

int profile_log_close(void)
{
    if (!log.is_open)
        return 0;
    flush(log.newest, 0);
    log.is_open = 0;
    forget_waiting();
    stack_table_reset();
    return log.error;
}
