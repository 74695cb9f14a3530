/* The writer of allocation samples, which uses the same buffers as CPU samples.

   The GC calls two functions: vmprof_allocation_sampled(), when it reserves memory
   that is sampled, and vmprof_allocation_fact(), when the next minor collection has
   found the types of the sampled objects.  Both are called with the GIL, in the middle
   of an allocation: see rpython/memory/gc/sampling.py and sampled_objects.py.

   A record is a marker, which is a byte, and words:

   MARKER_ALLOCATION   a sample: key, size in bytes, nanoseconds since the start,
                       thread, depth; then the stack, as in a CPU sample
   MARKER_OBJECT       an object that holds a sampled byte: key, type, size in bytes
                       (0 if the object fills the whole sample).  There may be several
                       objects of a key
   MARKER_ALLOCATED    the last record: nanoseconds since the start, allocated bytes,
                       and number of lost samples, for which vmprof was stopped or had
                       no buffer */

#include "rvmprof_allocation.h"

#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "compat.h"
#include "vmp_stack.h"
#include "vmprof_mt.h"

/* Functions of vmprof_common.c and vmprof_unix.c that no header declares */
PY_STACK_FRAME_T *get_vmprof_stack(void);
long vmprof_enter_signal(void);
long vmprof_exit_signal(void);
/* in vmp_stack.c, but not in its header */
int vmp_walk_and_record_python_stack_only(PY_STACK_FRAME_T *frame, void **result,
                                          int max_depth, int depth, intptr_t pc);

#define MARKER_ALLOCATION   '\x0b'
#define MARKER_OBJECT       '\x0c'
#define MARKER_ALLOCATED    '\x0d'

/* kinds of facts in sampled_objects.py */
#define FACT_OBJECT         1
#define FACT_FOUND          2

/* Numbers of words in a record of an allocation sample: before the stack, and of the
   longest stack that fits into a buffer.  MAX_STACK is even, because a frame has two
   words, and vmprof writes a frame even if only one word is free. */
#define HEAD                5
#define MAX_STACK           (((SINGLE_BUF_SIZE - 1) / sizeof(intptr_t) - HEAD) & ~1ul)

/* All variables are guarded by the GIL. */
static int takes_time_samples = 1;
static struct profbuf_s *buffer;        /* the buffer that is being filled, or NULL */
static intptr_t last_key, lost;         /* last key; number of lost samples */
static int64_t began;                   /* start of the profile, in ns */
static int is_stopped;                  /* whether nothing must be written to the file */

static int64_t nanoseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void flush(void)
{
    if (buffer != NULL)
        commit_buffer(vmp_profile_fileno(), buffer);
    buffer = NULL;
}

/* Write a record of a marker and 'count' words to the buffer.  Returns 0 if there is no
   room: no buffer is free, or the buffer is full while vmprof is stopped. */
static int add(char marker, const intptr_t *words, size_t count)
{
    size_t size = count * sizeof *words;
    char *end;

    if (buffer != NULL && buffer->data_size + 1 + size > SINGLE_BUF_SIZE) {
        if (is_stopped)
            return 0;
        flush();
    }
    if (buffer == NULL && !is_stopped)
        buffer = reserve_buffer(vmp_profile_fileno());  /* this may write to the file */
    if (buffer == NULL)
        return 0;
    end = buffer->data + buffer->data_size;
    *end = marker;
    memcpy(end + 1, words, size);
    buffer->data_size += (unsigned int)(1 + size);
    return 1;
}

int vmprof_takes_time_samples(void)
{
    return takes_time_samples;
}

void vmprof_allocation_open(int take_time_samples)
{
    takes_time_samples = take_time_samples;
}

void vmprof_allocation_start(const char *settings, const char *types)
{
    vmp_write_meta("allocations", settings);
    vmp_write_meta("allocation types", types);
    buffer = NULL;              /* forget the parent's buffer in a forked child */
    last_key = lost = 0;
    began = nanoseconds();
}

void vmprof_allocation_close(intptr_t allocated)
{
    intptr_t words[] = { nanoseconds() - began, allocated, lost };
    int tries;

    if (vmp_profile_fileno() < 0)
        return;
    is_stopped = 0;             /* write the last record even if vmprof is stopped */
    for (tries = 0; tries < 1000 && !add(MARKER_ALLOCATED, words, 3); tries++)
        usleep(1);
    flush();
}

intptr_t vmprof_allocation_sampled(intptr_t size, void *address)
{
    static intptr_t words[HEAD + MAX_STACK];
    intptr_t key = 0;

    (void)address;              /* the object does not exist yet */
    if (vmp_profile_fileno() < 0)
        return -1;              /* a forked child has no profile */
    /* take no sample while vmprof is stopped or the JIT changes its table of functions,
       as for CPU samples */
    is_stopped = vmprof_enter_signal() != 0;
    if (!is_stopped) {
        int depth = vmp_walk_and_record_python_stack_only(
            get_vmprof_stack(), (void **)(words + HEAD), (int)MAX_STACK, 0, 0);
        words[0] = last_key + 1;
        words[1] = size;
        words[2] = nanoseconds() - began;
        words[3] = (intptr_t)syscall(SYS_gettid);
        words[4] = depth;
        if (add(MARKER_ALLOCATION, words, (size_t)(HEAD + depth)))
            key = ++last_key;
    }
    vmprof_exit_signal();
    lost += key == 0;
    return key;
}

intptr_t vmprof_allocation_fact(intptr_t what, intptr_t key, intptr_t which,
                                intptr_t type, intptr_t size, void *address)
{
    (void)which;
    (void)address;
    if (vmp_profile_fileno() < 0)
        return 0;               /* a forked child has no profile */
    is_stopped = vmprof_enter_signal() != 0;
    if (what == FACT_OBJECT) {
        intptr_t words[] = { key, type, size };
        (void)add(MARKER_OBJECT, words, 3);     /* without room, the type is lost */
    }
    if (what == FACT_FOUND && !is_stopped)
        flush();                /* keep the order of allocation and CPU samples */
    vmprof_exit_signal();
    return 1;
}
