/* Compares the builtin engine's table of tracked objects (tracked.c, type_names.c) with a
 * model, over several segments of a profile.
 *
 *   tracked_harness PROFILE HEAD TRAILER SEED
 *
 * Writes PROFILE.1, PROFILE.2 and so on.  Prints a line for each object that a segment
 * inherits: the segment's number, the address of the innermost function, the size, the live
 * size, the interval, the GC's name of the type, and the name of the class, or "-".  If the
 * object is pinned, "young" replaces the two names.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "code_names.h"
#include "file_sink.h"
#include "tracked.h"
#include "recorder.h"
#include "type_names.h"

#define PARTS           8
/* minor collections of a segment; each fourth ends a marking */
#define COLLECTIONS     12
#define YOUNG           300     /* samples between two collections */
#define STACKS          9000    /* more stacks than the table of known stacks holds */
#define TYPES           20
#define CLASSES         40

#define SETTINGS        "engine=harness;run=a;pid=5;facts=types,lifetimes"

struct object {
    int64_t key, which, stack, size, live_size, interval;
    int type, its_class;
};

static struct object young[2 * YOUNG], old[PARTS * COLLECTIONS * YOUNG * 2];
/* the first 'pinned_count' objects of 'young' are pinned */
static int young_count, pinned_count, old_count;
static int is_named[CLASSES + 1];
static int64_t collections, majors;
static unsigned int seed;
static int current_stack;

static int any(int limit)
{
    return rand_r(&seed) % limit;
}

static void totals(struct profile_totals *t)
{
    t->collections = collections;
}

static void walk(void)
{
    int64_t words[] = { 1, 4, 1, 8 * (current_stack + 1), 1, 8, 0 };
    char record[1 + sizeof words] = "\x01";

    memcpy(record + 1, words, sizeof words);
    CHECK(recorder_stack(record, sizeof record));
}

static void sample(void)
{
    struct object *object = &young[young_count++];

    current_stack = any(STACKS);
    object->stack = 8 * (current_stack + 1);
    object->size = object->live_size = 72 + 8 * any(100);   /* enough for three objects */
    object->interval = 1000 + 1000 * any(3);
    object->key = recorder_allocation(object->size, object->interval, 0, walk);
    CHECK(object->key > 0);
    tracked_sampled(object->key, recorder_sampled_stack(), object->size,
                     object->interval);
}

static void name_class(int number)
{
    char name[32];

    if (number == 0 || is_named[number])
        return;
    snprintf(name, sizeof name, "class%d", number);
    CHECK(recorder_begin_facts(collections));
    type_names_class(number, name, strlen(name));
    recorder_end_facts();
    is_named[number] = 1;
}

/* ____________________________________________________________ */
/* The GC */

/* Promote an object of a sample.  With 'size' 0, the object has the sample's size. */
static void promote(struct object object, int64_t which, int64_t size)
{
    object.which = which;
    object.its_class = any(2) ? 1 + any(CLASSES) : 0;
    object.type = object.its_class != 0 ? object.its_class % TYPES : any(TYPES);
    if (size != 0)
        object.size = size;
    object.live_size = any(5) == 0 ? 8 + 8 * any((int)object.size / 8 - 1) : 0;
    recorder_young(object.key, OUTCOME_PROMOTED,
                   type_names_number(object.type, object.its_class), size,
                   object.live_size);
    CHECK(tracked_promoted(object.key, which, object.type, object.its_class, size,
                           object.live_size, 8 * object.key + which));
    if (any(50) == 0) {
        tracked_lost();
        recorder_lost(object.key, (int)which);
        return;
    }
    if (object.live_size == 0)
        object.live_size = object.size;
    old[old_count++] = object;
}

static void collect(void)
{
    int i, pinned = 0;

    CHECK(recorder_begin_facts(++collections));
    for (i = 0; i < young_count; i++) {
        switch (any(10) == 0 ? -1 : any(4)) {
        case -1:
            CHECK(tracked_pinned(young[i].key));
            young[pinned++] = young[i];
            break;
        case 0:
            recorder_young(young[i].key, OUTCOME_DIED, type_names_number(1, 0), 0, 0);
            break;
        case 1:         /* a batch of three, whose first object died */
            if (i < pinned_count) {
                promote(young[i], 0, 0);
                break;
            }
            recorder_young(young[i].key, OUTCOME_DIED, type_names_number(2, 0), 16, 0);
            promote(young[i], 1, 24);
            promote(young[i], 2, 32);
            break;
        case 2:
            recorder_young(young[i].key, OUTCOME_NOT_KNOWN, 0, 0, 0);
            break;
        default:
            promote(young[i], 0, 0);
        }
    }
    young_count = pinned_count = pinned;
    tracked_young_ended();
    recorder_collected(recorder_now(), collections);
    tracked_end();
    recorder_end_facts();
    name_class(1 + any(CLASSES));
}

static void mark(void)
{
    int keep = 1 + any(4), kept = 0, i;

    CHECK(recorder_begin_facts(collections));
    tracked_marked();
    recorder_marked(++majors, -1);
    for (i = 0; i < old_count; i++)
        if (any(4) < keep)
            old[kept++] = old[i];
        else {
            tracked_freed(old[i].key, old[i].which);
            recorder_freed(old[i].key, (int)old[i].which);
        }
    old_count = kept;
    tracked_end();
    recorder_end_facts();
}

/* ____________________________________________________________ */
/* Queries */

static void check_alive(void)
{
    double expected = 0.0, alive, peak;
    static double most;
    int64_t *copy, *p;
    int i;

    CHECK(recorder_begin_facts(collections));
    copy = tracked_copy();
    recorder_end_facts();
    CHECK(copy != NULL && copy[0] == 7 * old_count);
    for (i = 0, p = copy + 1; i < old_count; i++, p += 7) {
        const struct object *object = &old[i];
        CHECK(p[0] == 8 * object->key + object->which && p[1] == object->key &&
              p[3] == object->size && p[4] == object->live_size &&
              p[5] == object->interval && p[6] > 0);
        expected += (double)object->live_size /
            -expm1(-(double)object->size / (double)object->interval);
    }
    free(copy);
    tracked_traced(&alive, &peak);
    most = fmax(most, expected);
    CHECK(fabs(alive - expected) <= 1e-9 * most);
    CHECK(fabs(peak - most) <= 1e-9 * most);
}

static void check_forgotten(void)
{
    double alive, peak;
    int64_t *copy;

    tracked_forget();
    CHECK(recorder_begin_facts(collections));
    copy = tracked_copy();
    recorder_end_facts();
    CHECK(copy != NULL && copy[0] == 0);
    free(copy);
    tracked_traced(&alive, &peak);
    CHECK(alive == 0.0 && peak == 0.0);
    mark();
    tracked_traced(&alive, &peak);
    CHECK(alive == 0.0 && peak == 0.0);
}

/* ____________________________________________________________ */
/* The profile */

static void print_carried(int part)
{
    int i;

    for (i = 0; i < pinned_count; i++)
        printf("%d %" PRId64 " %" PRId64 " %" PRId64 " young\n", part, young[i].stack,
               young[i].size, young[i].interval);
    for (i = 0; i < old_count; i++) {
        const struct object *object = &old[i];
        printf("%d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " Type%d ", part,
               object->stack, object->size, object->live_size, object->interval,
               object->type);
        if (object->its_class != 0)
            printf("class%d\n", object->its_class);
        else
            printf("-\n");
    }
}

static int create(const char *path, int part)
{
    char name[4200];
    int fd;

    snprintf(name, sizeof name, "%s.%d", path, part);
    fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0666);
    CHECK(fd >= 0);
    return fd;
}

static void rotate(struct file_sink *file, const char *path, int part)
{
    char settings[100], trailer[CODE_NAMES_TRAILER];
    struct profile_log_next next;
    int i;

    /* name the classes now: later names would only be in the next segment */
    for (i = 0; i < old_count; i++)
        name_class(old[i].its_class);
    memset(&next, 0, sizeof next);
    snprintf(settings, sizeof settings, SETTINGS ";part=%d", part);
    CHECK(file_sink_open(file, create(path, part)) == 0);
    next.sink = &file->sink;
    next.settings = settings;
    recorder_lock();
    next.head = code_names_head(&next.head_size);
    next.first_key = recorder_next_key();
    CHECK(profile_log_begin_next(&next, recorder_now()) == 0);
    code_names_trailer(trailer);
    next.trailer = trailer;
    next.trailer_size = sizeof trailer;
    recorder_rotate(&next);
    recorder_unlock();
    CHECK(next.ended == 0);
    type_names_begin_next();
    CHECK(recorder_begin_facts(collections));
    tracked_inherit();
    recorder_end_facts();
    print_carried(part);
}

static void make_types(void)
{
    char text[TYPES * 32];
    size_t used = 0;
    int i;

    for (i = 0; i < TYPES; i++)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "member%d Type%d\n", i, i);
    type_names_set(text, used);
}

int main(int arguments, char **argument)
{
    static struct file_sink files[PARTS + 1];
    unsigned char bytes[4096];
    size_t size;
    int part, i, j;

    CHECK(arguments == 5);
    seed = (unsigned int)atoi(argument[4]);
    make_types();
    type_names_begin();
    tracked_clear(0);
    CHECK(file_sink_open(&files[1], create(argument[1], 1)) == 0);
    recorder_open(&files[1].sink, totals);
    recorder_expect_outcomes(1);
    code_names_begin();
    size = from_hex(argument[2], bytes, sizeof bytes);
    recorder_lock();
    profile_log_bytes(bytes, size);
    code_names_keep_head(bytes, size);
    recorder_unlock();
    CHECK(recorder_start(SETTINGS ";clock=1") == 0);
    for (part = 1; part <= PARTS; part++) {
        if (part > 1)
            rotate(&files[part], argument[1], part);
        for (i = 1; i <= COLLECTIONS; i++) {
            for (j = any(YOUNG); j > 0; j--)
                sample();
            collect();
            check_alive();
            if (i % 4 == 0)
                mark();
            check_alive();
        }
    }
    check_forgotten();
    recorder_stop();
    size = from_hex(argument[3], bytes, sizeof bytes);
    recorder_lock();
    profile_log_bytes(bytes, size);
    recorder_unlock();
    CHECK(recorder_close() == 0);
    CHECK(tracked_memory() > 0);
    tracked_clear(0);
    code_names_end();
    type_names_set("", 0);
    type_names_begin();
    return 0;
}
