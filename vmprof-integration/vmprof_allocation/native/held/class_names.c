#include "class_names.h"

#include <string.h>

#include "heap_walk.h"

#define MOST_MAPS       100     /* maximum number of attributes that are searched */
#define NAME_AND_SIZE(name)     name, sizeof(name) - 1

uint64_t class_of(uint64_t instance, const struct gc_type *type)
{
    uint64_t map = gc_field(instance, type->map);
    uint64_t end = map != 0 ? gc_field(map, gc_fields.to_end) : 0;
    uint64_t its_class = end != 0 ? gc_field(end, gc_fields.to_class) : 0;

    return gc_role(its_class) == CLASS ? its_class : 0;
}

uint64_t class_in_mro(uint64_t its_class, uint64_t number)
{
    uint64_t mro = its_class != 0 && gc_fields.class_mro >= 0 ?
                   gc_field(its_class, gc_fields.class_mro) : 0, found = 0;
    const struct gc_type *type;

    if (gc_role(mro) != ARRAY)
        return number == 0 ? its_class : 0;
    type = gc_type_of(mro);
    if (number < gc_length(mro, type))
        found = gc_field(mro + 8 * number, type->info->items_at);
    return gc_role(found) == CLASS ? found : 0;
}

uint64_t class_look_up(uint64_t its_class, const char *name, size_t size)
{
    return walk_look_up(gc_field(its_class, gc_fields.to_table), name, size);
}

static int is_builtins(const char *s, size_t size)
{
    return size == 8 && memcmp(s, "builtins", 8) == 0;
}

void class_name(struct text *t, uint64_t its_class)
{
    struct text module = { { 0 }, 0, 0 };

    if (text_add_string(&module, class_look_up(its_class, NAME_AND_SIZE("__module__"))) &&
        !is_builtins(module.at, module.size)) {
        text_add(t, module.at, module.size);
        text_add_c(t, ".");
    }
    if (!text_add_string(t, gc_field(its_class, gc_fields.to_qualname)))
        text_add_c(t, "?");
}

int class_is(uint64_t its_class, const char *name)
{
    struct text t = { { 0 }, 0, 0 };

    if (its_class != 0)
        class_name(&t, its_class);
    return t.size == strlen(name) && memcmp(t.at, name, t.size) == 0;
}

uint64_t class_attribute(uint64_t instance, const char *name, size_t size)
{
    const struct gc_type *type = gc_type_of(instance);
    uint64_t map = type->map >= 0 ? gc_field(instance, type->map) : 0;
    int64_t i, maps;

    for (maps = 0; maps < MOST_MAPS; maps++, map = gc_field(map, gc_fields.plain_back)) {
        enum role role = gc_role(map);
        uint64_t its_name = role == ATTRIBUTE || role == UNBOXED_ATTRIBUTE ?
                            text_string(gc_field(map, gc_fields.plain_name)) : 0;
        if (its_name == 0)
            return 0;
        if (role == ATTRIBUTE && gc_field(map, gc_fields.plain_kind) == 0 &&
            text_equals(its_name, name, size))
            break;
    }
    for (i = 1; maps < MOST_MAPS && i <= type->info->pointers[0]; i++) {
        const char *edge = gc_edge(type, type->info->pointers[i]);
        /* "=4" may be an array of more attributes */
        if (edge != NULL && edge[0] == '=' && edge[1] < '4' &&
            (uint64_t)(edge[1] - '0') == gc_field(map, gc_fields.plain_index))
            return gc_field(instance, type->info->pointers[i]);
    }
    return 0;
}

int class_expression(struct text *t, uint64_t its_class)
{
    uint64_t module = text_string(class_look_up(its_class, NAME_AND_SIZE("__module__")));
    uint64_t qualname = text_string(gc_field(its_class, gc_fields.to_qualname)), table;
    const char *s, *in = "builtins";        /* module whose name is omitted */
    size_t module_size = 8, size, part;

    if (qualname == 0)
        return 0;
    if (module != 0)
        in = text_characters(module, &module_size);
    s = text_characters(qualname, &size);
    table = walk_module_table(in, module_size);
    if (!is_builtins(in, module_size)) {
        text_add_characters(t, in, module_size);
        text_add_c(t, ".");
    }
    text_add_characters(t, s, size);
    for (;; s += part + 1, size -= part + 1) {
        const char *dot = memchr(s, '.', size);
        uint64_t found;
        part = dot != NULL ? (size_t)(dot - s) : size;
        found = text_is_name(s, part) ? walk_look_up(table, s, part) : 0;
        if (dot == NULL)
            return found == its_class;
        if (gc_role(found) != CLASS)
            return 0;
        table = gc_field(found, gc_fields.to_table);
    }
}
