#define _GNU_SOURCE
#include "labels.h"

#include <stdlib.h>
#include <string.h>

#include "hook.h"
#include "recorder.h"

/* by number, from 1 on; never freed: a sample may be about to name them */
static const char *texts[RECORDER_LABELS];
static int count = 1;

const char *labels_text(int number)
{
    return number > 0 && number < __atomic_load_n(&count, __ATOMIC_ACQUIRE)
        ? texts[number] : NULL;
}

int hook_define_label(const char *text)
{
    char *copy;

    if (count == RECORDER_LABELS)
        return 0;
    copy = strdup(text);
    if (copy == NULL)
        return 0;
    texts[count] = copy;
    __atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
    return count - 1;
}

void hook_label(int number)
{
    recorder_label(number);
}
