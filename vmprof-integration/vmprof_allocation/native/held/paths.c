#include "paths.h"

#include <string.h>

#include "gc_types.h"
#include "heap_walk.h"

/* An object is looked at if so much of all was reached through it, ... */
#define LEAST_SHARE     4096
#define LEAST_WORDS     128
/* ... its path has so many steps, ... */
#define MOST_STEPS      16
/* ... and there are so many like it. */
#define MOST_NAMED      65536
/* Of what is within what, the innermost counts that has so much of it, in tenths. */
#define NEARLY_ALL      9
#define MOST_NAME       120     /* bytes of a name; what is longer is cut, or no path */
#define MOST_ALIASES    3
#define MOST_MAPS       5000    /* attributes of an object */
#define MOST_BLOCKS     10000   /* of a deque, in front of an item that has a number */
#define NOBODY          UINT32_MAX

/* An object that has a name: its own part of the path, and whose part comes before */
struct named {
    uint32_t at;                /* among what was met */
    uint32_t owner;             /* among the named; or NOBODY */
    uint32_t steps;
    uint32_t label, type;       /* texts */
    uint32_t told;              /* its number in the result; 0: it is not there */
    uint8_t is_place;           /* a module, or a thread: no holder */
    uint8_t is_within;          /* something in it has nearly all */
};
static struct room named, texts;

static struct named *named_number(uint32_t number)
{
    return &((struct named *)named.at)[number];
}

/* ____________________________________________________________ */
/* text */

struct text {
    char at[HELD_MOST_TEXT];
    size_t size;
    int is_cut;
};

static void put(struct text *t, const char *s, size_t size)
{
    if (size > sizeof t->at - 1 - t->size) {
        size = sizeof t->at - 1 - t->size;
        t->is_cut = 1;
    }
    memcpy(t->at + t->size, s, size);
    t->size += size;
}

static void put_text(struct text *t, const char *s)
{
    put(t, s, strlen(s));
}

static void put_number(struct text *t, int64_t value)
{
    char digits[24];
    size_t i = sizeof digits;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;

    do
        digits[--i] = (char)('0' + left % 10);
    while ((left /= 10) != 0);
    if (value < 0)
        digits[--i] = '-';
    put(t, digits + i, sizeof digits - i);
}

/* The string of an object of Python's or RPython's, or 0 */
static uint64_t string_of(uint64_t object)
{
    if (gc_role(object) == TEXT)
        object = gc_field(object, gc_fields.to_string);
    return gc_role(object) == STRING ? object : 0;
}

static const char *characters(uint64_t string, size_t *size)
{
    const struct gc_type *type = gc_type_of(string);

    *size = (size_t)gc_length(string, type);
    return (const char *)(string + (uint64_t)type->info->items_at);
}

/* Returns 0 if it is none, or was cut: between two characters. */
static int put_string(struct text *t, uint64_t object)
{
    uint64_t string = string_of(object);
    const char *s;
    size_t size, most = MOST_NAME;

    if (string == 0)
        return 0;
    s = characters(string, &size);
    if (size <= MOST_NAME) {
        put(t, s, size);
        return 1;
    }
    while (most > 0 && (s[most] & 0xc0) == 0x80)
        most--;
    put(t, s, most);
    put_text(t, "...");
    return 0;
}

/* As a name in an expression; returns 0 if it is none. */
static int put_name(struct text *t, uint64_t object)
{
    uint64_t string = string_of(object);
    const char *s;
    size_t size, i;

    if (string == 0)
        return 0;
    s = characters(string, &size);
    if (size == 0 || size > MOST_NAME)
        return 0;
    for (i = 0; i < size; i++)
        if (!((unsigned char)s[i] >= 0x80 || s[i] == '_' || (s[i] >= '0' && s[i] <= '9' && i) ||
              ((s[i] | 0x20) >= 'a' && (s[i] | 0x20) <= 'z')))
            return 0;
    put(t, s, size);
    return 1;
}

/* As a literal of Python's: returns 0 if it is too long for that. */
static int put_literal(struct text *t, uint64_t string, int are_bytes)
{
    static const char hex[] = "0123456789abcdef";
    size_t size, i;
    const char *s = characters(string, &size);

    if (size > MOST_NAME)
        return 0;
    put_text(t, are_bytes ? "b\"" : "\"");
    for (i = 0; i < size; i++) {
        unsigned char c = (unsigned char)s[i];
        char escaped[4] = { '\\', 'x', hex[c >> 4], hex[c & 15] };
        if (c < 0x20 || c == 0x7f || (c >= 0x80 && are_bytes))
            put(t, escaped, 4);
        else {
            if (c == '"' || c == '\\')
                put_text(t, "\\");
            put(t, s + i, 1);
        }
    }
    put_text(t, "\"");
    return 1;
}

static void put_index(struct text *t, uint64_t index)
{
    put_text(t, "[");
    put_number(t, (int64_t)index);
    put_text(t, "]");
}

static uint32_t keep(const struct text *t)
{
    uint32_t at = (uint32_t)texts.count;
    size_t i;

    for (i = 0; i < t->size; i++)
        *(char *)room_add(&texts) = t->at[i];
    *(char *)room_add(&texts) = 0;
    return at;
}

/* ____________________________________________________________ */
/* types */

static uint64_t class_of(uint64_t instance, const struct gc_type *type)
{
    uint64_t map = gc_field(instance, type->map);
    uint64_t end = map != 0 ? gc_field(map, gc_fields.to_end) : 0;
    uint64_t its_class = end != 0 ? gc_field(end, gc_fields.to_class) : 0;

    return gc_role(its_class) == CLASS ? its_class : 0;
}

/* What a class has in its dict by this name, or 0 */
static uint64_t of_class(uint64_t its_class, const char *name)
{
    struct entries entries;
    uint64_t i, key;
    const char *s;
    size_t size;

    if (!walk_entries(gc_field(its_class, gc_fields.to_table), &entries))
        return 0;
    for (i = 0; i < entries.count; i++) {
        key = string_of(word_at(entries.items + i * entries.item_size));
        if (key == 0)
            continue;
        s = characters(key, &size);
        if (size == strlen(name) && memcmp(s, name, size) == 0)
            return walk_unwrapped(word_at(entries.items + i * entries.item_size + 8));
    }
    return 0;
}

static void put_class(struct text *t, uint64_t its_class)
{
    struct text module = { { 0 }, 0, 0 };

    if (put_string(&module, of_class(its_class, "__module__")) &&
        !(module.size == 8 && memcmp(module.at, "builtins", 8) == 0)) {
        put(t, module.at, module.size);
        put_text(t, ".");
    }
    if (!put_string(t, gc_field(its_class, gc_fields.to_qualname)))
        put_text(t, "?");
}

static uint32_t type_text(uint64_t object, const struct gc_type *type)
{
    struct text t = { { 0 }, 0, 0 };
    uint64_t its_class = type->map >= 0 ? class_of(object, type) : 0;

    if (its_class != 0)
        put_class(&t, its_class);
    else
        put(&t, type->name, strcspn(type->name, "\t"));
    return keep(&t);
}

/* Without its folders */
static void put_file(struct text *t, uint64_t string)
{
    size_t size, i;
    const char *s;

    if (string == 0)
        return;
    s = characters(string, &size);
    for (i = size; i > 0 && s[i - 1] != '/' && size - i < MOST_NAME; i--)
        ;
    put(t, s + i, size - i);
}

/* "in FUNCTION() FILE:LINE", of a frame */
static void put_frame(struct text *t, uint64_t frame)
{
    uint64_t code = gc_field(frame, gc_fields.frame_code);

    put_text(t, "in ");
    if (gc_role(code) != CODE || !put_string(t, gc_field(code, gc_fields.code_name)))
        put_text(t, "?");
    put_text(t, "()");
    if (gc_role(code) != CODE)
        return;
    put_text(t, " ");
    put_file(t, string_of(gc_field(code, gc_fields.code_filename)));
    put_text(t, ":");
    put_number(t, (int64_t)gc_field(code, gc_fields.code_firstlineno));
}

/* ____________________________________________________________ */
/* labels */

/* From an object with a name to the next one: what is between has none. */
struct way {
    uint64_t owner, object;
    const struct gc_type *type; /* of the owner */
    int is_module;              /* the owner is a module's dict */
    uint64_t first;             /* what the owner refers to */
    uint64_t inside[3];         /* what refers to the object, what to that, ...; then the
                                   owner, and 0 */
};

/* The attribute that is kept there, of what has this map; returns 0 if it has no name. */
static int put_attribute(struct text *t, const struct way *way, uint64_t map, uint64_t index)
{
    uint64_t kind, its_class, i;
    struct entries entries;
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
    put_text(t, ".");
    if (kind == 0)
        return put_name(t, gc_field(map, gc_fields.plain_name));
    if (kind < 3) {
        put_text(t, "__");
        i = (uint64_t)put_name(t, gc_field(map, gc_fields.plain_name));
        put_text(t, "__");
        return (int)i;
    }
    /* a slot: its class has a member for it */
    its_class = way->type->map >= 0 ? class_of(way->owner, way->type) : 0;
    if (its_class != 0 && walk_entries(gc_field(its_class, gc_fields.to_table), &entries))
        for (i = 0; i < entries.count; i++) {
            uint64_t entry = entries.items + i * entries.item_size;
            uint64_t member = walk_unwrapped(word_at(entry + 8));
            if (gc_role(member) == MEMBER &&
                gc_field(member, gc_fields.member_index) == kind - 3)
                return put_name(t, word_at(entry));
        }
    return 0;
}

/* The reference from the owner; 'index' in what is between, or -1.  Returns 0 if it has no
   name. */
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
    if (*name == '=')           /* an attribute, or the first of several */
        return put_attribute(t, way,
                             way->type->map < 0 ? 0 : gc_field(way->owner, way->type->map),
                             (uint64_t)(name[1] - '0') + (index > 0 ? (uint64_t)index : 0));
    put(t, name, strcspn(name, "\n"));
    if (index >= 0 && name[strcspn(name, "\n") - 1] != ']' && *name != '[')
        put_index(t, (uint64_t)index);
    return 1;
}

static int put_key(struct text *t, const struct way *way, uint64_t array, uint64_t value)
{
    struct entries entries;
    uint64_t i, key = 0, string;

    walk_entries_of(array, &entries);
    if (!entries.has_values)
        return put_text(t, " -> an item"), 1;
    for (i = 0; i < entries.count; i++)
        if (word_at(entries.items + i * entries.item_size + 8) == value)
            break;
    if (i == entries.count)
        return put_text(t, " -> a key"), 1;
    if (way->type->role == THREAD_LOCAL)
        return put_text(t, " -> of a thread"), 1;
    key = word_at(entries.items + i * entries.item_size);
    string = entries.has_keys ? string_of(key) : 0;
    if (string != 0 && (way->is_module || way->type->role == CLASS)) {
        put_text(t, ".");
        return put_name(t, key);
    }
    put_text(t, "[");
    if (!entries.has_keys)
        put_number(t, (int64_t)key);
    else if (string != 0) {
        if (!put_literal(t, string, key == string && way->type->role == DICT))
            return 0;
    } else if (gc_role(key) == NONE)
        put_text(t, "None");
    else if (gc_role(key) == INT)
        put_number(t, (int64_t)gc_field(key, gc_fields.int_value));
    else if (gc_role(key) != BYTES ||
             !put_literal(t, gc_field(key, gc_fields.bytes_value), 1))
        return 0;
    put_text(t, "]");
    return 1;
}

static int put_local(struct text *t, uint64_t frame, uint64_t index)
{
    uint64_t code = gc_field(frame, gc_fields.frame_code);
    uint64_t names = gc_role(code) == CODE ? gc_field(code, gc_fields.code_varnames) : 0;
    const struct gc_type *type = names != 0 ? gc_type_of(names) : NULL;

    if (type != NULL && type->info->bits & INFO_HAS_LENGTH &&
        index < gc_length(names, type)) {
        put_text(t, " -> local ");
        put_string(t, gc_field(names + 8 * index, type->info->items_at));
    } else
        put_text(t, " -> value on the stack");
    return 1;
}

/* The item of a deque with this number in a block of so many: returns 0 if that is not
   known. */
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
    put_index(t, (uint64_t)blocks * length + number -
                     gc_field(deque, gc_fields.deque_first_index));
    return 1;
}

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
        /* of a dict that is kept as attributes are */
        put_attribute(t, way, gc_field(above, gc_fields.attributes_map), i))
        return 1;
    t->size = before;
    if (above != way->owner && gc_role(above) != LIST_ITEMS)
        return put_text(t, " -> an item"), 1;
    if ((way->type->role == LIST && gc_role(above) == LIST_ITEMS &&
         gc_field(way->owner, gc_fields.list_storage) == above) ||
        way->type->role == TUPLE)
        return put_index(t, i), 1;
    return put_edge(t, way, (int64_t)i);
}

/* Returns 0 if there is no name for it. */
static int put_label(struct text *t, const struct way *way)
{
    uint64_t object = way->object;
    const uint64_t *inside = way->inside;

    if (*inside == way->owner)
        return put_edge(t, way, -1);
    if (gc_role(*inside) == CELL) {
        uint64_t family = gc_field(*inside, gc_fields.cell_family);
        put_text(t, " -> variable ");
        return gc_role(family) == CELL_FAMILY &&
               put_string(t, gc_field(family, gc_fields.family_name));
    }
    if (gc_role(*inside) == DICT_CELL)
        object = *inside++;
    switch (gc_role(*inside)) {
    case ENTRIES:
        return put_key(t, way, *inside, object);
    case ARRAY:
        return put_item(t, way, *inside, inside[1], object);
    default:
        return put_edge(t, way, -1);
    }
}

/* ____________________________________________________________ */
/* what has a name */

static const struct root *root_of(uint32_t at)
{
    const struct root *roots = (const struct root *)walk.roots.at;
    size_t i;

    for (i = 0; i < walk.roots.count; i++)
        if (roots[i].at == at)
            return &roots[i];
    return NULL;
}

static void claim_frame_within(uint64_t child, void *frame)
{
    if (gc_role(child) == FRAME && *(uint64_t *)frame == 0)
        *(uint64_t *)frame = child;
}

/* Returns 0 if there is no name for it. */
static int put_root(struct text *t, const struct root *root, int *is_place)
{
    const struct gc_type *type = gc_type_of(root->object);
    uint64_t frame = 0;

    *is_place = root->kind != ROOT_FRAME || type->role == CONTEXT;
    if (root->kind == ROOT_MODULE)
        return put_string(t, root->name);
    if (type->role == CONTEXT)
        put_text(t, "a thread");
    else if (type->role == FRAME)
        put_frame(t, root->object);
    else {
        gc_trace(root->object, type, claim_frame_within, &frame);
        if (frame != 0)
            put_frame(t, frame);
        else
            put_text(t, "in compiled code");
    }
    return 1;
}

/* The one with this number among what was met, or NOBODY: they are in that order. */
static uint32_t find_named(uint32_t at)
{
    uint32_t low = 0, high = (uint32_t)named.count, middle;

    while (low < high) {
        middle = low + (high - low) / 2;
        if (named_number(middle)->at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < named.count && named_number(low)->at == at ? low : NOBODY;
}

/* A list of lists of lists has the same steps again: one is enough. */
static int is_repeated(uint32_t owner, const char *label, const char *type)
{
    for (; owner != NOBODY; owner = named_number(owner)->owner)
        if (strcmp(texts.at + named_number(owner)->label, label) == 0 &&
            strcmp(texts.at + named_number(owner)->type, type) == 0)
            return 1;
    return 0;
}

static void add_named(uint32_t at, uint32_t owner, const struct text *label, int is_place)
{
    struct named *new;
    uint64_t object = walk_met(at)->object;
    uint32_t type = type_text(object, gc_type_of(object)), text = keep(label);

    if (is_repeated(owner, texts.at + text, texts.at + type))
        return;
    new = room_add(&named);
    new->at = at;
    new->owner = owner;
    new->steps = owner == NOBODY ? 0 : named_number(owner)->steps + 1;
    new->label = text;
    new->type = type;
    new->is_place = (uint8_t)is_place;
    new->is_within = 0;
    new->told = 0;
    /* what the path leads to next may be all of it */
    if (owner != NOBODY && (uint64_t)walk_met(at)->through * 10 >=
            (uint64_t)walk_met(named_number(owner)->at)->through * NEARLY_ALL)
        named_number(owner)->is_within = 1;
}

static void name_it(uint32_t at)
{
    struct way way;
    struct text label = { { 0 }, 0, 0 };
    uint32_t from = walk_met(at)->from, below = at, owner;
    int inside = 0, is_place;

    if (from == at) {
        const struct root *root = root_of(at);
        if (root != NULL && put_root(&label, root, &is_place))
            add_named(at, NOBODY, &label, is_place);
        return;
    }
    way.object = walk_met(at)->object;
    if (!gc_type_of(way.object)->is_visible)
        return;
    memset(way.inside, 0, sizeof way.inside);
    while (walk_met(from)->from != from && !gc_type_of(walk_met(from)->object)->is_visible) {
        if (inside < 3)
            way.inside[inside++] = walk_met(from)->object;
        below = from;
        from = walk_met(from)->from;
    }
    owner = find_named(from);
    if (owner == NOBODY || named_number(owner)->steps == MOST_STEPS)
        return;
    way.owner = walk_met(from)->object;
    way.type = gc_type_of(way.owner);
    way.is_module = named_number(owner)->is_place && (way.type->role == MODULE_DICT ||
                                                      way.type->role == DICT);
    way.first = walk_met(below)->object;
    if (inside < 3)
        way.inside[inside] = way.owner;
    if (!put_label(&label, &way)) {
        label.size = 0;
        put_text(&label, " -> ");
        if (gc_role(way.object) == FRAME)
            put_frame(&label, way.object);      /* of a greenlet, ... */
        else if (way.type->custom == JIT_FRAME)
            put_text(&label, "a value of compiled code");
        else
            return;
    }
    if (!label.is_cut)
        add_named(at, owner, &label, 0);
}

/* ____________________________________________________________ */
/* the largest */

static void put_path(struct text *t, uint32_t number)
{
    uint32_t steps[MOST_STEPS + 1];
    int count = 0;

    for (; number != NOBODY; number = named_number(number)->owner)
        steps[count++] = named_number(number)->label;
    while (count > 0)
        put_text(t, texts.at + steps[--count]);
}

/* Other names that modules have for it */
static void put_aliases(struct text *t, uint64_t object, size_t path_size)
{
    const struct root *roots = (const struct root *)walk.roots.at;
    struct entries entries;
    size_t i;
    uint64_t entry;
    int count = 0;

    for (i = 0; i < walk.roots.count; i++) {
        enum role role = gc_role(roots[i].object);
        if (roots[i].kind != ROOT_MODULE || (role != DICT && role != MODULE_DICT) ||
            !walk_entries(gc_field(roots[i].object, gc_fields.dict_storage), &entries))
            continue;
        for (entry = entries.items;
             entry < entries.items + entries.count * entries.item_size;
             entry += entries.item_size) {
            struct text alias = { { 0 }, 0, 0 };
            if (walk_unwrapped(word_at(entry + 8)) != object ||
                !put_string(&alias, roots[i].name))
                continue;
            put_text(&alias, ".");
            if (!put_name(&alias, word_at(entry)) || alias.is_cut ||
                (alias.size == path_size && memcmp(alias.at, t->at, path_size) == 0) ||
                t->size + 1 + alias.size >= sizeof t->at)
                continue;
            if (count++ == MOST_ALIASES)
                return;
            put_text(t, "\x1f");
            put(t, alias.at, alias.size);
        }
    }
}

static uint32_t largest(void)
{
    uint32_t best = NOBODY, i, most = 0;

    for (i = 0; i < named.count; i++) {
        const struct named *one = named_number(i);
        if (!one->is_place && !one->is_within && walk_met(one->at)->through > most) {
            most = walk_met(one->at)->through;
            best = i;
        }
    }
    return best;
}

int paths_choose(struct held_result *result, uint64_t holders[HELD_HOLDERS])
{
    uint64_t least = (uint64_t)walk.bytes / 8 / LEAST_SHARE;
    uint32_t i, best;
    int count = 0;

    room_begin(&named, sizeof(struct named), 1024);
    room_begin(&texts, 1, (size_t)1 << 16);
    if (least < LEAST_WORDS)
        least = LEAST_WORDS;
    for (i = 0; i < walk.frames_end && named.count < MOST_NAMED; i++)
        if (walk_met(i)->through >= least)
            name_it(i);
    while (count < HELD_HOLDERS && (best = largest()) != NOBODY) {
        struct text t = { { 0 }, 0, 0 };
        size_t path;
        named_number(best)->is_place = 1;       /* it is taken */
        put_path(&t, best);
        path = t.size;
        put_text(&t, "\x1f");
        put_text(&t, texts.at + named_number(best)->type);
        if (t.is_cut)
            continue;
        holders[count] = walk_met(named_number(best)->at)->object;
        put_aliases(&t, holders[count], path);
        memcpy(result->holders[count].text, t.at, t.size);
        count++;
    }
    return count;
}

/* ____________________________________________________________ */
/* of what is asked about */

/* Returns the number in the result; that of its owner, or 0, if there is no room. */
static uint32_t tell(struct held_result *result, uint32_t number)
{
    struct named *one = named_number(number);
    const char *label = texts.at + one->label, *type = texts.at + one->type;
    size_t label_size = strlen(label), type_size = strlen(type);
    uint32_t owner;
    char *text;

    if (one->told != 0)
        return one->told;
    owner = one->owner == NOBODY ? 0 : tell(result, one->owner);
    if (result->path_count == HELD_PATHS ||
        label_size + type_size + 2 > HELD_PATHS_TEXT - result->paths_text_size)
        return owner;
    text = result->paths_text + result->paths_text_size;
    memcpy(text, label, label_size);
    text[label_size] = 0x1f;
    memcpy(text + label_size + 1, type, type_size + 1);
    result->paths[result->path_count].owner = owner;
    result->paths[result->path_count].text = result->paths_text_size;
    result->paths[result->path_count].bytes = 8 * (int64_t)walk_met(one->at)->through;
    result->paths_text_size += (uint32_t)(label_size + type_size + 2);
    return one->told = ++result->path_count;
}

void paths_tell(const struct held_question *question, struct held_result *result)
{
    size_t size = (walk.frames_end + 1) * sizeof(uint32_t);
    /* of what was met: the nearest on the way to it that has a name, or NOBODY */
    uint32_t *nearest = room_map(size), at, next = 0;
    size_t i;

    for (at = 0; at < walk.frames_end; at++)
        if (next < named.count && named_number(next)->at == at)
            nearest[at] = next++;
        else
            nearest[at] = walk_met(at)->from == at ? NOBODY : nearest[walk_met(at)->from];
    for (i = 0; i < question->count; i++) {
        at = walk_asked(held_asked(question, i))->at;
        if (at < walk.frames_end && nearest[at] != NOBODY)
            result->found[i].path = tell(result, nearest[at]);
    }
    /* and what else has a name, as all of it may be older than the samples */
    for (at = 0; at < named.count; at++)
        tell(result, at);
    room_unmap(nearest, size);
    room_end(&named);
    room_end(&texts);
}
