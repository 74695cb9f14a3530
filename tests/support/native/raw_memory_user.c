/* A library that allocates memory in all ways, for raw_memory_harness.c */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Allocate and free twelve blocks of 100 bytes in each round.  Returns the number of blocks
   that are in use at the end: 0. */
int64_t calls(int rounds)
{
    while (rounds-- > 0) {
        void *all[9], *text;
        int i;

        all[0] = malloc(100);
        all[1] = calloc(10, 10);
        all[2] = realloc(NULL, 100);
        all[3] = realloc(malloc(100), 100);
        all[4] = memalign(64, 100);
        all[5] = aligned_alloc(64, 100);
        all[6] = NULL;
        if (posix_memalign(&all[6], 4096, 100) != 0)
            abort();
        all[7] = valloc(100);
        all[8] = pvalloc(100);
        for (i = 0; i < 9; i++) {
            if (all[i] == NULL)
                abort();
            memset(all[i], 1, 100);
        }
        text = reallocarray(NULL, 10, 10);
        for (i = 0; i < 9; i++)
            free(all[i]);
        /* realloc() fails, and leaves 'text' valid */
        text = realloc(text, SIZE_MAX / 4) == NULL ? text : NULL;
        free(text);
        free(NULL);
    }
    return 0;
}

/* Allocate blocks of 8 to 40,007 bytes, and free some of them much later.  Returns the sum
   of the sizes. */
int64_t allocate(int rounds)
{
    static void *kept[500];
    unsigned state = 1;
    int64_t bytes = 0;

    while (rounds-- > 0) {
        int i = rand_r(&state) % 500;
        size_t size = 8 + (size_t)(rand_r(&state) % (rand_r(&state) % 2 ? 200 : 40000));
        free(kept[i]);
        kept[i] = malloc(size);
        bytes += (int64_t)size;
    }
    return bytes;
}
