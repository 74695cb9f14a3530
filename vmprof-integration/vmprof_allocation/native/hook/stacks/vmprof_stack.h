#pragma once
/* The beginning of vmprof's list of frames, among PyPy's data of each thread. */

#include <stddef.h>
#include <stdint.h>

#include "stack_nodes.h"

/* Find the list among the data of this thread.  'record' is a stack sample that vmprof has
   just taken of this thread; the list must contain the same frames.  Returns 0, or ENOTSUP
   if no list or several lists match. */
int vmprof_stack_find(const char *record, size_t size);

/* Return the innermost node of this thread's list.  Returns NULL if there are no frames,
   or if the list was not found. */
const struct stack_node *vmprof_stack_innermost(void);
