#include "heap_walk.h"

#include <string.h>

#include "gc_types.h"
#include "marks.h"
#include "text.h"

/* Number of objects that wait while their headers are prefetched into the cache */
#define RING    32
/* Maximum number of frames in the list of a thread's frames, in case the list is a cycle */
#define MOST_FRAMES     1000000

struct walk walk;
static struct room claimed;     /* addresses of claimed frames and contexts, which become
                                   roots later */
static uint32_t done;           /* index in walk.met of the object whose references are
                                   visited next */
/* Visited objects that wait for the prefetch, with the index of their referrer in walk.met;
   'object' is 0 if the entry is empty */
static struct {
    uint64_t object;
    uint32_t from;
} ring[RING];
/* number of additions to the ring, modulo 2**32 */
static uint32_t ring_at;

/* ____________________________________________________________ */
/* dicts and modules */

void walk_entries_of(uint64_t array, struct entries *entries)
{
    const struct gc_type *type = gc_type_of(array);
    const int64_t *pointers = type->info->item_pointers;
    int64_t i;

    entries->has_keys = entries->has_values = 0;
    for (i = 1; i <= pointers[0]; i++) {
        entries->has_keys |= pointers[i] == 0;
        entries->has_values |= pointers[i] == 8;
    }
    entries->item_size = (uint64_t)type->info->item_size;
    entries->next = array + (uint64_t)type->info->items_at;
    entries->end = entries->next + gc_length(array, type) * entries->item_size;
}

int walk_entries(uint64_t table, struct entries *entries)
{
    uint64_t array = gc_role(table) == TABLE ? gc_field(table, gc_fields.to_entries) : 0;

    if (gc_role(array) != ENTRIES)
        return 0;
    walk_entries_of(array, entries);
    return entries->has_keys && entries->has_values;
}

int walk_dict(uint64_t object, struct entries *entries)
{
    return gc_is_dict(object) &&
           walk_entries(gc_field(object, gc_fields.dict_storage), entries);
}

uint64_t walk_unwrapped(uint64_t value)
{
    return gc_role(value) == DICT_CELL ? gc_field(value, gc_fields.to_value) : value;
}

uint64_t walk_look_up(uint64_t table, const char *name, size_t size)
{
    struct entries entries;

    if (!walk_entries(table, &entries))
        return 0;
    while (walk_next(&entries))
        if (text_equals(entries.key, name, size))
            return walk_unwrapped(entries.value);
    return 0;
}

uint64_t walk_module_dict(uint64_t module)
{
    uint64_t dict = gc_role(module) == MODULE ? gc_field(module, gc_fields.module_dict) : 0;

    return gc_is_dict(dict) ? dict : 0;
}

uint64_t walk_module_table(const char *name, size_t size)
{
    const struct root *roots = (const struct root *)walk.roots.at;
    size_t i;

    /* modules are the first roots */
    for (i = 0; i < walk.roots.count && roots[i].kind == ROOT_MODULE; i++)
        if (gc_is_dict(roots[i].object) && text_equals(roots[i].name, name, size))
            return gc_field(roots[i].object, gc_fields.dict_storage);
    return 0;
}

/* ____________________________________________________________ */
/* the visits */

/* Store 'at', an index in walk.met, for an object that is one of the queried objects. */
static void note_if_asked(uint64_t object, uint32_t at)
{
    struct asked *asked = walk_asked(object);

    if (asked->object != 0)
        asked->at = at;
}

/* Count an object that the walk has reached for the first time.  Objects without
   references are only added to their referrer, and not stored in walk.met. */
static void settle(uint64_t object, uint32_t from)
{
    const struct gc_type *type = gc_type_of(object);
    uint64_t size = gc_size(object, type);
    struct met *met;

    walk.objects++;
    walk.bytes += (int64_t)size;
    if (!gc_may_refer(type) && from < walk.met.count) {
        walk_met(from)->through += (uint32_t)(size / 8);
        note_if_asked(object, from);
        return;
    }
    if (walk.met.count == UINT32_MAX)
        held_fail(HELD_TOO_LARGE);
    note_if_asked(object, (uint32_t)walk.met.count);
    met = room_add(&walk.met);
    met->object = object;
    met->from = from;
    met->through = (uint32_t)(size / 8);
}

/* Mark an object as visited, and put it into the ring unless it was visited before.
   'context' points to the index of the object's referrer in walk.met.  gc_trace() calls
   this function for each reference. */
static void found(uint64_t object, void *context)
{
    uint32_t at;

    if (!marks_meet(object))
        return;
    __builtin_prefetch((const void *)object);
    at = ring_at++ % RING;
    if (ring[at].object != 0)
        settle(ring[at].object, ring[at].from);
    ring[at].object = object;
    ring[at].from = *(const uint32_t *)context;
}

static void empty_ring(void)
{
    uint32_t i, at;

    for (i = 0; i < RING; i++) {
        at = ring_at++ % RING;
        if (ring[at].object != 0)
            settle(ring[at].object, ring[at].from);
        ring[at].object = 0;
    }
}

/* Visit all objects that are reachable from the objects in walk.met. */
static void walk_on(void)
{
    for (;; done++) {
        if (done == walk.met.count)
            empty_ring();
        if (done == walk.met.count)
            break;
        if (done + 8 < walk.met.count)
            __builtin_prefetch((const void *)walk_met(done + 8)->object);
        gc_trace(walk_met(done)->object, gc_type_of(walk_met(done)->object), found,
                 &done);
    }
}

/* Append a root, which must be marked as visited already. */
static void add_root(uint64_t object, enum root_kind kind, uint64_t name)
{
    struct root *root = room_add(&walk.roots);

    root->object = object;
    root->name = name;
    root->kind = kind;
    root->at = (uint32_t)walk.met.count;
    settle(object, root->at);
}

/* ____________________________________________________________ */
/* frames and contexts of threads */

/* Mark a frame or context as visited, and store it, so that it becomes a root later. */
static void claim(uint64_t object)
{
    if (marks_meet(object))
        room_add_word(&claimed, object);
}

static void claim_frame(uint64_t frame)
{
    /* the stack may still refer to a frame that has returned */
    if (gc_role(frame) == FRAME &&
        *(const char *)(frame + (uint64_t)gc_fields.frame_finished) == 0)
        claim(frame);
}

static void claim_if_frame(uint64_t object, void *context)
{
    (void)context;
    if (gc_type_of(object)->custom == JIT_FRAME)
        claim(object);
    claim_frame(object);
}

/* Return the frame to which a JitVirtualRef leads, or 'reference' itself if it is no
   JitVirtualRef. */
static uint64_t frame_of(uint64_t reference)
{
    return gc_role(reference) == FRAME_REF ? gc_field(reference, gc_fields.ref_forced)
                                           : reference;
}

/* Claim the frames of a thread, from its execution context, and then the context. */
static void claim_stack_of(uint64_t context)
{
    uint64_t frame = frame_of(gc_field(context, gc_fields.context_top));
    int i;

    if (!marks_meet(context))   /* the thread's frames may refer to its context, too */
        return;
    for (i = 0; gc_role(frame) == FRAME && i < MOST_FRAMES; i++) {
        claim_frame(frame);
        frame = frame_of(gc_field(frame, gc_fields.frame_back));
    }
    room_add_word(&claimed, context);
}

/* Claim the frames of all threads, which are roots or on the stacks of waiting threads. */
static void claim_threads(const struct room *roots)
{
    size_t i;

    for (i = 0; i < roots->count; i++) {
        uint64_t root = room_word(roots, i);
        const struct gc_type *type = gc_type_of(root);
        if (type->role == CONTEXT)
            claim_stack_of(root);
        claim_if_frame(root, NULL);
        if (type->custom == SHADOW_STACK)
            gc_trace_stack(gc_field(root, gc_fields.shadow_base),
                           gc_field(root, gc_fields.shadow_top), claim_if_frame, NULL);
    }
}

/* ____________________________________________________________ */
/* the roots */

/* Exclude an object that exists only for this analysis.  Such an object refers to all
   roots, and would otherwise retain them all. */
static void ignore(uint64_t object)
{
    if (marks_meet(object))
        room_add_word(&walk.ignored, object);
}

/* Return the address of the first item of a Python list, and store the number of items.
   Excludes the list itself.  Fails if the object is no list of objects. */
static uint64_t ignored_items(uint64_t list, uint64_t *count)
{
    uint64_t storage, array = 0;

    if (gc_role(list) == LIST) {
        storage = gc_field(list, gc_fields.list_storage);
        if (gc_role(storage) == LIST_ITEMS) {
            *count = gc_field(storage, 8);
            array = gc_field(storage, 16);
            ignore(list);
            ignore(storage);
        }
    }
    if (gc_role(array) != ARRAY || *count > gc_length(array, gc_type_of(array)))
        held_fail(HELD_NO_ROOTS);
    ignore(array);
    return array + (uint64_t)gc_type_of(array)->info->items_at;
}

/* Return whether an object is the array that gc.get_rpy_roots() made, which refers to all
   roots.  This array begins with the same two objects as 'roots'. */
static int is_list_of_roots(uint64_t object, const struct room *roots)
{
    const struct gc_type *type = gc_type_of(object);

    return roots->count > 1 && type->role == ARRAY &&
           gc_length(object, type) >= roots->count &&
           gc_field(object, type->info->items_at) == room_word(roots, 0) &&
           gc_field(object, type->info->items_at + 8) == room_word(roots, 1);
}

/* Read the list of roots into 'roots'.  Returns the number of roots up to the last frame,
   after which the GC lists the objects with finalizers. */
static size_t read_roots(const struct held_question *question, struct room *roots)
{
    uint64_t count, items, i, root;
    size_t last_frame = 0;

    items = ignored_items(question->list, &count);
    if (count != 2)
        held_fail(HELD_NO_ROOTS);
    walk.modules = word_at(items + 8);
    items = ignored_items(word_at(items), &count);
    for (i = 0; i < count; i++) {
        root = word_at(items + 8 * i);
        if (gc_role(root) == GCREF) {
            ignore(root);
            root = gc_field(root, gc_fields.gcref);
        }
        if (root == 0)
            continue;
        if (is_list_of_roots(root, roots)) {
            ignore(root);
            continue;
        }
        room_add_word(roots, root);
        if (gc_role(root) == FRAME)
            last_frame = roots->count;
    }
    return last_frame;
}

/* Append the dict of each module in sys.modules, and the module itself, as roots. */
static void module_roots(void)
{
    struct entries entries;
    uint64_t module, dict;

    if (!walk_dict(walk.modules, &entries))
        held_fail(HELD_NO_ROOTS);
    while (walk_next(&entries)) {
        module = walk_unwrapped(entries.value);
        if (entries.key == 0 || module == 0)
            continue;
        dict = walk_module_dict(module);
        if (dict != 0 && marks_meet(dict))
            add_root(dict, ROOT_MODULE, entries.key);
        if (marks_meet(module))
            add_root(module, ROOT_MODULE, entries.key);
    }
}

static void other_roots(const struct room *roots, size_t begin, size_t end,
                        enum root_kind kind)
{
    for (; begin < end; begin++)
        if (marks_meet(room_word(roots, begin)))
            add_root(room_word(roots, begin), kind, 0);
}

static void read_asked(const struct held_question *question)
{
    struct asked *asked;
    size_t i;

    /* keep at least half of the hash table empty */
    for (walk.asked_places = 16; walk.asked_places < 2 * question->count; )
        walk.asked_places *= 2;
    walk.asked = room_map(walk.asked_places * sizeof *walk.asked);
    for (i = 0; i < question->count; i++) {
        asked = walk_asked(held_asked(question, i));
        asked->object = held_asked(question, i);
        asked->at = NOT_MET;
    }
}

void walk_heap(const struct held_question *question)
{
    struct room roots;
    size_t finalizers;
    uint32_t i;

    memset(&walk, 0, sizeof walk);
    memset(ring, 0, sizeof ring);
    done = ring_at = 0;
    room_begin(&walk.met, sizeof(struct met), (size_t)1 << 16);
    room_begin(&walk.roots, sizeof(struct root), 4096);
    room_begin(&walk.ignored, 8, 4096);
    room_begin(&claimed, 8, 4096);
    room_begin(&roots, 8, 4096);
    read_asked(question);
    finalizers = read_roots(question, &roots);
    claim_threads(&roots);
    module_roots();
    walk_on();
    for (i = 0; i < claimed.count; i++)
        add_root(room_word(&claimed, i), ROOT_FRAME, 0);
    walk_on();
    walk.frames_end = (uint32_t)walk.met.count;
    other_roots(&roots, 0, finalizers, ROOT_INTERPRETER);
    walk_on();
    walk.finalizers_begin = (uint32_t)walk.met.count;
    other_roots(&roots, finalizers, roots.count, ROOT_FINALIZER);
    walk_on();
    /* 'through' has 32 bits */
    if (walk.bytes / 8 > UINT32_MAX)
        held_fail(HELD_TOO_LARGE);
    for (i = (uint32_t)walk.met.count; i-- > 0; )
        if (walk_met(i)->from != i)
            walk_met(walk_met(i)->from)->through += walk_met(i)->through;
    room_end(&claimed);
    room_end(&roots);
}

void walk_forget_met(void)
{
    room_end(&walk.met);
}

void walk_forget(void)
{
    walk_forget_met();
    room_end(&walk.roots);
    room_end(&walk.ignored);
    room_unmap(walk.asked, walk.asked_places * sizeof *walk.asked);
}
