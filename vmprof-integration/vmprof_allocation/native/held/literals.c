#include "literals.h"

#include "class_names.h"
#include "gc_types.h"
#include "heap_walk.h"

#define MOST_ITEMS      8       /* maximum number of items of a tuple */
#define MOST_DEPTH      2       /* maximum number of nested tuples */

static int add(struct text *t, uint64_t object, int depth);

/* Append "Class.NAME" for an object that is an attribute of its class, such as a member of
   an enum.  Returns 0 if the object is no such attribute. */
static int add_member(struct text *t, uint64_t object)
{
    const struct gc_type *type = gc_type_of(object);
    uint64_t its_class = type->map >= 0 ? class_of(object, type) : 0;
    struct entries entries;

    if (its_class == 0 || !class_expression(t, its_class) ||
        !walk_entries(gc_field(its_class, gc_fields.to_table), &entries))
        return 0;
    while (walk_next(&entries))
        if (walk_unwrapped(entries.value) == object) {
            text_add_c(t, ".");
            return text_add_name(t, entries.key);
        }
    return 0;
}

/* Return the array of a tuple's items, or 0 if the tuple does not have one. */
static uint64_t items_of(uint64_t tuple)
{
    uint64_t items = gc_role(tuple) == TUPLE && gc_fields.tuple_items >= 0 ?
                     gc_field(tuple, gc_fields.tuple_items) : 0;

    return gc_role(items) == ARRAY ? items : 0;
}

uint64_t tuple_item(uint64_t tuple, uint64_t number)
{
    uint64_t items = items_of(tuple);
    const struct gc_type *type;

    if (gc_role(tuple) == PAIR) {       /* PyPy has a special class for tuples of two
                                           objects */
        int64_t at = number == 0 ? gc_fields.pair_first :
                     number == 1 ? gc_fields.pair_second : -1;
        return at >= 0 ? gc_field(tuple, at) : 0;
    }
    if (items == 0)
        return 0;
    type = gc_type_of(items);
    return number < gc_length(items, type) ?
           gc_field(items + 8 * number, type->info->items_at) : 0;
}

static int add_tuple(struct text *t, uint64_t tuple, int depth)
{
    uint64_t items = items_of(tuple), count = 2, i;

    if (gc_role(tuple) == TUPLE)
        count = items != 0 ? gc_length(items, gc_type_of(items)) : MOST_ITEMS + 1;
    if (count > MOST_ITEMS)
        return 0;
    text_add_c(t, "(");
    for (i = 0; i < count; i++) {
        if (i > 0)
            text_add_c(t, ", ");
        if (!add(t, tuple_item(tuple, i), depth + 1))
            return 0;
    }
    text_add_c(t, count == 1 ? ",)" : ")");
    return 1;
}

/* Append a tuple of two ints, which PyPy stores as plain numbers. */
static int add_numbers(struct text *t, uint64_t tuple)
{
    int i;

    if (gc_fields.numbers_first < 0 || gc_fields.numbers_second < 0)
        return 0;
    for (i = 0; i < 2; i++) {
        text_add_c(t, i == 0 ? "(" : ", ");
        text_add_number(t, (int64_t)gc_field(tuple, i == 0 ? gc_fields.numbers_first :
                                                    gc_fields.numbers_second));
    }
    return text_add_c(t, ")"), 1;
}

static int add(struct text *t, uint64_t object, int depth)
{
    switch (gc_role(object)) {
    case TEXT:
        return text_add_literal(t, text_string(object), 0);
    case BYTES:
        return text_add_literal(t, gc_field(object, gc_fields.bytes_value), 1);
    case NONE:
        return text_add_c(t, "None"), 1;
    case BOOL:
        return text_add_c(t, gc_field(object, gc_fields.int_value) ? "True" : "False"), 1;
    case INT:
        return text_add_number(t, (int64_t)gc_field(object, gc_fields.int_value)), 1;
    case CLASS:
        return class_expression(t, object);
    case NUMBERS:
        return depth < MOST_DEPTH && add_numbers(t, object);
    case TUPLE:
    case PAIR:
        /* an instance of a subclass of tuple differs from an equal tuple */
        if (gc_type_of(object)->map < 0)
            return depth < MOST_DEPTH && add_tuple(t, object, depth);
        return add_member(t, object);
    default:
        return object != 0 && add_member(t, object);
    }
}

int literal_add(struct text *t, uint64_t object)
{
    return add(t, object, 0);
}
