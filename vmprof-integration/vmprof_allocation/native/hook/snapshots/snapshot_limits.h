#pragma once
/* Conditions under which no process may be forked for a heap snapshot (held_by.h). */

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* The memory for the process of a heap snapshot. */
struct snapshot_memory {
    int64_t needed;             /* bytes that the process may need */
    int64_t left;               /* bytes that are available to it */
};

/* Return 0 if a snapshot is possible, or one of enum hook_refusal (hook.h).  'root' is
   "", or a folder that replaces / in a test.  'heap' is the size of the GC's heap in
   bytes.  Stores the needed and the available bytes in 'memory'. */
int snapshot_limits_refuse(const char *root, int64_t heap, struct snapshot_memory *memory);

#pragma GCC visibility pop
