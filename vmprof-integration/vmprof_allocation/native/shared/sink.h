#pragma once
/* Where a profile goes.
 *
 * profile_log.c hands over whole batches of records, one at a time, and
 * knows no files.  A sink takes no lock, allocates nothing, and may be called
 * from a signal handler, as its caller.
 */

#include <stddef.h>

struct sink {
    /* Take one batch, or nothing of it.  The bytes are the caller's again
       afterwards.  Returns 0 or an errno, with which the profile ends: nothing
       is appended after an error. */
    int (*append)(struct sink *, const void *batch, size_t size);

    /* In a forked child, which has no part in its parent's profile */
    void (*forget)(struct sink *);
};
