#define _GNU_SOURCE
#include "children.h"

#include <stddef.h>
#include <sys/mman.h>

static volatile int *count;             /* number of unsampled children, in memory that
                                           they share */
static volatile int *counted_in;        /* the parent's 'count' if that includes this
                                           process, and NULL otherwise */
/* last number that children_news() returned, and whether children_count() has nothing to
   do */
static int told, is_counted;

static void give_back(volatile int *map)
{
    if (map != NULL)
        munmap((void *)map, sizeof *map);
}

void children_end(void)
{
    if (count != counted_in)
        give_back(count);
    count = NULL;
}

void children_begin(void)
{
    void *map = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    children_end();
    if (map != MAP_FAILED)
        count = map;
    told = 0;
    is_counted = 1;
}

static void leave_parents(void)
{
    if (counted_in != count)
        give_back(counted_in);
    counted_in = NULL;
}

void children_forked(void)
{
    leave_parents();
    is_counted = 0;
}

void children_count(void)
{
    if (count != NULL && !is_counted) {
        __sync_fetch_and_add(count, 1);
        counted_in = count;
    }
    is_counted = 1;
}

void children_followed(void)
{
    if (counted_in != NULL)
        __sync_fetch_and_sub(counted_in, 1);
    leave_parents();
}

int children_news(void)
{
    int now;

    /* the flusher may call children_news() before children_begin() */
    if (count == NULL)
        return -1;
    now = *count;
    if (now == told)
        return -1;
    told = now;
    return now;
}

void children_tell_again(void)
{
    told = 0;
}
