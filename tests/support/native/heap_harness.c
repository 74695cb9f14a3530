/* Tests heap.c and figures.c with a GC that consists of a few words.  Without an argument,
 * each line of stdin is a command:
 *
 *   known N          the first command: heap.c knows the addresses of the first N of the
 *                    GC's four words; with 5, the first word is also valid while the GC
 *                    sweeps
 *   open             figures_open()
 *   state N, blocks N, arenas N, large N, nursery N     set a word of the GC
 *   seen             a minor collection begins or ends
 *   read, always     print the metrics of the heap from figures_read(): kind and value of
 *                    each, and whether the times ascend
 *
 * "stress": a thread collects as incminimark does, from 1000 blocks to 2000 and back, while
 * the main thread reads.  Prints whether there were readings, the least and the largest
 * number of blocks that were read, and the largest number that there was.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "figures.h"
#include "gc/heap.h"

static int64_t words[5];
enum { STATE, BLOCKS, ARENAS, LARGE, NURSERY };
static const char *const names[] = { "state", "blocks", "arenas", "large", "nursery" };
static int going = 100;          /* number of remaining cycles */
static int64_t most;

static void set(int which, int64_t value)
{
    __atomic_store_n(&words[which], value, __ATOMIC_SEQ_CST);
    if (which == BLOCKS && most < value)
        most = value;
}

static void prepare(int known)
{
    struct hook_place place = { 0 };

    place.gc = (uintptr_t)words;
    place.gc_state = STATE;
    place.heap_blocks = known > 0 ? (uintptr_t)&words[BLOCKS] : 0;
    place.heap_arenas = known > 1 ? (uintptr_t)&words[ARENAS] : 0;
    place.heap_large = known > 2 ? (uintptr_t)&words[LARGE] : 0;
    place.heap_nursery = known > 3 ? (uintptr_t)&words[NURSERY] : 0;
    place.heap_is_counted_on = known > 4;
    heap_prepare(&place);
}

static int read_heap(struct figure heap[FIGURES_MOST], int always)
{
    struct figure figures[FIGURES_MOST];
    int i, count = figures_read(figures, always), found = 0;

    for (i = 0; i < count; i++)
        if (figures[i].kind == FIGURES_HEAP || figures[i].kind == FIGURES_HEAP_HAS ||
            figures[i].kind == FIGURES_NURSERY)
            heap[found++] = figures[i];
    return found;
}

static void print(int always)
{
    struct figure heap[FIGURES_MOST];
    int i, count = read_heap(heap, always), ascend = 1;

    for (i = 0; i < count; i++) {
        printf("%d=%lld ", (int)heap[i].kind, (long long)heap[i].value);
        ascend &= i == 0 || heap[i - 1].time <= heap[i].time;
    }
    printf("%s\n", ascend ? "" : "descending");
}

static void commands(void)
{
    char line[100], *space;
    int i;

    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = 0;
        space = strchr(line, ' ');
        if (space != NULL)
            *space++ = 0;
        if (strcmp(line, "known") == 0)
            prepare(atoi(space));
        else if (strcmp(line, "open") == 0)
            figures_open();
        else if (strcmp(line, "seen") == 0)
            heap_seen();
        else if (strcmp(line, "read") == 0 || strcmp(line, "always") == 0)
            print(strcmp(line, "always") == 0);
        else
            for (i = 0; i < 5; i++)
                if (strcmp(line, names[i]) == 0)
                    set(i, atoll(space));
    }
}

static void minor(int64_t blocks)
{
    heap_seen();
    set(BLOCKS, blocks);
    heap_seen();
    sched_yield();          /* let the reader run between two steps, even on one core */
}

static void *collect(void *unused)
{
    int64_t blocks;

    (void)unused;
    for (; going > 0; __atomic_sub_fetch(&going, 1, __ATOMIC_RELEASE)) {
        for (blocks = 1000; blocks < 1500; blocks += 50)
            minor(blocks);
        set(STATE, 1);
        for (; blocks <= 2000; blocks += 50)
            minor(blocks);
        heap_seen();
        heap_seen();
        set(BLOCKS, 0);         /* as incminimark's mass_free_prepare() does */
        sched_yield();
        set(STATE, 2);
        for (blocks = 0; blocks < 1000; blocks += 100)
            minor(blocks);
        set(BLOCKS, 1000);
        set(STATE, 3);
        heap_seen();
        heap_seen();
        set(STATE, 0);
    }
    return NULL;
}

static void stress(void)
{
    struct figure heap[FIGURES_MOST];
    int64_t least = INT64_MAX, largest = 0, readings = 0;
    pthread_t thread;
    int i, j, count, is_over;

    set(ARENAS, 5000);
    set(LARGE, 100);
    set(NURSERY, 10);
    set(BLOCKS, 1000);
    prepare(4);
    figures_open();
    pthread_create(&thread, NULL, collect, NULL);
    for (i = is_over = 0; !is_over; i++) {
        sched_yield();
        is_over = __atomic_load_n(&going, __ATOMIC_ACQUIRE) == 0;
        count = read_heap(heap, i % 2);
        for (j = 0; j < count; j++) {
            if (heap[j].kind != FIGURES_HEAP)
                continue;
            readings++;
            if (least > heap[j].value - 110)
                least = heap[j].value - 110;
            if (largest < heap[j].value - 110)
                largest = heap[j].value - 110;
        }
    }
    pthread_join(thread, NULL);
    printf("%d %lld %lld %lld\n", readings > 0, (long long)least, (long long)largest,
           (long long)most);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        stress();
    else
        commands();
    return 0;
}
