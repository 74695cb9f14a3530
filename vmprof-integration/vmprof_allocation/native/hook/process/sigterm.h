#pragma once
/* A handler of SIGTERM in a sampled child.
 *
 * A pool ends its workers with SIGTERM, and many workers live for less time than passes
 * between two writes of the profile.  Therefore, a handler writes the pending records,
 * unless the program has set another action for the signal.  Afterwards, the handler sends
 * the signal again, which has its default action this time.
 */

/* Set the handler if the signal has its default action. */
void sigterm_watch(void);
/* Return whether the handler is set. */
int sigterm_is_watched(void);

/* Restore the default action if the handler is set. */
void sigterm_unwatch(void);
