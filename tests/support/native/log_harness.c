/* Calls profile_log.c as the lines of stdin say, and prints what the calls
 * return.  Numbers are decimal, bytes are hexadecimal.
 *
 *   open PATH NOW         open a new file, and the log; prints the errno
 *   openfd FD NOW         the log writes to this descriptor
 *   bytes HEX
 *   stack HEX             prints the stack's number
 *   remember KEY STACK
 *   known KEY NOW         prints the number of the stack with this key
 *   sample STACK NOW THREAD SIZE INTERVAL      prints the key
 *   collection NOW COLLECTIONS
 *   young KEY OUTCOME TYPE SIZE LIVE_SIZE
 *   freed KEY WHICH
 *   lost KEY WHICH
 *   type NUMBER KIND GCS NAME
 *   event KIND NOW DURATION VALUE
 *   named NOW THREAD HEX  a name in UTF-8
 *   due NOW               prints 0 or 1
 *   settings TEXT
 *   totals ALLOCATED LOST DROPPED COLLECTIONS PRESSURES SURPRISES
 *   flush NOW
 *   finish NOW
 *   forget
 *   close                 prints the errno
 *
 * and, for what the program may do to the file,
 *
 *   limit BYTES           no file may become larger
 *   shut                  close the descriptor behind the log's back
 *   reuse PATH            the same, and give its number to this file
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "facts.h"
#include "file_sink.h"
#include "profile_log.h"

#define REQUIRE(condition) \
    do { if (!(condition)) required(#condition, __LINE__); } while (0)

static void required(const char *what, int where)
{
    fprintf(stderr, "log_harness.c:%d: not so: %s\n", where, what);
    exit(3);
}

static int profile_fd = -1;
static int64_t collected;       /* when the last collection was */

/* In a block of its own size, so that reading beyond it is noticed */
static unsigned char *from_hex(const char *hex, size_t *size)
{
    unsigned char *bytes;
    size_t i;

    *size = strlen(hex) / 2;
    bytes = malloc(*size);
    REQUIRE(bytes != NULL || *size == 0);
    for (i = 0; i < *size; i++) {
        unsigned int byte;
        REQUIRE(sscanf(hex + 2 * i, "%2x", &byte) == 1);
        bytes[i] = (unsigned char)byte;
    }
    return bytes;
}

static struct profile_totals totals;

static void get_totals(struct profile_totals *t)
{
    *t = totals;
}

static void open_log(int fd, int64_t now)
{
    static struct file_sink file;
    int error = file_sink_open(&file, fd);

    profile_fd = fd;
    if (error == 0)
        profile_log_open(&file.sink, now, get_totals);
    printf("%d\n", error);
}

static void records(const char *command, const char *hex)
{
    size_t size;
    unsigned char *bytes = from_hex(hex, &size);

    if (strcmp(command, "stack") == 0)
        printf("%" PRIu64 "\n", profile_log_stack(bytes, size));
    else
        profile_log_bytes(bytes, size);
    free(bytes);
}

static void named(int64_t now, int64_t thread, const char *hex)
{
    size_t size;
    char *name = (char *)from_hex(hex, &size);

    if (profile_log_name(now))
        facts_named(thread, name, size);
    free(name);
}

static void change_file(const char *command, const char *rest)
{
    if (strcmp(command, "limit") == 0) {
        struct rlimit limit;
        REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
        limit.rlim_cur = strtoull(rest, NULL, 10);
        REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    }
    else {
        REQUIRE(close(profile_fd) == 0);
        if (strcmp(command, "reuse") == 0)
            REQUIRE(open(rest, O_RDWR) == profile_fd);
    }
}

static void call(const char *command, const char *rest)
{
    struct profile_totals t;
    char path[4096];
    int64_t n[5];
    uint64_t key, stack;
    int fd;

    if (sscanf(rest, "%4095s %" SCNd64, path, n) == 2 &&
        strcmp(command, "open") == 0)
        open_log(open(path, O_RDWR | O_CREAT | O_TRUNC, 0666), n[0]);
    else if (strcmp(command, "openfd") == 0 &&
             sscanf(rest, "%d %" SCNd64, &fd, n) == 2)
        open_log(fd, n[0]);
    else if (strcmp(command, "bytes") == 0 || strcmp(command, "stack") == 0)
        records(command, rest);
    else if (strcmp(command, "remember") == 0 &&
             sscanf(rest, "%" SCNu64 " %" SCNu64, &key, &stack) == 2)
        profile_log_remember(key, stack);
    else if (strcmp(command, "known") == 0 &&
             sscanf(rest, "%" SCNu64 " %" SCNd64, &key, n) == 2)
        printf("%" PRIu64 "\n", profile_log_known_stack(key, n[0]));
    else if (strcmp(command, "sample") == 0 &&
             sscanf(rest, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
                    " %" SCNd64, n, n + 1, n + 2, n + 3, n + 4) == 5)
        printf("%" PRId64 "\n", profile_log_sample((uint64_t)n[0], n[1], n[2],
                                                   n[3], n[4]));
    else if (strcmp(command, "collection") == 0 &&
             sscanf(rest, "%" SCNd64 " %" SCNd64, n, n + 1) == 2) {
        facts_collection(profile_log_time(n[0]), n[1]);
        collected = n[0];
    }
    else if (strcmp(command, "young") == 0 &&
             sscanf(rest, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64,
                    n, n + 1, n + 2, n + 3, n + 4) == 5) {
        if (profile_log_fact(collected))
            facts_young(n[0], (enum facts_outcome)n[1], n[2], n[3], n[4]);
    }
    else if (strcmp(command, "freed") == 0 &&
             sscanf(rest, "%" SCNd64 " %" SCNd64, n, n + 1) == 2) {
        if (profile_log_fact(collected))
            facts_freed(n[0], (int)n[1]);
    }
    else if (strcmp(command, "lost") == 0 &&
             sscanf(rest, "%" SCNd64 " %" SCNd64, n, n + 1) == 2) {
        if (profile_log_fact(collected))
            facts_lost(n[0], (int)n[1]);
    }
    else if (strcmp(command, "type") == 0 &&
             sscanf(rest, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %4095s", n,
                    n + 1, n + 2, path) == 4) {
        if (profile_log_fact(n[0]))
            facts_type(n[0], (enum facts_name)n[1], n[2], path, strlen(path));
    }
    else if (strcmp(command, "event") == 0 &&
             sscanf(rest, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64, n,
                    n + 1, n + 2, n + 3) == 4) {
        if (profile_log_fact(n[1]))
            facts_event((enum facts_event)n[0], profile_log_time(n[1]), n[2],
                        n[3]);
    }
    else if (strcmp(command, "named") == 0 &&
             sscanf(rest, "%" SCNd64 " %" SCNd64 " %4095s", n, n + 1,
                    path) == 3)
        named(n[0], n[1], path);
    else if (strcmp(command, "due") == 0)
        printf("%d\n", profile_log_due(strtoll(rest, NULL, 10)));
    else if (strcmp(command, "settings") == 0)
        profile_log_settings(rest);
    else if (strcmp(command, "totals") == 0 &&
             sscanf(rest, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
                    " %" SCNd64 " %" SCNd64, &t.allocated, &t.lost,
                    &t.dropped, &t.collections, &t.pressures,
                    &t.surprises) == 6)
        totals = t;
    else if (strcmp(command, "flush") == 0)
        profile_log_flush(strtoll(rest, NULL, 10));
    else if (strcmp(command, "finish") == 0)
        profile_log_finish(strtoll(rest, NULL, 10));
    else if (strcmp(command, "forget") == 0)
        profile_log_forget();
    else if (strcmp(command, "close") == 0)
        printf("%d\n", profile_log_close());
    else if (strcmp(command, "limit") == 0 || strcmp(command, "shut") == 0 ||
             strcmp(command, "reuse") == 0)
        change_file(command, rest);
    else
        required("a line that is understood", __LINE__);
}

int main(void)
{
    char *line = NULL;
    size_t size = 0;

    /* as Python does */
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    while (getline(&line, &size, stdin) > 0) {
        char *rest;
        line[strcspn(line, "\n")] = '\0';
        rest = strchr(line, ' ');
        if (rest != NULL)
            *rest++ = '\0';
        call(line, rest != NULL ? rest : "");
    }
    free(line);
    return 0;
}
