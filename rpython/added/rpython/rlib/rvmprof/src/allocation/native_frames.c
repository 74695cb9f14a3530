#define _GNU_SOURCE 1   /* as vmprof.h does */
#include "native_frames.h"

#include <stdint.h>
#include <unwind.h>

#include "vmprof.h"

struct walk {
    void **result;
    int words, max_words;
    uintptr_t inside;       /* the highest CFA of the frames that are omitted */
};

static _Unwind_Reason_Code visit(struct _Unwind_Context *context,
                                 void *argument)
{
    struct walk *walk = argument;
    uintptr_t function;

    if (_Unwind_GetCFA(context) <= walk->inside)
        return _URC_NO_REASON;
    function = (uintptr_t)_Unwind_FindEnclosingFunction(
        (void *)_Unwind_GetIP(context));
    if (function == 0 || IS_VMPROF_EVAL((void *)function) ||
        walk->words == walk->max_words)
        return _URC_END_OF_STACK;
    walk->result[walk->words++] = (void *)VMPROF_NATIVE_TAG;
    /* vmprof sets the lowest bit of a native address */
    walk->result[walk->words++] = (void *)(function | 1);
    return _URC_NO_REASON;
}

int native_frames(void **result, int max_frames, const void *frame)
{
    /* 16 bytes: the caller's frame pointer and the return address */
    struct walk walk = { result, 0, 2 * max_frames, (uintptr_t)frame + 16 };

    (void)_Unwind_Backtrace(visit, &walk);
    return walk.words;
}
