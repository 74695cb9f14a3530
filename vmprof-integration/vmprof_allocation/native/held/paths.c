#include "paths.h"

#include <string.h>

#include "gc_types.h"
#include "heap_walk.h"
#include "step_names.h"

/* An object gets a name if at least 1/4096 of the heap and 128 words were reached
   through it, ... */
#define LEAST_SHARE     4096
#define LEAST_WORDS     128
/* ... its path has at most 16 steps, ... */
#define MOST_STEPS      16
/* ... and at most this number of objects have a name. */
#define MOST_NAMED      65536
/* An object is not chosen as a retainer if an object after it on the path has at least 9/10
   of its bytes. */
#define NEARLY_ALL      9
#define MOST_ALIASES    3
#define NOBODY          UINT32_MAX

/* An object with a name, and the last step of the path to it */
struct named {
    uint32_t at;                /* index in walk.met */
    uint32_t owner;             /* index in 'named' of the previous object on the path;
                                   NOBODY for the first object */
    uint32_t steps;             /* number of steps before this one on the path */
    uint32_t label, type;       /* offsets in 'texts' of the names of the step and of the
                                   object's type */
    uint32_t told;              /* number of the step in the result; 0 if the result does
                                   not have it yet */
    uint8_t is_place;           /* whether the object must not be chosen, because it is a
                                   module or a thread, or was chosen before */
    uint8_t is_within;          /* whether an object after this one on the path has nearly
                                   all of its bytes */
};
static struct room named, texts;

static struct named *named_number(uint32_t number)
{
    return &((struct named *)named.at)[number];
}

/* Append a text to 'texts' with a zero byte, and return its offset. */
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
/* objects with a name */

/* Return the root whose index in walk.met is 'at', or NULL if no root has this index.  A
   binary search: walk.roots is in the order of these indexes. */
static const struct root *root_of(uint32_t at)
{
    const struct root *roots = (const struct root *)walk.roots.at;
    size_t low = 0, high = walk.roots.count, middle;

    while (low < high) {
        middle = low + (high - low) / 2;
        if (roots[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < walk.roots.count && roots[low].at == at ? &roots[low] : NULL;
}

/* The search for the Python frame that compiled code runs, among the frames to which its
   JIT frame refers; the others are frames of functions that the compiled code called */
struct own_frame {
    uint64_t code, found;       /* address of the JIT frame, and of the best frame until
                                   now, or 0 */
    /* whether the token of the best frame leads to another JIT frame, is 0, or leads to
       this JIT frame, from the worst to the best */
    enum { OF_OTHERS, OF_NONE, OF_THIS } token;
    int are_several;            /* whether several frames are equally good */
};

/* Compare a frame with the best frame until now; called for each reference of a JIT
   frame.  While compiled code has the values of a frame in the JIT frame, the frame's
   token leads to the JIT frame, or to a predecessor that was too small.  A JIT frame
   refers to its own frame whenever it calls a function that may need frames. */
static void look_for_own_frame(uint64_t child, void *context)
{
    struct own_frame *own = context;
    uint64_t token;
    int is;

    if (gc_role(child) != FRAME)
        return;
    token = gc_fields.frame_token >= 0 ? gc_field(child, gc_fields.frame_token) : 0;
    while (token != 0 && token != own->code && gc_fields.jit_forward >= 0 &&
           gc_type_of(token)->custom == JIT_FRAME &&
           gc_field(token, gc_fields.jit_forward) != 0)
        token = gc_field(token, gc_fields.jit_forward);
    is = token == own->code ? OF_THIS : token == 0 ? OF_NONE : OF_OTHERS;
    if (is > (int)own->token) {
        own->token = is;
        own->found = child;
        own->are_several = 0;
    } else if (is == (int)own->token && child != own->found)
        own->are_several = 1;
}

/* Append the name of a root, and store whether the root must not be chosen as a retainer.
   Returns 0 if the root has no name. */
static int put_root(struct text *t, const struct root *root, int *is_place)
{
    const struct gc_type *type = gc_type_of(root->object);
    struct own_frame own = { root->object, 0, OF_OTHERS, 0 };

    *is_place = root->kind != ROOT_FRAME || type->role == CONTEXT;
    if (root->kind == ROOT_MODULE)
        return text_add_string(t, root->name);
    if (type->role == CONTEXT)
        text_add_c(t, "a thread");
    else if (type->role == FRAME)
        name_frame(t, root->object);
    else {
        gc_trace(root->object, type, look_for_own_frame, &own);
        if (own.found != 0 && !own.are_several)
            name_frame(t, own.found);
        else
            text_add_c(t, "in compiled code");
    }
    return 1;
}

/* Return the index in 'named' of the object whose index in walk.met is 'at', or NOBODY if
   it has no name.  A binary search: 'named' is in the order of the indexes in walk.met. */
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

/* Return whether a step with this label and type is already on the path.  In a recursive
   structure, such as a list of lists of lists, one step is enough. */
static int is_repeated(uint32_t owner, const char *label, const char *type)
{
    for (; owner != NOBODY; owner = named_number(owner)->owner)
        if (strcmp(texts.at + named_number(owner)->label, label) == 0 &&
            strcmp(texts.at + named_number(owner)->type, type) == 0)
            return 1;
    return 0;
}

/* Add the object with the index 'at' in walk.met to 'named', unless a step with the same
   label and type is already on its path. */
static void add_named(uint32_t at, uint32_t owner, const struct text *label, int is_place)
{
    struct named *new;
    uint64_t object = walk_met(at)->object;
    struct text its_type = { { 0 }, 0, 0 };
    uint32_t type, text;

    name_type(&its_type, object);
    type = keep(&its_type);
    text = keep(label);

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
    /* the object may have nearly all bytes of its owner */
    if (owner != NOBODY && (uint64_t)walk_met(at)->through * 10 >=
            (uint64_t)walk_met(named_number(owner)->at)->through * NEARLY_ALL)
        named_number(owner)->is_within = 1;
}

/* Give the object with the index 'at' in walk.met a name, if possible: the name of a root,
   or of the step from the previous object with a name. */
static void name_it(uint32_t at)
{
    struct way way;
    struct text label = { { 0 }, 0, 0 };
    uint32_t from = walk_met(at)->from, below = at, owner, before;
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
        if (inside < WAY_INSIDE)
            way.inside[inside++] = walk_met(from)->object;
        below = from;
        from = walk_met(from)->from;
    }
    owner = find_named(from);
    if (owner == NOBODY || named_number(owner)->steps == MOST_STEPS)
        return;
    way.owner = walk_met(from)->object;
    before = named_number(owner)->owner;
    way.before = before != NOBODY ? walk_met(named_number(before)->at)->object : 0;
    way.type = gc_type_of(way.owner);
    way.is_module = named_number(owner)->is_place && gc_is_dict(way.owner);
    way.first = walk_met(below)->object;
    if (inside < WAY_INSIDE)
        way.inside[inside] = way.owner;
    if (!name_step(&label, &way)) {
        label.size = 0;
        label.is_cut = 0;
        text_add_c(&label, " -> ");
        if (gc_role(way.object) == FRAME)
            name_frame(&label, way.object);      /* for example the frame of a greenlet */
        else if (way.type->custom == JIT_FRAME)
            text_add_c(&label, "a value of compiled code");
        else                                    /* the objects after it may have names */
            text_add_c(&label, "a part");
    }
    if (!label.is_cut)
        add_named(at, owner, &label, 0);
}

/* ____________________________________________________________ */
/* the largest objects */

/* Append the path to the object with the index 'number' in 'named'. */
static void put_path(struct text *t, uint32_t number)
{
    uint32_t steps[MOST_STEPS + 1];
    int count = 0;

    for (; number != NOBODY; number = named_number(number)->owner)
        steps[count++] = named_number(number)->label;
    while (count > 0)
        text_add_c(t, texts.at + steps[--count]);
}

/* Append the alias MODULE.NAME to the text of an object, if the alias fits and differs from
   the path. */
static void put_alias(struct called *one, uint64_t module, uint64_t name)
{
    struct text alias = { { 0 }, 0, 0 }, *t = &one->text;

    if (one->aliases == MOST_ALIASES || !text_add_string(&alias, module))
        return;
    text_add_c(&alias, ".");
    if (!text_add_name(&alias, name) || alias.is_cut ||
        (alias.size == one->path && memcmp(alias.at, t->at, one->path) == 0) ||
        t->size + 1 + alias.size >= sizeof t->at)
        return;
    one->aliases++;
    text_add_c(t, TEXT_BETWEEN);
    text_add(t, alias.at, alias.size);
}

/* Append the aliases of the chosen objects and of their owners: the names that modules have
   for these objects, in addition to the path. */
static void put_aliases(struct chosen *all, int count)
{
    const struct root *roots = (const struct root *)walk.roots.at;
    struct entries entries;
    uint64_t object;
    size_t i;
    int one;

    /* modules are the first roots */
    for (i = 0; i < walk.roots.count && roots[i].kind == ROOT_MODULE; i++) {
        if (!walk_dict(roots[i].object, &entries))
            continue;
        while (walk_next(&entries)) {
            object = walk_unwrapped(entries.value);
            for (one = 0; one < count; one++) {
                if (all[one].itself.object == object)
                    put_alias(&all[one].itself, roots[i].name, entries.key);
                if (all[one].owner.object == object)
                    put_alias(&all[one].owner, roots[i].name, entries.key);
            }
        }
    }
}

/* Return the index in 'named' of the object that may be chosen and through which the walk
   reached the most words, or NOBODY. */
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

/* Return whether the object with the index 'at' in walk.met is the dict of a module.  Such
   a dict gets a name even if it is small, because all modules together may retain much. */
static int is_module_table(uint32_t at)
{
    return walk_met(at)->from == at && gc_is_dict(walk_met(at)->object);
}

/* Fill in the address, the path and the type of the object with the index 'number' in
   'named'.  Returns 0 if the text is too long. */
static int call(struct called *one, uint32_t number)
{
    memset(one, 0, sizeof *one);
    put_path(&one->text, number);
    one->path = one->text.size;
    text_add_c(&one->text, TEXT_BETWEEN);
    text_add_c(&one->text, texts.at + named_number(number)->type);
    if (!one->text.is_cut)
        one->object = walk_met(named_number(number)->at)->object;
    return one->object != 0;
}

int paths_choose(struct chosen chosen[HELD_HOLDERS])
{
    uint64_t least = (uint64_t)walk.bytes / 8 / LEAST_SHARE;
    uint32_t i, best, owner;
    int count = 0;

    room_begin(&named, sizeof(struct named), 1024);
    room_begin(&texts, 1, (size_t)1 << 16);
    if (least < LEAST_WORDS)
        least = LEAST_WORDS;
    for (i = 0; i < walk.frames_end && named.count < MOST_NAMED; i++)
        if (walk_met(i)->through >= least || is_module_table(i))
            name_it(i);
    memset(chosen, 0, HELD_HOLDERS * sizeof *chosen);
    while (count < HELD_HOLDERS && (best = largest()) != NOBODY) {
        owner = named_number(best)->owner;
        if (call(&chosen[count].itself, best)) {
            if (owner != NOBODY && !named_number(owner)->is_place)
                call(&chosen[count].owner, owner);
            chosen[count++].bytes = 8 * (int64_t)walk_met(named_number(best)->at)->through;
        }
        named_number(best)->is_place = 1;       /* chosen already */
    }
    put_aliases(chosen, count);
    return count;
}

/* ____________________________________________________________ */
/* paths in the result */

/* Append a step to the result.  Returns the number of the step from 1, or 0 if the result
   has no room. */
static uint32_t tell_step(struct held_result *result, uint32_t owner, const char *label,
                          const char *type, uint64_t words)
{
    size_t label_size = strlen(label), type_size = strlen(type);
    char *text = result->paths_text + result->paths_text_size;

    if (result->path_count == HELD_PATHS ||
        label_size + type_size + 2 > HELD_PATHS_TEXT - result->paths_text_size)
        return 0;
    memcpy(text, label, label_size);
    text[label_size] = *TEXT_BETWEEN;
    memcpy(text + label_size + 1, type, type_size + 1);
    result->paths[result->path_count].owner = owner;
    result->paths[result->path_count].text = result->paths_text_size;
    result->paths[result->path_count].bytes = 8 * (int64_t)words;
    result->paths_text_size += (uint32_t)(label_size + type_size + 2);
    return ++result->path_count;
}

/* Append the steps of the path to the object with the index 'number' in 'named', without
   the steps that the result has already.  Returns the number of the last step.  If the
   result has no room for this step, returns the number of the owner's step, or 0. */
static uint32_t tell(struct held_result *result, uint32_t number)
{
    struct named *one = named_number(number);
    uint32_t owner;

    if (one->told != 0)
        return one->told;
    owner = one->owner == NOBODY ? 0 : tell(result, one->owner);
    one->told = tell_step(result, owner, texts.at + one->label, texts.at + one->type,
                          walk_met(one->at)->through);
    return one->told != 0 ? one->told : owner;
}

/* Append a step for each purpose (enum own) of the objects that only the interpreter
   reaches.  An object has the purpose of the first object on the way to it that has one.
   'nearest' gets the number of the step for each of these objects. */
static void tell_own(struct held_result *result, uint32_t *nearest)
{
    static const char *const names[OWN_KINDS] = {
        [OWN] = "PyPy's own", [OWN_JIT] = "PyPy's own: JIT compiler",
        [OWN_COMPILED_CODE] = "PyPy's own: compiled code",
        [OWN_INTERNED_NAMES] = "PyPy's own: interned names",
        [OWN_FINALIZERS] = "waits for its finalizer"
    };
    uint64_t words[OWN_KINDS] = { 0 };
    uint32_t at, kind, above, told[OWN_KINDS];

    for (at = walk.frames_end; at < walk.met.count; at++) {
        const struct met *met = walk_met(at);
        int is_root = met->from == at;
        above = is_root ? root_of(at)->kind == ROOT_FINALIZER ? OWN_FINALIZERS : OWN
                        : nearest[met->from];
        kind = above == OWN ? gc_type_of(met->object)->own : above;
        nearest[at] = kind;
        if (is_root || kind != above)
            words[kind] += met->through;
        if (!is_root && kind != above)
            words[above] -= met->through;
    }
    for (kind = 0; kind < OWN_KINDS; kind++)
        told[kind] = words[kind] == 0 ? 0 : tell_step(result, 0, names[kind], "",
                                                      words[kind]);
    for (at = walk.frames_end; at < walk.met.count; at++)
        nearest[at] = told[nearest[at]];
}

void paths_tell(const struct held_question *question, struct held_result *result)
{
    size_t size = (walk.met.count + 1) * sizeof(uint32_t);
    /* by index in walk.met: index in 'named' of the nearest object with a name on the
       way to the object, or NOBODY; for objects that only the interpreter reaches,
       number of the step in the result */
    uint32_t *nearest = room_map(size), at, next = 0;
    size_t i;

    for (at = 0; at < walk.frames_end; at++)
        if (next < named.count && named_number(next)->at == at)
            nearest[at] = next++;
        else
            nearest[at] = walk_met(at)->from == at ? NOBODY : nearest[walk_met(at)->from];
    tell_own(result, nearest);
    for (i = 0; i < question->count; i++) {
        at = walk_asked(held_asked(question, i))->at;
        if (at >= walk.met.count)
            continue;
        if (at >= walk.frames_end)
            result->found[i].path = nearest[at];
        else if (nearest[at] != NOBODY)
            result->found[i].path = tell(result, nearest[at]);
    }
    /* append the steps to the other objects with a name, too: they may lead only to objects
       that are older than the first sample */
    for (at = 0; at < named.count; at++)
        tell(result, at);
    room_unmap(nearest, size);
    room_end(&named);
    room_end(&texts);
}
