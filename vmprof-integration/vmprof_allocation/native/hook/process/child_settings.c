#define _GNU_SOURCE
#include "child_settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hook.h"
#include "programs.h"
#include "sigterm.h"
#include "vmprof/signals.h"
#include "vmprof/vmprof_file.h"
#include "vmprof/vmprof_output.h"

#define OWN_SETTINGS    160
#define VARIABLE_SIZE   8192
#define COMMAND_SIZE    2048    /* bytes of a command; a longer one is not recorded */

struct child_settings child;
/* The variable for children that execute this interpreter, and the command line. */
static char variable_of_children[VARIABLE_SIZE];
static char command_of_this[COMMAND_SIZE];
/* the file of the interpreter */
static dev_t device;
static ino_t inode;

int hook_sample_children(const char *path, const char *suffix, const char *settings,
                         const char *variable, const char *interpreter, int parent,
                         uint64_t seed)
{
    struct stat st;
    int error;

    if (strlen(path) + strlen(suffix) + 32 > sizeof child.path ||
        strlen(suffix) >= sizeof child.suffix ||
        strlen(settings) + OWN_SETTINGS > sizeof child.settings ||
        strlen(variable) >= sizeof variable_of_children)
        return ENAMETOOLONG;
    if (stat(interpreter, &st) < 0)
        return errno;
    error = vmprof_file_learn(signals_vmprofs_handler(), vmprof_output_decoy());
    if (error != 0)
        return error;
    memset(&child, 0, sizeof child);
    strcpy(child.path, path);
    strcpy(child.suffix, suffix);
    strcat(strcpy(child.present, path), suffix);
    strcpy(child.settings, settings);
    strcpy(variable_of_children, variable);
    device = st.st_dev;
    inode = st.st_ino;
    child.seed = seed;
    child.parent_of_this = parent;
    child.is_on = 1;
    programs_begin();
    if (parent != 0)
        sigterm_watch();
    return 0;
}

int child_is_this(void)
{
    return child.is_child;
}

void child_rotated(int fd)
{
    char link[32];
    ssize_t size;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, child.present, sizeof child.present - 1);
    child.present[size < 0 ? 0 : size] = '\0';
}

void child_end(void)
{
    child.is_on = child.is_child = 0;
    programs_end();
    sigterm_unwatch();
}

void child_limit(int64_t per_second, int64_t share)
{
    child.per_second = per_second;
    child.share = share;
}

void child_command(const char *command)
{
    if (strlen(command) < sizeof command_of_this)
        strcpy(command_of_this, command);
}

const char *child_known_command(void)
{
    return command_of_this[0] != '\0' ? command_of_this : NULL;
}

/* ____________________________________________________________ */
/* exec */

/* Return whether these arguments keep the interpreter from importing 'site', which would
   read the variable. */
static int is_without_site(char *const arguments[])
{
    const char *p;

    if (arguments == NULL || arguments[0] == NULL)
        return 1;
    while (*++arguments != NULL && **arguments == '-') {
        p = *arguments + 1;
        if (*p == '\0' || strcmp(p, "-") == 0)
            return 0;
        if (*p == '-') {
            if (strcmp(p, "-jit") == 0 && *++arguments == NULL)
                return 0;
            continue;
        }
        for (; *p != '\0'; p++) {
            if (*p == 'S')
                return 1;
            if (*p == 'c' || *p == 'm')
                return 0;       /* the remaining arguments are the program's */
            if (*p == 'W' || *p == 'X' || *p == 'Q') {
                if (p[1] == '\0' && *++arguments == NULL)
                    return 0;
                break;
            }
        }
    }
    return 0;
}

char *child_variable(const char *path, char *const arguments[])
{
    static char variable[VARIABLE_SIZE + 16];
    int saved_errno = errno, size, is_same;
    const char *value = strchr(variable_of_children, '=');
    struct stat st;

    is_same = child.is_on && value != NULL && stat(path, &st) == 0 &&
              st.st_dev == device && st.st_ino == inode &&
              !is_without_site(arguments);
    errno = saved_errno;
    if (!is_same)
        return NULL;
    size = (int)(value + 1 - variable_of_children);
    snprintf(variable, sizeof variable, "%.*s%d\t%s", size, variable_of_children,
             (int)child.parent_of_this, value + 1);
    return variable;
}
