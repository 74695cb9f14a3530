#pragma once
/* The types of the objects on the heap: the GC's type table, and the names, fields and
 * roles that the probe process found in addition.
 *
 * The GC's table is TYPE_INFO of rpython/memory/gctypelayout.py.  probe/names.py wrote the
 * names and the offsets of fields, and gc_types_read() reads them.  With the table and the
 * offsets, gc_trace() visits the references of any object.  probe/references.py has
 * compared these references with gc.dump_rpy_heap(), object by object.
 */

#include <stddef.h>
#include <stdint.h>

#include "question.h"

#pragma GCC visibility push(hidden)

/* An entry of the GC's type table */
struct type_info {
    int64_t bits;
    const void *custom;
    int64_t size;
    const int64_t *pointers;            /* number of the references outside of items, then
                                           their offsets in bytes */
    /* for types with items only: bytes of an item, offsets of the items and the length,
       and the references in an item (their number, then their offsets) */
    int64_t item_size, items_at, length_at;
    const int64_t *item_pointers;
};
/* Flags in type_info.bits, from gctypelayout.py; the lowest 16 bits are gc_type.row */
#define INFO_HAS_LENGTH         0x010000
#define INFO_ITEMS_HAVE_POINTERS 0x020000
#define INFO_ITEMS_ARE_POINTERS 0x040000
#define INFO_CUSTOM_TRACE       0x200000
#define INFO_HAS_POINTERS      0x1000000
#define INFO_KEY_MASK         0xfc000000
#define INFO_KEY              0x58000000

/* The role of objects of a type in the names of reference paths; OTHER if it has none */
enum role {
    OTHER, MODULE_DICT, DICT, TABLE, ENTRIES, ARRAY, LIST_ITEMS, DICT_CELL, CLASS, FRAME,
    CODE, FUNCTION, CELL, CELL_FAMILY, ATTRIBUTE, UNBOXED_ATTRIBUTE, MODULE, FRAME_REF,
    CONTEXT, STRING, TEXT, LIST, TUPLE, MEMBER, GCREF, INT, BOOL, BYTES, THREAD_LOCAL, NONE,
    DEQUE, DEQUE_BLOCK, ATTRIBUTES, PAIR, NUMBERS
};
/* The kind of a type's custom trace function, which visits references that the GC's type
   table does not list.  NOT_WALKED if gc_trace_custom() does not visit them. */
enum custom { NO_CUSTOM, JIT_FRAME, SHADOW_STACK, STACKLET, GCREF_TRACER, NOT_WALKED,
              UNKNOWN_CUSTOM };

/* The purpose of an object that only the interpreter reaches, and of the objects that are
   reached through this object */
enum own {
    OWN, OWN_JIT, OWN_COMPILED_CODE, OWN_INTERNED_NAMES, OWN_FINALIZERS, OWN_KINDS
};

/* A type, with its entry in the GC's type table and the facts that the probe found */
struct gc_type {
    const struct type_info *info;
    uint32_t id, row;           /* offset in the GC's type table in bytes, and index in
                                   gc.get_typeids_z() */
    int32_t map;                /* offset in bytes of the map (pypy.objspace.std.mapdict)
                                   if objects of this type are instances of classes; -1
                                   otherwise */
    uint32_t edges;             /* index in 'edges' (gc_types.c) of the first named
                                   reference, ... */
    uint16_t edge_count;        /* ... and number of named references */
    uint8_t role, custom, own;
    uint8_t is_visible;         /* whether it is a type of Python and not of the
                                   interpreter, so that paths name its objects */
    const char *name;           /* name in Python; a tab follows its end */
    const char *gcs;            /* name in RPython; a line feed follows its end */
};

/* Offsets in bytes of fields of PyPy's objects, or -1 if an offset is unknown.
   probe/fields.py uses the same names.  gc_types_read() fails if the offset of one of
   these fields is unknown. */
#define FIELDS(X) \
    X(module_dict) X(dict_storage) X(code_name) X(code_varnames) X(code_firstlineno) \
    X(code_filename) X(cell_family) X(cell_value) X(family_name) X(frame_code) \
    X(frame_back) X(frame_finished) X(plain_name) X(plain_back) X(plain_kind) \
    X(plain_index) X(ref_forced) X(context_top) X(gcref) X(member_index) X(list_storage) \
    X(int_value) X(bytes_value) X(jit_gcmap) X(shadow_base) X(shadow_top) X(stacklet_copy) \
    X(tracer_base) X(tracer_length) X(to_end) X(to_class) X(to_qualname) X(to_table) \
    X(to_entries) X(to_string) X(to_value)
/* These fields only improve names: if an offset is unknown, paths have less specific
   names. */
#define WISHED_FIELDS(X) \
    X(deque_first) X(deque_first_index) X(block_next) X(attributes_map) X(class_mro) \
    X(frame_token) X(jit_forward) X(tuple_items) X(pair_first) X(pair_second) X(numbers_first) X(numbers_second)
/* The offsets of all fields */
struct fields {
#define FIELD(name) int64_t name;
    FIELDS(FIELD)
    WISHED_FIELDS(FIELD)
#undef FIELD
};
extern struct fields gc_fields;

/* Read the types that 'types' and 'type_info' of the question describe.  Fails if a type
   does not match its entry in the GC's table, or if a needed field is unknown. */
void gc_types_read(const struct held_question *);
/* Unmap the tables of gc_types_read(). */
void gc_types_forget(void);

/* Return the name of the reference at 'offset' in objects of the type, or NULL if it has
   no name.  A line feed follows the name.  "=N" is the name of an attribute with storage
   index N, or of an array of the attributes from N on. */
const char *gc_edge(const struct gc_type *, int64_t offset);

extern uint16_t *gc_type_by_id;         /* index in gc_type_table plus 1, by id / 8; 0 if
                                           there is no such type */
extern struct gc_type *gc_type_table;
#define GC_TYPE_IDS     (1u << 19)

/* Return the 8-byte word at an address. */
static inline uint64_t word_at(uint64_t address)
{
    return *(const uint64_t *)address;
}

/* Return the type of an object.  Fails if its header has no known type. */
static inline const struct gc_type *gc_type_of(uint64_t object)
{
    uint32_t id = (uint32_t)word_at(object);
    uint16_t number = id % 8 == 0 && id / 8 < GC_TYPE_IDS ? gc_type_by_id[id / 8] : 0;

    if (number == 0)
        held_fail(HELD_UNKNOWN_TYPE);
    return &gc_type_table[number - 1];
}

/* Return the role of an object; OTHER if 'object' is 0. */
static inline enum role gc_role(uint64_t object)
{
    return object == 0 ? OTHER : (enum role)gc_type_of(object)->role;
}

/* Return whether an object, which may be 0, is a dict object of Python or a module's
   dict. */
static inline int gc_is_dict(uint64_t object)
{
    enum role role = gc_role(object);

    return role == DICT || role == MODULE_DICT;
}

/* Return the word at an offset in an object. */
static inline uint64_t gc_field(uint64_t object, int64_t offset)
{
    return word_at(object + (uint64_t)offset);
}

/* Return the number of items of an object whose type has INFO_HAS_LENGTH. */
static inline uint64_t gc_length(uint64_t object, const struct gc_type *type)
{
    return gc_field(object, type->info->length_at);
}

/* Return the size of an object in bytes, rounded up to a multiple of 8. */
static inline uint64_t gc_size(uint64_t object, const struct gc_type *type)
{
    uint64_t size = (uint64_t)type->info->size;

    if (type->info->bits & INFO_HAS_LENGTH)
        size += (uint64_t)type->info->item_size * gc_length(object, type);
    return (size + 7) & ~(uint64_t)7;
}

/* Return whether objects of the type may have references. */
static inline int gc_may_refer(const struct gc_type *type)
{
    return (type->info->bits & (INFO_HAS_POINTERS | INFO_CUSTOM_TRACE)) != 0;
}

/* The type of a function that gc_trace() calls for each reference */
typedef void gc_visit(uint64_t child, void *context);
#define ALWAYS_INLINE   static inline __attribute__((always_inline))

/* Visit the references on a shadow stack, from 'top' down to 'base'.  If a word is odd, bit
   i of its absolute value (from bit 1) is set if the i-th word after it is no reference
   (see rpython/memory/gctransform/shadowstack.py). */
ALWAYS_INLINE void gc_trace_stack(uint64_t base, uint64_t top, gc_visit *visit,
                                  void *context)
{
    int64_t skip = 0;

    for (; top != base; skip >>= 1) {
        int64_t word = (int64_t)word_at(top -= 8);
        if (skip & 1)
            continue;
        if (word & 1)
            skip = word > 0 ? word : -word;
        else if (word != 0)
            visit((uint64_t)word, context);
    }
}

/* Visit the references of an object that only the custom trace function of its type
   knows. */
ALWAYS_INLINE void gc_trace_custom(uint64_t object, const struct gc_type *type,
                                   gc_visit *visit, void *context)
{
    uint64_t at, i, bits;

    switch (type->custom) {
    case JIT_FRAME:
        /* a number of words, and a bitmap of this size of the items that are references */
        at = gc_field(object, gc_fields.jit_gcmap);
        for (i = 0; at != 0 && i < word_at(at); i++)
            for (bits = word_at(at + 8 + 8 * i); bits != 0; bits &= bits - 1) {
                uint64_t item = i * 64 + (uint64_t)__builtin_ctzll(bits);
                uint64_t child = gc_field(object + 8 * item, type->info->items_at);
                if (child != 0)
                    visit(child, context);
            }
        break;
    case SHADOW_STACK:
        gc_trace_stack(gc_field(object, gc_fields.shadow_base),
                       gc_field(object, gc_fields.shadow_top), visit, context);
        break;
    case STACKLET:
        /* the size of the copied stack in bytes, then the copied stack */
        at = gc_field(object, gc_fields.stacklet_copy);
        if (at != 0)
            gc_trace_stack(at + 8, at + 8 + word_at(at), visit, context);
        break;
    case GCREF_TRACER:
        at = gc_field(object, gc_fields.tracer_base);
        for (i = 0; i < gc_field(object, gc_fields.tracer_length); i++)
            if (word_at(at + 8 * i) != 0)
                visit(word_at(at + 8 * i), context);
        break;
    case UNKNOWN_CUSTOM:
        held_fail(HELD_UNKNOWN_TYPE);
    }
}

/* Call visit() for each reference of an object that is not NULL, as GCBase.trace() does.
   Inlined, because a call per reference would slow down the walks. */
ALWAYS_INLINE void gc_trace(uint64_t object, const struct gc_type *type, gc_visit *visit,
                            void *context)
{
    const struct type_info *info = type->info;
    int64_t i, count;

    if (info->bits & INFO_ITEMS_HAVE_POINTERS) {
        uint64_t item = object + (uint64_t)info->items_at;
        for (count = (int64_t)gc_length(object, type); count > 0; count--) {
            for (i = 1; i <= info->item_pointers[0]; i++) {
                uint64_t child = gc_field(item, info->item_pointers[i]);
                if (child != 0)
                    visit(child, context);
            }
            item += (uint64_t)info->item_size;
        }
    }
    if (info->bits & INFO_CUSTOM_TRACE)
        gc_trace_custom(object, type, visit, context);
    for (i = 1; i <= info->pointers[0]; i++) {
        uint64_t child = gc_field(object, info->pointers[i]);
        if (child != 0)
            visit(child, context);
    }
}

#pragma GCC visibility pop
