#pragma once
/* One run, from hook_open() to hook_close(): the profile, and vmprof. */

/* In a forked child, where nobody else ends the run */
void run_forked(void);
