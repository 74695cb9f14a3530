#pragma once
/* What is known of sampled objects, and of the garbage collector, as payloads
 * of blocks: PROFILE.rst, ``types``, ``carried``, ``facts``, ``gc``, ``marks``,
 * ``figures``, ``names`` and ``labels``.
 *
 * These are buffers and no more: profile_log.c writes them as blocks when it
 * flushes, which it has to do before facts_have_room() says no.  Times are in
 * nanoseconds since the profile began.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define FACTS_SIZE          57344       /* bytes of all payloads, at most */
#define FACTS_NAME_MAX      1024        /* bytes; what is longer is cut */

struct facts_payload {
    const char *kind;
    const char *text;
    size_t size;
};

/* Of the eight, in the order in which they are written, number 'i'; size 0: there
   is nothing to say.  The first one comes before the samples, the others behind. */
#define FACTS_PAYLOADS      8
#define FACTS_LABELS        0
struct facts_payload facts_payload(int i);

/* They were written, or are not to be. */
void facts_clear(void);

int facts_are_empty(void);

/* For one more entry of any kind? */
int facts_have_room(void);

/* What follows was found out by a collection that ended at 'time'. */
void facts_collection(int64_t time, int64_t collections);

enum facts_outcome {
    FACTS_DIED,
    FACTS_PROMOTED,
    FACTS_NOT_KNOWN = 3,
    FACTS_STILL_YOUNG,
    FACTS_NOT_KNOWN_YET
};

/* The object of sample 'key', or one more of the objects of the same piece,
   after its first minor collection.  'type' is a number of facts_type(), or 0;
   'size' in bytes, or 0 if it is the sample's; 'live_size' in bytes: what it takes
   since the program has shrunk it, or 0 if that was not done. */
void facts_young(int64_t key, enum facts_outcome outcome, int64_t type,
                 int64_t size, int64_t live_size);

/* Object number 'which' of sample 'key', from 0 on, is dead; or will not be
   heard of again. */
void facts_freed(int64_t key, int which);
void facts_lost(int64_t key, int which);

/* A sampled object of an earlier profile, which may be alive: object number 'which'
   of sample 'key', if it is old; or the sample, which no collection has met. */
enum facts_carried {
    FACTS_CARRIED_OLD = 1,
    FACTS_CARRIED_YOUNG
};

/* 'size' and 'live_size' in bytes: when it was allocated, and what it takes */
void facts_carried(enum facts_carried kind, int64_t key, int which, int64_t stack,
                   int64_t size, int64_t live_size, int64_t interval, int64_t type);

/* A name of a type.  'kind' is PROFILE.rst's; 'gcs' is the GC's number, or -1. */
enum facts_name {
    FACTS_NAME_GCS = 1,
    FACTS_NAME_PYTHON,
    FACTS_NAME_STORAGE,
    FACTS_NAME_INTERNAL
};

void facts_type(int64_t number, enum facts_name kind, int64_t gcs,
                const char *name, size_t size);

enum facts_event {
    FACTS_MINOR = 1,
    FACTS_MAJOR = 3,
    FACTS_SWEPT = 5         /* see facts_swept() */
};

/* 'value' is what PROFILE.rst says of the kind. */
void facts_event(enum facts_event kind, int64_t time, int64_t duration,
                 int64_t value);

/* A major collection has swept, and all old objects are counted: the GC's 'heap', in
   bytes, and what that was when sampling began (-1: not known); beside it the estimated
   bytes of the sampled objects that are 'alive', with the standard deviation, and of
   those of which it is not known what became of them. */
struct facts_swept {
    int64_t heap, heap_at_begin, alive, deviation, not_known;
};
void facts_swept(int64_t time, const struct facts_swept *swept);

/* The program names this moment. */
void facts_mark(int64_t time, const char *name, size_t size);

/* Of the whole process; 'kind' is PROFILE.rst's. */
void facts_figure(int kind, int64_t time, int64_t value);

/* A set of labels: PROFILE.rst */
void facts_label_set(int number, const char *text, size_t size);
/* The sample 'key' has it, and those that come, up to the next of these; 0: none. */
void facts_label(int64_t key, int number);

/* What the program calls a thread, as the kernel numbers it; or, if that is 0,
   itself: its command line. */
void facts_named(int64_t thread, const char *name, size_t size);

#pragma GCC visibility pop
