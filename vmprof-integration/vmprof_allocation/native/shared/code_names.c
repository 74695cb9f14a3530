#define _GNU_SOURCE
#include "code_names.h"

#include <stdint.h>
#include <string.h>
#include <time.h>

#include "table.h"

#define MARKER_NAME     '\x02'
#define MARKER_TRAILER  '\x03'
#define MARKER_HEADER   '\x05'
#define MARKER_TIME     '\x06'
#define FILE_HEAD       (5 * sizeof(int64_t))
#define RECORD_HEAD     (1 + 2 * sizeof(int64_t))

/* limits for the number of functions and the size of all names; further functions have
   no name */
#define MOST_FUNCTIONS  ((size_t)1 << 20)
#define MOST_TEXT       ((size_t)1 << 26)
#define MAX_TEXT        8192            /* limit for one name, the size of vmprof's
                                           buffers */

/* A function and its name, "py:function:line:file".  Consecutive functions of one file
   share the text of the file's name. */
struct function {
    int64_t number;                     /* vmprof's number of the function */
    uint32_t text, text_size;           /* offset and size of the name up to the file */
    uint32_t file, file_size;           /* offset and size of the file's name */
};

static struct names {
    int is_kept;                        /* whether records are kept */
    size_t from_before;                 /* number of the functions that earlier profiles
                                           left */
    size_t told_again;                  /* number of functions when vmprof was enabled:
                                           vmprof writes the names of the functions
                                           between these two numbers each time that it is
                                           enabled */
    char head[2048];
    size_t head_size;
    struct function *functions;
    size_t functions_count, functions_room;
    char *text;
    size_t text_count, text_room;
    uint32_t *slots;                    /* hash table by number: a function's index + 1 */
    size_t slots_count;
    uint32_t file, file_size;           /* offset and size of the file's name of the last
                                           function */
    unsigned char *told;                /* bit i is set if the profile has the name of
                                           function i */
    size_t told_size;                   /* bytes of 'told' */
} names;

/* ____________________________________________________________ */
/* memory */

/* Return 'size' zeroed bytes, or NULL if there is no memory. */
static void *get_room(size_t size)
{
    void *room = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return room == MAP_FAILED ? NULL : room;
}

/* Append 'size' bytes to names.text.  Returns their offset, or 0 if there is no memory. */
static uint32_t keep_text(const char *text, size_t size)
{
    uint32_t at;

    if (names.text_count == 0)
        names.text_count = 1;           /* offset 0 is not used */
    if (!table_has_room((void **)&names.text, &names.text_room,
                        names.text_count, 1, MOST_TEXT))
        return 0;
    while (names.text_count + size > names.text_room)
        if (!table_has_room((void **)&names.text, &names.text_room,
                            names.text_room, 1, MOST_TEXT))
            return 0;
    at = (uint32_t)names.text_count;
    memcpy(names.text + at, text, size);
    names.text_count += size;
    return at;
}

/* ____________________________________________________________ */
/* functions by their numbers */

static size_t first_slot(int64_t number)
{
    uint64_t hash = (uint64_t)number * 0x9e3779b97f4a7c15u;

    return (size_t)(hash >> 20) & (names.slots_count - 1);
}

/* Return the slot of a function in the hash table, or the free slot for a new function.
   The table must have a free slot. */
static uint32_t *find_slot(int64_t number)
{
    size_t i = first_slot(number);

    while (names.slots[i] != 0 &&
           names.functions[names.slots[i] - 1].number != number)
        i = (i + 1) & (names.slots_count - 1);
    return &names.slots[i];
}

/* Make room in the hash table for one more function.  Returns 0 if there is no memory. */
static int have_slots(void)
{
    size_t count = names.slots_count == 0 ? 1024 : 2 * names.slots_count, i;
    uint32_t *before = names.slots;
    size_t before_count = names.slots_count;
    uint32_t *slots;

    if (2 * names.functions_count < names.slots_count)
        return 1;
    slots = get_room(count * sizeof *slots);
    if (slots == NULL)
        return 0;
    names.slots = slots;
    names.slots_count = count;
    for (i = 0; i < names.functions_count; i++)
        *find_slot(names.functions[i].number) = (uint32_t)i + 1;
    table_give_back(before, before_count, sizeof *before);
    return 1;
}

/* Write the whole name of a function to 'p'.  Returns the end of the name. */
static char *put_name(const struct names *of, const struct function *function, char *p)
{
    memcpy(p, of->text + function->text, function->text_size);
    p += function->text_size;
    memcpy(p, of->text + function->file, function->file_size);
    return p + function->file_size;
}

/* Return whether the name of a function is the given text. */
static int is_named(const struct function *function, const char *text, size_t size)
{
    return size == (size_t)function->text_size + function->file_size &&
           memcmp(names.text + function->text, text, function->text_size) == 0 &&
           memcmp(names.text + function->file, text + function->text_size,
                  function->file_size) == 0;
}

/* Set the function's name.  Returns 0, and changes nothing, if there is no memory. */
static int set_name(struct function *function, const char *text, size_t size)
{
    const char *colon = memrchr(text, ':', size);
    size_t front = colon == NULL ? size : (size_t)(colon + 1 - text);
    uint32_t kept = keep_text(text, front);

    if (names.file == 0 || names.file_size != size - front ||
        memcmp(names.text + names.file, text + front, size - front) != 0) {
        names.file_size = (uint32_t)(size - front);
        names.file = keep_text(text + front, size - front);
    }
    if (kept == 0 || names.file == 0)
        return 0;
    function->text = kept;
    function->text_size = (uint32_t)front;
    function->file = names.file;
    function->file_size = names.file_size;
    return 1;
}

/* Give a function another name, and note that the profile does not have this name yet. */
static void rename_function(size_t index, const char *text, size_t size)
{
    struct function *function = &names.functions[index];

    if (!is_named(function, text, size) && set_name(function, text, size) &&
        index / 8 < names.told_size)
        names.told[index / 8] &= (unsigned char)~(1u << index % 8);
}

/* Keep the name of a function.  Does nothing if there is no memory. */
static void keep(int64_t number, const char *text, size_t size)
{
    struct function *function;
    uint32_t *slot;

    if (size > MAX_TEXT || !have_slots() ||
        !table_has_room((void **)&names.functions, &names.functions_room,
                        names.functions_count, sizeof *names.functions,
                        MOST_FUNCTIONS))
        return;
    slot = find_slot(number);
    if (*slot != 0) {
        rename_function(*slot - 1, text, size);
        return;
    }
    function = &names.functions[names.functions_count];
    function->number = number;
    if (set_name(function, text, size))
        *slot = (uint32_t)++names.functions_count;
}

void code_names_keep(const char *records, size_t size)
{
    int64_t word[2];

    while (names.is_kept && size >= RECORD_HEAD && *records == MARKER_NAME) {
        memcpy(word, records + 1, sizeof word);
        if (word[1] < 0 || (size_t)word[1] > size - RECORD_HEAD)
            return;
        keep(word[0], records + RECORD_HEAD, (size_t)word[1]);
        records += RECORD_HEAD + (size_t)word[1];
        size -= RECORD_HEAD + (size_t)word[1];
    }
}

void code_names_keep_head(const void *records, size_t size)
{
    if (!names.is_kept || names.functions_count > names.from_before ||
        names.head_size + size > sizeof names.head)
        return;
    memcpy(names.head + names.head_size, records, size);
    names.head_size += size;
}

/* ____________________________________________________________ */
/* another profile */

/* Return whether the name of a function is kept after this profile, because vmprof will not
   write it again.  A native function's number is odd and contains its address, at which
   another function may be later; such a name is not kept. */
static int stays(const struct names *of, size_t index)
{
    return (index < of->from_before || index >= of->told_again) &&
           (of->functions[index].number & 1) == 0;
}

void code_names_end(void)
{
    static char name[2 * MAX_TEXT];
    struct names before = names;
    size_t i;

    memset(&names, 0, sizeof names);
    for (i = 0; i < before.functions_count; i++)
        if (stays(&before, i))
            keep(before.functions[i].number, name,
                 (size_t)(put_name(&before, &before.functions[i], name) - name));
    names.from_before = names.functions_count;
    table_give_back(before.functions, before.functions_room,
                    sizeof *before.functions);
    table_give_back(before.text, before.text_room, 1);
    table_give_back(before.slots, before.slots_count, sizeof *before.slots);
    table_give_back(before.told, before.told_size, 1);
}

void code_names_begin(void)
{
    if (names.is_kept)          /* code_names_end() was not called after the last profile */
        code_names_end();
    names.is_kept = 1;
    names.told_again = SIZE_MAX;
}

void code_names_enabled(void)
{
    names.told_again = names.functions_count;
}

/* Return the offset of the profile's start time in vmprof's first records, or 0 if they
   have an unknown layout. */
static size_t time_in_head(void)
{
    size_t at = FILE_HEAD;

    if (names.head_size > at + 5 && names.head[at] == MARKER_HEADER)
        at += 5 + (unsigned char)names.head[at + 4];
    if (names.head_size >= at + 1 + 2 * sizeof(int64_t) &&
        names.head[at] == MARKER_TIME)
        return at + 1;
    return 0;
}

void code_names_begin_next(void)
{
    table_give_back(names.told, names.told_size, 1);
    names.told = NULL;
    names.told_size = 0;
}

/* Write the present time to 'p' in vmprof's format, as seconds and microseconds. */
static void put_time(char *p)
{
    struct timespec now;
    int64_t time[2];

    clock_gettime(CLOCK_REALTIME, &now);
    time[0] = now.tv_sec;
    time[1] = now.tv_nsec / 1000;
    memcpy(p, time, sizeof time);
}

const void *code_names_head(size_t *size)
{
    size_t at = time_in_head();

    if (at != 0)
        put_time(names.head + at);
    *size = names.head_size;
    return names.head;
}

void code_names_trailer(char trailer[CODE_NAMES_TRAILER])
{
    memset(trailer, 0, CODE_NAMES_TRAILER);
    trailer[0] = MARKER_TRAILER;
    put_time(trailer + 1);
}

/* Return whether the profile has the name of a function.  Without memory, returns 1, so
   that the name is not written again and again. */
static int has_told(size_t index)
{
    size_t size = names.functions_room / 8 + 1;
    unsigned char *told;

    if (index / 8 >= names.told_size) {
        told = get_room(size);
        if (told == NULL)
            return 1;
        if (names.told_size > 0)
            memcpy(told, names.told, names.told_size);
        table_give_back(names.told, names.told_size, 1);
        names.told = told;
        names.told_size = size;
    }
    return names.told[index / 8] & (1u << index % 8);
}

const void *code_names_record(int64_t number, size_t *size)
{
    static char record[RECORD_HEAD + 2 * MAX_TEXT];
    uint32_t index = names.slots_count > 0 ? *find_slot(number) : 0;
    const struct function *function;
    int64_t word[2];
    char *p = record;

    if (index == 0 || has_told(index - 1))
        return NULL;
    index--;
    names.told[index / 8] |= (unsigned char)(1u << index % 8);
    function = &names.functions[index];
    word[0] = function->number;
    word[1] = (int64_t)function->text_size + function->file_size;
    *p = MARKER_NAME;
    memcpy(p + 1, word, sizeof word);
    *size = (size_t)(put_name(&names, function, p + RECORD_HEAD) - record);
    return record;
}
