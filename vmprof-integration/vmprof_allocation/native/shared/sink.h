#pragma once
/* The destination of a profile: a file, a pipe, or the memory of a test.
 *
 * profile_log.c passes whole batches of records, one at a time.  A sink takes no lock and
 * allocates nothing, because a signal handler may call it.
 */

#include <stddef.h>

/* A destination, which may have further data after these functions */
struct sink {
    /* Write the whole batch, or nothing.  The caller may reuse the memory of the batch
       afterwards.  Returns 0 or an errno; an errno ends the profile, and nothing is
       appended any more. */
    int (*append)(struct sink *, const void *batch, size_t size);

    /* Detach from the destination in a forked child, which must not write to its parent's
       profile. */
    void (*forget)(struct sink *);
};
