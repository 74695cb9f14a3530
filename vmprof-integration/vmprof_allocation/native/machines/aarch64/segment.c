#define _GNU_SOURCE
#include "segment.h"

#include <link.h>

struct search {
    uintptr_t code;
    uint32_t kind;
    const unsigned char *found;
    size_t size;
};

static int look_at_library(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    const ElfW(Phdr) *wanted = NULL;
    int i, is_inside = 0;

    (void)size;
    for (i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD &&
            search->code - (info->dlpi_addr + p->p_vaddr) < p->p_memsz)
            is_inside = 1;
        if (p->p_type == search->kind)
            wanted = p;
    }
    if (is_inside && wanted != NULL) {
        search->found = (const unsigned char *)(info->dlpi_addr + wanted->p_vaddr);
        search->size = wanted->p_memsz;
    }
    return is_inside;
}

const unsigned char *segment_find(uintptr_t code, uint32_t kind, size_t *size)
{
    struct search search = { code, kind, NULL, 0 };

    (void)dl_iterate_phdr(look_at_library, &search);
    *size = search.size;
    return search.found;
}
