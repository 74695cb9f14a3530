#include "vmprof_file.h"

#include <errno.h>
#include <stddef.h>

#include "hook.h"
#include "machines/guarded_read.h"
#include "machines/handler_word.h"

#define HANDLER_SIZE    192     /* bytes of the handler's code that are searched */

/* The address of the variable, or NULL; and whether we have set it. */
static int *file;
static int is_set;

/* Find the variable, with the arguments and the result of vmprof_file_learn(). */
static int look(uintptr_t handler, int fd)
{
    unsigned char code[HANDLER_SIZE];
    uintptr_t base = hook_base(handler), found = 0, word;
    int i, value;

    if (base == 0 || !guarded_read(handler, code, sizeof code))
        return ENOTSUP;
    for (i = 0; i + HANDLER_LOOK <= HANDLER_SIZE; i++) {
        word = handler_word(code + i, handler + (uintptr_t)i);
        if (word == 0 || (word & 3) != 0 || hook_base(word) != base ||
            !guarded_read(word, &value, sizeof value) || value != fd)
            continue;
        if (found != 0 && found != word)
            return ENOTSUP;
        found = word;
    }
    file = (int *)found;
    return found == 0 ? ENOTSUP : 0;
}

int vmprof_file_learn(uintptr_t handler, int fd)
{
    file = NULL;
    is_set = 0;
    if (fd < 3)
        return ENOTSUP;         /* many variables contain a small number */
    return look(handler, fd);
}

int vmprof_file_set(int fd)
{
    /* vmprof has reset the descriptor at the fork */
    if (file == NULL || *file != -1)
        return ENOTSUP;
    *file = fd;
    is_set = 1;
    return 0;
}

void vmprof_file_take_back(void)
{
    if (is_set)
        *file = -1;
    is_set = 0;
}
