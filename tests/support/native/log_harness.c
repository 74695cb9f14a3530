/* Calls profile_log.c for the lines of stdin, and prints the results of the calls.  Numbers
 * are decimal, and bytes are hexadecimal.
 *
 *   open PATH NOW         open a new file and the log; print the errno
 *   openfd FD NOW         the log writes to this descriptor
 *   bytes HEX             write these bytes of vmprof
 *   names HEX             write vmprof's records of names
 *   stack HEX             print the stack's number in the profile
 *   remember KEY          let the key identify the last stack
 *   known KEY NOW         print the number of the stack with this key
 *   row KIND NOW NUMBER...
 *   text KIND NOW HEX NUMBER...    HEX may be - for no bytes
 *   waits NOW             sample 1 waits, and becomes a row of RECORD_WAITING
 *   none-waits            sample 1 does not wait any more
 *   due NOW               print 0 or 1
 *   settings TEXT
 *   totals ALLOCATED LOST DROPPED COLLECTIONS PRESSURES SURPRISES
 *   flush NOW
 *   rotate PATH NOW       print the errno of each call
 *   forget
 *   close                 print the errno
 *
 * These lines are actions of the program on the file:
 *
 *   limit BYTES           limit the size of all files
 *   shut                  close the log's descriptor
 *   reuse PATH            close the log's descriptor, and open this file under its number
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

#include "code_names.h"
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
static int64_t last_node = STACK_LOST;
static int64_t waiting;             /* key of the only waiting sample, or 0 */
static int is_new;                  /* whether no flush has written the sample yet */

/* Returns the decoded bytes in a block of exactly their size, so that the sanitizer notices
   reads beyond the block */
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
    t->waits = waiting;
}

static void put_waiting(void)
{
    int64_t row[RECORD_MOST_COLUMNS] = { waiting, 0, 5, 1, STACK_LOST, 0, 0, 16, 10, 0, 4 };

    if (is_new)
        profile_log_row(RECORD_WAITING, 0, row);
    is_new = 0;
}

static const struct profile_source source = { get_totals, put_waiting };
static struct file_sink files[2], *file = files;

static void open_log(int fd, int64_t now)
{
    int error = file_sink_open(file, fd);

    profile_fd = fd;
    code_names_begin();
    if (error == 0)
        profile_log_open(&file->sink, now, &source);
    printf("%d\n", error);
}

static void rotate(const char *path, int64_t now)
{
    struct file_sink *other = file == files ? files + 1 : files;
    struct profile_log_next next;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);

    memset(&next, 0, sizeof next);
    REQUIRE(file_sink_open(other, fd) == 0);
    next.sink = &other->sink;
    next.head = code_names_head(&next.head_size);
    next.settings = "part=2";
    next.first_key = 9;
    next.trailer = "trailer";
    next.trailer_size = 7;
    printf("%d\n", profile_log_begin_next(&next, now));
    profile_log_rotate(&next);
    printf("%d\n", next.ended);
    file = other;
}

static void records(const char *command, const char *hex)
{
    size_t size;
    unsigned char *bytes = from_hex(hex, &size);

    if (strcmp(command, "stack") == 0) {
        last_node = profile_log_stack(bytes, size);
        printf("%" PRId64 "\n", profile_log_needs_stack(last_node));
    }
    else if (strcmp(command, "names") == 0)
        profile_log_names((const char *)bytes, size);
    else {
        profile_log_bytes(bytes, size);
        code_names_keep_head(bytes, size);
    }
    free(bytes);
}

static int64_t next_number(const char **p)
{
    char *end;
    int64_t number = strtoll(*p, &end, 10);

    REQUIRE(end != *p);
    *p = end;
    return number;
}

static void row(const char *p, int with_text)
{
    int64_t numbers[RECORD_MOST_COLUMNS] = { 0 }, kind, now;
    static char hex[200000];
    size_t columns, i, size = 0;
    unsigned char *text = NULL;

    kind = next_number(&p);
    now = next_number(&p);
    columns = record_of((enum record_kind)kind)->columns - (size_t)with_text;
    if (with_text) {
        REQUIRE(sscanf(p, " %199999s", hex) == 1);
        p += 1 + strlen(hex);
        text = from_hex(strcmp(hex, "-") == 0 ? "" : hex, &size);
    }
    for (i = 0; i < columns; i++)
        numbers[i] = next_number(&p);
    if (with_text)
        profile_log_text((enum record_kind)kind, now, numbers, (char *)text, size);
    else
        profile_log_row((enum record_kind)kind, now, numbers);
    free(text);
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
    int64_t n[1];
    uint64_t key;
    int fd;

    if (sscanf(rest, "%4095s %" SCNd64, path, n) == 2 &&
        strcmp(command, "open") == 0)
        open_log(open(path, O_RDWR | O_CREAT | O_TRUNC, 0666), n[0]);
    else if (strcmp(command, "openfd") == 0 &&
             sscanf(rest, "%d %" SCNd64, &fd, n) == 2)
        open_log(fd, n[0]);
    else if (strcmp(command, "rotate") == 0 &&
             sscanf(rest, "%4095s %" SCNd64, path, n) == 2)
        rotate(path, n[0]);
    else if (strcmp(command, "bytes") == 0 || strcmp(command, "stack") == 0 ||
             strcmp(command, "names") == 0)
        records(command, rest);
    else if (strcmp(command, "remember") == 0)
        profile_log_remember(strtoull(rest, NULL, 10), last_node);
    else if (strcmp(command, "known") == 0 &&
             sscanf(rest, "%" SCNu64 " %" SCNd64, &key, n) == 2)
        printf("%" PRId64 "\n", profile_log_needs_stack(
            profile_log_known_stack(key, n[0])));
    else if (strcmp(command, "row") == 0 || strcmp(command, "text") == 0)
        row(rest, *command == 't');
    else if (strcmp(command, "waits") == 0) {
        waiting = is_new = 1;
        profile_log_waits(strtoll(rest, NULL, 10));
    }
    else if (strcmp(command, "none-waits") == 0)
        waiting = 0;
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

    /* Python ignores this signal, too: a write beyond the limit of file sizes fails */
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
