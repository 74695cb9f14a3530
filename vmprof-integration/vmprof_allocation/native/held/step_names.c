#include "step_names.h"

#include <string.h>

#include "class_names.h"
#include "heap_walk.h"
#include "literals.h"

#define MOST_MAPS       5000    /* maximum number of an object's attributes that are
                                   searched */
#define MOST_BLOCKS     10000   /* maximum number of blocks that are searched for an item
                                   of a deque */

/* ____________________________________________________________ */
/* types */

void name_type(struct text *t, uint64_t object)
{
    const struct gc_type *type = gc_type_of(object);
    uint64_t its_class = type->map >= 0 ? class_of(object, type) : 0;

    if (its_class != 0)
        class_name(t, its_class);
    else
        text_add(t, type->name, strcspn(type->name, "\t"));
}

/* Append the name of a file without its folders. */
static void put_file(struct text *t, uint64_t string)
{
    size_t size, i;
    const char *s;

    if (string == 0)
        return;
    s = text_characters(string, &size);
    for (i = size; i > 0 && s[i - 1] != '/' && size - i < TEXT_MOST_NAME; i--)
        ;
    text_add_characters(t, s + i, size - i);
}

void name_frame(struct text *t, uint64_t frame)
{
    uint64_t code = gc_field(frame, gc_fields.frame_code);

    text_add_c(t, "in ");
    if (gc_role(code) != CODE || !text_add_string(t, gc_field(code, gc_fields.code_name)))
        text_add_c(t, "?");
    text_add_c(t, "()");
    if (gc_role(code) != CODE)
        return;
    text_add_c(t, " ");
    put_file(t, text_string(gc_field(code, gc_fields.code_filename)));
    text_add_c(t, ":");
    text_add_number(t, (int64_t)gc_field(code, gc_fields.code_firstlineno));
}

/* ____________________________________________________________ */
/* labels */

/* Append the name of an item of __slots__ by its number, which counts the slots of all
   bases.  Returns 0 if this class itself does not define the slot. */
static int put_slot_of(struct text *t, uint64_t its_class, uint64_t number)
{
    struct entries entries;

    if (!walk_entries(gc_field(its_class, gc_fields.to_table), &entries))
        return 0;
    while (walk_next(&entries)) {
        uint64_t member = walk_unwrapped(entries.value);
        if (gc_role(member) == MEMBER &&
            gc_field(member, gc_fields.member_index) == number)
            return text_add_name(t, entries.key);
    }
    return 0;
}

/* Append the name of a slot that a class or one of its bases defines.  Returns 0 if none
   does. */
static int put_slot(struct text *t, uint64_t its_class, uint64_t number)
{
    uint64_t i, one;

    for (i = 0; (one = class_in_mro(its_class, i)) != 0; i++)
        if (put_slot_of(t, one, number))
            return 1;
    return 0;
}

/* Append the name of the attribute that 'map' puts at the storage index 'index', for a
   step from way->owner.  Returns 0 if the attribute has no name; the text may then have an
   incomplete one. */
static int put_attribute(struct text *t, const struct way *way, uint64_t map, uint64_t index)
{
    uint64_t kind;
    int maps;

    for (maps = 0; maps < MOST_MAPS; maps++) {
        enum role role = gc_role(map);
        if (role != ATTRIBUTE && role != UNBOXED_ATTRIBUTE)
            return 0;
        if (role == ATTRIBUTE && gc_field(map, gc_fields.plain_index) == index)
            break;
        map = gc_field(map, gc_fields.plain_back);
    }
    if (maps == MOST_MAPS)
        return 0;
    kind = gc_field(map, gc_fields.plain_kind);
    if (way->type->role == DICT) {      /* a __dict__ that shares the map of its instance */
        uint64_t name = text_string(gc_field(map, gc_fields.plain_name));
        text_add_c(t, "[");
        if (kind != 0 || name == 0 || !text_add_literal(t, name, 0))
            return 0;
        text_add_c(t, "]");
        return 1;
    }
    text_add_c(t, ".");
    if (kind == 0)
        return text_add_name(t, gc_field(map, gc_fields.plain_name));
    if (kind < 3) {
        text_add_c(t, "__");
        if (!text_add_name(t, gc_field(map, gc_fields.plain_name)))
            return 0;
        text_add_c(t, "__");
        return 1;
    }
    /* a slot: a class has a member descriptor for it */
    return way->type->map >= 0 &&
           put_slot(t, class_of(way->owner, way->type), kind - 3);
}

/* Append the name of the owner's reference to way->first.  'index' is the index of the
   object in the array between the owner and the object, or -1 if there is no array.
   Returns 0 if the reference has no name. */
static int put_edge(struct text *t, const struct way *way, int64_t index)
{
    const struct type_info *info = way->type->info;
    const char *name = NULL;
    int64_t i;

    for (i = 1; i <= info->pointers[0] && name == NULL; i++)
        if (gc_field(way->owner, info->pointers[i]) == way->first)
            name = gc_edge(way->type, info->pointers[i]);
    if (name == NULL)
        return 0;
    if (*name == '=')           /* the storage index of an attribute, or of the first one
                                   in an array */
        return put_attribute(t, way,
                             way->type->map < 0 ? 0 : gc_field(way->owner, way->type->map),
                             (uint64_t)(name[1] - '0') + (index > 0 ? (uint64_t)index : 0));
    text_add(t, name, strcspn(name, "\n"));
    if (index >= 0 && name[strcspn(name, "\n") - 1] != ']' && *name != '[')
        text_add_index(t, (uint64_t)index);
    return 1;
}

/* Append "[key]".  'key' is a plain number unless 'are_references'; 'is_plain' makes an
   RPython string a bytes literal.  Returns 0 if the key has no literal, or the text was
   cut. */
static int put_literal(struct text *t, uint64_t key, int are_references, int is_plain)
{
    int is_literal = 1;

    text_add_c(t, "[");
    if (!are_references)
        text_add_number(t, (int64_t)key);
    else if (gc_role(key) == STRING)
        is_literal = text_add_literal(t, key, is_plain);
    else
        is_literal = literal_add(t, key);
    text_add_c(t, "]");
    return is_literal && !t->is_cut;
}

/* Append the step to 'value', which is in the array of a dict's entries: its key as an
   attribute or an index, or words after an arrow if the key has no literal. */
static int put_key(struct text *t, const struct way *way, uint64_t array, uint64_t value)
{
    struct entries entries;
    size_t before = t->size;

    walk_entries_of(array, &entries);
    if (!entries.has_values)
        return text_add_c(t, " -> an item"), 1;
    do
        if (!walk_next(&entries))
            return text_add_c(t, " -> a key"), 1;
    while (entries.value != value);
    if (way->type->role == THREAD_LOCAL)
        return text_add_c(t, " -> of a thread"), 1;
    if (entries.has_keys && text_string(entries.key) != 0 &&
        (way->is_module || way->type->role == CLASS)) {
        text_add_c(t, ".");
        return text_add_name(t, entries.key);
    }
    if (!put_literal(t, entries.key, entries.has_keys, way->type->role == DICT)) {
        t->size = before;
        t->is_cut = 0;
        text_add_c(t, " -> an item");
    }
    return 1;
}

/* Append the step from a frame to the value at 'index': the name of a local variable.  The
   values after the local variables are on the stack of the frame. */
static int put_local(struct text *t, uint64_t frame, uint64_t index)
{
    uint64_t code = gc_field(frame, gc_fields.frame_code);
    uint64_t names = gc_role(code) == CODE ? gc_field(code, gc_fields.code_varnames) : 0;
    const struct gc_type *type = names != 0 ? gc_type_of(names) : NULL;

    if (type != NULL && type->info->bits & INFO_HAS_LENGTH &&
        index < gc_length(names, type)) {
        text_add_c(t, " -> local ");
        text_add_string(t, gc_field(names + 8 * index, type->info->items_at));
    } else
        text_add_c(t, " -> value on the stack");
    return 1;
}

/* Append "[index]" for item 'number' of a block of a deque; each block has 'length'
   items.  Returns 0 if the offset of a field is unknown, or if the block was not found
   among the first MOST_BLOCKS blocks of the deque. */
static int put_item_of_deque(struct text *t, uint64_t deque, uint64_t block, uint64_t number,
                             uint64_t length)
{
    uint64_t at;
    int blocks = 0;

    if (gc_fields.deque_first < 0 || gc_fields.deque_first_index < 0 ||
        gc_fields.block_next < 0)
        return 0;
    for (at = gc_field(deque, gc_fields.deque_first); at != block; blocks++) {
        if (gc_role(at) != DEQUE_BLOCK || blocks == MOST_BLOCKS)
            return 0;
        at = gc_field(at, gc_fields.block_next);
    }
    text_add_index(t, (uint64_t)blocks * length + number -
                     gc_field(deque, gc_fields.deque_first_index));
    return 1;
}

/* Append the name of the field for item 'number' of a named tuple.  The first class in the
   method resolution order that has _fields must define a descriptor of this name, and no
   class before it may.  Returns 0 otherwise. */
static int put_named_item(struct text *t, uint64_t its_class, uint64_t number)
{
    uint64_t i, one, names = 0, name;
    const char *s;
    size_t size;

    for (i = 0; (one = class_in_mro(its_class, i)) != 0; i++)
        if ((names = class_look_up(one, "_fields", 7)) != 0)
            break;
    name = one != 0 ? text_string(tuple_item(names, number)) : 0;
    if (name == 0)
        return 0;
    s = text_characters(name, &size);
    if (class_look_up(one, s, size) == 0)
        return 0;
    while (i-- > 0)
        if (class_look_up(class_in_mro(its_class, i), s, size) != 0)
            return 0;
    text_add_c(t, ".");
    return text_add_name(t, name);
}

/* Append the field name or the index of item 'number' of the tuple way->owner.  Returns 0
   if 'array' is not the array of the tuple's items. */
static int put_item_of_tuple(struct text *t, const struct way *way, uint64_t array,
                             uint64_t number)
{
    uint64_t its_class = way->type->map >= 0 ? class_of(way->owner, way->type) : 0;
    size_t before = t->size;

    if (its_class == 0)
        return text_add_index(t, number), way->type->map < 0;
    if (gc_fields.tuple_items < 0 || gc_field(way->owner, gc_fields.tuple_items) != array)
        return 0;
    if (put_named_item(t, its_class, number))
        return 1;
    t->size = before;
    return text_add_index(t, number), 1;
}

/* Append the step to the value of a context variable.  A node of a context has a list, the
   owner, in which each variable is followed by its value.  Returns 0 if the owner is no
   such list. */
static int put_context_variable(struct text *t, const struct way *way, uint64_t variable)
{
    const struct gc_type *type = way->before != 0 ? gc_type_of(way->before) : NULL;

    if (type == NULL || type->map < 0 || variable == 0 || gc_type_of(variable)->map < 0 ||
        !class_is(class_of(way->before, type), "_immutables_map.BitmapNode") ||
        !class_is(class_of(variable, gc_type_of(variable)), "_contextvars.ContextVar"))
        return 0;
    text_add_c(t, " -> context variable ");
    return text_add_string(t, class_attribute(variable, "_name", 5));
}

/* Append the step to 'object', an item of an array.  'above' is the referrer of the array.
   Returns 0 if the step has no name. */
static int put_item(struct text *t, const struct way *way, uint64_t array, uint64_t above,
                    uint64_t object)
{
    const struct gc_type *type = gc_type_of(array);
    uint64_t length = gc_length(array, type), i;
    size_t before = t->size;

    for (i = 0; i < length; i++)
        if (gc_field(array + 8 * i, type->info->items_at) == object)
            break;
    if (i == length)
        return 0;
    if (way->type->role == FRAME)
        return put_local(t, way->owner, i);
    if (gc_role(above) == DEQUE_BLOCK && way->type->role == DEQUE &&
        put_item_of_deque(t, way->owner, above, i, length))
        return 1;
    if (gc_role(above) == ATTRIBUTES && gc_fields.attributes_map >= 0 &&
        /* a __dict__ that shares the map of its instance */
        put_attribute(t, way, gc_field(above, gc_fields.attributes_map), i))
        return 1;
    t->size = before;
    if (above != way->owner && gc_role(above) != LIST_ITEMS)
        return text_add_c(t, " -> an item"), 1;
    if (way->type->role == LIST && gc_role(above) == LIST_ITEMS &&
        gc_field(way->owner, gc_fields.list_storage) == above) {
        if (i % 2 == 1 && put_context_variable(
                t, way, gc_field(array + 8 * (i - 1), type->info->items_at)))
            return 1;
        t->size = before;
        return text_add_index(t, i), 1;
    }
    if (way->type->role == TUPLE && put_item_of_tuple(t, way, array, i))
        return 1;
    t->size = before;
    return put_edge(t, way, (int64_t)i);
}

/* Append the step to the object before way->object, and then 'on' for the rest of the way.
   Returns 0 if this step has no name. */
static int put_way_to_part(struct text *t, const struct way *way, const char *on)
{
    struct way to_part = *way;

    if (way->inside[0] == 0)    /* more than WAY_INSIDE objects are between */
        return 0;
    to_part.object = way->inside[0];
    memmove(to_part.inside, way->inside + 1, sizeof way->inside - sizeof *way->inside);
    to_part.inside[WAY_INSIDE - 1] = 0;
    if (!name_step(t, &to_part))
        return 0;
    text_add_c(t, on);
    return 1;
}

int name_step(struct text *t, const struct way *way)
{
    uint64_t object = way->object;
    const uint64_t *inside = way->inside;

    if (*inside == way->owner)
        return put_edge(t, way, -1);
    if (gc_role(*inside) == CELL) {
        uint64_t family = gc_field(*inside, gc_fields.cell_family);
        if (way->type->role != FUNCTION && way->type->role != FRAME)
            return put_way_to_part(t, way, ".cell_contents");
        text_add_c(t, " -> variable ");
        return gc_role(family) == CELL_FAMILY &&
               text_add_string(t, gc_field(family, gc_fields.family_name));
    }
    if (gc_role(*inside) == DICT_CELL)
        object = *inside++;
    switch (gc_role(*inside)) {
    case ENTRIES:
        return put_key(t, way, *inside, object);
    case ARRAY:
        return put_item(t, way, *inside, inside[1], object);
    case OTHER:                 /* this may be a Python object whose type the probe did
                                   not find, such as an object of cffi */
        return put_way_to_part(t, way, " -> a part");
    default:
        return put_edge(t, way, -1);
    }
}
