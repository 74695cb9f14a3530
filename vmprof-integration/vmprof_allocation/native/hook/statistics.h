#pragma once

#include "profile_log.h"

/* What the GC counts, for recorder_open() */
void statistics_totals(struct profile_totals *);
