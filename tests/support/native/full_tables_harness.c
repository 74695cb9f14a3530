/* Takes samples with objects.c and recorder.c until their tables are full.
 *
 *   full_tables_harness PROFILE HEAD TRAILER
 *
 * HEAD and TRAILER are vmprof's first and last records, in hexadecimal.  The harness
 * checks that a sample for which the tables have no room never sweeps the table of waiting
 * samples.  It prints the number of samples and the number of samples without room.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define pending_sweep real_pending_sweep
#include "../../../vmprof-integration/vmprof_allocation/native/shared/pending.c"
#undef pending_sweep

#include "malloc/raw_memory.h"
#include "check.h"
#include "patches/divert.h"
#include "file_sink.h"
#include "gc/heap.h"
#include "gc/objects.h"
#include "recorder.h"
#include "gc/types.h"

#define WITHOUT_MEMORY      2000        /* samples while objects.c gets no memory */
#define BEYOND              2000        /* samples after both tables are full */

struct nursery nursery;
__thread __attribute__((tls_model("initial-exec"))) int raw_memory_gc_depth;

static int has_no_memory, sweeps;
static uint64_t object[2];
static int32_t state;

void pending_sweep(void);
void pending_sweep(void)
{
    sweeps++;
    real_pending_sweep();
}

/* Replaces mremap() of libc for table.h, and may fail on request. */
void *mremap(void *old, size_t size, size_t new_size, int flags, ...)
{
    if (has_no_memory) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mremap, old, size, new_size, flags, NULL);
}

/* ____________________________________________________________ */
/* The functions that objects.c calls */

int64_t heap_old_bytes(void)
{
    return 0;
}

void raw_memory_free(void *memory)
{
    (void)memory;
}

int divert_set(int i, int diverted)
{
    (void)i;
    (void)diverted;
    return 0;
}

int types_are_known(void)
{
    return 1;
}

void types_begin(void)
{
}

void types_major_collection(void)
{
}

struct type *types_of(uintptr_t address)
{
    (void)address;
    return NULL;
}

int64_t types_old_size(const struct type *type, uintptr_t address)
{
    (void)type;
    (void)address;
    return 0;
}

int types_may_shrink(const struct type *type)
{
    (void)type;
    return 0;
}

int64_t types_number(struct type *type, uintptr_t address)
{
    (void)type;
    (void)address;
    return 0;
}

/* ____________________________________________________________ */

static const char *head, *trailer;

static void records(const char *hex)
{
    unsigned char bytes[4096];
    size_t size = from_hex(hex, bytes, sizeof bytes);

    recorder_lock();
    profile_log_bytes(bytes, size);
    recorder_unlock();
}

static void totals(struct profile_totals *t)
{
    t->allocated = 1;
}

static void walk(void)
{
}

static int64_t take_samples(int64_t count)
{
    const struct nursery_sample sample = {
        (const char *)object, sizeof object, 0, 1000, NURSERY_OLD
    };
    int64_t i;

    for (i = 0; i < count; i++) {
        int64_t key = recorder_allocation(
            /* Intervals vary, because the reader refuses too many rows in too few bytes. */
            sample.size, sample.interval + i * i % 1009, 0, walk);
        CHECK(key > 0);
        /* mremap() fails for the table of objects.c, but not for the table of recorder.c */
        has_no_memory = count == WITHOUT_MEMORY;
        objects_sampled(key, &sample);
        has_no_memory = 0;
    }
    return count;
}

int main(int arguments, char **argument)
{
    static struct file_sink file;
    struct hook_place place = {
        .gc = (uintptr_t)&state, .flag_visited = 1, .flag_pinned = 2, .forwarded = -42
    };
    int64_t samples, lost;
    int fd;

    CHECK(arguments == 4);
    head = argument[2];
    trailer = argument[3];
    fd = open(argument[1], O_RDWR | O_CREAT | O_TRUNC, 0666);
    CHECK(fd >= 0 && file_sink_open(&file, fd) == 0);
    recorder_open(&file.sink, totals);
    records(head);
    CHECK(recorder_start("engine=harness;facts=types,lifetimes") == 0);
    objects_prepare(&place);
    CHECK(objects_begin(1, 1, 1) == 0);

    samples = take_samples(WITHOUT_MEMORY);
    lost = objects_lost();
    CHECK(lost > 0 && lost < WITHOUT_MEMORY);
    samples += take_samples((int64_t)PENDING_MOST + BEYOND);
    CHECK(objects_lost() > lost + BEYOND / 2);
    lost = objects_lost();
    CHECK(sweeps == 0);

    /* A collection makes room in the tables. */
    objects_before_collection();
    objects_after_collection();
    CHECK(sweeps > 0 && pending_first_key() == 0);
    samples += take_samples(1);
    CHECK(objects_lost() == lost && pending_first_key() == samples);

    recorder_stop();
    records(trailer);
    CHECK(recorder_close() == 0);
    close(fd);
    objects_end();
    printf("%" PRId64 " %" PRId64 "\n", samples, lost);
    return 0;
}
