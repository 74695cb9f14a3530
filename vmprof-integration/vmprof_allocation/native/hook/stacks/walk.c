#define _GNU_SOURCE
#include "walk.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "gc/objects.h"
#include "hook.h"
#include "jit/codemap.h"
#include "jit/jit_work.h"
#include "lines/frame_lines.h"
#include "lines/jit_lines.h"
#include "machines/jit_returns.h"
#include "machines/jit_stub.h"
#include "malloc/raw_memory.h"
#include "native_names.h"
#include "native_stack.h"
#include "recorder.h"
#include "stack_nodes.h"
#include "true_stack.h"
#include "vmprof/signals.h"
#include "vmprof/vmprof_output.h"
#include "vmprof_stack.h"

/* kinds of vmprof's frames in a record */
#define NODE_PIECE      6       /* a piece of compiled code, or enum jit_work instead
                                   of its address */
#define NODE_NATIVE     7

static const struct raw_memory_stacks raw_stacks;
static long (*vmprof_enter_signal)(void);
static long (*vmprof_exit_signal)(void);
static int returns_are_free;            /* result of jit_returns_are_free() */

void walk_prepare(long (*enter_signal)(void), long (*exit_signal)(void))
{
    vmprof_enter_signal = enter_signal;
    vmprof_exit_signal = exit_signal;
    returns_are_free = jit_returns_are_free();
    raw_memory_prepare(&raw_stacks);
}

/* ____________________________________________________________ */
/* native frames */

/* The native functions of a sample, innermost first. */
struct native {
    uintptr_t functions[NATIVE_FRAMES];
    size_t count;
};

static int with_native;
static struct native native;            /* valid from find_native() on, while the GIL
                                           is held */

void walk_native(int on)
{
    with_native = on;
    native.count = 0;
}

/* Walk the native frames of this thread.  Returns their number. */
static size_t walk_natively(uintptr_t *functions)
{
    const struct stack_node *innermost = vmprof_stack_innermost();

    if (innermost == NULL)
        return 0;               /* there is no Python frame at which the walk would end */
    return native_stack_walk(
        functions, NATIVE_FRAMES,
        innermost->kind == NODE_JITTED ? (uintptr_t)innermost->value : UINTPTR_MAX);
}

/* Add native functions to the key of the Python frames.  Returns the new key. */
static uint64_t with_functions(uint64_t key, const uintptr_t *functions, size_t count)
{
    size_t i;

    for (i = 0; key != 0 && i < count; i++) {
        key = (key ^ functions[i]) * 0x9e3779b97f4a7c15u;
        key ^= key >> 32;
    }
    return key;
}

/* Find the native frames of the sample.  Returns the key of the whole stack. */
static uint64_t find_native(uint64_t key)
{
    native.count = walk_natively(native.functions);
    return with_functions(key, native.functions, native.count);
}

/* Store native frames as pairs.  Returns the number of words. */
static size_t put_native(const struct native *of, int64_t *words)
{
    size_t i;

    for (i = 0; i < of->count; i++) {
        *words++ = NODE_NATIVE;
        *words++ = (int64_t)native_names_number(of->functions[i]);
    }
    return 2 * of->count;
}

/* The allocation sample whose stack is being walked. */
static int has_key;                     /* 0 if vmprof takes no sample now, or if the
                                           stack is too deep */
static enum jit_work jit;               /* work for which the JIT allocates */

/* Pass the stack of the sample to the recorder, from our walk or from vmprof's. */
static void find_stack(void)
{
    static int64_t words[2 + 2 * NATIVE_FRAMES + TRUE_STACK_MOST];
    size_t count = 0;
    int is_true = has_key && codemap_is_known();

    if (jit != JIT_WORK_NONE) {
        words[count++] = NODE_PIECE;
        words[count++] = jit;
    }
    count += put_native(&native, words + count);
    if (is_true)
        count += true_stack(vmprof_stack_innermost(), words + count);
    /* only vmprof can add the resident memory */
    if (is_true && count > 0 && !profile_log_has_memory())
        recorder_walked(words, count);
    else if (count > 0)
        vmprof_output_take(signals_call_vmprof_now, words, count, is_true);
    else
        signals_call_vmprof_now();
}

/* ____________________________________________________________ */

/* If the innermost piece was left through a JIT stub, replace the return address in the
   stub by the address to which the stub jumps, which vmprof can find.  Returns the replaced
   address for come_back_to(), or 0. */
static uintptr_t leave_stub(const struct stack_node *innermost)
{
    uintptr_t *return_address, stub, back;

    if (innermost == NULL || innermost->kind != NODE_JITTED)
        return 0;
    return_address = stack_nodes_return_address(innermost);
    stub = *return_address;
    back = jit_stub_back(stub);
    if (back == 0)
        return 0;
    *return_address = back;
    return stub;
}

static void come_back_to(const struct stack_node *innermost, uintptr_t stub)
{
    if (stub != 0)
        *stack_nodes_return_address(innermost) = stub;
}

/* Walk the stack of an allocation sample whose key is unknown, for the recorder. */
static void walk_stack(void)
{
    const struct stack_node *innermost = vmprof_stack_innermost();
    uintptr_t stub = codemap_is_known() ? 0 : leave_stub(innermost);

    find_stack();
    come_back_to(innermost, stub);
    if (recorder_has_new_stacks()) {
        vmprof_output_take_names();
        native_names_tell(native.functions, native.count);
    }
}

/* Return the key of this thread's stack.  'state' is an enum jit_work or RAW_MEMORY, and
   part of the key.  Returns 0 if vmprof would take no sample now, or if it is unknown
   whether vmprof would. */
static uint64_t key_of(int state)
{
    int ignores;

    if (vmprof_enter_signal == NULL || vmprof_exit_signal == NULL)
        return 0;
    ignores = vmprof_enter_signal() != 0;
    (void)vmprof_exit_signal();
    return ignores ? 0 : stack_nodes_key(vmprof_stack_innermost(), (uint64_t)state);
}

static __thread __attribute__((tls_model("initial-exec"))) int is_ignored;

int hook_ignore(int ignored)
{
    int before = is_ignored;

    is_ignored = ignored;
    return before;
}

int walk_is_ignored(void)
{
    return is_ignored;
}

int64_t walk_take_sample(const struct nursery_sample *sample)
{
    uint64_t stack;
    int64_t key;

    if (is_ignored)
        return sample->interval;
    jit_returns_begin(vmprof_stack_innermost());
    jit = jit_work((size_t)sample->size, jit_lines_are_on());
    stack = key_of(jit);
    has_key = stack != 0;
    if (has_key && jit_lines_are_on())
        stack = frame_lines_find(stack);
    if (with_native)
        stack = find_native(stack);
    key = recorder_allocation(sample->size, sample->interval, stack, walk_stack);
    jit_returns_end();
    if (key == 0)
        return sample->interval;
    objects_sampled(key, sample);
    return recorder_next_interval();
}

/* ____________________________________________________________ */
/* walks that may run without the GIL */

/* Walk this thread's stack with the recorder's lock.  Returns the number of words, or 0
 * if the stack is unknown or vmprof takes no sample now.
 *
 * 'context' is the state that a signal interrupts, or NULL for a walk from here.  The
 * stacks that vmprof walks have the errors that true_stack.h lists.  In addition, where a
 * signal interrupts compiled code, vmprof takes the last call for the interrupted place.
 */
static size_t find_functions(const ucontext_t *context, int64_t words[TRUE_STACK_MOST])
{
    const struct stack_node *innermost = vmprof_stack_innermost();
    const uintptr_t *returns = NULL;
    uintptr_t pc = 0;
    size_t count = 0;

    if (!returns_are_free || !codemap_is_known() || vmprof_enter_signal == NULL ||
        vmprof_exit_signal == NULL)
        return 0;
    /* PyPy does not change the table before vmprof_exit_signal() */
    if (vmprof_enter_signal() == 0) {
        if (context != NULL)
            returns = jit_returns_interrupted(innermost, context, &pc);
        count = true_stack_of_functions(innermost, pc, returns, words);
    }
    (void)vmprof_exit_signal();
    return count;
}

/* ____________________________________________________________ */
/* CPU samples */

static struct {
    siginfo_t *info;
    void *context;
} interrupted;                          /* protected by the recorder's lock */

static void call_vmprof(void)
{
    signals_call_vmprof(interrupted.info, interrupted.context);
}

void walk_time_sample(siginfo_t *info, void *context)
{
    static int64_t words[TRUE_STACK_MOST];
    size_t count = find_functions(context, words);

    interrupted.info = info;
    interrupted.context = context;
    if (count > 0)
        vmprof_output_take(call_vmprof, words, count, 1);
    else
        call_vmprof();
}

/* ____________________________________________________________ */
/* native memory, where names of Python functions must wait for the GIL */

#define RAW_MEMORY      3       /* state of key_of() that differs from enum jit_work */

static struct native raw;               /* protected by the lock of raw_memory.c */

static size_t raw_native(uintptr_t caller, uintptr_t functions[RAW_MEMORY_NATIVE])
{
    return with_native && !native_stack_is_unwinder(caller) ? walk_natively(functions) : 0;
}

static uint64_t raw_key(const uintptr_t *functions, size_t count)
{
    memcpy(raw.functions, functions, count * sizeof *functions);
    raw.count = count;
    return with_functions(key_of(RAW_MEMORY), functions, count);
}

/* Walk the stack of a sample of native memory, for the recorder. */
static void walk_raw_stack(void)
{
    const struct stack_node *innermost = vmprof_stack_innermost();
    static int64_t words[2 * NATIVE_FRAMES + TRUE_STACK_MOST];
    size_t count, own;
    uintptr_t stub;

    if (innermost == NULL) {
        recorder_walked(NULL, 0);       /* no Python code runs in this thread */
        return;
    }
    stub = leave_stub(innermost);
    count = put_native(&raw, words);
    own = find_functions(NULL, words + count);
    if (count + own > 0)
        vmprof_output_take(signals_call_vmprof_now, words, count + own, own > 0);
    else
        signals_call_vmprof_now();
    come_back_to(innermost, stub);
    native_names_tell(raw.functions, raw.count);
}

_Static_assert(RAW_MEMORY_NATIVE == NATIVE_FRAMES, "room for all");
static const struct raw_memory_stacks raw_stacks = {
    raw_native, raw_key, walk_raw_stack, walk_is_ignored
};

int walk_find_stack(void)
{
    static const struct timespec millisecond = { 0, 1000000 };
    const char *record;
    size_t size = 0;
    int tries;

    /* vmprof takes no sample while another thread changes the table of compiled code.
       That thread waits for the GIL meanwhile.  With several compiling threads on a busy
       machine, one second was too short once in 4,000 times. */
    for (tries = 0; tries < 5000 && size == 0; tries++) {
        if (tries > 0)
            nanosleep(&millisecond, NULL);
        size = vmprof_output_probe(signals_call_vmprof_now, &record);
    }
    return size == 0 ? ENOTSUP : vmprof_stack_find(record, size);
}
