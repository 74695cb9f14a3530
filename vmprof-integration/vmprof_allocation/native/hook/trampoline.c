#define _GNU_SOURCE
#include "trampoline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE            4096
#define JUMP_SIZE       5               /* jmp rel32 */
#define MAX_MOVED       8               /* one aligned store */
#define SLOT_SIZE       64
#define DETOUR          32              /* offset in a slot */

/* a rel32 reaches so far, less what the functions and we extend over */
#define REACH           (((uintptr_t)1 << 31) - ((uintptr_t)1 << 28))

static struct {
    uintptr_t entry;
    uint64_t original_word, word;
} hooks[TRAMPOLINES];

static unsigned char *page;

static void put_far_jump(unsigned char *p, const void *target)
{
    static const unsigned char jump[6] = { 0xff, 0x25, 0, 0, 0, 0 };

    memcpy(p, jump, sizeof jump);
    memcpy(p + sizeof jump, &target, sizeof target);
}

/* ____________________________________________________________ */
/* a place that the jumps reach */

/* The place for a page in the gap from 'start' to 'end' of the address space,
   within reach of 'code'.  0: there is none.  Below the code, as near as can
   be; above it, as far as can be: the heap, if it lies there, grows up. */
static uintptr_t place_in_gap(uintptr_t start, uintptr_t end, uintptr_t code)
{
    uintptr_t lowest = code > REACH ? code - REACH : 1 << 20;

    if (start < lowest)
        start = lowest;
    if (end > code + REACH)
        end = code + REACH;
    start = (start + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
    end &= ~(uintptr_t)(PAGE - 1);
    return start < end ? end - PAGE : 0;
}

static uintptr_t distance(uintptr_t a, uintptr_t b)
{
    return a > b ? a - b : b - a;
}

struct nearest {
    uintptr_t code, beyond;     /* further away than 'beyond' */
    uintptr_t previous_end;     /* of the mapping before */
    uintptr_t place;
};

static void look_at_gap(struct nearest *n, uintptr_t end)
{
    uintptr_t place = place_in_gap(n->previous_end, end, n->code);

    if (place != 0 && distance(place, n->code) > n->beyond &&
        (n->place == 0 ||
         distance(place, n->code) < distance(n->place, n->code)))
        n->place = place;
}

/* a line of /proc/self/maps: START-END and so on, in order of addresses */
static void look_at_line(struct nearest *n, char *line)
{
    char *dash;
    uintptr_t start = strtoul(line, &dash, 16);

    if (*dash != '-')
        return;
    /* the kernel wants a gap of its own below what the stack grows into */
    if (strstr(line, "[stack]") == NULL)
        look_at_gap(n, start);
    n->previous_end = strtoul(dash + 1, NULL, 16);
}

/* The nearest place to 'code' that is further away than 'beyond', or 0 */
static uintptr_t nearest_place(uintptr_t code, uintptr_t beyond)
{
    struct nearest n = { code, beyond, 0, 0 };
    char buffer[PAGE + 1];
    size_t used = 0;
    ssize_t count;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return 0;
    while ((count = read(fd, buffer + used, PAGE - used)) > 0) {
        char *line = buffer, *end;
        used += (size_t)count;
        buffer[used] = '\0';
        while ((end = strchr(line, '\n')) != NULL) {
            *end = '\0';
            look_at_line(&n, line);
            line = end + 1;
        }
        used -= (size_t)(line - buffer);
        if (used == PAGE)
            used = 0;           /* a path of thousands of characters */
        memmove(buffer, line, used);
    }
    close(fd);
    /* beyond the last one lies the kernel */
    return n.place;
}

static unsigned char *map_near(uintptr_t code)
{
    uintptr_t place = nearest_place(code, 0);

    for (; place != 0; place = nearest_place(code, distance(place, code))) {
        void *p = mmap((void *)place, PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (p == (void *)place)
            return p;
        if (p != MAP_FAILED)            /* a kernel without NOREPLACE */
            munmap(p, PAGE);
        else if (errno != EEXIST)       /* another thread was faster */
            return NULL;                /* and it's no better elsewhere */
    }
    errno = ENOMEM;
    return NULL;
}

/* ____________________________________________________________ */

static void build(int i, uintptr_t entry, size_t moved, const void *detour)
{
    unsigned char *slot = page + i * SLOT_SIZE;
    unsigned char *word = (unsigned char *)&hooks[i].word;
    int32_t jump = (int32_t)((intptr_t)(slot + DETOUR) -
                             (intptr_t)(entry + JUMP_SIZE));

    memcpy(slot, (const void *)entry, moved);
    put_far_jump(slot + moved, (const void *)(entry + moved));
    put_far_jump(slot + DETOUR, detour);

    hooks[i].entry = entry;
    memcpy(&hooks[i].original_word, (const void *)entry, sizeof(uint64_t));
    hooks[i].word = hooks[i].original_word;
    word[0] = 0xe9;
    memcpy(word + 1, &jump, sizeof jump);
}

int trampoline_build(const uintptr_t entry[TRAMPOLINES],
                     const int moved[TRAMPOLINES],
                     void *const detour[TRAMPOLINES])
{
    int i;

    for (i = 0; i < TRAMPOLINES; i++)
        if (moved[i] < JUMP_SIZE || moved[i] > MAX_MOVED ||
            entry[i] % sizeof(uint64_t) != 0)
            return EINVAL;
    if (page == NULL)
        page = map_near(entry[0]);
    if (page == NULL || mprotect(page, PAGE, PROT_READ | PROT_WRITE) < 0)
        return errno;
    for (i = 0; i < TRAMPOLINES; i++)
        build(i, entry[i], (size_t)moved[i], detour[i]);
    return mprotect(page, PAGE, PROT_READ | PROT_EXEC) < 0 ? errno : 0;
}

void *trampoline_original(int i)
{
    return page + i * SLOT_SIZE;
}

uint64_t trampoline_word(int i)
{
    return hooks[i].word;
}

static uint64_t *place_of_word(int i)
{
    return (uint64_t *)hooks[i].entry;
}

int trampoline_is_set(int i)
{
    return hooks[i].entry != 0 &&
           __atomic_load_n(place_of_word(i), __ATOMIC_SEQ_CST) == hooks[i].word;
}

int trampoline_writable(int writable)
{
    int protection = PROT_READ | PROT_EXEC | (writable ? PROT_WRITE : 0);
    int i, error = 0;

    for (i = 0; i < TRAMPOLINES; i++)
        if (mprotect((void *)(hooks[i].entry & ~(uintptr_t)(PAGE - 1)), PAGE,
                     protection) < 0)
            error = errno;
    return error;
}

void trampoline_set(int hooked)
{
    int i;

    for (i = 0; i < TRAMPOLINES; i++)
        __atomic_store_n(place_of_word(i),
                         hooked ? hooks[i].word : hooks[i].original_word,
                         __ATOMIC_SEQ_CST);
}
