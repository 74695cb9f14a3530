#include "held.h"

#include <string.h>
#include <time.h>

#include "classes.h"
#include "gc_types.h"
#include "heap_walk.h"
#include "holders.h"
#include "mapped_memory.h"
#include "marks.h"
#include "paths.h"

static int64_t processor_time(void)
{
    struct timespec time;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void begin(const struct held_question *question, struct held_result *result)
{
    held_begin(result);
    gc_types_read(question);
    marks_begin();
    walk_heap(question);
    result->objects = walk.objects;
    result->bytes = walk.bytes;
}

static void finish(struct held_result *result)
{
    walk_forget();
    marks_end();
    gc_types_forget();
    result->memory = room_taken();
    result->problem = HELD_ANSWERED;
}

static void find_holders(const struct held_question *question, struct held_result *result)
{
    static struct chosen chosen[HELD_HOLDERS];
    int count = paths_choose(chosen);

    paths_tell(question, result);
    classes_find();
    walk_forget_met();          /* the second walk needs the memory for its words */
    holders_weigh(question, result, chosen, count);
    classes_forget();
}

static void tell_reached(const struct held_question *question, struct held_result *result)
{
    size_t i;

    for (i = 0; i < question->count; i++) {
        uint32_t at = walk_asked(held_asked(question, i))->at;
        result->found[i].how = (uint8_t)(
            at == NOT_MET ? HELD_NO_PATH :
            at >= walk.finalizers_begin ? HELD_BY_FINALIZER : HELD_OTHERWISE);
    }
}

void held_answer(const struct held_question *question, struct held_result *result)
{
    int64_t before = processor_time();

    begin(question, result);
    if (question->wants_holders)
        find_holders(question, result);
    else
        tell_reached(question, result);
    result->nanoseconds = processor_time() - before;
    finish(result);
}

/* ____________________________________________________________ */
/* Comparison with gc.dump_rpy_heap().  A record of the dump has the address of an
   object, the row of its type, its size in bytes, its references, and -1.  The roots are
   separated from the other objects by the record 0, 0, 0, -1. */

struct record {
    const int64_t *next, *end;  /* the references that were not compared yet */
    int is_same;
};

static void compare_reference(uint64_t child, void *context)
{
    struct record *record = context;

    if (record->next == record->end || (uint64_t)*record->next++ != child)
        record->is_same = 0;
}

struct search {
    uint64_t wanted;
    int is_found;
};

static void look_for_reference(uint64_t child, void *context)
{
    struct search *search = context;

    if (child == search->wanted)
        search->is_found = 1;
}

static void look_in_record(uint64_t child, void *context)
{
    struct record *record = context;
    const int64_t *at;

    for (at = record->next; at < record->end; at++)
        if ((uint64_t)*at == child)
            return;
    record->is_same = 0;
}

/* Return whether an object, whose type has a custom trace function, has the references in
   a record of the dump.  gc_trace() may visit a reference of this object twice, and in
   another order than the dump. */
static int has_same_references(uint64_t object, const struct gc_type *type,
                               struct record record)
{
    gc_trace(object, type, look_in_record, &record);
    for (; record.next < record.end && record.is_same; record.next++) {
        struct search search = { (uint64_t)*record.next, 0 };
        gc_trace(object, type, look_for_reference, &search);
        record.is_same = search.is_found;
    }
    return record.is_same;
}

/* Return whether a record of the dump, from 'words' to 'end', matches the object at the
   address in the record. */
static int is_same(const int64_t *words, const int64_t *end)
{
    uint64_t object = (uint64_t)words[0];
    struct record record = { words + 3, end, 1 };
    const struct gc_type *type;

    if (marks_rank(object) < 0)
        return 0;
    type = gc_type_of(object);
    if (type->custom == NOT_WALKED)
        return 1;               /* gc_trace() does not visit its references */
    if (words[1] != type->row || words[2] != (int64_t)gc_size(object, type))
        return 0;
    if (type->custom != NO_CUSTOM)
        return has_same_references(object, type, record);
    gc_trace(object, type, compare_reference, &record);
    return record.is_same && record.next == end;
}

int64_t held_compare(const struct held_question *question, struct held_result *result,
                     const int64_t *dump, size_t words, uint64_t *differ, size_t most)
{
    const int64_t *last = dump + words, *at = dump, *end;
    int64_t count = 0;

    begin(question, result);
    marks_count();
    for (; at + 3 < last; at = end + 1) {
        for (end = at + 3; end < last && *end != -1; end++)
            ;
        if (*at != 0 && !is_same(at, end)) {
            if ((size_t)count < most)
                differ[count] = (uint64_t)*at;
            count++;
        }
    }
    finish(result);
    return count;
}
