#define _GNU_SOURCE
#include "end_notes.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gc/statistics.h"
#include "hook.h"
#include "programs.h"
#include "recorder.h"

#define MOST_TOLD       64

/* the last processes to which process 'teller' sent SIGTERM or SIGKILL */
static struct {
    pid_t pid;
    int signal;
} told[MOST_TOLD];
static int told_count;
static pid_t teller;

void end_notes_remember(pid_t pid, int signal)
{
    int i;

    if (pid <= 0 || (signal != SIGTERM && signal != SIGKILL))
        return;
    if (teller != getpid()) {
        teller = getpid();
        told_count = 0;         /* the entries are about signals of the parent process */
    }
    for (i = 0; i < told_count && i < MOST_TOLD; i++)
        if (told[i].pid == pid) {
            told[i].signal = signal;
            return;
        }
    i = __sync_fetch_and_add(&told_count, 1) % MOST_TOLD;
    told[i].pid = pid;
    told[i].signal = signal;
}

static void note_told(void)
{
    char text[MOST_TOLD * sizeof "1234567890 15,"] = "told=";
    size_t used = strlen(text);
    int i;

    if (teller != getpid())
        return;
    for (i = 0; i < told_count && i < MOST_TOLD; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d %d",
                                 i > 0 ? "," : "", (int)told[i].pid, told[i].signal);
    recorder_note(text);
}

void end_notes_waiting(void)
{
    programs_note();
    note_told();
    statistics_note();
}

void hook_note(const char *note)
{
    recorder_note(note);
}

void end_notes_why(const char *why)
{
    char note[128] = "ended=";

    end_notes_waiting();
    strncat(note, why, sizeof note - sizeof "ended=");
    recorder_note(note);
}
