#include "divert.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* The address of each pointer, our function, and the original function. */
static struct {
    uintptr_t *slot;
    uintptr_t ours;
    uintptr_t original;
    int is_read_only;
} pointers[DIVERTS];

void divert_prepare(const uintptr_t slot[DIVERTS], uint32_t read_only,
                    const uintptr_t ours[DIVERTS])
{
    int i;

    for (i = 0; i < DIVERTS; i++) {
        pointers[i].slot = (uintptr_t *)slot[i];
        pointers[i].ours = ours[i];
        pointers[i].is_read_only = read_only >> i & 1;
    }
}

/* Change pointer i.  The caller has the mutex.  Returns 0 or an errno. */
static int set(int i, int diverted)
{
    uintptr_t *slot = pointers[i].slot;
    uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *page = (void *)((uintptr_t)slot & ~(size - 1));

    if (slot == 0 || diverted == (*slot == pointers[i].ours))
        return 0;
    if (pointers[i].is_read_only &&
        mprotect(page, size, PROT_READ | PROT_WRITE) < 0)
        return errno;
    if (diverted)
        pointers[i].original = *slot;
    __atomic_store_n(slot, diverted ? pointers[i].ours : pointers[i].original,
                     __ATOMIC_SEQ_CST);
    if (pointers[i].is_read_only && mprotect(page, size, PROT_READ) < 0)
        return errno;
    return 0;
}

int divert_set(int i, int diverted)
{
    int error;

    pthread_mutex_lock(&mutex);
    error = set(i, diverted);
    pthread_mutex_unlock(&mutex);
    return error;
}

void divert_forked(void)
{
    pthread_mutex_init(&mutex, NULL);
}

int divert_set_all(int diverted)
{
    int i, error = 0;

    for (i = 0; i < DIVERTS; i++) {
        int e = divert_set(i, diverted);
        if (error == 0)
            error = e;
    }
    return error;
}
