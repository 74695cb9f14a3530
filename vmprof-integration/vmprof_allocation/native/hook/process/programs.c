#define _GNU_SOURCE
#include "programs.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "recorder.h"

#define MOST            16      /* further names are counted together */
#define NAME_SIZE       28

/* A program that some children execute, in memory that all processes of the run share. */
struct program {
    int state;                  /* 0 if this entry is free, 1 while the name is being
                                   written, then 2 */
    volatile int count;         /* number of executions */
    char name[NAME_SIZE];
};

static struct program *programs;
static pid_t first;             /* process whose profile names the programs */
static int noted;               /* number of executions that the profile contains */

void programs_end(void)
{
    if (programs != NULL)
        munmap(programs, MOST * sizeof *programs);
    programs = NULL;
}

void programs_begin(void)
{
    void *map = mmap(NULL, MOST * sizeof *programs, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    programs_end();
    noted = 0;
    first = getpid();
    if (map != MAP_FAILED)
        programs = map;
}

/* Make a name of the program 'path' that the settings can contain (PROFILE.rst). */
static void clean_name(const char *path, char *name)
{
    const char *slash = strrchr(path, '/');
    size_t i;

    memset(name, 0, NAME_SIZE);
    path = slash == NULL ? path : slash + 1;
    for (i = 0; i < NAME_SIZE - 1 && path[i] != '\0'; i++)
        name[i] = path[i] > ' ' && path[i] < 127 && strchr(",;:", path[i]) == NULL
                      ? path[i] : '?';
}

static int has_name(const struct program *program)
{
    return __atomic_load_n(&program->state, __ATOMIC_ACQUIRE) == 2;
}

void programs_count(const char *path, int by)
{
    char name[NAME_SIZE];
    int i;

    if (programs == NULL)
        return;
    clean_name(path, name);
    for (i = 0; i < MOST; i++) {
        struct program *program = &programs[i];
        if (i == MOST - 1) {
            memset(name, 0, NAME_SIZE);     /* memcmp() compares all bytes */
            strcpy(name, "others");
        }
        if (__sync_bool_compare_and_swap(&program->state, 0, 1)) {
            memcpy(program->name, name, NAME_SIZE);
            __atomic_store_n(&program->state, 2, __ATOMIC_RELEASE);
        }
        /* If another process is writing this name, the name gets two entries. */
        if (has_name(program) && memcmp(program->name, name, NAME_SIZE) == 0) {
            __sync_fetch_and_add(&program->count, by);
            return;
        }
    }
}

void programs_begin_next(void)
{
    noted = 0;
}

void programs_note(void)
{
    char text[MOST * (NAME_SIZE + 16)] = "programs=";
    size_t used = strlen(text);
    int i, all = 0;

    if (programs == NULL || first != getpid())
        return;
    for (i = 0; i < MOST; i++) {
        int count = has_name(&programs[i]) ? programs[i].count : 0;
        if (count <= 0)
            continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d %s",
                                 all > 0 ? "," : "", count, programs[i].name);
        all += count;
    }
    if (all != noted)
        recorder_note(text);
    noted = all;
}
