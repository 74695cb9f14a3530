#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

#include "hook.h"

uintptr_t hook_base(uintptr_t inside)
{
    Dl_info info;

    return dladdr((const void *)inside, &info) == 0 ? 0
                                                    : (uintptr_t)info.dli_fbase;
}
