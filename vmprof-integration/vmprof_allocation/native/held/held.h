#pragma once
/* Who holds what is alive: what each of the largest holders alone keeps, exactly, and the
 * path to it in Python's names.
 *
 * A *holder* is an object that has a name, such as the dict shop._seen: what can't be
 * reached but through it goes with it.  The heap is walked from all roots, to find the
 * largest holders and their paths (heap_walk.h, paths.h); then to learn what can be
 * reached without each of them (holders.h); and again, where classes have many instances,
 * to learn what can be without these (classes.h).
 *
 * This runs in a forked child (hook/snapshots/held_by.h), where another thread of the
 * program may have been anywhere: so no function here calls malloc() or stdio, or takes a
 * lock.  It reads the GC's memory, and writes nothing but what it maps itself, so that the pages
 * stay the parent's.  What can't be goes to held_fail(), which ends the process.
 */

#include <stddef.h>
#include <stdint.h>

#include "question.h"

#pragma GCC visibility push(hidden)

/* Answer, into 'result', all of which is 0. */
void held_answer(const struct held_question *, struct held_result *result);

/* Compare the walk with what gc.dump_rpy_heap() wrote: 'dump', so many words.  Fills in
   the addresses of at most 'most' objects that differ, and returns how many there are. */
int64_t held_compare(const struct held_question *, struct held_result *result,
                     const int64_t *dump, size_t words, uint64_t *differ, size_t most);

#pragma GCC visibility pop
