#define _GNU_SOURCE
#include "elf_symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BYTES      ((uint64_t)1 << 28)     /* maximum bytes of one table */
#define DEBUG_FOLDER    "/usr/lib/debug/.build-id/"

typedef void name_function(uintptr_t value, const char *name, void *argument);

/* A copy of a part of a file, because the file may be truncated while it is read. */
struct piece {
    char *bytes;
    size_t size;
};

static void drop(struct piece *piece)
{
    if (piece->bytes != NULL)
        munmap(piece->bytes, piece->size + 1);
    piece->bytes = NULL;
    piece->size = 0;
}

/* Copy 'size' bytes at the offset 'at' of a file, and append a zero.  Returns 0 if the file
   has no such bytes. */
static int get(int fd, uint64_t at, uint64_t size, struct piece *piece)
{
    size_t done = 0;
    ssize_t part;
    void *map;

    piece->bytes = NULL;
    piece->size = 0;
    if (size == 0 || size > MOST_BYTES || at > INT64_MAX - MOST_BYTES)
        return 0;
    map = mmap(NULL, (size_t)size + 1, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return 0;
    piece->bytes = map;
    piece->size = (size_t)size;
    while (done < size) {
        part = pread(fd, piece->bytes + done, (size_t)size - done,
                     (off_t)(at + done));
        if (part <= 0) {
            drop(piece);
            return 0;
        }
        done += (size_t)part;
    }
    return 1;
}

static int is_elf(const Elf64_Ehdr *head)
{
    return memcmp(head->e_ident, ELFMAG, SELFMAG) == 0 &&
           head->e_ident[EI_CLASS] == ELFCLASS64 &&
           head->e_ident[EI_DATA] == ELFDATA2LSB;
}

/* ____________________________________________________________ */
/* build IDs */

static size_t padded(size_t size)
{
    return (size + 3) & ~(size_t)3;
}

int elf_symbols_find_id(const char *notes, size_t size, struct build_id *id)
{
    Elf64_Nhdr head;

    while (size >= sizeof head) {
        memcpy(&head, notes, sizeof head);
        notes += sizeof head;
        size -= sizeof head;
        if (head.n_namesz > size || padded(head.n_namesz) > size ||
            head.n_descsz > size - padded(head.n_namesz))
            return 0;
        if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == sizeof "GNU" &&
            memcmp(notes, "GNU", sizeof "GNU") == 0 && head.n_descsz > 0 &&
            head.n_descsz <= BUILD_ID_MOST) {
            id->size = head.n_descsz;
            memcpy(id->bytes, notes + padded(head.n_namesz), id->size);
            return 1;
        }
        if (padded(head.n_namesz) + padded(head.n_descsz) > size)
            return 0;
        notes += padded(head.n_namesz) + padded(head.n_descsz);
        size -= padded(head.n_namesz) + padded(head.n_descsz);
    }
    return 0;
}

void elf_symbols_id_in_memory(uintptr_t start, uintptr_t end, uintptr_t base,
                              struct build_id *id)
{
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)start;
    const Elf64_Phdr *segment;
    int i;

    id->size = 0;
    /* the first page is mapped, because 'start' is the start of the library */
    if (end - start < 4096 || !is_elf(head) || head->e_phentsize != sizeof *segment ||
        head->e_phoff > 4096 ||
        head->e_phoff + head->e_phnum * sizeof *segment > 4096)
        return;
    segment = (const Elf64_Phdr *)(start + head->e_phoff);
    for (i = 0; i < head->e_phnum; i++, segment++) {
        uintptr_t notes = base + segment->p_vaddr;
        if (segment->p_type == PT_NOTE && notes >= start && notes < end &&
            segment->p_memsz <= end - notes &&
            elf_symbols_find_id((const char *)notes, segment->p_memsz, id))
            return;
    }
}

/* Return whether the file with these sections has the build ID 'id'. */
static int is_build(int fd, const Elf64_Shdr *sections, size_t count,
                    const struct build_id *id)
{
    struct build_id theirs;
    struct piece notes;
    int is_there = 0;
    size_t i;

    for (i = 0; id->size > 0 && i < count && !is_there; i++)
        if (sections[i].sh_type == SHT_NOTE &&
            get(fd, sections[i].sh_offset, sections[i].sh_size, &notes)) {
            is_there = elf_symbols_find_id(notes.bytes, notes.size, &theirs);
            drop(&notes);
        }
    if (id->size == 0)
        return 1;               /* without a build ID, any file is accepted */
    return is_there && theirs.size == id->size &&
           memcmp(theirs.bytes, id->bytes, id->size) == 0;
}

/* ____________________________________________________________ */
/* symbols */

/* Call 'each' for the functions of a symbol table. */
static void read_table(const struct piece *symbols, const struct piece *strings,
                       name_function *each, void *argument)
{
    Elf64_Sym symbol;
    size_t at;

    for (at = 0; at + sizeof symbol <= symbols->size; at += sizeof symbol) {
        memcpy(&symbol, symbols->bytes + at, sizeof symbol);
        if ((ELF64_ST_TYPE(symbol.st_info) == STT_FUNC ||
             ELF64_ST_TYPE(symbol.st_info) == STT_GNU_IFUNC) &&
            symbol.st_shndx != SHN_UNDEF && symbol.st_name < strings->size &&
            strings->bytes[symbol.st_name] != '\0')
            each(symbol.st_value, strings->bytes + symbol.st_name, argument);
    }
}

/* Call 'each' for the functions in all symbol tables with the section type 'type'.  Returns
   0 if the file has no such table. */
static int read_tables(int fd, const Elf64_Shdr *sections, size_t count,
                       uint32_t type, name_function *each, void *argument)
{
    struct piece symbols, strings;
    int is_there = 0;
    size_t i;

    for (i = 0; i < count; i++) {
        const Elf64_Shdr *section = &sections[i];
        if (section->sh_type != type || section->sh_link >= count ||
            section->sh_entsize != sizeof(Elf64_Sym) ||
            !get(fd, section->sh_offset, section->sh_size, &symbols))
            continue;
        if (get(fd, sections[section->sh_link].sh_offset,
                sections[section->sh_link].sh_size, &strings)) {
            read_table(&symbols, &strings, each, argument);
            is_there = 1;
        }
        drop(&symbols);
        drop(&strings);
    }
    return is_there;
}

/* Call 'each' for the functions in the symbol tables of a file, if its build ID is 'id'.
   Returns 1 if the file has its full table, or 0 if it has only dynamic symbols or
   none. */
static int read_file(const char *path, const struct build_id *id,
                     name_function *each, void *argument)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), is_whole = 0;
    struct piece sections = { NULL, 0 };
    struct stat st;
    Elf64_Ehdr head;

    if (fd < 0)
        return 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        pread(fd, &head, sizeof head, 0) == sizeof head && is_elf(&head) &&
        head.e_shentsize == sizeof(Elf64_Shdr) &&
        get(fd, head.e_shoff, (uint64_t)head.e_shnum * sizeof(Elf64_Shdr),
            &sections)) {
        const Elf64_Shdr *all = (const Elf64_Shdr *)sections.bytes;
        if (is_build(fd, all, head.e_shnum, id)) {
            is_whole = read_tables(fd, all, head.e_shnum, SHT_SYMTAB, each,
                                   argument);
            if (!is_whole)
                (void)read_tables(fd, all, head.e_shnum, SHT_DYNSYM, each,
                                  argument);
        }
        drop(&sections);
    }
    close(fd);
    return is_whole;
}

/* Read the separate debug file in the folder of 'path', where pypy.org's archives have it.
   Returns the result of read_file(). */
static int read_beside(const char *path, const struct build_id *id,
                       name_function *each, void *argument)
{
    char debug[PATH_MAX];
    int size = snprintf(debug, sizeof debug, "%s.debug", path);

    return size > 0 && (size_t)size < sizeof debug &&
           read_file(debug, id, each, argument);
}

void elf_symbols_read(const char *path, const struct build_id *id,
                      name_function *each, void *argument)
{
    char debug[sizeof DEBUG_FOLDER + 2 * BUILD_ID_MOST + 16] = DEBUG_FOLDER;
    char *p = debug + strlen(debug);
    size_t i;

    if (read_file(path, id, each, argument) || id->size < 2 ||
        read_beside(path, id, each, argument))
        return;
    for (i = 0; i < id->size; i++)
        p += sprintf(p, "%02x%s", id->bytes[i], i == 0 ? "/" : "");
    strcpy(p, ".debug");
    (void)read_file(debug, id, each, argument);
}
