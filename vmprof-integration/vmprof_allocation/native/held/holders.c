#include "holders.h"

#include <string.h>

#include "classes.h"
#include "gc_types.h"
#include "heap_walk.h"
#include "mapped_memory.h"
#include "marks.h"

/* Parts of an object's word:
      ALL             bit i: some path avoids retainer i
      FREE            some path avoids all retainers
      INTERPRETERS    only the interpreter reaches the object
      ALL << THROUGH  bit i: retainer i is the last retainer on some path
      IS_HOLDER       the object is a retainer, or an instance of a chosen class
      FINALIZERS      only an object that waits for its finalizer reaches the object */
#define ALL             (((uint64_t)1 << HELD_HOLDERS) - 1)
#define THROUGH         32
#define FREE            ((uint64_t)1 << 30)
#define INTERPRETERS    ((uint64_t)1 << 31)
#define IS_HOLDER       ((uint64_t)1 << 62)
#define FINALIZERS      ((uint64_t)1 << 63)

/* A retainer may be replaced by its owner if at least 1/16 of the heap was reached
   through the retainer. */
#define LARGE_SHARE     16

/* Number of objects that wait while their words are prefetched into the cache */
#define RING            16
#define GROUPS          1024    /* entries of the hash table 'groups'; the hash has 10
                                   bits */

static uint64_t *words;         /* word of each visited object, by its number in marks.h */
static const uint64_t *singles; /* the single retainers; NULL in the walk for classes */
/* Objects whose words must be passed to the objects to which they refer.  Retainers are in
   'later', and are visited when 'now' is empty, because their words change most often. */
static struct room now, later;

/* Referenced objects that wait for the prefetch, and the bits that reach them */
static struct {
    uint64_t object, new;
    uint64_t *word;             /* address of the object's word; NULL if the entry is
                                   empty */
} ring[RING];
static uint32_t ring_at;

/* Add the bits 'new' to the object's word, and visit the object again later if the word
   changed.  The bits of the interpreter's roots do not change the word of an object that
   the program reaches. */
static void settle(uint64_t object, uint64_t new, uint64_t *word)
{
    uint64_t was = *word & ~IS_HOLDER;

    if (was & FREE || (new | was) == was || (was != 0 && new & INTERPRETERS))
        return;
    *word |= new;
    if (gc_may_refer(gc_type_of(object)))
        room_add_word(*word & IS_HOLDER ? &later : &now, object);
}

/* Add the bits that wait at an index of the ring to the word of the object there, and empty
   the entry. */
static void settle_at(uint32_t at)
{
    if (ring[at].word != NULL)
        settle(ring[at].object, ring[at].new, ring[at].word);
    ring[at].word = NULL;
}

/* Put an object into the ring, with the word of its referrer, to which 'context' points.
   gc_trace() calls this function for each reference. */
static void reach(uint64_t object, void *context)
{
    int64_t number = marks_rank(object);
    uint32_t at = ring_at++ % RING;

    settle_at(at);
    if (number < 0)
        return;
    ring[at].object = object;
    ring[at].new = *(const uint64_t *)context;
    ring[at].word = &words[number];
    __builtin_prefetch(ring[at].word, 1);
    __builtin_prefetch((const void *)object);
}

static void empty_ring(void)
{
    uint32_t i;

    for (i = 0; i < RING; i++)
        settle_at(ring_at++ % RING);
}

/* Return the next object whose word must be passed on, or 0 at the end of the walk. */
static uint64_t next(void)
{
    struct room *from;

    if (now.count == 0)
        empty_ring();
    from = now.count > 0 ? &now : &later;
    return from->count > 0 ? room_word(from, --from->count) : 0;
}

/* Return the bits that retainer i, which has this word, passes to the objects to which it
   refers: no path avoids retainer i any more, and retainer i is the last one on the path.
   The walk for classes has no THROUGH bits, because groups of classes are not reported. */
static uint64_t behind(uint64_t word, int i)
{
    return (word & ~(ALL << THROUGH | (uint64_t)1 << i | FREE)) |
           (singles == NULL ? 0 : (uint64_t)1 << (THROUGH + i));
}

/* Return the bit number of a single retainer, or in the walk for classes of the class of an
   instance. */
static int which(uint64_t holder)
{
    int i = 0;

    if (singles == NULL)
        return classes_which(holder);
    while (singles[i] != holder)
        i++;
    return i;
}

/* Pass words along references until no word changes. */
static void spread(void)
{
    uint64_t object;

    while ((object = next()) != 0) {
        uint64_t word = words[marks_rank(object)];
        if (word & IS_HOLDER)
            word = behind(word, which(object)) & ~IS_HOLDER;
        gc_trace(object, gc_type_of(object), reach, &word);
    }
}

/* Visit the heap from all roots. */
static void walk_again(void)
{
    static const uint64_t begin[ROOT_KINDS] = {
        [ROOT_MODULE] = ALL | FREE, [ROOT_FRAME] = ALL | FREE,
        [ROOT_INTERPRETER] = INTERPRETERS,
        [ROOT_FINALIZER] = INTERPRETERS | FINALIZERS,
    };
    const struct root *roots = (const struct root *)walk.roots.at;
    uint64_t word;
    uint32_t kind;
    size_t i;

    /* the program's roots come before the interpreter's roots */
    for (kind = 0; kind < ROOT_KINDS; kind++) {
        word = begin[kind];
        for (i = 0; i < walk.roots.count; i++)
            if (roots[i].kind == kind)
                reach(roots[i].object, &word);
        spread();
    }
}

/* ____________________________________________________________ */
/* sums of the retained objects */

/* hash table of groups, by set */
static struct held_holder *groups;

/* Return the set of retainers that retain an object with this word, and store the way in
   which it is kept alive. */
static uint32_t set_of(uint64_t word, enum held_how *how)
{
    uint32_t lost = (uint32_t)(~word & ALL);

    word &= ~IS_HOLDER;
    *how = word == 0 ? HELD_NO_PATH : word & FINALIZERS ? HELD_BY_FINALIZER :
           word & INTERPRETERS ? HELD_BY_INTERPRETER : word & FREE ? HELD_OTHERWISE :
           lost != 0 ? HELD_ALONE : HELD_TOGETHER;
    return *how == HELD_ALONE ? lost :
           *how == HELD_TOGETHER ? (uint32_t)(word >> THROUGH & ALL) : 0;
}

static void add(struct held_holder *to, int64_t size)
{
    to->bytes += size;
    to->objects++;
}

/* Add an object of 'size' bytes to the group of objects that the retainers in 'set' keep
   alive together.  Does nothing if the hash table is full. */
static void add_together(uint32_t set, int64_t size)
{
    size_t at = set * 2654435761u >> 22, tries;

    for (tries = 0; tries < GROUPS; tries++, at = (at + 1) % GROUPS)
        if (groups[at].set == set || groups[at].set == 0) {
            groups[at].set = set;
            add(&groups[at], size);
            return;
        }
}

/* Add all objects to the retainers or groups that retain them. */
static void add_up(struct held_holder *holders)
{
    uint64_t number = 0, bits;
    uint32_t i, at, set;
    enum held_how how;

    for (i = 0; i < marks_chunks(); i++) {
        const struct marks_chunk *chunk = marks_chunk_number(i);
        for (at = 0; at < MARKS_WORDS; at++)
            for (bits = chunk->met[at]; bits != 0; bits &= bits - 1, number++) {
                uint64_t object = chunk->start +
                    8 * ((uint64_t)at * 64 + (uint64_t)__builtin_ctzll(bits));
                set = set_of(words[number], &how);
                if (set == 0)
                    continue;
                int64_t size = (int64_t)gc_size(object, gc_type_of(object));
                if (how == HELD_TOGETHER)
                    add_together(set, size);
                else
                    for (; set != 0; set &= set - 1)
                        add(&holders[__builtin_ctz(set)], size);
            }
    }
}

/* Append the largest groups to the result, after the single retainers. */
static void tell_groups(struct held_result *result)
{
    size_t i, best;
    int count;

    for (count = 0; count < HELD_GROUPS; count++) {
        for (best = i = 0; i < GROUPS; i++)
            if (groups[i].bytes > groups[best].bytes)
                best = i;
        if (groups[best].bytes == 0)
            return;
        result->holders[result->holder_count].set = groups[best].set;
        result->holders[result->holder_count].bytes = groups[best].bytes;
        result->holders[result->holder_count++].objects = groups[best].objects;
        groups[best].bytes = 0;
    }
}

/* Store in the result which retainers each queried object has. */
static void tell_objects(const struct held_question *question, struct held_result *result)
{
    size_t i;
    enum held_how how;

    for (i = 0; i < question->count; i++) {
        int64_t number = marks_rank(held_asked(question, i));
        how = HELD_NO_PATH;
        if (number >= 0)
            result->found[i].set = set_of(words[number], &how);
        result->found[i].how = (uint8_t)how;
    }
}

/* Walk the heap and sum the retained objects.  'objects' are all single retainers, or
   all instances of the chosen classes; 'to' gets the sums. */
static void weigh(const uint64_t *objects, size_t count, struct held_holder *to)
{
    size_t i;

    for (i = 0; i < walk.ignored.count; i++)
        words[marks_rank(room_word(&walk.ignored, i))] = ALL | FREE;
    for (i = 0; i < count; i++)
        words[marks_rank(objects[i])] = IS_HOLDER;
    walk_again();
    for (i = 0; i < count; i++) {
        uint64_t *word = &words[marks_rank(objects[i])];
        *word = behind(*word, which(objects[i]));
    }
    add_up(to);
}

/* ____________________________________________________________ */
/* instances of classes */

/* Remove a class if a single retainer retains more than half of its instances, and more
   than half of the bytes of this retainer were reached through the instances.  In this
   case, the path to the retainer is more specific. */
static void leave_out_told(const struct held_result *result)
{
    uint64_t having[HELD_CLASSES][HELD_HOLDERS] = { { 0 } };
    enum held_how how;
    uint32_t set;
    size_t i, holder;

    for (i = 0; i < classes.instances.count; i++) {
        uint64_t instance = room_word(&classes.instances, i);
        set = set_of(words[marks_rank(instance & ~(uint64_t)7)], &how);
        for (; how == HELD_ALONE && set != 0; set &= set - 1)
            having[instance & 7][__builtin_ctz(set)]++;
    }
    for (i = 0; i < HELD_CLASSES; i++)
        for (holder = 0; holder < HELD_HOLDERS; holder++)
            if (having[i][holder] * 2 > classes.of[i].count &&
                classes.of[i].through * 8 * 2 > (uint64_t)result->holders[holder].bytes)
                classes.of[i].its_class = 0;
}

/* Find the retained sizes of the classes, and append the classes to the result, after the
   groups. */
static void weigh_classes(const struct held_question *question,
                          struct held_result *result, size_t words_size)
{
    struct held_holder *to = result->holders + HELD_HOLDERS + HELD_GROUPS;
    struct room *all = &classes.instances;
    size_t i, left = 0;
    enum held_how how;

    leave_out_told(result);
    for (i = 0; i < all->count; i++)
        if (classes.of[room_word(all, i) & 7].its_class != 0)
            ((uint64_t *)all->at)[left++] = room_word(all, i) & ~(uint64_t)7;
    if (left == 0)
        return;
    memset(words, 0, words_size);
    singles = NULL;
    weigh((const uint64_t *)all->at, left, to);
    for (i = 0; i < question->count; i++) {
        int64_t number = marks_rank(held_asked(question, i));
        uint64_t set = number < 0 ? 0 : set_of(words[number], &how);
        if (set != 0 && how == HELD_ALONE)
            result->found[i].set |= set << HELD_HOLDERS;
    }
    for (i = 0; i < HELD_CLASSES; i++) {
        struct held_holder *row = &result->holders[result->holder_count];
        struct text t = { { 0 }, 0, 0 };
        if (classes.of[i].its_class == 0)
            continue;
        classes_name(&t, (int)i);
        if (t.is_cut)
            continue;
        row->set = (uint64_t)1 << (HELD_HOLDERS + i);
        row->address = classes.of[i].its_class;
        row->bytes = to[i].bytes;
        row->objects = to[i].objects;
        memcpy(row->text, t.at, t.size);
        result->holder_count++;
    }
}

static void put_holder(struct held_holder *to, const struct called *one, int i)
{
    memset(to, 0, sizeof *to);
    to->set = 1u << i;
    to->address = one->object;
    memcpy(to->text, one->text.at, one->text.size);
}

/* Return whether an object is one of the 'count' retainers. */
static int is_there(const uint64_t *holders, int count, uint64_t object)
{
    int i;

    for (i = 0; i < count; i++)
        if (holders[i] == object)
            return 1;
    return 0;
}

/* Replace each retainer by its owner if a large share of the heap was reached through the
   retainer, and the retainer retains less than half of this share.  Returns whether a
   retainer was replaced. */
static int take_owners(const struct chosen *chosen, int count, uint64_t *holders,
                       struct held_result *result)
{
    int i, changed = 0;

    for (i = 0; i < count; i++)
        if (chosen[i].bytes > walk.bytes / LARGE_SHARE &&
            result->holders[i].bytes < chosen[i].bytes / 2 && chosen[i].owner.object != 0 &&
            !is_there(holders, count, chosen[i].owner.object)) {
            holders[i] = chosen[i].owner.object;
            put_holder(&result->holders[i], &chosen[i].owner, i);
            changed = 1;
        }
    return changed;
}

void holders_weigh(const struct held_question *question, struct held_result *result,
                   const struct chosen *chosen, int count)
{
    uint64_t met = marks_count(), holders[HELD_HOLDERS];
    size_t size = met * sizeof *words;
    int i;

    words = room_map(size);
    groups = room_map(GROUPS * sizeof *groups);
    room_begin(&now, sizeof(uint64_t), 1 << 16);
    room_begin(&later, sizeof(uint64_t), 64);
    for (i = 0; i < count; i++) {
        holders[i] = chosen[i].itself.object;
        put_holder(&result->holders[i], &chosen[i].itself, i);
    }
    result->holder_count = (size_t)count;
    singles = holders;
    weigh(holders, (size_t)count, result->holders);
    if (take_owners(chosen, count, holders, result)) {
        for (i = 0; i < count; i++)
            result->holders[i].bytes = result->holders[i].objects = 0;
        memset(groups, 0, GROUPS * sizeof *groups);
        memset(words, 0, size);
        weigh(holders, (size_t)count, result->holders);
    }
    tell_groups(result);
    tell_objects(question, result);
    room_unmap(groups, GROUPS * sizeof *groups);
    weigh_classes(question, result, size);
    room_end(&now);
    room_end(&later);
    room_unmap(words, size);
}
