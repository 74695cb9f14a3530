#pragma once
/* The analysis of the heap for a snapshot: which objects the program can reach, which
 * objects (*retainers*) keep many others alive, and which reference path leads to each
 * retainer.
 *
 * An object A is retained by B if the program cannot reach A without passing through B.  A
 * retainer has a name in Python, such as the dict shop._seen; identifiers call it a
 * *holder*.  The retained sizes are exact: they count all objects, not only sampled
 * objects.
 *
 * The analysis has up to three walks.  The first walk starts at all roots, and finds the
 * largest named objects and their paths (heap_walk.h, paths.h).  The second walk finds the
 * objects that are reachable without each retainer (holders.h).  If some classes have many
 * instances, a third walk does the same for all instances of each class (classes.h).
 *
 * hook/snapshots/held_by.c forks a process by the bare system call, and calls held_answer()
 * in the child.  probe/references.py calls held_compare() in the same way.  At the fork,
 * another thread of the program may have been in malloc() or stdio.  So no function in this
 * folder calls malloc() or stdio, or takes a lock.
 *
 * The functions only read the GC's memory, and write only to pages that they map, so that
 * the child copies no page of the parent's heap.  If the analysis is not possible,
 * held_fail() stores the reason in the result and ends the process.
 */

#include <stddef.h>
#include <stdint.h>

#include "question.h"

#pragma GCC visibility push(hidden)

/* Analyse the heap and fill in 'result', which must be zeroed.  Runs in a forked child,
   and returns only if the analysis succeeded: otherwise held_fail() ends the process. */
void held_answer(const struct held_question *, struct held_result *result);

/* Walk the heap, and compare the objects with 'dump', an array of 'words' words that
   gc.dump_rpy_heap() wrote.  Stores the addresses of at most 'most' objects that differ in
   type, size or references into 'differ'.  Returns the number of all objects that differ.
   Runs in a forked child, like held_answer(). */
int64_t held_compare(const struct held_question *, struct held_result *result,
                     const int64_t *dump, size_t words, uint64_t *differ, size_t most);

#pragma GCC visibility pop
