#pragma once
/* Where vmprof's own stack begins: a word of what PyPy keeps of each thread. */

#include <stddef.h>
#include <stdint.h>

#include "stack_nodes.h"

/* Find it.  'record' is a stack sample that vmprof took of this thread just now: the list
   has to hold what the sample holds.  Returns 0, or ENOTSUP. */
int vmprof_stack_find(const char *record, size_t size);

/* This thread's innermost node; or NULL, if there is none or it is not known
   where the list begins. */
const struct stack_node *vmprof_stack_innermost(void);
