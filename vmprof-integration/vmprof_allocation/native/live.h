#ifndef VMPROF_ALLOCATION_LIVE_H
#define VMPROF_ALLOCATION_LIVE_H
/* The live carrier: allocation sampling in a PyPy that nobody patched.
 *
 * setup.py gives this file to cffi as it is: plain declarations, please.
 *
 * cffi releases the GIL around these calls.  None of them touches the GC;
 * the few words of PyPy's memory that have to change when sampling starts
 * and stops are stored by live.py itself, which holds the GIL.  While the
 * words at the three functions' entries are in place, everything else
 * happens inside the GC's own calls, which hold the GIL too.
 */

/* Where things are in this process (find.py) */
struct live_place {
    uintptr_t base;             /* of libpypy */
    uintptr_t nursery_free;
    uintptr_t nursery_top;
    uintptr_t entry[3];         /* collect_and_reserve, _minor_collection,
                                   external_malloc */
    int moved[3];               /* bytes of each that go to a trampoline */
    uintptr_t write_slot;       /* libpypy's pointers to the C functions */
    uintptr_t mmap_slot[2];     /* mmap, mmap64; or 0 */
    uintptr_t seek_slot[2];     /* lseek, lseek64; or 0 */
    int slots_read_only;        /* libpypy was linked with full RELRO */
    uintptr_t type_info;        /* base of the type table, and in an entry: */
    int type_fixed_size;        /*   size in bytes, without the items */
    int type_item_size;         /*   size of one item */
};

struct live_statistics {
    int64_t allocated;          /* bytes, by the GC's own pointers */
    int64_t collections;        /* minor collections */
    int64_t pressures;          /* memory pressures: bytes went uncounted */
    int64_t surprises;          /* nursery_top moved behind our back */
    int64_t samples;            /* allocation samples */
    int64_t lost;               /* allocation samples without a stack */
    int64_t time_samples;
    int64_t dropped;            /* time samples that met another sample */
};

/* Build the trampolines.  Once per process.  Returns 0 or an errno. */
int live_prepare(const struct live_place *place);

/* The eight bytes at entry[i], as they are and as they are to become */
uint64_t live_original_word(int i);
uint64_t live_patched_word(int i);

/* Make the pages of the three entries writable, or put them back.  Returns
   0 or an errno. */
int live_writable(int writable);

/* Take vmprof's output over.  To be called before vmprof is enabled on
   'fd'; then live_enabled().  Returns 0 or an errno. */
int live_open(int fd);

/* vmprof was enabled: take its signal handler over.  'settings' goes into
   the profile; 'take_time_samples' keeps vmprof's timer running. */
int live_enabled(const char *settings, int take_time_samples);

/* Take no more samples than so many a second, or than a share of the time in
   millionths: the interval follows.  0 and 0, or live_set_interval(): no
   limit. */
void live_limit(int64_t per_second, int64_t share);

/* Begin to sample as soon as the entries are patched */
void live_start(int64_t interval, uint64_t seed, int fixed_gaps);
void live_set_first_top(uintptr_t top);
void live_set_interval(int64_t interval);

/* The next entry puts nursery_top back, and ends the sampling */
void live_stop(void);

/* 1 until the GC's fields are what they would be without us */
int live_is_active(void);

/* Give the signal handler back, write the samples.  Then disable vmprof, and
   call live_close(), which returns 0 or the errno that ended the profile. */
void live_disabling(void);
int live_close(void);

void live_get_statistics(struct live_statistics *statistics);

#endif
