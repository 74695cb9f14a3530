#pragma once

#include "profile_log.h"

/* Fill in the GC's counts, for recorder_open(). */
void statistics_totals(struct profile_totals *);

/* Write the peak memory of the object tables into the profile, which is about to end. */
void statistics_note(void);
