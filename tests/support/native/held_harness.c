/* Tests held/ on a generated heap with lists, and a module with names.  stdin contains
 * numbers: the number of lists; for each list, the number of its items and the lists that
 * are its items; the number of names of the module m, and the lists that have the names x0,
 * x1, ...; the number of other roots, and the lists that are these roots.
 *
 * Prints "objects N bytes N looks N", and "holder SET BYTES OBJECTS PATH TYPE ALIAS ..."
 * for each retainer.  A group of retainers has no path and type.  Also prints "list HOW
 * SET" for each list.  argv[1] may be:
 *
 *   classes    list i is an instance of class i % 3, which is derived from list; class 0 is
 *              list itself
 *   keys       the module also has a dict k with keys of all kinds, whose values are lists
 *   deques     the lists are deques with blocks of three items, which begin anywhere in the
 *              first block
 *   damaged    the header of a list is invalid
 *   own        the other roots belong to the interpreter, because a frame follows them; the
 *              JIT compiler refers to the second root, and compiled code to the third root
 *   traced     RPython has a custom function that traces the items of lists
 *   compare    print the number of objects that differ from a dump of the same heap, in
 *              which one reference was changed
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "held.h"

/* number of calls that trace an object's references, counted by counted_holders.c */
long looks;

enum { STRING = 8, TEXT, LIST, LIST_ITEMS, POINTERS, DICT, TABLE, ENTRIES, MODULE, GCREF,
       DEQUE, BLOCK, INSTANCE, MAP, CLASS, INT, BOOL, NONE,
       BYTES, TUPLE, PAIR, NUMBERS, OWN_TUPLE, FRAME, JIT, COMPILED, TYPES };
static const char *const names[TYPES] = {
    [STRING] = "rpy_string { hash, chars }",
    [TEXT] = "pypy.objspace.std.unicodeobject.W_UnicodeObject { super }",
    [LIST] = "pypy.objspace.std.listobject.W_ListObject { super }",
    [LIST_ITEMS] = "list { length, items }",
    [POINTERS] = "array",
    [DICT] = "pypy.objspace.std.dictmultiobject.W_DictObject { super }",
    [TABLE] = "dicttable { live, used, entries }",
    [ENTRIES] = "odictentry { key, value }",
    [MODULE] = "pypy.interpreter.module.Module { super }",
    [GCREF] = "pypy.module.gc.referents.W_GcRef { super }",
    [DEQUE] = "pypy.module._collections.interp_deque.W_Deque { super }",
    [BLOCK] = "pypy.module._collections.interp_deque.Block { super }",
    [INSTANCE] = "pypy.interpreter.typedef.W_ListObjectUserDict { super }",
    [MAP] = "pypy.objspace.std.mapdict.Terminator { super }",
    [CLASS] = "pypy.objspace.std.typeobject.W_TypeObject { super }",
    [INT] = "pypy.objspace.std.intobject.W_IntObject { super }",
    [BOOL] = "pypy.objspace.std.boolobject.W_BoolObject { super }",
    [NONE] = "pypy.objspace.std.noneobject.W_NoneObject { super }",
    [BYTES] = "pypy.objspace.std.bytesobject.W_BytesObject { super }",
    [TUPLE] = "pypy.objspace.std.tupleobject.W_TupleObject { super }",
    [PAIR] = "pypy.objspace.std.specialisedtupleobject.W_SpecialisedTupleObject_oo { super }",
    [NUMBERS] = "pypy.objspace.std.specialisedtupleobject.W_SpecialisedTupleObject_ii { super }",
    [OWN_TUPLE] = "pypy.interpreter.typedef.W_TupleObjectUserDict { super }",
    [FRAME] = "pypy.interpreter.pyframe.PyFrame { super }",
    [JIT] = "rpython.jit.metainterp.compile.ResumeGuardDescr { super }",
    [COMPILED] = "rpython.jit.metainterp.history.JitCellToken { super }",
};
static const char *const fields[] = {
    "module_dict", "dict_storage", "code_name", "code_varnames", "code_firstlineno",
    "code_filename", "cell_family", "cell_value", "family_name", "frame_code",
    "frame_back", "frame_finished", "plain_name", "plain_back", "plain_kind",
    "plain_index", "ref_forced", "context_top", "gcref", "member_index", "list_storage",
    "int_value", "bytes_value", "jit_gcmap", "shadow_base", "shadow_top", "stacklet_copy",
    "tracer_base", "tracer_length", "to_end", "to_class", "to_qualname", "to_table",
    "to_string", "to_value"
};

/* An entry of the type table, in the layout of rpython/memory/gctypelayout.py */
static struct info {
    int64_t bits;
    const void *custom;
    int64_t size;
    const int64_t *pointers;
    int64_t item_size, items_at, length_at;
    const int64_t *item_pointers;
} table[TYPES];
static char text[8192];
static int has_keys;
static uint64_t memory[1 << 20];
static size_t used;

static const int64_t none[] = { 0 }, at_8[] = { 1, 8 }, at_16[] = { 1, 16 },
                     at_24[] = { 1, 24 }, at_0[] = { 1, 0 }, at_0_and_8[] = { 2, 0, 8 },
                     at_8_to_24[] = { 3, 8, 16, 24 },
                     at_8_and_16[] = { 2, 8, 16 };

static void type(int number, int64_t size, const int64_t *pointers, int64_t length_at,
                 int64_t item_size, const int64_t *item_pointers)
{
    struct info *info = &table[number];

    info->bits = 0x58000000 | number;
    info->size = size;
    info->pointers = pointers;
    if (item_size != 0) {
        info->bits |= 0x10000 | (item_pointers != none ? 0x20000 : 0);
        info->item_size = item_size;
        info->items_at = size;
        info->length_at = length_at;
        info->item_pointers = item_pointers;
    }
    if (number == POINTERS)
        info->bits |= 0x40000;
    if (pointers != none || (item_size != 0 && item_pointers != none))
        info->bits |= 0x1000000;
    sprintf(text + strlen(text), "type %zu %d %d %d\t%s\tGc%s %s\n",
            (size_t)number * sizeof *info, number,
            number == LIST || number == DEQUE || (number == DICT && has_keys) ? 2 : 0,
            number == INSTANCE || number == OWN_TUPLE ? 16 : -1,
            number == LIST ? "list" : number == DEQUE ? "deque" : "", number == POINTERS || number == ENTRIES
                                              ? "Array of" : "Struct", names[number]);
}

static void make_types(void)
{
    size_t i;

    type(STRING, 24, none, 16, 1, none);
    type(TEXT, 16, at_8, 0, 0, NULL);
    type(LIST, 16, at_8, 0, 0, NULL);
    type(LIST_ITEMS, 24, at_16, 0, 0, NULL);
    type(POINTERS, 16, none, 8, 8, at_0);
    type(DICT, 16, at_8, 0, 0, NULL);
    type(TABLE, 32, at_24, 0, 0, NULL);
    type(ENTRIES, 16, none, 8, 16, at_0_and_8);
    type(MODULE, 16, at_8, 0, 0, NULL);
    type(GCREF, 16, at_8, 0, 0, NULL);
    type(DEQUE, 24, at_8, 0, 0, NULL);
    type(BLOCK, 32, at_8_to_24, 0, 0, NULL);
    type(INSTANCE, 24, at_8_and_16, 0, 0, NULL);
    type(MAP, 24, at_8_and_16, 0, 0, NULL);
    type(CLASS, 24, at_8_and_16, 0, 0, NULL);
    type(INT, 16, none, 0, 0, NULL);
    type(BOOL, 16, none, 0, 0, NULL);
    type(NONE, 16, none, 0, 0, NULL);
    type(BYTES, 16, at_8, 0, 0, NULL);
    type(TUPLE, 16, at_8, 0, 0, NULL);
    type(PAIR, 24, at_8_and_16, 0, 0, NULL);
    type(NUMBERS, 24, none, 0, 0, NULL);
    type(OWN_TUPLE, 24, at_8_and_16, 0, 0, NULL);
    type(FRAME, 16, none, 0, 0, NULL);
    type(JIT, 16, at_8, 0, 0, NULL);
    type(COMPILED, 16, at_8, 0, 0, NULL);
    for (i = 0; i < sizeof fields / sizeof *fields; i++)
        sprintf(text + strlen(text), "field %s 8\n", fields[i]);
    strcat(text, "field to_entries 24\nfield deque_first 8\nfield deque_first_index 16\n"
                 "field block_next 24\nfield to_class 16\nfield to_qualname 16\n"
                 "field tuple_items 8\nfield pair_first 8\nfield pair_second 16\n"
                 "field numbers_first 8\nfield numbers_second 16\n");
}

static uint64_t *make(int type, size_t words)
{
    uint64_t *object = memory + used;

    used += words;
    if (used > sizeof memory / sizeof *memory)
        abort();
    *object = (uint64_t)type * sizeof *table;
    return object;
}

static uint64_t *with_1(int type, const void *to)
{
    uint64_t *object = make(type, 2);

    object[1] = (uint64_t)to;
    return object;
}

static uint64_t *make_text(const char *s)
{
    uint64_t *string = make(STRING, 3 + (strlen(s) + 7) / 8);

    string[2] = strlen(s);
    memcpy(string + 3, s, strlen(s));
    return with_1(TEXT, string);
}

/* Return memory for 'count' items of a list. */
static uint64_t *make_items(uint64_t *list, size_t count)
{
    uint64_t *items = make(POINTERS, 2 + count), *storage = make(LIST_ITEMS, 3);

    items[1] = count;
    storage[1] = count;
    storage[2] = (uint64_t)items;
    list[1] = (uint64_t)storage;
    return items + 2;
}

#define BLOCK_ITEMS     3

static void make_deque(uint64_t *deque, const size_t *of, size_t count, uint64_t **lists)
{
    uint64_t *last = NULL, *block;
    size_t at = count % BLOCK_ITEMS, end = at + count, i = 0;

    deque[2] = at;
    do {
        uint64_t *items = make(POINTERS, 2 + BLOCK_ITEMS);
        items[1] = BLOCK_ITEMS;
        block = make(BLOCK, 4);
        block[1] = (uint64_t)items;
        block[2] = (uint64_t)last;
        if (last != NULL)
            last[3] = (uint64_t)block;
        else
            deque[1] = (uint64_t)block;
        do
            if (at < end)
                items[2 + at % BLOCK_ITEMS] = (uint64_t)lists[of[i++]];
        while (++at % BLOCK_ITEMS != 0);
        last = block;
    } while (at < end);
}

static uint64_t *make_dict(size_t count, uint64_t **entries)
{
    uint64_t *array = make(ENTRIES, 2 + 2 * count), *table_ = make(TABLE, 4);

    array[1] = count;
    table_[3] = (uint64_t)array;
    *entries = array + 2;
    return with_1(DICT, table_);
}

/* Return a map for instances of class 'number'.  The map refers to the class. */
static uint64_t *make_map(int number)
{
    uint64_t *map = make(MAP, 3), *its_class = make(CLASS, 3);
    char name[] = { (char)('A' + number), 0 };

    its_class[2] = (uint64_t)make_text(name);
    map[1] = (uint64_t)map;
    map[2] = (uint64_t)its_class;
    return map;
}

static uint64_t *with_2(int type, const void *one, const void *other)
{
    uint64_t *object = make(type, 3);

    object[1] = (uint64_t)one;
    object[2] = (uint64_t)other;
    return object;
}

static uint64_t *make_tuple(size_t count, const uint64_t *item)
{
    uint64_t *items = make(POINTERS, 2 + count);

    items[1] = count;
    for (; count > 0; count--)
        items[1 + count] = (uint64_t)item;
    return with_1(TUPLE, items);
}

#define KEYS    19

/* Make keys of all kinds.  The class of 'map' gets a module and a member. */
static void make_keys(uint64_t **keys, uint64_t *map)
{
    uint64_t *its_class = (uint64_t *)map[2], *entries, *other = make_map(25);
    uint64_t *one = with_1(INT, (void *)-1), *member = with_2(OWN_TUPLE, NULL, map);

    its_class[1] = make_dict(3, &entries)[1];
    entries[0] = (uint64_t)make_text("__module__");
    entries[1] = (uint64_t)make_text("m");
    entries[2] = (uint64_t)make_text("RED");
    entries[3] = (uint64_t)member;
    entries[4] = (uint64_t)make_text("not a name");
    entries[5] = (uint64_t)with_2(OWN_TUPLE, NULL, map);
    keys[0] = one;
    keys[1] = with_1(BOOL, (void *)1);
    keys[2] = with_1(NONE, NULL);
    keys[3] = with_1(BYTES, (void *)make_text("b\"")[1]);
    keys[4] = make_tuple(0, NULL);
    keys[5] = make_tuple(1, keys[3]);
    keys[6] = make_tuple(8, one);
    keys[7] = make_tuple(9, one);
    keys[8] = with_2(PAIR, keys[2], keys[5]);
    keys[9] = with_2(PAIR, one, keys[8]);           /* tuples that are nested too deep */
    keys[10] = with_2(NUMBERS, (void *)7, (void *)-8);
    keys[11] = its_class;
    keys[12] = (uint64_t *)other[2];                /* a class without a module */
    keys[13] = member;
    keys[14] = (uint64_t *)entries[5];              /* its name is no identifier */
    keys[15] = with_2(OWN_TUPLE, make_tuple(1, one), map);  /* a member its class lacks */
    keys[16] = with_1(TUPLE, NULL);                 /* a tuple that is not filled yet */
    keys[17] = make_text("0123456789012345678901234567890123456789012345678901234567890"
                         "12345678901234567890123456789012345678901234567890123456789"
                         "too long");
    keys[18] = with_2(PAIR, keys[13], make_text("\xc3\xa4"));
}

static size_t number(void)
{
    size_t n;

    if (scanf("%zu", &n) != 1)
        abort();
    return n;
}

static void dump(int64_t *to, size_t *count, const uint64_t *const *lists, size_t n)
{
    size_t i, j;

    for (i = 0; i < n; i++) {
        const uint64_t *storage = (const uint64_t *)lists[i][1];
        const uint64_t *items = (const uint64_t *)storage[2];
        int64_t three[] = { (int64_t)lists[i], LIST, 16, (int64_t)storage, -1,
                            (int64_t)storage, LIST_ITEMS, 24, (int64_t)items, -1,
                            (int64_t)items, POINTERS, 16 + 8 * (int64_t)items[1] };
        memcpy(to + *count, three, sizeof three);
        *count += sizeof three / sizeof *three;
        for (j = 0; j < items[1]; j++)
            to[(*count)++] = (int64_t)items[2 + j];
        to[(*count)++] = -1;
    }
}

int main(int argc, char **argv)
{
    struct held_result *result;
    struct held_question question;
    uint64_t **lists, *maps[3], *entries, *module, *modules, *ask = make(LIST, 2), *roots, *items;
    size_t count, i, j, n;
    int are_deques = argc > 1 && strcmp(argv[1], "deques") == 0;
    int is_own = argc > 1 && strcmp(argv[1], "own") == 0;
    int are_instances = argc > 1 && strcmp(argv[1], "classes") == 0;

    has_keys = argc > 1 && strcmp(argv[1], "keys") == 0;
    make_types();
    count = number();
    lists = calloc(count, sizeof *lists);
    for (i = 0; i < 3; i++)
        maps[i] = make_map((int)i);
    for (i = 0; i < count; i++)
        if (are_instances && i % 3 != 0) {
            lists[i] = make(INSTANCE, 3);
            lists[i][2] = (uint64_t)maps[i % 3];
        } else
            lists[i] = are_deques ? make(DEQUE, 3) : make(LIST, 2);
    for (i = 0; i < count; i++) {
        n = number();
        if (are_deques) {
            size_t *of = calloc(n + 1, sizeof *of);
            for (j = 0; j < n; j++)
                of[j] = number();
            make_deque(lists[i], of, n, lists);
            free(of);
            continue;
        }
        items = make_items(lists[i], n);
        for (j = 0; j < n; j++)
            items[j] = (uint64_t)lists[number()];
    }
    n = number();
    module = with_1(MODULE, make_dict(n + (has_keys ? 5 : 3), &entries));
    /* keep the maps reachable: nothing else refers to them */
    for (i = 0; i < 3; i++) {
        entries[2 * (n + i)] = (uint64_t)make_text("map");
        entries[2 * (n + i) + 1] = (uint64_t)maps[i];
    }
    if (has_keys) {
        uint64_t *keys[KEYS], *of;
        make_keys(keys, maps[0]);
        entries[2 * n + 6] = (uint64_t)make_text("A");
        entries[2 * n + 7] = maps[0][2];
        entries[2 * n + 8] = (uint64_t)make_text("k");
        entries[2 * n + 9] = (uint64_t)make_dict(KEYS, &of);
        for (i = 0; i < KEYS; i++) {
            of[2 * i] = (uint64_t)keys[i];
            of[2 * i + 1] = (uint64_t)lists[i];
        }
    }
    for (i = 0; i < n; i++) {
        char name[32];
        sprintf(name, "x%zu", i);
        entries[2 * i] = (uint64_t)make_text(name);
        entries[2 * i + 1] = (uint64_t)lists[number()];
    }
    modules = make_dict(1, &entries);
    entries[0] = (uint64_t)make_text("m");
    entries[1] = (uint64_t)module;
    n = number();
    roots = make(LIST, 2);
    items = make_items(roots, n + 2 + is_own);
    items[0] = (uint64_t)with_1(GCREF, modules);
    items[1] = (uint64_t)with_1(GCREF, module);
    for (i = 0; i < n; i++)
        items[2 + i] = (uint64_t)with_1(GCREF, lists[number()]);
    if (is_own) {       /* the frame has returned, so it retains nothing */
        items[2 + n] = (uint64_t)with_1(GCREF, with_1(FRAME, (void *)1));
        ((uint64_t *)items[3])[1] = (uint64_t)with_1(JIT, (void *)((uint64_t *)items[3])[1]);
        ((uint64_t *)items[4])[1] = (uint64_t)with_1(COMPILED, with_1(
            JIT, (void *)((uint64_t *)items[4])[1]));
    }
    items = make_items(ask, 2);
    items[0] = (uint64_t)roots;
    items[1] = (uint64_t)modules;

    result = calloc(1, sizeof *result + count * sizeof *result->found);
    question.types = text;
    question.types_size = strlen(text);
    question.type_info = (uintptr_t)table;
    question.list = (uint64_t)ask;
    question.objects = (const uint64_t *)lists;
    question.stride = sizeof *lists;
    question.count = count;
    question.wants_holders = 1;
    if (argc > 1 && strcmp(argv[1], "compare") == 0) {
        int64_t *words = calloc(used + 16 * count, sizeof *words);
        uint64_t differ[4] = { 0 };
        n = 0;
        dump(words, &n, (const uint64_t *const *)lists, count);
        printf("%" PRId64, held_compare(&question, result, words, n, differ, 4));
        words[3] ^= 8;
        printf(" %" PRId64, held_compare(&question, result, words, n, differ, 4));
        printf(" %d\n", differ[0] == (uint64_t)lists[0]);
        free(words);
    } else {
        if (argc > 1 && strcmp(argv[1], "damaged") == 0)
            *lists[0] = 4;
        if (argc > 1 && strcmp(argv[1], "traced") == 0)
            table[LIST_ITEMS].bits |= 0x200000;
        held_answer(&question, result);
        printf("objects %" PRId64 " bytes %" PRId64 " looks %ld\n", result->objects,
               result->bytes, looks);
        for (i = 0; i < result->holder_count; i++) {
            struct held_holder *holder = &result->holders[i];
            char *c;
            for (c = holder->text; *c; c++)
                if (*c == 0x1f)
                    *c = ' ';
            printf("holder %" PRIu64 " %" PRId64 " %" PRId64 " %s\n", holder->set,
                   holder->bytes, holder->objects, holder->text);
        }
        for (i = 0; i < count; i++)
            printf("list %d %" PRIu64 " %u\n", result->found[i].how, result->found[i].set,
                   result->found[i].path);
        for (i = 0; i < result->path_count; i++) {
            struct held_path *path = &result->paths[i];
            char *label = result->paths_text + path->text;
            label[strcspn(label, "\x1f")] = ' ';
            printf("step %u %" PRId64 " %s\n", path->owner, path->bytes, label);
        }
    }
    free(result);
    free(lists);
    return 0;
}
