/* Two threads change pointers of one read-only page at the same time.  Without the mutex of
 * divert.c, a thread would write to the page after the other thread has protected it again.
 * A child that is forked meanwhile changes its pointers, too.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "patches/divert.h"

#define TIMES       20000
#define FORKS       50

static void *change(void *number)
{
    int i, which = (int)(intptr_t)number;

    for (i = 0; i < TIMES; i++) {
        CHECK(divert_set(which, 1) == 0);
        CHECK(divert_set(which, 0) == 0);
    }
    return NULL;
}

int main(void)
{
    uintptr_t slot[DIVERTS] = { 0 }, ours[DIVERTS] = { 0 };
    pthread_t thread[2];
    uintptr_t *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int i, status;

    CHECK(page != MAP_FAILED);
    for (i = 0; i < 3; i++) {
        slot[i] = (uintptr_t)&page[i];
        ours[i] = 1000 + (uintptr_t)i;
        page[i] = (uintptr_t)i + 1;
    }
    CHECK(mprotect(page, (size_t)sysconf(_SC_PAGESIZE), PROT_READ) == 0);
    divert_prepare(slot, 7, ours);
    for (i = 0; i < 2; i++)
        CHECK(pthread_create(&thread[i], NULL, change, (void *)(intptr_t)i) == 0);
    for (i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);          /* end the child if it waits for the mutex for ever */
            divert_forked();
            _exit(divert_set(2, 1) != 0 || page[2] != ours[2]);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    for (i = 0; i < 2; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    for (i = 0; i < 3; i++)
        CHECK(page[i] == (uintptr_t)i + 1);
    printf("done\n");
    return 0;
}
