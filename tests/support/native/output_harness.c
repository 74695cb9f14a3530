/* Calls vmprof_output.c as vmprof and the program do, for the lines of stdin.  Prints the
 * data that the recorder would get: "bytes HEX", "stack HEX", "disabled HEX".
 *
 *   open                  make the decoy, a descriptor that vmprof takes for its file
 *   control 0 | 1         the sampler begins (1) or ends (0) a call of vmprof's enable() or
 *                         disable()
 *   map, unmap            map or unmap vmprof's buffers
 *   fill BUFFER HEX       vmprof appends to a buffer
 *   end BUFFER HEX        vmprof writes the last bytes of a buffer, which are already
 *                         counted
 *   flush BUFFER          vmprof writes the buffer to its file, and empties it
 *   write HEX             vmprof writes to its file
 *   names                 take the new names
 *   probe BUFFER HEX      vmprof takes a sample that only we get; print it
 *   front COUNT HEX [HEX] vmprof takes a sample, before whose stack COUNT words are put:
 *                         1000 and so on.  Without HEX, vmprof takes no sample.  With a
 *                         second HEX, vmprof first writes another sample that it could not
 *                         write earlier
 *   instead COUNT HEX     the same as "front", but the words replace the stack
 *   enabled               print 0 or 1
 *   steal                 the program closes the decoy, and opens a file
 *   stolen                print the contents of the program's file
 *   own HEX               the program writes to another file; print the file's contents
 *   seek                  vmprof rewinds its file when it has none
 *   close, forget
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "recorder.h"
#include "vmprof/vmprof_file.h"
#include "code_names.h"
#include "vmprof/vmprof_output.h"

/* Replaces vmprof_file.c: without vmprof, there is no variable to set */
int vmprof_file_set(int fd)
{
    return fd < 0;
}

void vmprof_file_take_back(void)
{
}

#define CHECK(condition) \
    do { if (!(condition)) failed(#condition, __LINE__); } while (0)

#define BUFFERS     20
#define BUFFER_SIZE 8192

struct buffer {
    unsigned int size, offset;
    char data[BUFFER_SIZE - 8];
};

static void failed(const char *what, int where)
{
    fflush(stdout);
    fprintf(stderr, "output_harness.c:%d: not so: %s\n", where, what);
    exit(3);
}

static void print_bytes(const char *what, const void *data, size_t size)
{
    const unsigned char *p = data;

    printf("%s ", what);
    while (size-- > 0)
        printf("%02x", *p++);
    printf("\n");
}

/* ____________________________________________________________ */
/* The recorder */

static int locked;

void recorder_lock(void)
{
    CHECK(!locked);
    locked = 1;
}

void recorder_unlock(void)
{
    CHECK(locked);
    locked = 0;
}

int recorder_has_lock(void)
{
    return locked;
}

int recorder_stack(const void *record, size_t size)
{
    CHECK(locked);
    if (*(const char *)record != '\x01')
        return 0;
    print_bytes("stack", record, size);
    return 1;
}

void profile_log_bytes(const void *records, size_t size)
{
    CHECK(locked);
    if (size > 0)
        print_bytes("bytes", records, size);
}

/* Print the new names, as if the profile needed each name. */
void profile_log_names(const char *records, size_t size)
{
    int64_t word[2];
    const void *name;
    size_t name_size;

    code_names_keep(records, size);
    for (; size > 0; records += 17 + word[1], size -= 17 + (size_t)word[1]) {
        memcpy(word, records + 1, sizeof word);
        name = code_names_record(word[0], &name_size);
        if (name != NULL)
            profile_log_bytes(name, name_size);
    }
}

static void on_disabled(const void *trailer, size_t size)
{
    CHECK(!locked);
    print_bytes("disabled", trailer, size);
}

/* ____________________________________________________________ */
/* vmprof and the program */

static int decoy = -1;
static struct buffer *buffers;

/* Returns the decoded bytes in a block of exactly their size, so that the sanitizer notices
   reads beyond the block */
static unsigned char *from_hex(const char *hex, size_t *size)
{
    unsigned char *bytes = malloc(strlen(hex) / 2);
    size_t i;

    *size = strlen(hex) / 2;
    for (i = 0; i < *size; i++)
        CHECK(sscanf(hex + 2 * i, "%2hhx", bytes + i) == 1);
    return bytes;
}

static void fill(int i, const char *hex)
{
    size_t size;
    unsigned char *bytes = from_hex(hex, &size);

    CHECK(buffers[i].size + size <= sizeof buffers[i].data);
    memcpy(buffers[i].data + buffers[i].size, bytes, size);
    buffers[i].size += (unsigned int)size;
    free(bytes);
}

static void end_record(int i, const char *hex)
{
    size_t size;
    unsigned char *bytes = from_hex(hex, &size);

    CHECK(size <= buffers[i].size);
    memcpy(buffers[i].data + buffers[i].size - size, bytes, size);
    free(bytes);
}

static void flush(int i)
{
    ssize_t size = (ssize_t)buffers[i].size;

    CHECK(vmprof_output_write(decoy, buffers[i].data, (size_t)size) == size);
    buffers[i].size = 0;
}

static int probed_buffer;
static const char *probed;

static void take_sample(void)
{
    fill(probed_buffer, probed);
    flush(probed_buffer);
}

static void probe(int i, const char *hex)
{
    const char *record;
    size_t size;

    probed_buffer = i;
    probed = hex;
    size = vmprof_output_probe(take_sample, &record);
    print_bytes("probe", record, size);
}

static const char *late;

static void take_samples(void)
{
    if (late != NULL) {
        fill(1, late);
        flush(1);
    }
    if (*probed != '\0')
        take_sample();
}

static void front(int count, char *hex, int are_all)
{
    int64_t *words = malloc(((size_t)count + 1) * sizeof *words);
    char *space = strchr(hex, ' ');
    int i;

    CHECK(words != NULL);
    late = space != NULL ? space + 1 : NULL;
    if (space != NULL)
        *space = '\0';
    for (i = 0; i < count; i++)
        words[i] = 1000 + i;
    probed_buffer = 2;
    probed = hex;
    recorder_lock();
    vmprof_output_take(take_samples, words, (size_t)count, are_all);
    recorder_unlock();
    free(words);
}

static void write_hex(int fd, const char *hex)
{
    size_t size;
    unsigned char *bytes = from_hex(hex, &size);

    CHECK(vmprof_output_write(fd, bytes, size) == (ssize_t)size);
    free(bytes);
}

static void write_own(const char *hex)
{
    char bytes[4096];
    int fds[2];

    CHECK(pipe(fds) == 0);
    write_hex(fds[1], hex);
    print_bytes("own", bytes, (size_t)read(fds[0], bytes, sizeof bytes));
    close(fds[0]);
    close(fds[1]);
}

static void steal(void)
{
    int fd = memfd_create("program", 0);

    CHECK(fd >= 0 && dup2(fd, decoy) == decoy);
    close(fd);
}

static void print_stolen(void)
{
    char bytes[4096];

    print_bytes("stolen", bytes, (size_t)pread(decoy, bytes, sizeof bytes, 0));
}

static int is(const char *line, const char *command)
{
    return strcmp(line, command) == 0;
}

static void call(const char *command, char *rest)
{
    static char nothing[1];
    int number = atoi(rest);
    char *hex = strchr(rest, ' ');

    hex = hex != NULL ? hex + 1 : nothing;
    if (is(command, "open")) {
        code_names_begin();
        CHECK((decoy = vmprof_output_open(on_disabled)) >= 3);
    }
    else if (is(command, "control"))
        vmprof_output_control(number);
    else if (is(command, "map"))
        buffers = vmprof_output_mmap(NULL, BUFFERS * BUFFER_SIZE,
                                     PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else if (is(command, "unmap"))
        CHECK(vmprof_output_munmap(buffers, BUFFERS * BUFFER_SIZE) == 0);
    else if (is(command, "fill"))
        fill(number, hex);
    else if (is(command, "end"))
        end_record(number, hex);
    else if (is(command, "flush"))
        flush(number);
    else if (is(command, "write"))
        write_hex(decoy, rest);
    else if (is(command, "names")) {
        recorder_lock();
        vmprof_output_take_names();
        recorder_unlock();
    }
    else if (is(command, "probe"))
        probe(number, hex);
    else if (is(command, "front"))
        front(number, hex, 0);
    else if (is(command, "instead"))
        front(number, hex, 1);
    else if (is(command, "enabled"))
        printf("%d\n", vmprof_output_is_enabled());
    else if (is(command, "steal"))
        steal();
    else if (is(command, "stolen"))
        print_stolen();
    else if (is(command, "own"))
        write_own(rest);
    else if (is(command, "seek"))
        CHECK(vmprof_output_lseek(-1, 0, SEEK_SET) == -1 && errno == EBADF);
    else if (is(command, "close"))
        vmprof_output_close();
    else if (is(command, "forget"))
        vmprof_output_forget();
    else
        failed("a line that is understood", __LINE__);
}

int main(void)
{
    char *line = NULL;
    size_t size = 0;

    while (getline(&line, &size, stdin) > 0) {
        char *rest, nothing[1] = "";
        line[strcspn(line, "\n")] = '\0';
        rest = strchr(line, ' ');
        if (rest != NULL)
            *rest++ = '\0';
        call(line, rest != NULL ? rest : nothing);
        CHECK(!locked);
    }
    free(line);
    return 0;
}
