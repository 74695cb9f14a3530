#include "vmprof_stack.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "machines/guarded_read.h"

#define MAX_NODES       100000
#define FULL_RECORD     1000    /* a record with this number of words may be cut; 8 KiB
                                   hold at most 1019 words */
#define MOST_KEYS       1024    /* glibc's PTHREAD_KEYS_MAX */
#define THREAD_WORDS    32      /* words of RPython's data of a thread that are searched */

/* RPython stores a pointer to its data of each thread under a pthread key.  'list_offset'
   is the offset of vmprof's list in these data, or 0 if the list was not found. */
static size_t list_offset;
static pthread_key_t list_key;

static int copy(uintptr_t address, void *to, size_t size)
{
    return address >= 4096 && address % sizeof(void *) == 0 &&
           guarded_read(address, to, size);
}

/* Return whether the list that begins with the node at 'address' has the same interpreted
   frames as 'record', in the same order, and no others. */
static int matches(uintptr_t address, const char *record, size_t size)
{
    const size_t head = 1 + 2 * sizeof(int64_t);
    int64_t depth, pair[2];
    struct stack_node node;
    int64_t i = 0;
    int nodes, frames = 0;

    memcpy(&depth, record + 1 + sizeof depth, sizeof depth);
    if (size < head || depth < 0 || head + (size_t)depth * 8 > size)
        return 0;
    for (nodes = 0; address != 0; nodes++) {
        if (nodes == MAX_NODES || !copy(address, &node, sizeof node))
            return 0;
        address = (uintptr_t)node.next;
        if (node.kind == NODE_JITTED)
            continue;
        if (node.kind != NODE_CODE)
            return 0;
        do {
            if (i + 2 > depth)          /* vmprof's record was full */
                return depth >= FULL_RECORD && frames > 0;
            memcpy(pair, record + head + (size_t)i * 8, sizeof pair);
            i += 2;
        } while (pair[0] != NODE_CODE);
        if (pair[1] != node.value)
            return 0;
        frames++;
    }
    return frames > 0;
}

/* Return the offset of vmprof's list in the data at 'thread', or 0 if no list matches the
   record. */
static size_t find_list(uintptr_t thread, const char *record, size_t size)
{
    uintptr_t word;
    size_t i;

    /* the first word only marks the data as used */
    for (i = 1; i < THREAD_WORDS; i++)
        if (!copy(thread + i * sizeof word, &word, sizeof word))
            return 0;
        else if (word != 0 && matches(word, record, size))
            return i * sizeof word;
    return 0;
}

int vmprof_stack_find(const char *record, size_t size)
{
    int found = 0;
    pthread_key_t key;

    if (list_offset != 0)
        return 0;
    for (key = 0; key < MOST_KEYS; key++) {
        uintptr_t thread = (uintptr_t)pthread_getspecific(key);
        size_t offset = find_list(thread, record, size);
        if (offset != 0) {
            list_offset = offset;
            list_key = key;
            found++;
        }
    }
    if (found != 1)
        list_offset = 0;
    return found == 1 ? 0 : ENOTSUP;
}

const struct stack_node *vmprof_stack_innermost(void)
{
    const char *thread = list_offset == 0 ? NULL : pthread_getspecific(list_key);

    return thread == NULL ? NULL
                          : *(const struct stack_node *const *)(thread + list_offset);
}
