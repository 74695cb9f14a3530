#include "statistics.h"

#include <inttypes.h>
#include <stdio.h>

#include "hook.h"
#include "nursery.h"
#include "objects.h"
#include "recorder.h"

void statistics_totals(struct profile_totals *totals)
{
    totals->allocated = nursery.allocated;
    totals->collections = nursery.collections;
    totals->pressures = nursery.pressures;
    totals->surprises = nursery.surprises;
}

void hook_get_statistics(struct hook_statistics *statistics)
{
    statistics->samples = recorder_counts.samples;
    statistics->lost = recorder_counts.lost;
    statistics->time_samples = recorder_counts.time_samples;
    statistics->dropped = recorder_counts.dropped;
    statistics->allocated = nursery.allocated;
    statistics->collections = nursery.collections;
    statistics->pressures = nursery.pressures;
    statistics->surprises = nursery.surprises;
    statistics->memory = objects_memory();
    statistics->not_followed = objects_lost();
}

int64_t hook_collections(void)
{
    return nursery.collections;
}

void statistics_note(void)
{
    char text[40];

    if (objects_memory() == 0)
        return;
    (void)snprintf(text, sizeof text, "bookkeeping=%" PRId64, objects_memory());
    recorder_note(text);
}
