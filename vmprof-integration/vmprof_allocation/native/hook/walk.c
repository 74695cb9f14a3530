#define _GNU_SOURCE
#include "walk.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>

#include "follow.h"
#include "hook.h"
#include "jit_stub.h"
#include "objects.h"
#include "recorder.h"
#include "signals.h"
#include "stack_nodes.h"
#include "vmprof_output.h"
#include "vmprof_stack.h"

static uintptr_t pypy_base;
static long (*vmprof_enter_signal)(void);
static long (*vmprof_exit_signal)(void);

void walk_prepare(uintptr_t base, long (*enter_signal)(void),
                  long (*exit_signal)(void))
{
    pypy_base = base;
    vmprof_enter_signal = enter_signal;
    vmprof_exit_signal = exit_signal;
}

static void walk_stack(void)
{
    const struct stack_node *innermost = vmprof_stack_innermost();
    uintptr_t *return_address = NULL;
    uintptr_t back = 0, stub = 0;

    if (innermost != NULL && innermost->kind == NODE_JITTED) {
        return_address = stack_nodes_return_address(innermost);
        stub = *return_address;
        back = jit_stub_back(stub);
    }
    if (back != 0)
        *return_address = back;
    signals_call_vmprof_now();
    if (back != 0)
        *return_address = stub;
    if (recorder_has_new_stacks())
        vmprof_output_take_names();
}

/* What stands for this thread's stack; 0 if vmprof would take no sample now,
   or can't be asked */
static uint64_t stack_key(void)
{
    int ignores;

    if (vmprof_enter_signal == NULL || vmprof_exit_signal == NULL)
        return 0;
    ignores = vmprof_enter_signal() != 0;
    (void)vmprof_exit_signal();
    return ignores ? 0 : stack_nodes_key(vmprof_stack_innermost(), 0);
}

static __thread __attribute__((tls_model("initial-exec"))) int is_ignored;

int hook_ignore(int ignored)
{
    int before = is_ignored;

    is_ignored = ignored;
    return before;
}

int64_t walk_take_sample(const struct nursery_sample *sample)
{
    int64_t key;

    if (is_ignored)
        return sample->interval;
    follow_open();
    key = recorder_allocation(sample->size, sample->interval, stack_key(),
                              walk_stack);
    if (key == 0)
        return sample->interval;
    objects_sampled(key, sample);
    return recorder_next_interval();
}

int walk_find_stack(void)
{
    static const struct timespec millisecond = { 0, 1000000 };
    const char *record;
    size_t size = 0;
    int tries;

    /* vmprof takes none while another thread changes the table of the JIT's
       code */
    for (tries = 0; tries < 1000 && size == 0; tries++) {
        if (tries > 0)
            nanosleep(&millisecond, NULL);
        size = vmprof_output_probe(signals_call_vmprof_now, &record);
    }
    return size == 0 ? ENOTSUP : vmprof_stack_find(pypy_base, record, size);
}
