#pragma once
/* A forked child does not go on with its parent's profile. */

/* Watch for forks from now on; once is enough.  vmprof must have been enabled.
   Returns 0 or an errno. */
int forks_watch(void);
