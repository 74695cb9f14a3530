#define _GNU_SOURCE
#include "types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "machines/guarded_read.h"
#include "name.h"
#include "nursery.h"
#include "recorder.h"

/* GC type number in incminimark's header */
#define TYPE(header)    ((uint32_t)(header))
#define LARGEST         ((int64_t)1 << 46)

/* offsets in RPython's arrays and strings */
#define ARRAY_LENGTH    8
#define ARRAY_ITEMS     16
#define STRING_LENGTH   16
#define STRING_TEXT     24

#define ROLES           8       /* maximum number of types with the same role */
#define SLOTS           16384   /* slots in the index of types; a power of two */
#define CACHED          4096    /* maps whose class is cached; a power of two */
#define NAME_COMPARED   40      /* bytes of a name that are compared; longer names
                                   are read each time */
#define NAMES           65536   /* maximum number of classes with a name in a profile */
#define NAME_SLOTS      (2 * NAMES)
#define MAX_READ        16384   /* maximum bytes of a string that are read */
#define MAX_ENTRIES     256     /* maximum entries of a class dict that are searched
                                   for __module__ */

/* A GC type.  Offsets and sizes are in bytes. */
struct type {
    uint32_t id;
    int32_t map;                /* offset of the map in an object, or -1 */
    uint32_t number, run;       /* the type's number in the profile whose number is
                                   'run' */
    /* From the GC's type table: size and item size in bytes, and the offset of the length
       in an object.  The offset is -1 without a length. */
    int64_t fixed_size, item_size, to_length;
    uint32_t row;               /* row in the GC's list of types */
    int32_t kind;               /* enum type_name of the name, or 0 */
    const char *names;          /* "NAME\tGC'S NAME\n"; NAME is for Python programmers */
    enum types_whose whose;
};

/* The GC types that have the same role, for example all types of strings. */
struct role {
    int count;
    uint32_t id[ROLES];
};

/* The contents of the text of probe/names.py. */
static struct {
    struct type *types;
    int count;
    uint16_t slots[SLOTS];      /* index of a type plus 1, hashed by its ID */
    uint64_t old;               /* header flag of old objects; 0 if it is unknown */
    struct role classes, strings, texts, cells, codes;
    /* offsets in bytes; -1 if they are unknown */
    int64_t to_end, to_class, to_qualname, to_table, to_entries, to_string,
        to_value, to_function;
} known;

static struct hook_place place;

/* The number of the present profile, the last number of a type there, and the number of
   classes that have a name there.  In the hash table, an entry of another 'run' counts as
   empty. */
static uint32_t run = 1, last_number, named_classes;
static struct {
    uint64_t key;
    uint32_t number, run;
} class_numbers[NAME_SLOTS];

/* A cache of the classes to which maps lead.  Old objects keep their address until a major
 * collection begins to free, which starts a new 'generation'.  Young objects keep their
 * address until the next minor collection.  Only a major collection marks a string as old.
 * Until then, the name of the class is compared with the cached name.
 */
#define OLD             (-1)
static uint32_t generation = 1;
/* A map, and the class to which it leads. */
static struct cached {
    uintptr_t map, its_class, qualname;
    int64_t length;             /* bytes of the name; -1 if the name is old and need
                                   not be compared */
    char text[NAME_COMPARED];
    int64_t collection;         /* OLD if the map and the class are old; otherwise, the
                                   number of minor collections when the entry was
                                   made */
    uint32_t number, run, generation, type;
} cache[CACHED];

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

/* ____________________________________________________________ */
/* the text of probe/names.py */

/* Return the GC type with the number 'id', or NULL if the text does not contain it. */
static struct type *find(uint32_t id)
{
    uint32_t at = (uint32_t)mix(id) & (SLOTS - 1);

    while (known.slots[at] != 0) {
        struct type *type = &known.types[known.slots[at] - 1];
        if (type->id == id)
            return type;
        at = (at + 1) & (SLOTS - 1);
    }
    return NULL;
}

/* Return the owner of a GC type by its name. */
static enum types_whose whose(const char *gcs)
{
    static const struct {
        const char *begin;
        enum types_whose whose;
    } known_ones[] = {
        { "GcStruct rpython.jit.", TYPES_JITS },
        { "GcStruct pypy.", TYPES_PYTHONS },
        { "GcStruct JITFRAME ", TYPES_PYTHONS },        /* frame of compiled code */
        { "GcStruct rpython.rlib.rjitlog.rjitlog.LogTrace ", TYPES_LOGS },
        { "GcStruct rpython.rlib.rjitlog.", TYPES_JITS },
    };
    size_t i;

    for (i = 0; i < sizeof known_ones / sizeof *known_ones; i++)
        if (strncmp(gcs, known_ones[i].begin, strlen(known_ones[i].begin)) == 0)
            return known_ones[i].whose;
    return TYPES_ANYBODYS;
}

/* Read the sizes of a type from the GC's type table. */
static void read_sizes(struct type *type)
{
    const char *info = (const char *)place.type_info + type->id;
    int64_t bits;

    memcpy(&bits, info + place.type_info_bits, sizeof bits);
    memcpy(&type->fixed_size, info + place.type_fixed_size, sizeof type->fixed_size);
    type->to_length = -1;
    if ((bits & place.type_is_varsize) == 0)
        return;
    memcpy(&type->item_size, info + place.type_item_size, sizeof type->item_size);
    memcpy(&type->to_length, info + place.type_length, sizeof type->to_length);
}

/* Add the type that a line of the text describes: its number, its row, its kind, the
   offset of the map, and its names. */
static void add_type(const char *line)
{
    struct type *type = &known.types[known.count];
    uint32_t at;
    char *end;

    type->id = (uint32_t)strtoul(line, &end, 10);
    type->row = (uint32_t)strtoul(end, &end, 10);
    type->kind = (int32_t)strtol(end, &end, 10);
    type->map = (int32_t)strtol(end, &end, 10);
    if (*end != '\t' || find(type->id) != NULL)
        return;
    type->names = end + 1;
    type->whose = whose(strchr(type->names, '\t') + 1);
    read_sizes(type);
    known.count++;
    at = (uint32_t)mix(type->id) & (SLOTS - 1);
    while (known.slots[at] != 0)
        at = (at + 1) & (SLOTS - 1);
    known.slots[at] = (uint16_t)known.count;
}

static void add_role(struct role *role, const char *id)
{
    if (role->count < ROLES)
        role->id[role->count++] = (uint32_t)strtoul(id, NULL, 10);
}

static void read_line(const char *line)
{
    static const struct {
        const char *word;
        struct role *role;
        int64_t *offset;
    } words[] = {
        { "class ", &known.classes, NULL },
        { "string ", &known.strings, NULL },
        { "text ", &known.texts, NULL },
        { "cell ", &known.cells, NULL },
        { "code ", &known.codes, NULL },
        { "to-end ", NULL, &known.to_end },
        { "to-class ", NULL, &known.to_class },
        { "to-qualname ", NULL, &known.to_qualname },
        { "to-table ", NULL, &known.to_table },
        { "to-entries ", NULL, &known.to_entries },
        { "to-string ", NULL, &known.to_string },
        { "to-value ", NULL, &known.to_value },
        { "to-function ", NULL, &known.to_function },
    };
    size_t i;

    if (strncmp(line, "type ", 5) == 0) {
        add_type(line + 5);
        return;
    }
    if (strncmp(line, "old ", 4) == 0)
        known.old = strtoull(line + 4, NULL, 10);
    for (i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i].word);
        if (strncmp(line, words[i].word, length) != 0)
            continue;
        if (words[i].role != NULL)
            add_role(words[i].role, line + length);
        else
            *words[i].offset = strtoll(line + length, NULL, 10);
    }
}

void types_prepare(const struct hook_place *p, const char *text, size_t size)
{
    const char *line, *next;
    int lines = 0;

    free(known.types);
    memset(&known, 0, sizeof known);
    known.to_end = known.to_class = known.to_qualname = known.to_table = -1;
    known.to_entries = known.to_string = known.to_value = -1;
    known.to_function = -1;
    place = *p;
    if (text == NULL || size == 0 || text[size - 1] != '\n' ||
        place.type_is_varsize == 0)
        return;
    for (line = text; line < text + size; line = next) {
        next = (const char *)memchr(line, '\n',
                                    size - (size_t)(line - text)) + 1;
        lines += strncmp(line, "type ", 5) == 0;
    }
    if (lines == 0 || lines > SLOTS / 2)
        return;
    known.types = calloc((size_t)lines, sizeof *known.types);
    if (known.types == NULL)
        return;
    for (line = text; line < text + size; line = next) {
        next = (const char *)memchr(line, '\n',
                                    size - (size_t)(line - text)) + 1;
        read_line(line);
    }
}

int types_are_known(void)
{
    return known.count > 0;
}

void types_begin(void)
{
    run++;
    last_number = named_classes = 0;
}

void types_major_collection(void)
{
    generation++;
}

/* ____________________________________________________________ */
/* numbers and names */

/* Write a type with the GC's name under the next free number of the profile.  Returns the
   number. */
static uint32_t new_number(const struct type *type)
{
    const char *name = strchr(type->names, '\t') + 1;

    last_number++;
    recorder_type(last_number, TYPE_NAME_GCS, type->row, name,
                  strcspn(name, "\n"));
    return last_number;
}

/* Return the number of a GC type in the profile, for objects whose class is not named. */
static uint32_t type_number(struct type *type)
{
    if (type->run != run) {
        type->number = new_number(type);
        type->run = run;
        if (type->kind != 0)
            recorder_type(type->number, (enum type_name)type->kind, type->row,
                          type->names, strcspn(type->names, "\t"));
    }
    return type->number;
}

/* Return the number of a class in the profile, or 0 if there are too many classes.  'type'
   is the GC type of the instances, 'name' the name of the class, and 'key' its hash. */
static uint32_t class_number(const struct type *type, uint64_t key,
                             const char *name, size_t size)
{
    uint32_t at;

    key = mix(key ^ type->id);
    at = (uint32_t)(key >> 20) & (NAME_SLOTS - 1);
    while (class_numbers[at].run == run) {
        if (class_numbers[at].key == key)
            return class_numbers[at].number;
        at = (at + 1) & (NAME_SLOTS - 1);
    }
    if (named_classes == NAMES)
        return 0;
    named_classes++;
    class_numbers[at].key = key;
    class_numbers[at].number = new_number(type);
    class_numbers[at].run = run;
    recorder_type(last_number, TYPE_NAME_PYTHON, type->row, name, size);
    return last_number;
}

/* ____________________________________________________________ */
/* guarded reads */

/* Copy 'size' bytes at 'address' to 'to'.  Returns 1 if these bytes are readable,
   otherwise 0. */
static int read_at(uintptr_t address, void *to, size_t size)
{
    struct iovec local = { to, size }, remote = { (void *)address, size };

    return address % 8 == 0 && address >= 4096 &&
           guarded_read_places(&remote, &local, 1);
}

static uintptr_t pointer_at(uintptr_t address)
{
    uintptr_t pointer;

    return read_at(address, &pointer, sizeof pointer) ? pointer : 0;
}

/* Read an object's header and one of its fields in one call.  Returns the field.  The
   header and the field are 0 if there is no object. */
static uintptr_t field_at(uintptr_t object, int64_t offset, uint64_t *header)
{
    uintptr_t field;
    struct iovec local[2] = {
        { header, sizeof *header }, { &field, sizeof field },
    };
    struct iovec remote[2] = {
        { (void *)object, sizeof *header },
        { (void *)(object + (uintptr_t)offset), sizeof field },
    };

    if (object % 8 == 0 && object >= 4096 && guarded_read_places(remote, local, 2))
        return field;
    *header = 0;
    return 0;
}

static int is_a(uint64_t header, const struct role *role)
{
    int i;

    for (i = 0; i < role->count; i++)
        if (TYPE(header) == role->id[i])
            return 1;
    return 0;
}

static int is_old(uint64_t header)
{
    return known.old != 0 && (header & known.old) != 0;
}

/* Append the RPython string at 'string' to a name.  Returns the header of the string, which
   is not 0 even if the string is empty.  Returns 0 if there is no string. */
static uint64_t add_string(struct name *name, uintptr_t string)
{
    struct {
        uint64_t header, hash;
        int64_t length;
    } head;
    char part[256];
    int64_t at, size;

    if (!read_at(string, &head, sizeof head) ||
        !is_a(head.header, &known.strings) ||
        head.length < 0 || head.length > LARGEST)
        return 0;
    /* the rest of a longer string is ignored */
    for (at = 0; at < head.length && at < MAX_READ; at += size) {
        size = head.length - at < (int64_t)sizeof part ? head.length - at
                                                       : (int64_t)sizeof part;
        if (!read_at(string + STRING_TEXT + (uintptr_t)at, part, (size_t)size))
            return 0;
        name_add(name, part, (size_t)size);
    }
    return head.header;
}

/* ____________________________________________________________ */
/* classes */

/* Return whether 'key' is the string "__module__". */
static int is_module_key(uintptr_t key)
{
    static const char wanted[] = "__module__";
    struct {
        uint64_t header, hash;
        int64_t length;
        char text[16];
    } string;

    return read_at(key, &string, STRING_TEXT + sizeof wanted - 1) &&
           is_a(string.header, &known.strings) &&
           string.length == sizeof wanted - 1 &&
           memcmp(string.text, wanted, sizeof wanted - 1) == 0;
}

/* Return the value of __module__ in the dict of a class, or 0. */
static uintptr_t module_of(uintptr_t its_class)
{
    uintptr_t entry[2], entries, items;
    int64_t length, i;

    entries = pointer_at(its_class + (uintptr_t)known.to_table);
    if (entries != 0)
        entries = pointer_at(entries + (uintptr_t)known.to_entries);
    if (entries == 0 ||
        !read_at(entries + ARRAY_LENGTH, &length, sizeof length))
        return 0;
    items = entries + ARRAY_ITEMS;
    for (i = 0; i < length && i < MAX_ENTRIES; i++) {
        if (!read_at(items + (uintptr_t)i * sizeof entry, entry, sizeof entry))
            return 0;
        if (entry[0] != 0 && is_module_key(entry[0]))
            return entry[1];
    }
    return 0;
}

/* Begin a name with the module of a class and a dot.  Leaves the name empty if the module
   is unknown or "builtins". */
static void begin_with_module(struct name *name, uintptr_t its_class)
{
    static const char builtins[] = "builtins";
    uint64_t header;
    uintptr_t value = module_of(its_class);
    uintptr_t string = field_at(value, known.to_string, &header);

    name_clear(name);
    if (is_a(header, &known.cells)) {
        value = pointer_at(value + (uintptr_t)known.to_value);
        string = field_at(value, known.to_string, &header);
    }
    if (!is_a(header, &known.texts) || !add_string(name, string) ||
        name->size == 0 ||
        (name->size == sizeof builtins - 1 &&
         memcmp(name->text, builtins, sizeof builtins - 1) == 0))
        name_clear(name);
    else
        name_add(name, ".", 1);
}

/* Cache the name of a class, for the comparison in has_its_name().  'header' is the header
   of the name.  Returns 0 if the name is too long. */
static int remember_name(struct cached *cached, uint64_t header)
{
    struct {
        uint64_t header, hash;
        int64_t length;
    } head;

    cached->length = -1;
    if (is_old(header))
        return 1;
    if (!read_at(cached->qualname, &head, sizeof head) || head.length < 0 ||
        head.length > NAME_COMPARED ||
        (head.length > 0 && !read_at(cached->qualname + STRING_TEXT,
                                     cached->text, (size_t)head.length)))
        return 0;
    cached->length = head.length;
    return 1;
}

/* Find the class of an instance with this map, and cache it.  Returns the number of the
   class in the profile, or 0 if the class is unknown. */
static uint32_t follow(const struct type *type, uintptr_t map,
                       struct cached *cached)
{
    uint64_t of_map, of_end, of_class, of_name;
    uintptr_t end = field_at(map, known.to_end, &of_map);
    uintptr_t its_class = field_at(end, known.to_class, &of_end);
    uintptr_t qualname = field_at(its_class, known.to_qualname, &of_class);
    struct name name;
    uint32_t number;

    if (!is_a(of_class, &known.classes))
        return 0;
    begin_with_module(&name, its_class);
    of_name = add_string(&name, qualname);
    if (of_name == 0)
        return 0;
    name_finish(&name);
    number = class_number(type, name.key, name.text, name.size);
    if (number != 0) {
        cached->map = map;
        cached->its_class = its_class;
        cached->qualname = qualname;
        cached->number = number;
        cached->type = type->id;
        cached->run = run;
        cached->generation = generation;
        cached->collection = is_old(of_map) && is_old(of_class) &&
                             remember_name(cached, of_name)
                                 ? OLD : nursery.collections;
    }
    return number;
}

/* Return whether the class still has the cached name. */
static int has_its_name(const struct cached *cached)
{
    /* the class is alive, so the string is its valid name */
    const char *string = *(const char *const *)(
        cached->its_class + (uintptr_t)known.to_qualname);
    int64_t length;

    if ((uintptr_t)string != cached->qualname)
        return 0;
    if (cached->length < 0 || cached->collection != OLD)
        return 1;
    memcpy(&length, string + STRING_LENGTH, sizeof length);
    return length == cached->length &&
           memcmp(string + STRING_TEXT, cached->text, (size_t)length) == 0;
}

/* Return the number in the profile of the class of an instance, or 0 if the class is
   unknown. */
static uint32_t instance_number(const struct type *type, uintptr_t object)
{
    uintptr_t map = *(const uintptr_t *)(object + (uintptr_t)type->map);
    struct cached *cached = &cache[mix(map) & (CACHED - 1)];
    int saved_errno = errno;
    uint32_t number;

    if (cached->map == map && cached->type == type->id &&
        cached->run == run && cached->generation == generation &&
        (cached->collection == OLD ||
         cached->collection == nursery.collections) &&
        has_its_name(cached))
        return cached->number;
    number = follow(type, map, cached);
    errno = saved_errno;
    return number;
}

/* ____________________________________________________________ */
/* interface */

struct type *types_of(uintptr_t object)
{
    return find(TYPE(*(const uint64_t *)object));
}

int64_t types_number(struct type *type, uintptr_t object)
{
    uint32_t number = 0;

    if (type == NULL)
        return 0;
    if (type->map >= 0)
        number = instance_number(type, object);
    return number != 0 ? number : type_number(type);
}

int64_t types_function(uintptr_t object)
{
    uint64_t header;
    int64_t function;

    if (known.to_function < 0)
        return 0;
    function = (int64_t)field_at(object, known.to_function, &header);
    return is_a(header, &known.codes) ? function : 0;
}

enum types_whose types_whose(uint64_t header)
{
    const struct type *type = find(TYPE(header));

    return type == NULL ? TYPES_ANYBODYS : type->whose;
}

int64_t types_old_size(const struct type *type, uintptr_t object)
{
    int64_t size, length;

    if (type == NULL || (*(const uint64_t *)object & place.flag_visited) != 0)
        return 0;
    size = type->fixed_size;
    if (type->to_length >= 0) {
        memcpy(&length, (const char *)object + type->to_length, sizeof length);
        if (length < 0 || length > LARGEST)
            return 0;
        size += type->item_size * length;
    }
    return (size + 7) & ~(int64_t)7;
}

int types_may_shrink(const struct type *type)
{
    return type->to_length >= 0 && type->item_size <= 4;
}
