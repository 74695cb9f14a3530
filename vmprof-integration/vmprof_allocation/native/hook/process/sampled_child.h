#pragma once
/* The sampling of a forked child of the sampled process, into a separate profile.
 *
 * At the fork, only the sampler starts again.  The file and everything else that a
 * profile needs are made at the child's first sample.  Most children take no sample, or
 * execute another program at once.  vmprof is not enabled again, because this takes
 * milliseconds.  The records that vmprof would then write are known from the parent
 * (code_names.h).
 */

#include <stdint.h>

#include "gc/nursery.h"

/* Choose the seed of the next child, and store its parent, before a fork. */
void child_before_fork(void);

/* Return whether this forked child can be sampled.  Call it before anything else in the
   child. */
int child_is_wanted(void);
/* Begin to sample this child, if child_is_wanted() has returned 1.  Returns 0 or an
   errno. */
int child_begin(void);

/* Call walk_take_sample().  Before the first sample of a child, open its profile. */
int64_t child_take_sample(const struct nursery_sample *sample);
