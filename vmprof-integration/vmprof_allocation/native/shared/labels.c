#define _GNU_SOURCE
#include "labels.h"

#include <stdlib.h>
#include <string.h>

#include "recorder.h"

static __thread __attribute__((tls_model("initial-exec")))
struct {
    int number, epoch;
} thread;
static int epoch;               /* number of the present profile: a thread may still have
                                   labels of an earlier profile */

/* texts of the sets by number, from 1 on.  They are never freed, because a sample may be
   about to write them. */
static const char *texts[PROFILE_LOG_LABELS];
static int count = 1;

/* Return the number of the calling thread's set of labels, or 0. */
static int present_label(void)
{
    return thread.epoch == epoch ? thread.number : 0;
}

/* Return the text of a set, or NULL if there is no such set.  Runs without the GIL. */
static const char *label_text(int number)
{
    return number > 0 && number < __atomic_load_n(&count, __ATOMIC_ACQUIRE)
        ? texts[number] : NULL;
}

int labels_define(const char *text)
{
    char *copy;

    if (count == PROFILE_LOG_LABELS)
        return 0;
    copy = strdup(text);
    if (copy == NULL)
        return 0;
    texts[count] = copy;
    __atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
    return count - 1;
}

void labels_set(int number)
{
    thread.number = number;
    thread.epoch = epoch;
}

void labels_begin(void)
{
    epoch++;
    recorder_labels(present_label, label_text);
}
