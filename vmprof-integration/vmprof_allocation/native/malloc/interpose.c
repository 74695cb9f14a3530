#define _GNU_SOURCE
#include "interpose.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "maps.h"

/* Types of relocations that store the address of a symbol: for calls, for the global
   offset table, and for other data */
#ifdef __aarch64__
#define OF_CALLS        R_AARCH64_JUMP_SLOT
#define OF_ADDRESSES    R_AARCH64_GLOB_DAT
#define OF_WORDS        R_AARCH64_ABS64
#else
#define OF_CALLS        R_X86_64_JUMP_SLOT
#define OF_ADDRESSES    R_X86_64_GLOB_DAT
#define OF_WORDS        R_X86_64_64
#endif

#define MOST_RANGES     16384
#define TRIES           20      /* number of attempts, 2 ms apart */

static struct interposed *functions;
static int functions_count;
static const struct interposed *of_malloc; /* the function called "malloc" */
static int is_set;

/* A loaded object, as its dynamic section describes it */
struct object {
    uintptr_t base, start, end;
    uintptr_t relro, relro_end;         /* pages that the dynamic linker makes read-only
                                           after relocation */
    const ElfW(Sym) *symbols;
    size_t symbols_count;
    const char *names;
    const ElfW(Rela) *slots[2];         /* relocations of calls, and of addresses in data */
    size_t slots_count[2];
};

/* ____________________________________________________________ */
/* The present protection of mapped files.  The ELF headers do not show it, because the
   linker may be about to change the protection.  So the kernel's list of mappings is read,
   while no object can be unloaded, and without malloc() (see each_object()). */

static struct maps_range ranges[MOST_RANGES];  /* 'value' is the protection */
static int ranges_count;

static void add_range(const struct mapping *mapping)
{
    if (ranges_count < MOST_RANGES && *mapping->file != '\0')
        ranges[ranges_count++] = (struct maps_range){ mapping->start, mapping->end,
                                                      mapping->protection };
}

static void read_ranges(void)
{
    static char text[1 << 16];

    ranges_count = 0;
    maps_read(text, sizeof text, add_range);
}

/* Return the protection of the page that contains an address, or -1 if the page belongs to
   no file. */
static int protection_of(uintptr_t address)
{
    const struct maps_range *range = maps_find(ranges, ranges_count, address);

    return range != NULL ? range->value : -1;
}

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Return the address of the page that contains this address. */
static uintptr_t page_of(uintptr_t address)
{
    return address & ~(uintptr_t)(page_size() - 1);
}

/* ____________________________________________________________ */
/* objects */

/* Return the pointer for an address in the dynamic section of an object.  glibc has
   relocated these addresses, except in the section of the vDSO. */
static const void *in(const struct object *o, uintptr_t address)
{
    return (const void *)(address < o->base ? o->base + address : address);
}

/* Return the number of symbols of an object.  Only the hash table shows this number: the
   last symbol is at the end of the last bucket's chain. */
static size_t count_symbols(const uint32_t *hash)
{
    uint32_t buckets = hash[0], first = hash[1], filter = hash[2], last = 0, i;
    const uint32_t *bucket = hash + 4 + filter * 2, *chain = bucket + buckets;

    for (i = 0; i < buckets; i++)
        if (bucket[i] > last)
            last = bucket[i];
    if (last < first)
        return first;
    while (!(chain[last - first] & 1))
        last++;
    return (size_t)last + 1;
}

static void read_dynamic(struct object *o, const ElfW(Dyn) *d)
{
    size_t relative = 0;

    for (; d->d_tag != DT_NULL; d++) {
        const void *at = in(o, d->d_un.d_ptr);
        switch (d->d_tag) {
        case DT_SYMTAB: o->symbols = at; break;
        case DT_STRTAB: o->names = at; break;
        case DT_JMPREL: o->slots[0] = at; break;
        case DT_PLTRELSZ: o->slots_count[0] = d->d_un.d_val / sizeof(ElfW(Rela)); break;
        case DT_RELA: o->slots[1] = at; break;
        case DT_RELASZ: o->slots_count[1] = d->d_un.d_val / sizeof(ElfW(Rela)); break;
        case DT_RELACOUNT: relative = d->d_un.d_val; break;
        case DT_HASH: o->symbols_count = ((const uint32_t *)at)[1]; break;
        case DT_GNU_HASH:
            if (o->symbols_count == 0)
                o->symbols_count = count_symbols(at);
            break;
        }
    }
    /* skip the relocations without a symbol, which are the first; libpypy has 700,000 */
    if (relative <= o->slots_count[1]) {
        o->slots[1] += relative;
        o->slots_count[1] -= relative;
    }
}

/* Read the headers of an object.  Returns 0 if the object has no symbols. */
static int read_object(const struct dl_phdr_info *info, struct object *o)
{
    const ElfW(Dyn) *dynamic = NULL;
    int i;

    memset(o, 0, sizeof *o);
    o->base = info->dlpi_addr;
    o->start = UINTPTR_MAX;
    for (i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t start = o->base + p->p_vaddr, end = start + p->p_memsz;
        if (p->p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)start;
        if (p->p_type == PT_GNU_RELRO) {
            o->relro = start;
            o->relro_end = page_of(end);
        }
        if (p->p_type == PT_LOAD) {
            o->start = start < o->start ? start : o->start;
            o->end = end > o->end ? end : o->end;
        }
    }
    if (dynamic != NULL)
        read_dynamic(o, dynamic);
    return o->symbols != NULL && o->names != NULL;
}

static int holds(const struct object *o, uintptr_t address)
{
    return o->start <= address && address < o->end;
}

/* ____________________________________________________________ */
/* slots and symbols */

/* Whether some slots were not changed, because another thread is relocating their object */
static int is_too_early;

/* Store an address into a word of an object.  The word's page is made writable for the
   store.  Returns 0, or an errno if the word cannot be changed. */
static int store(const struct object *o, uintptr_t *word, uintptr_t value)
{
    int protection = protection_of((uintptr_t)word);
    void *page = (void *)page_of((uintptr_t)word);

    if (protection < 0 || !(protection & PROT_READ))
        return EFAULT;
    if ((protection & PROT_WRITE) && o->relro <= (uintptr_t)word &&
        (uintptr_t)word < o->relro_end) {
        /* The linker may make the page read-only at any moment, and then a store would
           crash. */
        is_too_early = 1;
        return 0;
    }
    if (!(protection & PROT_WRITE) &&
        mprotect(page, page_size(), protection | PROT_WRITE) != 0)
        return errno;
    /* the data of the replacement was written milliseconds ago, so other threads see it */
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
    if (!(protection & PROT_WRITE))
        (void)mprotect(page, page_size(), protection);
    return 0;
}

/* A pass over all objects, which changes either slots or symbols */
struct pass {
    int error;                  /* the first errno, or 0 */
    int is_to_ours;             /* 1 to store the addresses of replacements, 0 to store
                                   the addresses of the real functions */
    int of_symbols;             /* 1 to change symbols, 0 to change slots */
    int has_ranges;             /* whether read_ranges() was called */
};

/* Return the address that replaces the address 'value', or 0 if 'value' is not replaced. */
static uintptr_t wanted(uintptr_t value, const struct pass *pass)
{
    int i;

    for (i = 0; i < functions_count; i++)
        if (functions[i].real != 0 &&
            value == (pass->is_to_ours ? functions[i].real : functions[i].ours))
            return pass->is_to_ours ? functions[i].ours : functions[i].real;
    return 0;
}

/* Return whether a function of this name is diverted. */
static int is_name_of_one(const char *name)
{
    int i;

    for (i = 0; i < functions_count; i++)
        if (strcmp(functions[i].name, name) == 0)
            return 1;
    return 0;
}

/* Replace the address in a word, which is relative to 'base', if the pass replaces it.
   Returns 0 or an errno. */
static int change(const struct object *o, uintptr_t *word, uintptr_t base,
                  const struct pass *pass)
{
    uintptr_t value = wanted(base + *word, pass);

    return value == 0 ? 0 : store(o, word, value - base);
}

static int pass_symbols(const struct object *o, const struct pass *pass)
{
    int error = 0;
    size_t i;

    for (i = 0; i < o->symbols_count; i++) {
        const ElfW(Sym) *s = &o->symbols[i];
        if (s->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(s->st_info) == STT_FUNC &&
            is_name_of_one(o->names + s->st_name)) {
            int e = change(o, (uintptr_t *)(uintptr_t)&s->st_value, o->base, pass);
            error = error != 0 ? error : e;
        }
    }
    return error;
}

static int pass_slots(const struct object *o, const struct pass *pass, int which)
{
    int error = 0;
    size_t i;

    for (i = 0; i < o->slots_count[which]; i++) {
        const ElfW(Rela) *r = &o->slots[which][i];
        uint32_t kind = ELF64_R_TYPE(r->r_info), symbol = ELF64_R_SYM(r->r_info);
        if (symbol != 0 &&
            (kind == OF_CALLS || kind == OF_ADDRESSES || kind == OF_WORDS) &&
            is_name_of_one(o->names + o->symbols[symbol].st_name)) {
            /* A slot that the linker has not filled yet has another value, and stays
               unchanged. */
            int e = change(o, (uintptr_t *)(o->base + r->r_offset), 0, pass);
            error = error != 0 ? error : e;
        }
    }
    return error;
}

static int pass_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct pass *pass = data;
    struct object o;
    int i, error = 0;

    (void)size;
    if (!pass->has_ranges)
        read_ranges();
    pass->has_ranges = 1;
    /* this library calls the real functions */
    if (!read_object(info, &o) || holds(&o, (uintptr_t)interpose_set))
        return 0;
    if (pass->of_symbols)
        error = pass_symbols(&o, pass);
    for (i = 0; i < 2 && !pass->of_symbols && error == 0; i++)
        error = pass_slots(&o, pass, i);
    pass->error = pass->error != 0 ? pass->error : error;
    return 0;
}

/* Make a pass over all objects.  dl_iterate_phdr() locks the list of objects, so no
   object is unloaded meanwhile. */
static int each_object(int is_to_ours, int of_symbols)
{
    struct pass pass = { 0, is_to_ours, of_symbols, 0 };

    is_too_early = 0;
    dl_iterate_phdr(pass_object, &pass);
    return pass.error;
}

static int set_all(int is_to_ours)
{
    static const struct timespec pause = { 0, 2000000 };
    int tries, error;

    /* symbols first, so that slots that the linker fills meanwhile get the new addresses */
    error = each_object(is_to_ours, 1);
    for (tries = 0; tries < TRIES && error == 0; tries++) {
        error = each_object(is_to_ours, 0);
        if (!is_too_early)
            break;
        nanosleep(&pause, NULL);
    }
    return error;
}

/* ____________________________________________________________ */

int interpose_find(struct interposed *all, int count)
{
    Dl_info found, own;
    int i;

    if (dladdr((const void *)(uintptr_t)interpose_find, &own) == 0)
        return ENOTSUP;
    of_malloc = NULL;
    for (i = 0; i < count; i++) {
        /* a function that the sampler's own library defines is not a real one */
        if (all[i].real != 0 && (dladdr((const void *)all[i].real, &found) == 0 ||
                                 found.dli_fbase == own.dli_fbase))
            all[i].real = 0;
        if (strcmp(all[i].name, "malloc") == 0 && all[i].real != 0)
            of_malloc = &all[i];
    }
    functions = all;
    functions_count = count;
    return of_malloc == NULL ? ENOTSUP : 0;
}

int interpose_is_libc(void)
{
    Dl_info of_it, of_libc;
    void *known = dlsym(RTLD_DEFAULT, "gnu_get_libc_version");

    return of_malloc != NULL && known != NULL && dladdr(known, &of_libc) != 0 &&
           dladdr((const void *)of_malloc->real, &of_it) != 0 &&
           of_it.dli_fbase == of_libc.dli_fbase;
}

int interpose_set(void)
{
    int error;

    if (is_set)
        return 0;
    is_set = 1;
    error = set_all(1);
    if (error != 0)
        interpose_undo();
    return error;
}

void interpose_undo(void)
{
    if (!is_set)
        return;
    (void)set_all(0);
    is_set = 0;
}
