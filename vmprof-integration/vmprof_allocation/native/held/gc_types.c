#include "gc_types.h"

#include <string.h>

#include "mapped_memory.h"

#define MOST_TYPES      16384
#define MOST_EDGES      65536

struct fields gc_fields;
uint16_t *gc_type_by_id;
struct gc_type *gc_type_table;

static struct edge {
    int64_t offset;
    const char *name;
} *edges;
static uint32_t type_count, edge_count;

/* The roles of types, by the beginning of their RPython names.  A type that matches no row
   is an ARRAY if its items are references, and OTHER if not. */
static const struct {
    const char *begin;
    enum role role;
} roles[] = {
#define STD     "GcStruct pypy.objspace.std."
#define INTERPRETER     "GcStruct pypy.interpreter."
    { STD "dictmultiobject.W_ModuleDictObject {", MODULE_DICT },
    { STD "dictmultiobject.W_DictObject {", DICT },
    { STD "dictmultiobject.W_DictMultiObject {", DICT },
    { INTERPRETER "typedef.W_DictObjectUser", DICT },
    { INTERPRETER "typedef.W_ModuleDictObjectUser", DICT },
    { "GcStruct dicttable {", TABLE },
    { "GcArray of odictentry {", ENTRIES },
    { "GcArray of dictentry {", ENTRIES },
    { "GcStruct list {", LIST_ITEMS },
    { STD "typeobject.ObjectMutableCell {", DICT_CELL },
    { STD "typeobject.W_TypeObject {", CLASS },
    { INTERPRETER "typedef.W_TypeObjectUser", CLASS },
    { STD "frame.StdObjSpaceFrame {", FRAME },
    { INTERPRETER "pyframe.PyFrame {", FRAME },
    { INTERPRETER "pycode.PyCode {", CODE },
    { INTERPRETER "function.Function {", FUNCTION },
    { INTERPRETER "nestedscope.Cell {", CELL },
    { INTERPRETER "nestedscope.CellFamily {", CELL_FAMILY },
    { STD "mapdict.PlainAttribute {", ATTRIBUTE },
    { STD "mapdict.UnboxedPlainAttribute {", UNBOXED_ATTRIBUTE },
    { INTERPRETER "module.Module {", MODULE },
    { INTERPRETER "mixedmodule.MixedModule {", MODULE },
    { INTERPRETER "typedef.W_ModuleUser", MODULE },
    { "GcStruct JitVirtualRef {", FRAME_REF },
    { INTERPRETER "executioncontext.ExecutionContext {", CONTEXT },
    { "GcStruct rpy_string {", STRING },
    { STD "unicodeobject.W_UnicodeObject {", TEXT },
    { STD "listobject.W_ListObject {", LIST },
    { INTERPRETER "typedef.W_ListObjectUser", LIST },
    { STD "tupleobject.W_TupleObject {", TUPLE },
    { INTERPRETER "typedef.W_TupleObjectUser", TUPLE },
    { STD "specialisedtupleobject.W_SpecialisedTupleObject_oo {", PAIR },
    { STD "specialisedtupleobject.W_SpecialisedTupleObject_ii {", NUMBERS },
    { INTERPRETER "typedef.Member {", MEMBER },
    { "GcStruct pypy.module.gc.referents.W_GcRef {", GCREF },
    { STD "intobject.W_IntObject {", INT },
    { STD "boolobject.W_BoolObject {", BOOL },
    { STD "bytesobject.W_BytesObject {", BYTES },
    { "GcStruct pypy.module.thread.os_local.Local {", THREAD_LOCAL },
    { STD "noneobject.W_NoneObject {", NONE },
    { "GcStruct pypy.module._collections.interp_deque.W_Deque {", DEQUE },
    { INTERPRETER "typedef.W_DequeUser", DEQUE },
    { "GcStruct pypy.module._collections.interp_deque.Block {", DEQUE_BLOCK },
    { STD "mapdict.Object {", ATTRIBUTES },
};
/* The purposes of types, by the beginning of their RPython names; the last row that matches
   is used.  A table with weak values and strings as keys is always the table of
   sys.intern(). */
static const struct {
    const char *begin;
    enum own own;
} owns[] = {
    { "GcStruct rpython.jit.", OWN_JIT },
    { "GcStruct rpython.jit.metainterp.history.JitCellToken {", OWN_COMPILED_CODE },
    { "GcStruct rpython.jit.backend.model.CompiledLoopToken {", OWN_COMPILED_CODE },
    { "GcArray of weakdictentry { key: * GcStruct rpy_string ", OWN_INTERNED_NAMES },
};
static const struct {
    const char *begin;
    enum custom custom;
} customs[] = {
    { "GcStruct JITFRAME {", JIT_FRAME },
    { "GcStruct ShadowStackRef {", SHADOW_STACK },
    { "GcStruct Stacklet {", STACKLET },
    { "GcStruct GCREFTRACER {", GCREF_TRACER },
    { "GcStruct TRACETLREF", NOT_WALKED },
    { "GcStruct HPyStorage", NOT_WALKED },
};
static const struct {
    const char *name;
    size_t at;
    int is_needed;
} field_names[] = {
#define NEEDED(name) { #name " ", offsetof(struct fields, name), 1 },
#define WISHED(name) { #name " ", offsetof(struct fields, name), 0 },
    FIELDS(NEEDED)
    WISHED_FIELDS(WISHED)
};
#define COUNT(array)    (sizeof(array) / sizeof *(array))

static int begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Read a decimal number, after spaces, and advance *p past it. */
static int64_t number(const char **p)
{
    int64_t value = 0;
    int is_negative;

    while (**p == ' ')
        ++*p;
    is_negative = **p == '-';
    *p += is_negative;
    for (; **p >= '0' && **p <= '9'; ++*p)
        value = 10 * value + **p - '0';
    return is_negative ? -value : value;
}

/* Return whether an RPython name is the class of a module that is a part of PyPy, such as
   pypy.module.sys.moduledef.Module. */
static int is_builtin_module(const char *gcs)
{
    const char *of = begins(gcs, "GcStruct pypy.module.") ?
                     strstr(gcs, ".moduledef.Module {") : NULL;

    return of != NULL && of < strchr(gcs, '\n');
}

/* Set the role, the purpose, the kind of the custom trace function and the visibility of a
   type from its RPython name.  PROFILE.rst explains 'kind', the kind of its Python name. */
static void classify(struct gc_type *type, int kind)
{
    size_t i;

    if (is_builtin_module(type->gcs))
        type->role = MODULE;
    for (i = 0; i < COUNT(roles); i++)
        if (begins(type->gcs, roles[i].begin))
            type->role = (uint8_t)roles[i].role;
    for (i = 0; i < COUNT(owns); i++)
        if (begins(type->gcs, owns[i].begin))
            type->own = (uint8_t)owns[i].own;
    if (type->role == OTHER && type->info->bits & INFO_ITEMS_ARE_POINTERS)
        type->role = ARRAY;
    if (type->info->bits & INFO_CUSTOM_TRACE) {
        type->custom = UNKNOWN_CUSTOM;
        for (i = 0; i < COUNT(customs); i++)
            if (begins(type->gcs, customs[i].begin))
                type->custom = (uint8_t)customs[i].custom;
    }
    /* kind 2 is the name of a type of Python; kind 0 has no name, but an instance has
       the name of its class */
    type->is_visible = (kind == 2 || (kind == 0 && type->map >= 0) ||
                        type->role == FRAME) &&
                       type->role != CELL && type->role != DICT_CELL;
}

/* Read the line "type ID ROW KIND MAP NAME<tab>RPYTHON-NAME". */
static void read_type(const struct held_question *question, const char *p)
{
    struct gc_type *type = &gc_type_table[type_count];
    int kind;

    type->id = (uint32_t)number(&p);
    type->row = (uint32_t)number(&p);
    kind = (int)number(&p);
    type->map = (int32_t)number(&p);
    type->name = p + 1;
    type->gcs = strchr(type->name, '\t') + 1;
    type->info = (const struct type_info *)(question->type_info + type->id);
    if (type_count == MOST_TYPES || type->id / 8 >= GC_TYPE_IDS ||
        (type->info->bits & INFO_KEY_MASK) != INFO_KEY ||
        (uint32_t)(type->info->bits & 0xffff) != type->row)
        held_fail(HELD_UNKNOWN_TYPE);
    classify(type, kind);
    gc_type_by_id[type->id / 8] = (uint16_t)++type_count;
}

/* Read the line "edge ID OFFSET NAME".  These lines follow all types, and the lines of
   one type follow each other. */
static void read_edge(const char *p)
{
    uint32_t id = (uint32_t)number(&p);
    uint16_t at = id / 8 < GC_TYPE_IDS ? gc_type_by_id[id / 8] : 0;
    struct gc_type *type = &gc_type_table[at - 1];

    if (at == 0 || edge_count == MOST_EDGES)
        return;
    if (type->edge_count++ == 0)
        type->edges = edge_count;
    edges[edge_count].offset = number(&p);
    edges[edge_count++].name = p + 1;
}

/* Read the line "field NAME OFFSET". */
static void read_field(const char *p)
{
    size_t i;

    for (i = 0; i < COUNT(field_names); i++)
        if (begins(p, field_names[i].name)) {
            p += strlen(field_names[i].name);
            *(int64_t *)((char *)&gc_fields + field_names[i].at) = number(&p);
            return;
        }
}

void gc_types_read(const struct held_question *question)
{
    const char *line = question->types, *end = line + question->types_size;
    size_t i;

    memset(&gc_fields, 0xff, sizeof gc_fields);
    type_count = edge_count = 0;
    gc_type_by_id = room_map(GC_TYPE_IDS * sizeof *gc_type_by_id);
    gc_type_table = room_map((MOST_TYPES + 1) * sizeof *gc_type_table);
    edges = room_map(MOST_EDGES * sizeof *edges);
    for (; line < end; line = (const char *)memchr(line, '\n', (size_t)(end - line)) + 1)
        if (begins(line, "type "))
            read_type(question, line + 5);
        else if (begins(line, "edge "))
            read_edge(line + 5);
        else if (begins(line, "field "))
            read_field(line + 6);
    for (i = 0; i < COUNT(field_names); i++)
        if (field_names[i].is_needed &&
            *(int64_t *)((char *)&gc_fields + field_names[i].at) < 0)
            held_fail(HELD_NO_ROOTS);
}

void gc_types_forget(void)
{
    room_unmap(gc_type_by_id, GC_TYPE_IDS * sizeof *gc_type_by_id);
    room_unmap(gc_type_table, (MOST_TYPES + 1) * sizeof *gc_type_table);
    room_unmap(edges, MOST_EDGES * sizeof *edges);
}

const char *gc_edge(const struct gc_type *type, int64_t offset)
{
    uint32_t i;

    for (i = 0; i < type->edge_count; i++)
        if (edges[type->edges + i].offset == offset)
            return edges[type->edges + i].name;
    return NULL;
}
