#pragma once

#include "profile_log.h"

/* What the GC counts, for recorder_open() */
void statistics_totals(struct profile_totals *);

/* Tell the profile, which is about to end, how much memory it took to know what becomes
   of objects. */
void statistics_note(void);
