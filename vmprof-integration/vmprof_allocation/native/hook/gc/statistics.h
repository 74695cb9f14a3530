#pragma once

#include "profile_log.h"

/* Store the nursery's statistics in the totals.  recorder_open() gets this function. */
void statistics_totals(struct profile_totals *);

/* Write the peak memory of the object tables into the profile, which is about to end. */
void statistics_note(void);
