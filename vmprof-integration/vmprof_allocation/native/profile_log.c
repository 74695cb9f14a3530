#define _GNU_SOURCE
#include "profile_log.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARKER_STACKTRACE   '\x01'
#define MARKER_VIRTUAL_IP   '\x02'

/* "alloc", negative: no code object and no machine code lives there */
#define BLOCK_ADDRESS       (-(int64_t)0x616c6c6f63)

#define MAX_FACTS           8192
#define MAX_FACT_TEXT       90          /* five hexadecimal numbers */
#define MAX_OBJECTS         8192
#define MAX_OBJECT_TEXT     40          /* three of them */
#define MAX_BLOCK           (MAX_FACTS * MAX_FACT_TEXT + 256)
#define MAX_OBJECT_BLOCK    (MAX_OBJECTS * MAX_OBJECT_TEXT + 256)
#define MAX_RECORD          16384       /* vmprof's records: 8 KiB at most */

struct fact {
    int64_t key, time, thread, size, interval;
};

struct object {
    int64_t key, type;
    int survived;
};

static struct {
    int is_open;
    int fd;
    dev_t device;
    ino_t inode;
    int error;                          /* errno of the first failed write */
    int64_t started;
    int64_t oldest;                     /* time of the oldest that waits */
    int64_t last_key;
    size_t used;
    int facts;
    struct fact fact[MAX_FACTS];
    int objects;
    struct object object[MAX_OBJECTS];
    char buffer[PROFILE_LOG_BYTES + MAX_BLOCK + MAX_OBJECT_BLOCK + MAX_RECORD];
} log;

static void flush_bytes(void);

int profile_log_open(int fd, int64_t now)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return errno;
    log.fd = fd;
    log.is_open = 1;
    log.device = st.st_dev;
    log.inode = st.st_ino;
    log.error = 0;
    log.started = now;
    log.last_key = 0;
    log.used = 0;
    log.facts = 0;
    log.objects = 0;
    return 0;
}

void profile_log_bytes(const void *records, size_t size)
{
    if (!log.is_open || size > MAX_RECORD)
        return;
    if (log.used + size > PROFILE_LOG_BYTES + MAX_RECORD)
        flush_bytes();
    memcpy(log.buffer + log.used, records, size);
    log.used += size;
}

static void put_word(char *p, int64_t word)
{
    memcpy(p, &word, sizeof word);
}

int64_t profile_log_stack(const void *record, size_t size)
{
    /* marker, count, depth, 'depth' words, thread[, resident memory] */
    const size_t head = 1 + 2 * sizeof(int64_t);
    int64_t depth;
    size_t thread;

    if (!log.is_open || size < head || size > MAX_RECORD ||
        *(const char *)record != MARKER_STACKTRACE)
        return 0;
    memcpy(&depth, (const char *)record + 1 + sizeof depth, sizeof depth);
    thread = head + (size_t)depth * sizeof(int64_t);
    if (depth < 0 || depth > MAX_RECORD || thread + sizeof(int64_t) > size)
        return 0;
    profile_log_bytes(record, size);
    put_word(log.buffer + log.used - size + thread, -++log.last_key);
    return log.last_key;
}

int64_t profile_log_lost_stack(void)
{
    return !log.is_open ? 0 : ++log.last_key;
}

void profile_log_fact(int64_t key, int64_t now, int64_t thread, int64_t size,
                      int64_t interval)
{
    struct fact *fact;

    if (key == 0 || log.facts == MAX_FACTS)
        return;
    if (log.facts == 0 && log.objects == 0)
        log.oldest = now;
    fact = &log.fact[log.facts++];
    fact->key = key;
    fact->time = now - log.started;
    fact->thread = thread;
    fact->size = size;
    fact->interval = interval;
}

void profile_log_object(int64_t key, int64_t now, int64_t type, int survived)
{
    struct object *object;

    if (key == 0 || !log.is_open || log.objects == MAX_OBJECTS)
        return;
    if (log.facts == 0 && log.objects == 0)
        log.oldest = now;
    object = &log.object[log.objects++];
    object->key = key;
    object->type = type;
    object->survived = survived;
}

int profile_log_due(int64_t now)
{
    return log.facts > MAX_FACTS - PROFILE_LOG_BURST ||
           log.objects > MAX_OBJECTS - PROFILE_LOG_BURST ||
           log.used >= PROFILE_LOG_BYTES ||
           (log.facts + log.objects > 0 && now - log.oldest >= PROFILE_LOG_NS);
}

/* ____________________________________________________________ */
/* blocks */

static char *put_hex(char *p, int64_t number, char end)
{
    char digits[16];
    uint64_t n = (uint64_t)number;
    int count = 0;

    do {
        digits[count++] = "0123456789abcdef"[n & 15];
        n >>= 4;
    } while (n != 0);
    while (count > 0)
        *p++ = digits[--count];
    *p++ = end;
    return p;
}

/* The text of a block stands between these two.  To other readers it is
   the name of a function, in vmprof's form language:name:line:file. */
static char *open_block(void)
{
    char *p = log.buffer + log.used;

    *p++ = MARKER_VIRTUAL_IP;
    put_word(p, BLOCK_ADDRESS);
    p += 2 * sizeof(int64_t);
    memcpy(p, "alloc:", 6);
    return p + 6;
}

static void close_block(char *p, const char *kind)
{
    char *start = log.buffer + log.used;
    size_t head = 1 + 2 * sizeof(int64_t);

    memcpy(p, ":1:", 3);
    p = stpcpy(p + 3, kind);
    put_word(start + 1 + sizeof(int64_t), (p - start) - (int64_t)head);
    log.used = (size_t)(p - log.buffer);
}

void profile_log_settings(const char *text)
{
    if (log.is_open && strlen(text) < MAX_BLOCK - 64)
        close_block(stpcpy(open_block(), text), "settings");
}

static void put_facts(int64_t now, const struct profile_totals *totals)
{
    char *p = open_block();
    int i;

    p = put_hex(p, now - log.started, ',');
    p = put_hex(p, totals->allocated, ',');
    p = put_hex(p, totals->lost, ',');
    p = put_hex(p, totals->dropped, ',');
    p = put_hex(p, totals->collections, ',');
    p = put_hex(p, totals->pressures, ',');
    p = put_hex(p, totals->surprises, ';');
    for (i = 0; i < log.facts; i++) {
        struct fact *fact = &log.fact[i];
        p = put_hex(p, fact->key, ',');
        p = put_hex(p, fact->time, ',');
        p = put_hex(p, fact->thread, ',');
        p = put_hex(p, fact->size, ',');
        p = put_hex(p, fact->interval, ';');
    }
    log.facts = 0;
    close_block(p, "facts");
}

static void put_objects(void)
{
    char *p;
    int i;

    if (log.objects == 0)
        return;
    p = open_block();
    for (i = 0; i < log.objects; i++) {
        p = put_hex(p, log.object[i].key, ',');
        p = put_hex(p, log.object[i].type, ',');
        p = put_hex(p, log.object[i].survived, ';');
    }
    log.objects = 0;
    close_block(p, "objects");
}

/* ____________________________________________________________ */
/* writing */

static int is_our_file(void)
{
    struct stat st;

    /* the program may have closed it, and opened one of its own */
    if (fstat(log.fd, &st) < 0 || st.st_dev != log.device ||
        st.st_ino != log.inode) {
        errno = EBADF;
        return 0;
    }
    return 1;
}

static int write_all(const char *p, size_t size)
{
    off_t start = lseek(log.fd, 0, SEEK_CUR);

    while (size > 0) {
        ssize_t count = write(log.fd, p, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) {
            int error = count < 0 ? errno : EIO;
            /* leave no half record */
            if (start >= 0 && ftruncate(log.fd, start) == 0)
                (void)lseek(log.fd, start, SEEK_SET);
            return error;
        }
        p += count;
        size -= (size_t)count;
    }
    return 0;
}

static void flush_bytes(void)
{
    if (log.used > 0 && log.error == 0)
        log.error = is_our_file() ? write_all(log.buffer, log.used) : EBADF;
    log.used = 0;
}

void profile_log_flush(int64_t now, const struct profile_totals *totals)
{
    if (!log.is_open)
        return;
    put_facts(now, totals);
    put_objects();
    flush_bytes();
}

void profile_log_forget(void)
{
    log.is_open = 0;
    log.used = 0;
    log.facts = 0;
    log.objects = 0;
}

int profile_log_close(void)
{
    if (!log.is_open)
        return 0;
    flush_bytes();
    profile_log_forget();
    return log.error;
}
