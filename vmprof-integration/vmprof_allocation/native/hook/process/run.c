#define _GNU_SOURCE
#include "run.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "child_settings.h"
#include "code_names.h"
#include "end_notes.h"
#include "figures.h"
#include "file_sink.h"
#include "gc/heap.h"
#include "gc/nursery.h"
#include "gc/objects.h"
#include "gc/statistics.h"
#include "hook.h"
#include "labels.h"
#include "lines/jit_lines.h"
#include "lines/jit_log.h"
#include "machines/jit_returns.h"
#include "malloc/raw_memory.h"
#include "patches/divert.h"
#include "programs.h"
#include "recorder.h"
#include "snapshots/held_by.h"
#include "stacks/native_names.h"
#include "stacks/native_stack.h"
#include "stacks/walk.h"
#include "vmprof/signals.h"
#include "vmprof/vmprof_output.h"

#define SMALLEST_LIMIT      4096    /* bytes of a file; with a smaller RLIMIT_FSIZE,
                                       there is no profile */

/* The file of the present profile; a rotation changes to the other one. */
static struct file_sink files[2], *file = files;
static const char *ended = "";  /* reason for an early end */
static int error_at_end;        /* errno */
/* PID of the process whose profile is being written; 0 without a profile */
static pid_t running;

/* One thread at a time ends the profile.  The program may disable vmprof while another
   thread stops sampling. */
static pthread_mutex_t ending = PTHREAD_MUTEX_INITIALIZER;
static void (*at_disable)(void);

void run_note_raw_memory(void)
{
    int64_t counted, heap = heap_has();

    if (!raw_memory_is_on() || heap < 0)
        return;
    counted = raw_memory_counted();
    if (counted >= heap)
        recorder_figure(FIGURES_RAW, counted - heap);
}

/* Write the end of the profile with 'trailer', vmprof's last record, and forget the file.
   The caller has 'ending'.  Returns 0, or the errno that ended the profile early. */
static int end_profile(const void *trailer, size_t size)
{
    held_by_end();
    run_note_raw_memory();
    recorder_stop();
    recorder_lock();
    native_names_finish();
    profile_log_bytes(trailer, size);
    recorder_unlock();
    running = 0;
    return recorder_close();
}

/* End the profile, because the program has disabled vmprof. */
static void on_disabled(const void *trailer, size_t size)
{
    pthread_mutex_lock(&ending);
    ended = "the program disabled vmprof";
    end_notes_why(ended);
    error_at_end = end_profile(trailer, size);
    vmprof_output_close();
    (void)divert_set_all(0);
    signals_end_time_samples();
    signals_restore();
    if (at_disable != NULL)
        at_disable();
    pthread_mutex_unlock(&ending);
}

void run_at_disable(void (*then)(void))
{
    at_disable = then;
}

int run_end(void)
{
    char trailer[CODE_NAMES_TRAILER];
    int error;

    /* The profile may be the parent process's.  Or a signal has interrupted this thread
       while it takes a sample.  Or another thread is about to end the profile. */
    if (running != getpid() || recorder_has_lock() ||
        pthread_mutex_trylock(&ending) != 0)
        return -1;
    signals_end_time_samples();
    end_notes_waiting();
    recorder_lock();
    /* vmprof.disable() would have written the names that vmprof has buffered */
    vmprof_output_take_names();
    recorder_unlock();
    code_names_trailer(trailer);
    error = error_at_end = end_profile(trailer, sizeof trailer);
    pthread_mutex_unlock(&ending);
    return error;
}

/* End the profile at the exit of the process.  Sampling was not stopped, because the
   program has cleared its exit functions, including ours. */
static void on_exit_of_process(void)
{
    static const struct timespec millisecond = { 0, 1000000 };
    int tries;

    held_by_process_ends(1);
    /* another thread may be rotating the profile */
    for (tries = 0; tries < 100 && run_end() < 0 && running == getpid(); tries++)
        nanosleep(&millisecond, NULL);
}

void hook_finish(void)
{
    (void)run_end();
}

/* Register on_exit_of_process() once.  Returns 0 or an errno. */
static int watch_exit(void)
{
    static int is_registered;

    if (!is_registered && atexit(on_exit_of_process) != 0)
        return ENOMEM;
    is_registered = 1;
    return 0;
}

int hook_open(int fd)
{
    struct rlimit limit;
    int decoy, error;

    /* With the default action of SIGXFSZ, vmprof's first bytes would kill the program,
       and there would be no profile. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < SMALLEST_LIMIT)
        return -EFBIG;
    ended = "";
    error_at_end = 0;
    signals_end_time_samples();
    signals_save();
    error = file_sink_open(file, fd);
    if (error != 0)
        return -error;
    code_names_begin();
    nursery_clear_statistics();         /* the first totals precede nursery_start() */
    recorder_open(&file->sink, statistics_totals);
    labels_begin();
    decoy = vmprof_output_open(on_disabled);
    error = decoy < 0 ? errno : divert_set_all(1);
    if (error != 0) {
        (void)hook_close();
        return -error;
    }
    vmprof_output_control(1);
    return decoy;
}

int hook_enabled(const char *settings, int take_time_samples)
{
    int error;

    vmprof_output_control(0);
    error = divert_set(DIVERT_MMAP, 0);
    if (error == 0)
        error = divert_set(DIVERT_MMAP64, 0);
    if (error == 0)
        error = divert_set(DIVERT_FREE, 0);
    if (error == 0)
        error = signals_learn_vmprofs();
    if (error == 0 && !vmprof_output_is_enabled())
        error = ENOTSUP;
    if (error == 0)
        error = walk_find_stack();
    if (error == 0)
        error = watch_exit();
    if (error != 0)
        return error;
    recorder_lock();
    code_names_enabled();
    recorder_unlock();
    if (take_time_samples)
        error = signals_begin_time_samples(walk_time_sample);
    else
        signals_restore();
    if (error == 0)
        error = recorder_start(settings);
    if (error == 0) {
        pthread_mutex_lock(&ending);
        running = getpid();
        pthread_mutex_unlock(&ending);
    }
    return error;
}

int hook_native_is_possible(void)
{
    return native_stack_is_possible();
}

int hook_native(void)
{
    int error = native_stack_open((const void *)(uintptr_t)hook_native);

    if (error == 0)
        error = native_stack_learn();
    if (error == 0)
        error = native_names_begin();
    walk_native(error == 0);
    return error;
}

int hook_lines(void)
{
    int descriptor;

    /* CPU samples read the lines, perhaps without the GIL */
    recorder_lock();
    descriptor = jit_lines_begin();
    recorder_unlock();
    return descriptor;
}

int hook_has_lines(void)
{
    return jit_lines_are_on();
}

int hook_lines_are_as_known(void)
{
    return jit_log_is_as_known();
}

int hook_raw_memory_is_possible(void)
{
    /* malloc() is also called without the GIL */
    return jit_returns_are_in_place();
}

int hook_raw_memory(int64_t interval, uint64_t seed, int fixed_gaps)
{
    return raw_memory_plan(interval, seed, fixed_gaps);
}

int hook_samples_raw_memory(void)
{
    return raw_memory_is_on();
}

void hook_limit(int64_t per_second, int64_t share)
{
    recorder_limit(per_second, share);
    child_limit(per_second, share);
}

int hook_disabling(void)
{
    int is_enabled;

    end_notes_waiting();
    pthread_mutex_lock(&ending);
    running = 0;                /* the calling thread ends the profile */
    held_by_end();
    signals_end_time_samples();
    recorder_stop();
    recorder_lock();
    native_names_finish();
    recorder_unlock();
    /* Our handler stays until vmprof ignores the signal.  Otherwise, vmprof's own handler
       could interrupt us. */
    signals_save();
    vmprof_output_control(1);
    is_enabled = vmprof_output_is_enabled();
    pthread_mutex_unlock(&ending);
    return is_enabled;
}

void hook_await_end(void)
{
    vmprof_output_control(0);
    vmprof_output_await_end();
}

int hook_close(void)
{
    int error, is_child;

    pthread_mutex_lock(&ending);
    is_child = child_is_this();
    child_end();
    error = recorder_close();
    if (is_child)
        file->sink.forget(&file->sink);   /* no Python code closes a child's file */
    code_names_end();
    walk_native(0);
    native_names_end();
    recorder_lock();
    jit_lines_end();
    recorder_unlock();
    (void)raw_memory_plan(0, 0, 0);
    running = 0;
    signals_restore();
    vmprof_output_close();
    (void)divert_set_all(0);
    if (error == 0)
        error = error_at_end;
    if (error == 0 && vmprof_output_has_failed())
        error = EBUSY;
    pthread_mutex_unlock(&ending);
    return error;
}

int64_t hook_started(void)
{
    return profile_log_started();
}

const char *hook_ended(void)
{
    return ended;
}

pid_t run_process(void)
{
    return running;
}

int run_follow(int fd, int64_t started, const char *settings)
{
    int error = file_sink_open(file, fd);
    const char *record;
    const void *head;
    size_t size;

    if (error == 0)
        error = vmprof_output_follow();
    if (error == 0)
        error = watch_exit();
    /* At the fork, a thread of the parent may have been writing vmprof's buffers.  In the
       child, these buffers then stay locked, and fill up. */
    if (error == 0 &&
        vmprof_output_probe(signals_call_vmprof_now, &record) == 0)
        error = ENOTSUP;
    if (error != 0)
        return error;
    ended = "";
    error_at_end = 0;
    recorder_open(&file->sink, statistics_totals);
    recorder_lock();
    native_names_begin_next();
    profile_log_began(started);
    head = code_names_head(&size);
    profile_log_bytes(head, size);
    recorder_unlock();
    error = recorder_start(settings);
    if (error == 0)
        running = getpid();
    raw_memory_child_begins();
    run_note_raw_memory();
    return error;
}

int run_rotate(int fd, const char *settings, int *error_before)
{
    struct file_sink *other = file == files ? files + 1 : files;
    struct profile_log_next next;
    char trailer[CODE_NAMES_TRAILER];
    int error = file_sink_open(other, fd);

    if (error != 0)
        return error;
    /* another thread has ended the profile, or is about to */
    if (running != getpid() || pthread_mutex_trylock(&ending) != 0)
        return ECANCELED;
    end_notes_waiting();
    memset(&next, 0, sizeof next);
    next.sink = &other->sink;
    next.settings = settings;
    run_note_raw_memory();              /* bytes in use at the end of this segment */
    raw_memory_begin_rotation();
    recorder_lock();
    vmprof_output_take_names();
    native_names_finish();
    next.head = code_names_head(&next.head_size);
    next.first_key = recorder_next_key();
    error = profile_log_begin_next(&next, recorder_now());
    recorder_unlock();
    if (error == 0) {
        held_by_end();          /* the snapshot belongs to the previous segment */
        objects_tell_young();
        code_names_trailer(trailer);
        next.trailer = trailer;
        next.trailer_size = sizeof trailer;
        recorder_lock();
        recorder_rotate(&next);
        native_names_begin_next();
        recorder_unlock();
        if (child_is_this())
            file->sink.forget(&file->sink);     /* no Python code closes a child's file */
        file = other;
        objects_inherit();
        run_note_raw_memory();
        programs_begin_next();
        child_rotated(fd);
        if (child_known_command() != NULL)
            recorder_named(0, child_known_command());
        *error_before = next.ended;
    }
    raw_memory_end_rotation(error == 0);
    pthread_mutex_unlock(&ending);
    return error;
}

int hook_writes_to(int fd)
{
    return running == getpid() && file->fd == fd;
}

void run_forked(void)
{
    pthread_mutex_init(&ending, NULL);
    held_by_forked();
    running = 0;
}
