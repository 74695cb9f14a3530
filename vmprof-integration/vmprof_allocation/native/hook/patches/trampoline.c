#define _GNU_SOURCE
#include "trampoline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "machines/entry_patch.h"

#define LINE            4096            /* maximum bytes of a line of /proc/self/maps */

/* The address of each entry, the original word there, and the word that leads to the
   detour. */
static struct {
    uintptr_t entry;
    uint64_t original_word, word;
} hooks[TRAMPOLINES];

static unsigned char *page;     /* page of the trampolines */

static uintptr_t page_size(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

/* ____________________________________________________________ */
/* a page within the jumps' reach */

/* Return an address for a page in the gap from 'start' to 'end' of the address space,
 * within reach of 'code', or 0 if no page fits.  The page is at the upper end of the gap,
 * which is as near as possible in a gap below the code.  In a gap above the code, it is as
 * far away as possible, because a heap below the gap grows upwards.
 */
static uintptr_t place_in_gap(uintptr_t start, uintptr_t end, uintptr_t code)
{
    uintptr_t reach = entry_reach(), size = page_size();
    uintptr_t lowest = code > reach ? code - reach : 1 << 20;

    if (start < lowest)
        start = lowest;
    if (end > code + reach)
        end = code + reach;
    start = (start + size - 1) & ~(size - 1);
    end &= ~(size - 1);
    return start < end ? end - size : 0;
}

static uintptr_t distance(uintptr_t a, uintptr_t b)
{
    return a > b ? a - b : b - a;
}

/* The search for a free page near the code. */
struct nearest {
    uintptr_t code, beyond;     /* the place must be further away than 'beyond' */
    uintptr_t previous_end;     /* end of the previous mapping */
    uintptr_t place;
};

/* Examine the gap between the previous mapping and 'end'. */
static void look_at_gap(struct nearest *n, uintptr_t end)
{
    uintptr_t place = place_in_gap(n->previous_end, end, n->code);

    if (place != 0 && distance(place, n->code) > n->beyond &&
        (n->place == 0 ||
         distance(place, n->code) < distance(n->place, n->code)))
        n->place = place;
}

/* Examine a line of /proc/self/maps: START-END and so on, sorted by address. */
static void look_at_line(struct nearest *n, char *line)
{
    char *dash;
    uintptr_t start = strtoul(line, &dash, 16);

    if (*dash != '-')
        return;
    /* below a stack, which may grow, the kernel needs a gap */
    if (strstr(line, "[stack]") == NULL)
        look_at_gap(n, start);
    n->previous_end = strtoul(dash + 1, NULL, 16);
}

/* Return the address for a page that is nearest to 'code', but further away than 'beyond'.
   Returns 0 if no gap has room for a page. */
static uintptr_t nearest_place(uintptr_t code, uintptr_t beyond)
{
    struct nearest n = { code, beyond, 0, 0 };
    char buffer[LINE + 1];
    size_t used = 0;
    ssize_t count;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return 0;
    while ((count = read(fd, buffer + used, LINE - used)) > 0) {
        char *line = buffer, *end;
        used += (size_t)count;
        buffer[used] = '\0';
        while ((end = strchr(line, '\n')) != NULL) {
            *end = '\0';
            look_at_line(&n, line);
            line = end + 1;
        }
        used -= (size_t)(line - buffer);
        if (used == LINE)
            used = 0;           /* drop the beginning of a line with a very long path */
        memmove(buffer, line, used);
    }
    close(fd);
    /* the addresses after the last mapping belong to the kernel */
    return n.place;
}

/* Map a page as near to 'code' as possible.  Returns NULL and sets errno if this fails. */
static unsigned char *map_near(uintptr_t code)
{
    uintptr_t place = nearest_place(code, 0);

    for (; place != 0; place = nearest_place(code, distance(place, code))) {
        void *p = mmap((void *)place, page_size(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (p == (void *)place)
            return p;
        if (p != MAP_FAILED)            /* a kernel without MAP_FIXED_NOREPLACE */
            munmap(p, page_size());
        else if (errno != EEXIST)       /* EEXIST: another thread was faster */
            return NULL;                /* mmap() would fail at other places, too */
    }
    errno = ENOMEM;
    return NULL;
}

/* ____________________________________________________________ */

int trampoline_build(const uintptr_t entry[TRAMPOLINES],
                     const int moved[TRAMPOLINES],
                     void *const detour[TRAMPOLINES])
{
    int i, error = entry_begin();

    for (i = 0; i < TRAMPOLINES; i++)
        if (!entry_is_possible(entry[i], moved[i]))
            error = EINVAL;
    if (error != 0)
        return error;
    if (page == NULL)
        page = map_near(entry[0]);
    if (page == NULL || mprotect(page, page_size(), PROT_READ | PROT_WRITE) < 0)
        return errno;
    for (i = 0; i < TRAMPOLINES; i++) {
        hooks[i].entry = entry[i];
        hooks[i].original_word = entry_load(entry[i]);
        hooks[i].word = entry_build(page + i * ENTRY_SLOT, entry[i], moved[i],
                                    detour[i]);
    }
    entry_changed((uintptr_t)page, TRAMPOLINES * ENTRY_SLOT);
    return mprotect(page, page_size(), PROT_READ | PROT_EXEC) < 0 ? errno : 0;
}

void *trampoline_original(int i)
{
    return page + i * ENTRY_SLOT;
}

uint64_t trampoline_word(int i)
{
    return hooks[i].word;
}

int trampoline_is_set(int i)
{
    return hooks[i].entry != 0 && entry_load(hooks[i].entry) == hooks[i].word;
}

int trampoline_writable(int writable)
{
    int protection = PROT_READ | PROT_EXEC | (writable ? PROT_WRITE : 0);
    uintptr_t size = page_size();
    int i, error = 0;

    for (i = 0; i < TRAMPOLINES; i++)
        if (mprotect((void *)(hooks[i].entry & ~(size - 1)), size,
                     protection | entry_protection(hooks[i].entry)) < 0)
            error = errno;
    return error;
}

void trampoline_changed(void)
{
    int i;

    for (i = 0; i < TRAMPOLINES; i++)
        entry_changed(hooks[i].entry, entry_word_size);
}

void trampoline_set(int hooked)
{
    int i;

    for (i = 0; i < TRAMPOLINES; i++)
        entry_store(hooks[i].entry,
                    hooked ? hooks[i].word : hooks[i].original_word);
    trampoline_changed();
}
