#pragma once
/* A pool ends its workers with SIGTERM, and many live for less time than passes between
 * two writes of the profile.  So in a sampled child, as long as nobody has set anything
 * else for this signal, a handler writes what waits; then the signal has its default
 * action. */

void sigterm_watch(void);
int sigterm_is_watched(void);

/* The default action, as before.  Harmless if there is no handler of ours. */
void sigterm_unwatch(void);
