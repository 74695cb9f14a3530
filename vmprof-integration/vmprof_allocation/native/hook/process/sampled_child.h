#pragma once
/* A forked child of the sampled process goes on in a profile of its own.
 *
 * At the fork, only the sampler begins anew; the file, and all that a profile
 * takes, come with the child's first sample: most children make none, or become
 * another program at once.  vmprof is not enabled again, which takes milliseconds:
 * what it wrote in the parent is known (code_names.h).
 */

#include <stdint.h>

#include "gc/nursery.h"

/* Before a fork */
void child_before_fork(void);

/* In a forked child, before anything else: is it one that can go on? */
int child_is_wanted(void);
/* Then: sample it.  Returns 0 or an errno. */
int child_begin(void);

/* walk_take_sample(); and before the first one of a child, its profile is opened. */
int64_t child_take_sample(const struct nursery_sample *sample);
